"""The roofline of each kind of work: how long memory takes, how long arithmetic takes, and what a kernel costs anyway."""

from __future__ import annotations

from kvplan.core.dataclass import dataclass
from kvplan.core.efficiency import Efficiency
from kvplan.core.hardware import Gpu
from kvplan.core.mixer_work import AttentionWork, RecurrentWork
from kvplan.core.numeric import Num, maximum, minimum, select
from kvplan.core.work import ExpertWork, GemmWork

_QUANTISED_ACTIVATIONS = frozenset({"fp8", "fp4", "int8", "mxfp4"})
_HALVES = frozenset({"bf16", "fp16"})
_MULTIPROCESSORS = 100
_TILE_OUTPUTS = 128 * 128
_SCAN_TOKENS = 64


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

    flops: Num = 0.0
    bytes: Num = 0.0
    memory_s: Num = 0.0
    compute_s: Num = 0.0
    fixed_s: Num = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A GPU under an engine: the rates that are really reached.

    Attributes:
        gpu: The device.
        efficiency: What the engine gets out of its family.
        eager: True where kernels are launched one by one, without graphs.
    """

    gpu: Gpu
    efficiency: Efficiency
    eager: bool = False

    def host_floor_s(self, layers: int) -> float:
        """Shortest step that the host allows, which works beside the device: longer without graphs [s]."""
        return self.efficiency.host_floor_s + (self.efficiency.eager_layer_s * layers if self.eager else 0.0)

    def bytes_per_s(self, share: float) -> float:
        """Bandwidth at a share of the peak [byte/s]."""
        return self.gpu.memory_bandwidth_bytes_per_s * share

    def unit(self, compute: str) -> tuple[str, float, bool]:
        """Format and dense peak [FLOP/s] that products of `compute` really run at, and whether weights are expanded first.

        MXFP4 weights meet 8-bit activations where the card has 4-bit units, 16-bit ones elsewhere.
        """
        if compute == "mxfp4":
            compute = "fp8" if "fp4" in self.gpu.peak_flops_per_s else "bf16"
            return *self._peak(compute), compute == "bf16"
        unit, peak = self._peak(compute)
        narrow = compute in _QUANTISED_ACTIVATIONS
        return unit, peak, narrow and unit != compute

    def _peak(self, compute: str) -> tuple[str, float]:
        """Unit and dense peak; with 16-bit accumulation the 16-bit rate is half the 8-bit integer one, as on full cards."""
        unit, peak = self.gpu.peak(compute)
        if self.efficiency.half_accumulate and unit in _HALVES:
            peak = max(peak, self.gpu.peak_flops_per_s.get("int8", 0.0) / 2.0)
        return unit, peak

    def flops_per_s(self, compute: str, *, dequantised: bool, grouped: bool = False) -> float:
        """Rate of large (grouped) matrix products [FLOP/s] on the units that the card really has for a format."""
        unit, peak, expanded = self.unit(compute)
        eff = self.efficiency
        share = eff.grouped_mfu("mxfp4" if compute == "mxfp4" and not expanded else unit) if grouped else eff.mfu(unit)
        return peak * share * (eff.dequantise_mfu if dequantised or expanded else 1.0)

    def weight_bytes_per_s(self, share: float, compute: str, *, dequantised: bool) -> float:
        """Rate at which weights stream [byte/s]; slower where they are expanded on the way."""
        expanded = dequantised or self.unit(compute)[2]
        return self.bytes_per_s(share * (self.efficiency.dequantise_bandwidth if expanded else 1.0))

    def quantises(self, compute: str) -> bool:
        """True where activations are quantised before the product."""
        return compute in _QUANTISED_ACTIVATIONS and not self.unit(compute)[2]

    def attention_peak(self) -> float:
        """Peak of the 16-bit units that attention kernels use [FLOP/s]."""
        return self._peak("bf16")[1]

    def multiprocessors(self) -> int:
        """Streaming multiprocessors, compute units or cores; 100 where the sheet is silent."""
        return self.gpu.sm_count or _MULTIPROCESSORS


def gemm_cost(gemm: GemmWork, tokens: Num, machine: Machine) -> Cost:
    """Cost of one matrix product on `tokens` tokens.

    Memory `weights / (BW · e) + a · activations · tokens / BW`, arithmetic
    `2 · (elements · tokens + idle · SMs · 128² · inputs) / (peak · mfu)`: the last wave of tiles is never full.
    """
    eff = machine.efficiency
    quantises = machine.quantises(gemm.compute)
    traffic = eff.quantised_activation_traffic if quantises else eff.gemm_activation_traffic
    share = eff.gemm_bandwidth * (eff.fp4_bandwidth if quantises and gemm.compute == "fp4" else 1.0)
    weights = machine.weight_bytes_per_s(share, gemm.compute, dequantised=gemm.dequantised)
    rate = machine.flops_per_s(gemm.compute, dequantised=gemm.dequantised)
    idle = eff.gemm_idle_tiles * machine.multiprocessors() * _TILE_OUTPUTS * gemm.inputs
    per_token = traffic * gemm.activation_bytes / machine.bytes_per_s(1.0)
    prepared = gemm.dequantised or gemm.compute in _QUANTISED_ACTIVATIONS  # activations quantised, or weights expanded
    fixed = eff.kernel_s + (eff.quantise_kernel_s if prepared else 0.0)
    return Cost(
        flops=2.0 * gemm.elements * tokens,
        bytes=gemm.weight_bytes + gemm.activation_bytes * tokens,
        memory_s=gemm.weight_bytes / weights + per_token * tokens,
        compute_s=2.0 * gemm.elements / rate * tokens + 2.0 * idle / rate,
        fixed_s=fixed + (eff.block_kernel_s if quantises and gemm.blockwise else 0.0),
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
    one_token = minimum(tokens, 1.0) * experts.top_k / experts.ranks
    return minimum(maximum(touched, one_token), minimum(maximum(choices, 1.0), float(experts.num_experts)))


def expert_cost(experts: ExpertWork, tokens: Num, machine: Machine) -> Cost:
    """Cost of the routed experts of one layer for `tokens` tokens of the whole expert-parallel group.

    `T · k` rows are chosen in all, `T · k / ranks · ranks^x` on the slowest rank. Touched experts stream their weights;
    each is padded by a tile, `min(pad, c · mean rows)`; rows of local experts and, in some kernels, all chosen rows
    cross memory a few times more.
    """
    eff = machine.efficiency
    touched = experts_touched(experts, tokens, skew=eff.expert_skew)
    chosen = tokens * float(experts.top_k)
    pairs = chosen * (experts.ranks ** (eff.expert_imbalance - 1.0))
    weights = machine.weight_bytes_per_s(eff.expert_bandwidth, experts.compute, dequantised=experts.dequantised)
    rate = machine.flops_per_s(experts.compute, dequantised=experts.dequantised, grouped=True)
    rows = eff.expert_activation_traffic * experts.activation_bytes * pairs
    rows = rows + eff.expert_token_traffic * experts.hidden_bytes * chosen
    padded = minimum(eff.expert_tile / (experts.num_experts * experts.ranks) * chosen, eff.expert_pad_tokens)
    return Cost(
        flops=2.0 * experts.elements * pairs,
        bytes=touched * experts.weight_bytes + pairs * experts.activation_bytes,
        memory_s=touched * (experts.weight_bytes / weights) + rows / machine.bytes_per_s(1.0),
        compute_s=2.0 * experts.elements / rate * (pairs + touched * padded),
        fixed_s=eff.moe_layer_s,
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
    """Cached entries that a query visits, averaged over contexts from `start` to `end` [token].

    All, those of the window, or the `top_k` picks; half of a chunk once the context has left the first one; compressed
    attention visits its window and `min(context / ratio, top_k)` compressed entries.
    """
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


def prompt_visible(attention: AttentionWork, own: Num, *, prior: Num) -> Num:
    """Entries that a token of a prompt visits on average: of `own` new ones behind `prior` cached ones [token].

    Each sees what lies before it; in encoders all of the prompt, in cross attention all of the source (`prior`).
    """
    if attention.cross:
        return prior
    if not attention.causal:
        return prior + own if attention.window is None else minimum(prior + own, float(attention.window))
    return visible_tokens(attention, prior, prior + own)


def decode_attention_cost(attention: AttentionWork, *, sequences: Num, start: Num, end: Num, machine: Machine) -> Cost:
    """Cost of one layer's attention for one new token of each sequence, at contexts from `start` to `end`.

    The whole visible cache is read: `sequences · visible · cache_bytes`; paging changes nothing here. An indexer reads
    and scores the keys of the whole context. Query tiles share the multiprocessors: `sequences · tiles · row / SMs`.
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
        compute_s=flops / (machine.attention_peak() * eff.attention_mfu_decode)
        + sequences * (attention.tiles * eff.attention_row_s / machine.multiprocessors()),
        fixed_s=eff.attention_s + (eff.indexer_s if attention.index_bytes else 0.0),
    )


def prefill_attention_cost(
    attention: AttentionWork, *, tokens: Num, prompts: Num, prior: Num, machine: Machine
) -> Cost:
    """Cost of one layer's attention for `tokens` new tokens of `prompts` prompts (or part of one) after `prior` cached ones.

    For one prompt `tokens · (prior + tokens / 2)` query–key pairs, each query seeing its window at most; a pair costs its
    products and a softmax, which the matrix units do not speed up. Keys and values are read once for all queries,
    those beyond a window too.
    """
    eff = machine.efficiency
    prompts = maximum(prompts, 1.0)
    own = tokens / prompts
    visible = prompt_visible(attention, own, prior=prior)
    flops = tokens * (visible * attention.prefill_flops + (prior + own / 2.0) * attention.index_flops)
    softmax = tokens * visible * (4.0 * attention.heads * eff.attention_softmax_dims)
    moved = (prior * prompts + (0.0 if attention.cross else tokens)) * attention.cache_bytes
    return Cost(
        flops=flops,
        bytes=moved,
        memory_s=moved / machine.bytes_per_s(eff.attention_bandwidth),
        compute_s=(flops + softmax) / (machine.attention_peak() * eff.attention_mfu_prefill),
        fixed_s=select(tokens > 0, eff.attention_s + (eff.indexer_s if attention.index_bytes else 0.0), 0.0),
    )


def recurrent_cost(recurrent: RecurrentWork, *, sequences: Num, prefill: Num, prompts: Num, machine: Machine) -> Cost:
    """Cost of one layer's recurrence for one token of `sequences` and `prefill` tokens of `prompts` beside them.

    Each sequence reads and writes its state once. A prompt is scanned in chunks of 64 tokens: each chunk writes and
    reads a state, and chunks of one prompt follow one another.
    """
    eff = machine.efficiency
    chunks = prefill / _SCAN_TOKENS
    moved = 2.0 * recurrent.state_bytes * (sequences + prompts + chunks)
    flops = (sequences + prefill) * recurrent.flops_per_token
    serial = eff.scan_s * chunks / maximum(prompts, 1.0)
    return Cost(
        flops=flops,
        bytes=moved,
        memory_s=moved / machine.bytes_per_s(eff.state_bandwidth),
        compute_s=flops / machine.attention_peak() + serial,
        fixed_s=eff.recurrent_s,
    )
