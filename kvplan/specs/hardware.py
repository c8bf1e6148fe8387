"""Hardware specs → `Gpu`: names, files and mappings come in, one conversion turns printed values into base units.

A bundled file is held to `hardware_schema` by a test, a user's own file when it is read; both then take the same
conversion, which needs no pydantic and so starts fast.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kvplan.core.hardware import Gpu
from kvplan.core.units import MIB
from kvplan.errors import SpecError
from kvplan.specs import registry
from kvplan.specs.bundled import load_bundled
from kvplan.specs.document import YamlDocument
from kvplan.specs.units import parse_quantity

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

PEAK_FORMATS: Final = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4", "fp4")

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


def load_gpu(gpu: str | os.PathLike[str] | Mapping[str, Any] | Gpu) -> Gpu:
    """The accelerator behind a name, an alias, the path of a YAML file, a mapping of its fields, or itself.

    Args:
        gpu: Id or alias in any case; text with a folder or a `.yaml` ending is a path.

    Raises:
        UnknownNameError: No bundled card has that name.
        SpecError: The file or mapping breaks the schema; all errors in one message.

    >>> load_gpu("A100").id, load_gpu("a100-80g").memory_bandwidth_bytes_per_s
    ('a100-80g-sxm', 2039000000000)
    """
    if isinstance(gpu, Gpu):
        return gpu
    if isinstance(gpu, Mapping):
        return _load_mapping(gpu)
    if isinstance(gpu, str) and not _looks_like_path(gpu):
        return _load_bundled(registry.resolve("gpu", gpu))
    return _load_file(Path(gpu))


def gpu_ids() -> list[str]:
    """Canonical ids of the bundled accelerators, from file names only."""
    return list(registry.ids("gpu"))


def gpu_aliases() -> dict[str, str]:
    """Alias → canonical id of the bundled accelerators."""
    return registry.aliases("gpu")


def default_framework_rule(vendor: str, *, unified: bool) -> str:
    """Name of the `FRAMEWORK_RULES` entry for a card whose spec states no framework memory."""
    if unified:
        return "as-usable"
    return {"nvidia": "nvidia-discrete", "amd": "rocm-discrete"}.get(vendor.casefold(), "as-usable")


def gpu_from_spec(spec: Mapping[str, Any]) -> Gpu:
    """Convert a checked hardware spec to base units, for ONE rank.

    A package that engines see as `n` devices (`devices_per_package: n`) is printed whole on its sheet: memory,
    bandwidth, peaks, caches, cores, links and power are divided by `n`, link domain and devices per server multiplied.

    Args:
        spec: Fields of a hardware spec that satisfies `hardware_schema.HardwareSpec`.

    >>> spec = {"id": "x", "vendor": "X", "family": "cpu", "peak": {"fp32": "1 TFLOPS"},
    ...         "memory": {"capacity": "8 GB", "bandwidth": "50 GB/s"}}
    >>> gpu_from_spec(spec).memory_bytes
    8000000000
    """
    ranks = spec.get("devices_per_package") or 1
    memory, links = spec["memory"], spec.get("links") or {}
    usable_bytes, framework_bytes, notes = _memory(spec)
    scale_up, pcie = links.get("scale_up") or {}, links.get("pcie") or {}
    network, host = links.get("network") or {}, links.get("host") or {}
    link = _optional(scale_up.get("rate"), "rate", ranks)
    pcie_rate = _optional(pcie.get("rate"), "rate", ranks)
    capability = spec.get("compute_capability")
    last_level_cache = spec.get("last_level_cache") or spec.get("l2_cache")
    cores = spec.get("cores")
    return Gpu(
        id=spec["id"],
        name=spec.get("name") or spec["id"],
        vendor=spec["vendor"],
        architecture=spec.get("architecture") or spec["family"],
        family=spec["family"],
        compute_capability=_capability(capability) if capability else None,
        memory_bytes=usable_bytes // ranks,
        framework_memory_bytes=framework_bytes // ranks,
        memory_bandwidth_bytes_per_s=_share(parse_quantity(memory["bandwidth"], "rate"), ranks),
        peak_flops_per_s={
            name: _share(parse_quantity(spec["peak"][name], "compute"), ranks)
            for name in PEAK_FORMATS
            if spec["peak"].get(name)
        },
        l2_bytes=_size(last_level_cache) // ranks if last_level_cache else None,
        link_name=scale_up.get("name"),
        link_bytes_per_s=link,
        link_p2p_bytes_per_s=_optional(scale_up.get("p2p"), "rate", 1) or link,
        link_domain=(scale_up.get("domain") or 1) * ranks,
        pcie_bytes_per_s=pcie_rate,
        host_bytes_per_s=_optional(host.get("rate"), "rate", ranks) or pcie_rate,
        network_bytes_per_s=_optional(network.get("rate"), "rate", 1),
        gpus_per_node=(spec.get("gpus_per_node") or 1) * ranks,
        tdp_w=_optional(spec.get("tdp"), "power", ranks),
        sm_count=cores // ranks if cores else None,
        boost_clock_hz=_optional(spec.get("clock"), "frequency", 1),
        unified_memory=bool(memory.get("unified")),
        devices_per_package=ranks,
        notes=(*(spec.get("notes") or ()), *notes),
    )


def _memory(spec: Mapping[str, Any]) -> tuple[int, int, list[str]]:
    """Driver's and framework's total of a package [byte], and what had to be assumed."""
    memory, notes = spec["memory"], []
    usable = memory.get("usable")
    if usable:
        usable_bytes = _size(usable["value"])
    else:
        usable_bytes = _size(memory["capacity"])
        notes.append("The spec states no usable memory: the printed capacity is taken, in decimal bytes.")
    framework = memory.get("framework")
    if framework and framework.get("value"):
        return usable_bytes, _size(framework["value"]), notes
    unified = bool(memory.get("unified"))
    rule = framework["rule"] if framework else default_framework_rule(spec["vendor"], unified=unified)
    notes.append(f"Framework memory is derived from the driver's total by rule `{rule}`.")
    return usable_bytes, FRAMEWORK_RULES[rule](usable_bytes), notes


def _load_bundled(path: Path) -> Gpu:
    return gpu_from_spec(load_bundled(path).data)


def _load_file(path: Path) -> Gpu:
    from kvplan.specs.hardware_schema import HardwareSpec  # noqa: PLC0415 - pydantic is slow to import
    from kvplan.specs.yaml import load_yaml, validate  # noqa: PLC0415 - as above

    document = load_yaml(path)
    validate(document, HardwareSpec)
    return gpu_from_spec(document.data)


def _load_mapping(fields: Mapping[str, Any]) -> Gpu:
    from kvplan.specs.hardware_schema import HardwareSpec  # noqa: PLC0415 - pydantic is slow to import
    from kvplan.specs.yaml import validate  # noqa: PLC0415 - as above

    document = YamlDocument(path="<gpu>", data=dict(fields), lines={})
    try:
        validate(document, HardwareSpec)
    except SpecError as error:
        raise SpecError(re.sub(r"^<gpu>:1: ", "gpu: ", str(error), flags=re.MULTILINE)) from None
    return gpu_from_spec(document.data)


def _looks_like_path(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) or "/" in name or os.sep in name


def _capability(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _size(text: object) -> int:
    return int(parse_quantity(text, "size"))


def _optional(text: object, kind: str, ranks: int) -> float | None:
    return None if text is None else _share(parse_quantity(text, kind), ranks)


def _share(value: float, ranks: int) -> float:
    return value if ranks == 1 else value / ranks
