"""Device families, and how much of a card's memory each kind of framework reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvplan.core.units import MIB

FAMILIES: Final = {
    "volta": "NVIDIA V100",
    "turing": "NVIDIA T4, RTX 20",
    "ampere-dc": "NVIDIA A100, A800, A30 (GA100)",
    "ampere-rtx": "NVIDIA A2, A10, A16, A40, RTX A series, RTX 30 (GA10x)",
    "ada-rtx": "NVIDIA L4, L20, L40, L40S, RTX Ada series, RTX 40",
    "hopper": "NVIDIA H100, H200, H800, H20, GH200",
    "blackwell-dc": "NVIDIA B100, B200, B300, GB200, GB300",
    "blackwell-rtx": "NVIDIA RTX PRO Blackwell, RTX 50",
    "rubin": "NVIDIA Rubin",
    "jetson": "NVIDIA Jetson modules",
    "gb10": "NVIDIA GB10 (DGX Spark)",
    "cdna1": "AMD MI100",
    "cdna2": "AMD MI210, MI250X",
    "cdna3": "AMD MI300, MI308, MI325",
    "cdna4": "AMD MI350, MI355",
    "rdna3": "AMD RX 7000",
    "rdna3.5": "AMD Ryzen AI Max",
    "apple": "Apple M series",
    "intel-arc": "Intel Arc",
    "intel-pvc": "Intel Data Center GPU Max",
    "gaudi": "Intel Gaudi",
    "tpu": "Google TPU",
    "neuron": "AWS Inferentia, Trainium",
    "ascend": "Huawei Ascend",
    "cpu": "CPU socket",
}
"""Device family → what belongs to it. A family shares its achieved efficiencies; engine profiles key on it."""

_NVIDIA_RESERVE_BYTES = 430 * MIB
_PER_MYRIAD = 10_000
_NVIDIA_RESERVE_MYRIADTHS = 16
_ROCM_RESERVE_MYRIADTHS = 15


def _nvidia_discrete(usable_bytes: int) -> int:
    return usable_bytes - _NVIDIA_RESERVE_BYTES - usable_bytes * _NVIDIA_RESERVE_MYRIADTHS // _PER_MYRIAD


def _rocm_discrete(usable_bytes: int) -> int:
    return usable_bytes - usable_bytes * _ROCM_RESERVE_MYRIADTHS // _PER_MYRIAD


def _as_usable(usable_bytes: int) -> int:
    return usable_bytes


FRAMEWORK_RULES: Final[dict[str, Callable[[int], int]]] = {
    "nvidia-discrete": _nvidia_discrete,
    "rocm-discrete": _rocm_discrete,
    "as-usable": _as_usable,
}
"""How a framework's total follows from the driver's where nobody printed it.

- `nvidia-discrete`: driver total - 430 MiB - 0.16 %. Through the 14 cards whose two totals were seen, from T4 (15360 →
  14.56 GiB) to B200 (183359 → 182642 MiB); within 0.3 % of each of them (A100-80G, the worst, has 207 MiB less).
- `rocm-discrete`: driver total - 0.15 %, the one pair seen (MI300X 191.98 → 191.7 GiB).
- `as-usable`: the same; unified memory, and devices for which no second total was seen.
"""
