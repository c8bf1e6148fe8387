"""The roofline of each kind of work: how long memory takes, how long arithmetic takes, and what a kernel costs anyway."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.core.efficiency import Efficiency
from kvplan.core.hardware import Gpu
from kvplan.core.numeric import Num, maximum, minimum, select
from kvplan.core.work import AttentionWork, ExpertWork, GemmWork, RecurrentWork

_QUANTISED_ACTIVATIONS = frozenset({"fp8", "fp4", "int8"})


@dataclass(frozen=True, slots=True)
class Cost:
    """What one piece of work asks of a GPU.

    Attributes:
        flops: Operations, padding not counted [FLOP].
        bytes: Bytes through memory [byte].
        memory_s: Time of its memory traffic alone [s].
        compute_s: Time of its arithmetic alone [s].
        fixed_s: Time that neither sees [s].
    """

    flops: Num
    bytes: Num
    memory_s: Num
    compute_s: Num
    fixed_s: Num


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A GPU under an engine: the rates that are really reached."""

    gpu: Gpu
    efficiency: Efficiency

    def bytes_per_s(self, share: float) -> float:
        """Bandwidth at a share of the peak [byte/s]."""
        return self.gpu.memory_bandwidth_bytes_per_s * share

    def flops_per_s(self, compute: str, *, dequantised: bool = False) -> float:
        """Rate of large matrix products [FLOP/s] on the units that the card really has for a format."""
        unit, peak = self.gpu.peak(compute)
        factor = self.efficiency.dequantise_mfu if dequantised or unit != compute != "bf16" else 1.0
        return peak * self.efficiency.mfu(unit) * factor

    def activation_traffic(self, compute: str) -> float:
        """Times that the activations of a matrix product cross memory."""
        if compute in _QUANTISED_ACTIVATIONS:
            return self.efficiency.quantised_activation_traffic
        return self.efficiency.gemm_activation_traffic

    def attention_peak(self) -> float:
        """Peak of the 16-bit units that attention kernels use [FLOP/s]."""
        return self.gpu.peak("bf16")[1]


def gemm_cost(gemm: GemmWork, tokens: Num, machine: Machine) -> Cost:
    """Cost of one matrix product on `tokens` tokens.

    Memory `(weights + activations · tokens) / (BW · e)`, arithmetic `2 · elements · (tokens + pad) / (peak · mfu)`.
    """
    eff = machine.efficiency
    share = eff.gemm_bandwidth * (eff.dequantise_bandwidth if gemm.dequantised else 1.0)
    moved = gemm.weight_bytes + gemm.activation_bytes * tokens
    traffic = gemm.weight_bytes + machine.activation_traffic(gemm.compute) * gemm.activation_bytes * tokens
    rate = machine.flops_per_s(gemm.compute, dequantised=gemm.dequantised)
    fixed = eff.kernel_s + (eff.quantise_kernel_s if gemm.compute in _QUANTISED_ACTIVATIONS else 0.0)
    return Cost(
        flops=2.0 * gemm.elements * tokens,
        bytes=moved,
        memory_s=traffic / machine.bytes_per_s(share),
        compute_s=2.0 * gemm.elements * (tokens + eff.gemm_pad_tokens) / rate,
        fixed_s=fixed,
    )


def experts_touched(experts: ExpertWork, tokens: Num, *, skew: float) -> Num:
    """Experts of one rank that at least one of `tokens` tokens is sent to.

    With `E` experts and `m = tokens · k / E` choices per expert on average, a negative binomial of shape `r` leaves an
    expert idle with probability `(1 + m / r)^−r`; `r → ∞` is uniform routing, `e^−m`. Never more than the choices made,
    nor fewer than one token's.
    """
    choices = tokens * experts.top_k / experts.ranks
    mean = choices / experts.num_experts
    touched = experts.num_experts * (1.0 - (1.0 + mean / skew) ** -skew)
    return minimum(touched, minimum(maximum(choices, 1.0), float(experts.num_experts)))


def expert_cost(experts: ExpertWork, tokens: Num, machine: Machine) -> Cost:
    """Cost of the routed experts of one layer for `tokens` tokens of the whole expert-parallel group."""
    eff = machine.efficiency
    touched = experts_touched(experts, tokens, skew=eff.expert_skew)
    pairs = tokens * experts.top_k / experts.ranks * experts.ranks**eff.expert_imbalance
    share = eff.expert_bandwidth * (eff.dequantise_bandwidth if experts.dequantised else 1.0)
    rate = machine.flops_per_s(experts.compute, dequantised=experts.dequantised) * eff.expert_mfu
    activations = machine.activation_traffic(experts.compute) * pairs * experts.activation_bytes
    traffic = touched * experts.weight_bytes + activations
    fixed = 2 * eff.kernel_s + (2 * eff.quantise_kernel_s if experts.compute in _QUANTISED_ACTIVATIONS else 0.0)
    return Cost(
        flops=2.0 * experts.elements * pairs,
        bytes=touched * experts.weight_bytes + pairs * experts.activation_bytes,
        memory_s=traffic / machine.bytes_per_s(share),
        compute_s=2.0 * experts.elements * (pairs + touched * eff.expert_pad_tokens) / rate,
        fixed_s=fixed,
    )


def mean_visible(start: Num, end: Num, window: int | None) -> Num:
    """Mean of `min(s, window)` over contexts from `start` to `end` [token].

    >>> mean_visible(0, 100, None), mean_visible(200, 300, 50), mean_visible(0, 100, 50)
    (50.0, 50.0, 37.5)
    """
    if window is None:
        return (start + end) / 2.0
    edge = minimum(maximum(start, float(window)), end)
    span = maximum(end - start, 1e-9)
    open_part = (start + edge) / 2.0 * (edge - start)
    return select(end - start > 0, (open_part + window * (end - edge)) / span, minimum(start, float(window)))


def visible_tokens(attention: AttentionWork, start: Num, end: Num) -> Num:
    """Cached entries that a query visits, averaged over contexts from `start` to `end` [token]."""
    if attention.ratio is not None:
        compressed = (start + end) / 2.0 / attention.ratio
        if attention.top_k is not None:
            compressed = minimum(compressed, float(attention.top_k))
        return mean_visible(start, end, attention.window) + compressed
    if attention.top_k is not None:
        return mean_visible(start, end, attention.top_k)
    if attention.chunked and attention.window is not None:
        inside = mean_visible(start, end, attention.window)
        return select(end > attention.window, minimum(inside, attention.window / 2.0), inside)
    return mean_visible(start, end, attention.window)


def decode_attention_cost(
    attention: AttentionWork, *, sequences: Num, start: Num, end: Num, machine: Machine
) -> Cost:
    """Cost of one layer's attention for one new token of each sequence, at contexts from `start` to `end`.

    The whole visible cache is read: `sequences · visible · cache_bytes`; paging changes nothing here.
    """
    eff = machine.efficiency
    visible = visible_tokens(attention, start, end)
    context = (start + end) / 2.0
    moved = sequences * (visible * attention.cache_bytes + context * attention.index_bytes)
    flops = sequences * (visible * attention.decode_flops + context * attention.index_flops)
    return Cost(
        flops=flops,
        bytes=moved,
        memory_s=moved / machine.bytes_per_s(eff.attention_bandwidth),
        compute_s=flops / (machine.attention_peak() * eff.attention_mfu_decode),
        fixed_s=eff.attention_s,
    )


def prefill_attention_cost(attention: AttentionWork, *, tokens: Num, prior: Num, machine: Machine) -> Cost:
    """Cost of one layer's attention for `tokens` new tokens of a prompt after `prior` cached ones.

    `tokens · (prior + tokens / 2)` query–key pairs, each query seeing its window at most.
    """
    eff = machine.efficiency
    visible = visible_tokens(attention, prior, prior + tokens)
    flops = tokens * (visible * attention.prefill_flops + (prior + tokens / 2.0) * attention.index_flops)
    moved = (prior + tokens) * attention.cache_bytes
    return Cost(
        flops=flops,
        bytes=moved,
        memory_s=moved / machine.bytes_per_s(eff.attention_bandwidth),
        compute_s=flops / (machine.attention_peak() * eff.attention_mfu_prefill),
        fixed_s=select_fixed(tokens, eff.attention_s),
    )


def select_fixed(tokens: Num, fixed_s: float) -> Num:
    """The fixed cost of a kernel that only runs where there are tokens [s]."""
    return select(tokens > 0, fixed_s, 0.0)


def recurrent_cost(recurrent: RecurrentWork, *, sequences: Num, tokens: Num, machine: Machine) -> Cost:
    """Cost of one layer's recurrence: state read and written once per sequence and step, `flops_per_token` each token."""
    eff = machine.efficiency
    moved = 2.0 * sequences * recurrent.state_bytes
    flops = tokens * recurrent.flops_per_token
    return Cost(
        flops=flops,
        bytes=moved,
        memory_s=moved / machine.bytes_per_s(eff.state_bandwidth),
        compute_s=flops / (machine.attention_peak() * eff.recurrent_mfu),
        fixed_s=eff.kernel_s,
    )
