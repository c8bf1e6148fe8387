"""How far a device family and an engine stay from the roofline: physical, named, fitted parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kvplan.core.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Everything the step model knows beyond specs. `IDEAL` has every efficiency 1 and every overhead 0.

    Times are seconds, efficiencies are fractions of the printed peak. What each was fitted on: docs/validation.md.

    Attributes:
        gemm_bandwidth: Share of peak bandwidth at which weights stream.
        fp4_bandwidth: Factor on it for 4-bit products (small tiles with scales of their own).
        gemm_mfu: Share of the dense peak of large matrix products, per compute format.
        gemm_idle_tiles: Tiles of 128 × 128 outputs per SM that a product wastes (part of its last wave).
        gemm_activation_traffic: Times that the activations of a GEMM cross memory.
        quantised_activation_traffic: The same where activations are quantised first (fp8, fp4, int8).
        kernel_s: Shortest time of one matrix product inside a graph (launch, ramp, drain).
        quantise_kernel_s: More of it where activations are quantised (fp8, fp4, int8) or weights expanded.
        block_kernel_s: More of it still where scales cover blocks (activations are quantised in groups).
        dequantise_mfu: Factor on MFU of weight-only formats (weights are expanded before they are multiplied).
        dequantise_bandwidth: Factor on bandwidth of weight-only formats.
        expert_bandwidth: Share of bandwidth at which experts stream.
        expert_mfu: Share of the dense peak of grouped products, per compute format; unlisted formats take `default`.
        expert_pad_tokens: Rows by which each touched expert is padded at most (its tile).
        expert_tile: The same as a multiple of the mean rows per expert: engines pick small tiles for few rows.
        expert_activation_traffic: Times that the rows of local experts cross memory.
        expert_token_traffic: Times that all chosen rows cross memory, whichever rank holds their expert.
        expert_skew: How unequal routing is: the shape of a negative binomial; large means uniform.
        expert_imbalance: Exponent of the load of the slowest rank under expert parallelism, `ep^x`.
        attention_bandwidth: Share of bandwidth at which the cache is read.
        attention_mfu_decode: Share of peak of decode attention.
        attention_mfu_prefill: Share of peak of prefill attention.
        attention_softmax_dims: Cost of the softmax of one query–key pair, as more head dimensions.
        attention_s: Shortest time of an attention kernel.
        attention_row_s: Time of one sequence and query tile on one SM.
        indexer_s: Time of choosing entries in sparse attention, per layer.
        state_bandwidth: Share of bandwidth for recurrent state.
        recurrent_s: Shortest time of a recurrent mixer (convolution, gates, update).
        scan_s: Time of one 64-token chunk of a prompt's scan, which runs one after another.
        link_bandwidth: Share of the link's rate in large messages.
        pcie_sharing: How ranks slow each other down on PCIe: the rate falls as `(2 / n)^x`.
        allreduce_s: Latency of a small all-reduce between two ranks.
        allreduce_hop_s: More latency per further rank.
        alltoall_s: Latency of one dispatch or combine.
        layer_s: Time per layer that no other term sees (norms, rotary, cache writes, gaps).
        moe_layer_s: Shortest time of a layer's routed experts (routing, permuting, combining).
        elementwise_traffic: Times that the residual stream crosses memory per layer beyond GEMMs.
        step_s: Host time per step that the device waits for.
        host_floor_s: Shortest step: host work that runs beside the device's.
        eager_layer_s: More of it per layer without graphs.
        sequence_s: Host and sampling time per sequence and step.
        prefill_token_s: Host time per prompt token (tokenising, scheduling).
        request_s: Time per request before its first step (HTTP, tokenising, first detokenising).
        stream_tokens: Steps that pass before a server takes up a request and sends its first chunk, as published
            closed-loop benchmarks set up their servers (intervals of streaming and of looking for new requests).
        stream_tokens_busy: The same from 16 requests in flight on.
        network_s: Latency of one message between nodes.
        half_accumulate: True where 16-bit products accumulate in 16 bits, which GeForce cards do at twice the printed rate.
        overlap: True where all resources overlap wholly (the floor).
        measured: True where end-to-end measurements of this engine on this family were used; ranges are narrower there.
        spread_tpot, spread_ttft: Half width of the 90 % band as a factor minus one.
    """

    gemm_bandwidth: float = 1.0
    fp4_bandwidth: float = 1.0
    gemm_mfu: Mapping[str, float] = field(default_factory=dict)
    gemm_idle_tiles: float = 0.0
    gemm_activation_traffic: float = 0.0
    quantised_activation_traffic: float = 0.0
    kernel_s: float = 0.0
    quantise_kernel_s: float = 0.0
    block_kernel_s: float = 0.0
    dequantise_mfu: float = 1.0
    dequantise_bandwidth: float = 1.0
    expert_bandwidth: float = 1.0
    expert_mfu: Mapping[str, float] = field(default_factory=dict)
    expert_pad_tokens: float = 0.0
    expert_tile: float = 0.0
    expert_activation_traffic: float = 0.0
    expert_token_traffic: float = 0.0
    expert_skew: float = 1e9
    expert_imbalance: float = 0.0
    attention_bandwidth: float = 1.0
    attention_mfu_decode: float = 1.0
    attention_mfu_prefill: float = 1.0
    attention_softmax_dims: float = 0.0
    attention_s: float = 0.0
    attention_row_s: float = 0.0
    indexer_s: float = 0.0
    state_bandwidth: float = 1.0
    recurrent_s: float = 0.0
    scan_s: float = 0.0
    link_bandwidth: float = 1.0
    pcie_sharing: float = 0.0
    allreduce_s: float = 0.0
    allreduce_hop_s: float = 0.0
    alltoall_s: float = 0.0
    layer_s: float = 0.0
    moe_layer_s: float = 0.0
    elementwise_traffic: float = 0.0
    step_s: float = 0.0
    host_floor_s: float = 0.0
    eager_layer_s: float = 0.0
    sequence_s: float = 0.0
    prefill_token_s: float = 0.0
    request_s: float = 0.0
    stream_tokens: float = 0.0
    stream_tokens_busy: float = 0.0
    network_s: float = 0.0
    half_accumulate: bool = False
    overlap: bool = False
    measured: bool = False
    spread_tpot: float = 0.0
    spread_ttft: float = 0.0

    def mfu(self, compute: str) -> float:
        """MFU of large matrix products in one compute format; an unlisted format gets the `default` or 1."""
        return self.gemm_mfu.get(compute, self.gemm_mfu.get("default", 1.0))

    def grouped_mfu(self, compute: str) -> float:
        """MFU of grouped products of experts in one compute format; an unlisted format gets the `default` or 1."""
        return self.expert_mfu.get(compute, self.expert_mfu.get("default", 1.0))


IDEAL = Efficiency(overlap=True, half_accumulate=True)
