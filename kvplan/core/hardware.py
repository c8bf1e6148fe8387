"""What one accelerator can do: memory, bandwidth, dense peaks, links. Facts only; efficiencies live in profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kvplan.core.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator as ONE rank of an engine sees it (a die of MI250X, a chip of a TPU).

    Attributes:
        id: Canonical id, the file stem.
        name: Product name.
        vendor: Maker.
        architecture: Chip generation as the vendor names it.
        family: Device family whose efficiencies a profile gives (`hopper`, `ada-rtx`, `cdna3`, `apple`, …).
        compute_capability: NVIDIA's major and minor number, or None.
        memory_bytes: Memory that the driver reports [byte].
        framework_memory_bytes: Memory that a framework (torch) reports, which engines budget with [byte].
        memory_bandwidth_bytes_per_s: Decimal peak as printed.
        peak_flops_per_s: Dense peak per compute format, accumulating in fp32 where the card has two rates.
        l2_bytes: Last-level cache, or None.
        link_name: Scale-up link, or None where only PCIe joins the cards.
        link_bytes_per_s: Scale-up rate per direction of one device, all links together.
        link_p2p_bytes_per_s: Rate between one pair per direction (a single link on meshes).
        link_domain: Devices joined at that rate.
        pcie_bytes_per_s: PCIe per direction, or None.
        host_bytes_per_s: Link to the CPU's memory per direction: NVLink-C2C where the card has it, else PCIe, or None.
        network_bytes_per_s: Rate per device and direction between nodes, or None.
        gpus_per_node: Devices in a usual server.
        tdp_w: Board power.
        sm_count: Streaming multiprocessors (compute units, cores), or None.
        boost_clock_hz: Highest clock, or None.
        unified_memory: True where the CPU shares the memory.
        devices_per_package: Ranks in one sold package.
        available: False for cards that are announced only, or hardly shipped: not ranked unless they are named.
        notes: What a reader must know (conflicting sources).
    """

    id: str
    name: str
    vendor: str
    architecture: str
    family: str
    memory_bytes: int
    framework_memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    compute_capability: tuple[int, int] | None = None
    l2_bytes: int | None = None
    link_name: str | None = None
    link_bytes_per_s: float | None = None
    link_p2p_bytes_per_s: float | None = None
    link_domain: int = 1
    pcie_bytes_per_s: float | None = None
    host_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    gpus_per_node: int = 8
    tdp_w: float | None = None
    sm_count: int | None = None
    boost_clock_hz: float | None = None
    unified_memory: bool = False
    devices_per_package: int = 1
    available: bool = True
    notes: tuple[str, ...] = field(default=())

    def peak(self, compute: str) -> tuple[str, float]:
        """The format and dense peak [FLOP/s] that this card really multiplies `compute` at.

        A format without units of its own falls to the next wider one: fp4 and fp8 → bf16 → fp16 → fp32 (engines
        expand the weights to 16 bits), int8 → bf16. Every card has one of the wide ones: specs without are refused.
        """
        name = next(name for name in _FALLBACK[compute] if self.peak_flops_per_s.get(name))
        return name, self.peak_flops_per_s[name]


_FALLBACK: dict[str, tuple[str, ...]] = {
    "fp4": ("fp4", "bf16", "fp16", "fp32", "tf32"),
    "fp8": ("fp8", "bf16", "fp16", "fp32", "tf32"),
    "int8": ("int8", "bf16", "fp16", "fp32", "tf32"),
    "bf16": ("bf16", "fp16", "fp32", "tf32"),
    "fp16": ("fp16", "bf16", "fp32", "tf32"),
    "tf32": ("tf32", "fp32", "bf16", "fp16"),
    "fp32": ("fp32", "tf32", "bf16", "fp16"),
}
