"""How far a device family and an engine stay from the roofline: physical, named, fitted parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Everything the step model knows beyond specs. `IDEAL` has every efficiency 1 and every overhead 0.

    Times are seconds, efficiencies are fractions of the printed peak. What each was fitted on: docs/validation.md.

    Attributes:
        gemm_bandwidth: Share of peak bandwidth at which weights stream.
        gemm_mfu: Share of the dense peak of large matrix products, per compute format.
        gemm_pad_tokens: Tokens by which a small batch is padded in compute (tiles).
        gemm_activation_traffic: Times that the activations of a GEMM cross memory.
        quantised_activation_traffic: The same where activations are quantised first (fp8, fp4, int8).
        kernel_s: Shortest time of one kernel (launch, ramp, drain).
        quantise_kernel_s: Extra kernel per GEMM that quantises activations (fp8, fp4).
        dequantise_mfu: Factor on MFU of weight-only formats (weights are expanded before they are multiplied).
        dequantise_bandwidth: Factor on bandwidth of weight-only formats.
        expert_bandwidth: Share of bandwidth at which experts stream.
        expert_mfu: Factor on the dense MFU for grouped GEMMs.
        expert_pad_tokens: Tokens by which each touched expert is padded.
        expert_skew: How unequal routing is: the shape of a negative binomial; large means uniform.
        expert_imbalance: Exponent of the load of the slowest rank under expert parallelism, `ep^x`.
        attention_bandwidth: Share of bandwidth at which the cache is read.
        attention_mfu_decode: Share of peak of decode attention.
        attention_mfu_prefill: Share of peak of prefill attention.
        attention_s: Shortest time of an attention kernel.
        state_bandwidth: Share of bandwidth for recurrent state.
        recurrent_mfu: Share of peak of chunked scans in prefill.
        link_bandwidth: Share of the link's rate in large all-reduces.
        allreduce_s: Latency of a small all-reduce between two ranks.
        allreduce_hop_s: More latency per further rank.
        alltoall_s: Latency of one dispatch or combine.
        layer_s: Time per layer that no other term sees (norms, rotary, gaps).
        moe_layer_s: More of it on a layer with routed experts (routing, permuting).
        elementwise_traffic: Times that the residual stream crosses memory per layer beyond GEMMs.
        step_s: Host time per step that the device waits for.
        sequence_s: Host and sampling time per sequence and step.
        prefill_token_s: Host time per prompt token (tokenising, scheduling).
        request_s: Time per request before its first step (HTTP, tokenising, first detokenising).
        network_s: Latency of one message between nodes.
        overlap: True where all resources overlap wholly (the floor).
        measured: True where an end-to-end measurement of this engine on this family was used; ranges are narrower there.
        spread_tpot, spread_ttft: Half width of the 90 % band as a factor minus one.
    """

    gemm_bandwidth: float = 1.0
    gemm_mfu: Mapping[str, float] = field(default_factory=dict)
    gemm_pad_tokens: float = 0.0
    gemm_activation_traffic: float = 0.0
    quantised_activation_traffic: float = 0.0
    kernel_s: float = 0.0
    quantise_kernel_s: float = 0.0
    dequantise_mfu: float = 1.0
    dequantise_bandwidth: float = 1.0
    expert_bandwidth: float = 1.0
    expert_mfu: float = 1.0
    expert_pad_tokens: float = 0.0
    expert_skew: float = 1e9
    expert_imbalance: float = 0.0
    attention_bandwidth: float = 1.0
    attention_mfu_decode: float = 1.0
    attention_mfu_prefill: float = 1.0
    attention_s: float = 0.0
    state_bandwidth: float = 1.0
    recurrent_mfu: float = 1.0
    link_bandwidth: float = 1.0
    allreduce_s: float = 0.0
    allreduce_hop_s: float = 0.0
    alltoall_s: float = 0.0
    layer_s: float = 0.0
    moe_layer_s: float = 0.0
    elementwise_traffic: float = 0.0
    step_s: float = 0.0
    sequence_s: float = 0.0
    prefill_token_s: float = 0.0
    request_s: float = 0.0
    network_s: float = 0.0
    overlap: bool = False
    measured: bool = False
    spread_tpot: float = 0.0
    spread_ttft: float = 0.0

    def mfu(self, compute: str) -> float:
        """MFU of large matrix products in one compute format; an unlisted format gets the `default` or 1."""
        return self.gemm_mfu.get(compute, self.gemm_mfu.get("default", 1.0))


IDEAL = Efficiency(overlap=True)
