"""Messages between ranks: which link carries them and how long they take."""

from __future__ import annotations

from kvplan.core.dataclass import dataclass
from kvplan.core.efficiency import Efficiency
from kvplan.core.hardware import Gpu
from kvplan.core.numeric import Num, minimum

#: Name of the link where no scale-up link joins the ranks.
PCIE = "pcie"
#: PCIe 3.0 × 16 where the sheet is silent [byte/s].
_PCIE_FALLBACK_BYTES_PER_S = 16e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The slowest link that a group of ranks crosses.

    Attributes:
        name: `nvlink`-like name, `pcie` or `network`.
        bytes_per_s: Rate per rank and direction for this group size.
        hops_network: True where the group spans nodes.
    """

    name: str
    bytes_per_s: float
    hops_network: bool = False


def link_for(gpu: Gpu, ranks: int) -> Link:
    """The link that joins `ranks` devices of one kind.

    Within the scale-up domain a rank has `min(link, (ranks − 1) · p2p)`: on meshes (xGMI) two ranks share one link
    only, on switches `p2p` is the whole link. Beyond the domain PCIe within a node, the network between nodes.
    """
    if gpu.link_bytes_per_s and ranks <= gpu.link_domain:
        pair = gpu.link_p2p_bytes_per_s or gpu.link_bytes_per_s
        return Link(name=gpu.link_name or "link", bytes_per_s=min(gpu.link_bytes_per_s, (ranks - 1) * pair))
    pcie = gpu.pcie_bytes_per_s or _PCIE_FALLBACK_BYTES_PER_S
    if ranks <= gpu.gpus_per_node:
        return Link(name=PCIE, bytes_per_s=pcie)
    return Link(name="network", bytes_per_s=gpu.network_bytes_per_s or pcie, hops_network=True)


def wire_factor(ranks: int) -> float:
    """Bytes that each rank sends per payload byte of a bandwidth-optimal all-reduce: `2 (n − 1) / n`.

    >>> wire_factor(8)
    1.75
    """
    return 2.0 * (ranks - 1) / ranks


def allreduce_s(payload_bytes: Num, ranks: int, *, link: Link, efficiency: Efficiency) -> Num:
    """Time of one all-reduce [s].

    `α + hop · (n − 2) + min((n − 1) · bytes / rate, 2 (n − 1)/n · bytes / rate + α)`: small messages go to all peers at
    once, large ones are reduced and gathered in two rounds. `rate` is the link's times its efficiency, on PCIe times
    `(2 / n)^x` as well; between nodes `n` times the network's latency comes on top. Source: nccl-tests' bus bandwidth;
    measured kernels (docs/validation.md).
    """
    if ranks == 1:
        return 0.0
    rate = link.bytes_per_s * efficiency.link_bandwidth
    if link.name == PCIE:
        rate *= (2.0 / ranks) ** efficiency.pcie_sharing
    one_shot = (ranks - 1) * payload_bytes / rate
    two_shot = wire_factor(ranks) * payload_bytes / rate + efficiency.allreduce_s
    latency = efficiency.allreduce_s + efficiency.allreduce_hop_s * (ranks - 2)
    if link.hops_network:
        latency += efficiency.network_s * ranks
    return latency + minimum(one_shot, two_shot)


def alltoall_s(tokens: Num, token_bytes: float, *, ranks: int, top_k: int, link: Link, efficiency: Efficiency) -> Num:
    """Time of one expert dispatch or combine [s].

    Each token goes to `v = n (1 − (1 − 1/n)^k)` distinct ranks, all but `1/n` of it over the link:
    `α + tokens · bytes · v · (n − 1)/n / rate`, and the network's latency between nodes.
    """
    if ranks == 1:
        return 0.0
    visited = ranks * (1.0 - (1.0 - 1.0 / ranks) ** top_k)
    volume = tokens * token_bytes * visited * (ranks - 1) / ranks
    latency = efficiency.alltoall_s + (efficiency.network_s if link.hops_network else 0.0)
    return latency + volume / (link.bytes_per_s * efficiency.link_bandwidth)
