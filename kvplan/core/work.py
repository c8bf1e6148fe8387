"""What one engine step does on one GPU: matrix products, attention, state updates, messages. Counts, not times.

`compile_work` reads the model's tensors once and merges equal layers, so that a step is a handful of operations whose
sizes depend only on tokens, sequences and contexts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kvplan.core.cache import kv_shards, state_bytes
from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import Format, kv_bits
from kvplan.core.layout import Layout
from kvplan.core.model import (
    Attention,
    CompressedAttention,
    CrossAttention,
    Indexer,
    LatentAttention,
    Layer,
    LayerGroup,
    Mixer,
    MixtureOfExperts,
    Model,
    Recurrent,
)
from kvplan.core.parameters import tensor_bytes, tensor_format
from kvplan.core.tensors import Tensor, TensorClass

_ACTIVATION_BYTES = 2
_QUERY_TILE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmWork:
    """One matrix product on one GPU.

    Attributes:
        op: Name in the breakdown.
        elements: Weight elements of one [element].
        inputs: Length of its dot products on this GPU [element].
        weight_bytes: Bytes of its weights [byte].
        activation_bytes: Bytes of inputs and outputs per token [byte].
        compute: Compute format (`mxfp4` as well: which units multiply it depends on the card).
        dequantised: True for weight-only formats.
        blockwise: True where scales cover two-dimensional blocks, so that activations are quantised in groups.
        sampled: True where only sampled tokens pass (the head).
    """

    op: str
    elements: int
    inputs: int
    weight_bytes: int
    activation_bytes: int
    compute: str
    dequantised: bool
    blockwise: bool = False
    sampled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertWork:
    """The routed experts of one layer on one GPU.

    Attributes:
        num_experts: Experts that live on this rank (or shards of all of them).
        top_k: Choices per token.
        ranks: Ranks that the experts are divided over (1 where each rank holds a shard of every expert).
        elements: Weight elements of one expert's part here [element].
        weight_bytes: Bytes of one expert's part here [byte].
        activation_bytes: Bytes that a chosen expert reads and writes per token [byte].
        hidden_bytes: One token's residual stream [byte].
        compute, dequantised: As for `GemmWork`.
    """

    num_experts: int
    top_k: int
    ranks: int
    elements: int
    weight_bytes: int
    activation_bytes: int
    hidden_bytes: int
    compute: str
    dequantised: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWork:
    """The attention of one layer on one GPU.

    Attributes:
        cache_bytes: Bytes read per visible cached token and sequence [byte].
        decode_flops: FLOPs per query token and visible token in decode [FLOP].
        prefill_flops: The same in prefill (MLA expands its latent there) [FLOP].
        heads: Query heads here.
        tiles: Query tiles of one decoding sequence: its heads in tiles of 16, one per key–value head at least.
        window: Most tokens that a query sees, or None.
        chunked: True where the window is a fixed chunk, of which half is visible on average.
        top_k: Most tokens that sparse attention visits, or None.
        index_bytes: Bytes of index keys read per cached token [byte].
        index_flops: FLOPs of the indexer per query and cached token [FLOP].
        ratio: Tokens per compressed entry that is kept beyond the window, or None.
        cross: True for attention over the encoder's output.
    """

    cache_bytes: float
    decode_flops: float
    prefill_flops: float
    heads: float
    tiles: float
    window: int | None = None
    chunked: bool = False
    top_k: int | None = None
    index_bytes: float = 0.0
    index_flops: float = 0.0
    ratio: int | None = None
    cross: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentWork:
    """The recurrence of one layer on one GPU.

    Attributes:
        state_bytes: State of one sequence here [byte]; read and written once a step.
        flops_per_token: Operations per token [FLOP].
    """

    state_bytes: float
    flops_per_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """All work of a step on one GPU (all pipeline stages in turn, so that times add up to the step).

    Attributes:
        gemms, experts, attention, recurrent: The work by kind, each with how often it occurs in a step.
        layers: Decoder layers; `moe_layers` of them have routed experts.
        hidden_bytes: One token's residual stream [byte].
        allreduces: All-reduces over `tp` per step.
        alltoalls: Dispatch and combine messages over `ep` per step.
        tp, pp, dp, ep: Ranks.
        encoder: Work of the encoder, run once per request, or None.
    """

    gemms: tuple[tuple[int, GemmWork], ...]
    experts: tuple[tuple[int, ExpertWork], ...]
    attention: tuple[tuple[int, AttentionWork], ...]
    recurrent: tuple[tuple[int, RecurrentWork], ...]
    layers: int
    moe_layers: int
    hidden_bytes: int
    allreduces: int
    alltoalls: int
    tp: int
    pp: int
    dp: int
    ep: int
    encoder: StepWork | None = None


def compile_work(model: Model, layout: Layout, *, kv_dtype: str) -> StepWork:
    """Read the work of a step off a model laid out over GPUs.

    Args:
        model: The model with its precision.
        layout: Ranks.
        kv_dtype: Cache format.
    """
    work = _compile(model, model.groups, layout, kv_dtype=kv_dtype, heads=[t for t in model.tensors if t.matmul])
    if not model.encoder_groups:
        return work
    return replace(work, encoder=_compile(model, model.encoder_groups, layout, kv_dtype=kv_dtype, heads=[]))


def _compile(
    model: Model, groups: Iterable[LayerGroup], layout: Layout, *, kv_dtype: str, heads: Iterable[Tensor]
) -> StepWork:
    gemms: Counter[GemmWork] = Counter()
    experts: Counter[ExpertWork] = Counter()
    attention: Counter[AttentionWork] = Counter()
    recurrent: Counter[RecurrentWork] = Counter()
    layers = moe_layers = allreduces = 0
    for group in groups:
        layer, count = group.layer, group.count
        layers += count
        for gemm in _layer_gemms(layer, model, layout):
            gemms[gemm] += count
        if isinstance(layer.feed_forward, MixtureOfExperts):
            moe_layers += count
            experts[_expert_work(layer.feed_forward, model, layout)] += count
        for mixer in layer.mixers:
            if isinstance(mixer, Recurrent):
                recurrent[_recurrent_work(mixer, layout)] += count
            else:
                attention[_attention_work(mixer, layout, kv_dtype=kv_dtype)] += count
        allreduces += count * _reductions(layer, parallel=model.parallel_attention)
    for tensor in heads:
        gemms[_gemm("head", [tensor], model, layout, sampled=True)] += 1
    return StepWork(
        gemms=tuple((n, w) for w, n in gemms.items()),
        experts=tuple((n, w) for w, n in experts.items()),
        attention=tuple((n, w) for w, n in attention.items()),
        recurrent=tuple((n, w) for w, n in recurrent.items()),
        layers=layers,
        moe_layers=moe_layers,
        hidden_bytes=model.hidden_size * _ACTIVATION_BYTES,
        allreduces=allreduces,
        alltoalls=2 * moe_layers if layout.shared_experts_over_dp else 0,
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        ep=layout.expert_ranks or 1,
    )


def _reductions(layer: Layer, *, parallel: bool) -> int:
    """All-reduces of one layer: one after each mixer (mixers side by side share one) and one after the feed-forward."""
    crossed = any(isinstance(mixer, CrossAttention) for mixer in layer.mixers)
    mixers = min(1, len(layer.mixers)) + (1 if crossed and len(layer.mixers) > 1 else 0)
    feed_forward = 1 if layer.feed_forward is not None else 0
    return max(mixers, feed_forward) if parallel else mixers + feed_forward


def _layer_gemms(layer: Layer, model: Model, layout: Layout) -> Iterator[GemmWork]:
    """The matrix products of one layer; neighbours that share their input run as one kernel (Q, K, V; gate, up)."""
    parts = [("attention_gemm", mixer.tensors) for mixer in layer.mixers]
    if layer.feed_forward is not None:
        parts.append(("feed_forward_gemm", layer.feed_forward.tensors))
    parts.append(("other_gemm", layer.tensors))
    for op, tensors in parts:
        fused: list[Tensor] = []
        for tensor in tensors:
            if not tensor.matmul or tensor.tensor_class is TensorClass.EXPERTS:
                continue
            if fused and not _same_input(fused[-1], tensor):
                yield _gemm(op, fused, model, layout)
                fused = []
            fused.append(tensor)
        if fused:
            yield _gemm(op, fused, model, layout)


def _same_input(a: Tensor, b: Tensor) -> bool:
    same_kind = a.tensor_class is b.tensor_class and a.format == b.format and a.linear == b.linear
    return same_kind and a.shape[1] == b.shape[1] and (a.shards == 1) == (b.shards == 1)


def _gemm(op: str, tensors: list[Tensor], model: Model, layout: Layout, *, sampled: bool = False) -> GemmWork:
    fmt = tensor_format(tensors[0], model.dtype)
    elements = weight_bytes = outputs = 0
    for tensor in tensors:
        divisor = layout.divisor(tensor)
        elements += tensor.elements // divisor
        outputs += tensor.shape[0] * tensor.copies // divisor
        weight_bytes += tensor_bytes(replace(tensor, stored=True), model.dtype, divisor=divisor)
    inputs = elements // max(1, outputs)
    return GemmWork(
        op=op,
        elements=elements,
        inputs=inputs,
        weight_bytes=weight_bytes,
        activation_bytes=(inputs + outputs) * _ACTIVATION_BYTES,
        compute=_compute(fmt, model),
        dequantised=fmt.compute is None,
        blockwise=bool(fmt.block_in and fmt.block_out and min(fmt.block_in, fmt.block_out) > 1),
        sampled=sampled,
    )


def _compute(fmt: Format, model: Model) -> str:
    """Format of the multiplication; expanded weights are multiplied in the model's own."""
    return "mxfp4" if fmt.id == "mxfp4" else fmt.compute or model.dtype


def _expert_work(feed_forward: MixtureOfExperts, model: Model, layout: Layout) -> ExpertWork:
    routed = [t for t in feed_forward.tensors if t.tensor_class is TensorClass.EXPERTS]
    fmt = tensor_format(routed[0], model.dtype)
    ranks = layout.expert_ranks or 1
    shard = layout.tp if layout.expert_ranks is None else 1
    number = max(1, feed_forward.num_experts)
    elements = sum(t.elements for t in routed) // number // shard
    width = elements // model.hidden_size
    return ExpertWork(
        num_experts=number // ranks,
        top_k=feed_forward.top_k,
        ranks=ranks,
        elements=elements,
        weight_bytes=sum(tensor_bytes(t, model.dtype) for t in routed) // number // shard,
        activation_bytes=(2 * model.hidden_size + width) * _ACTIVATION_BYTES,
        hidden_bytes=model.hidden_size * _ACTIVATION_BYTES,
        compute=_compute(fmt, model),
        dequantised=fmt.compute is None,
    )


def _index_work(indexer: Indexer | None) -> tuple[int | None, float, float]:
    """`(top_k, bytes per cached token, FLOPs per query and cached token)`; index keys are kept in 8 bits."""
    if indexer is None:
        return None, 0.0, 0.0
    if not indexer.cached:
        return indexer.top_k, 0.0, 0.0
    return indexer.top_k, float(indexer.head_dim), 2.0 * indexer.num_heads * indexer.head_dim


def _attention_work(mixer: Mixer, layout: Layout, *, kv_dtype: str) -> AttentionWork:
    element_bytes = kv_bits(kv_dtype) / 8
    match mixer:
        case Attention():
            heads = mixer.num_attention_heads / layout.tp
            flops = 2.0 * heads * (mixer.head_dim + mixer.v_head_dim)
            kv_heads = mixer.num_key_value_heads / kv_shards(mixer, layout.tp)
            tiles = max(heads / _QUERY_TILE, kv_heads)
            width = kv_heads * (mixer.head_dim + mixer.v_head_dim)
            top_k, index_bytes, index_flops = _index_work(mixer.indexer)
            return AttentionWork(
                cache_bytes=width * element_bytes,
                decode_flops=flops,
                prefill_flops=flops,
                heads=heads,
                tiles=tiles,
                window=mixer.window if mixer.window is not None else mixer.chunk,
                chunked=mixer.window is None and mixer.chunk is not None,
                top_k=top_k,
                index_bytes=index_bytes,
                index_flops=index_flops,
            )
        case LatentAttention():
            heads = mixer.num_attention_heads / layout.tp
            latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
            top_k, index_bytes, index_flops = _index_work(mixer.indexer)
            return AttentionWork(
                cache_bytes=latent * element_bytes,
                decode_flops=2.0 * heads * (latent + mixer.kv_lora_rank),
                prefill_flops=2.0 * heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim),
                heads=heads,
                tiles=max(heads / _QUERY_TILE, 1.0),
                top_k=top_k,
                index_bytes=index_bytes,
                index_flops=index_flops,
            )
        case CompressedAttention():
            flops = 4.0 * mixer.num_attention_heads * mixer.head_dim / layout.tp
            top_k, index_bytes, index_flops = _index_work(mixer.indexer)
            return AttentionWork(
                cache_bytes=mixer.head_dim * element_bytes,
                decode_flops=flops,
                prefill_flops=flops,
                heads=mixer.num_attention_heads / layout.tp,
                tiles=max(mixer.num_attention_heads / layout.tp / _QUERY_TILE, 1.0),
                window=mixer.window,
                top_k=top_k,
                index_bytes=index_bytes / mixer.ratio if mixer.ratio else 0.0,
                index_flops=index_flops / mixer.ratio if mixer.ratio else 0.0,
                ratio=mixer.ratio,
            )
        case CrossAttention():
            flops = 4.0 * mixer.num_attention_heads * mixer.head_dim / layout.tp
            width = 2 * mixer.num_key_value_heads * mixer.head_dim / kv_shards(mixer, layout.tp)
            heads = mixer.num_attention_heads / layout.tp
            kv_heads = mixer.num_key_value_heads / kv_shards(mixer, layout.tp)
            return AttentionWork(
                cache_bytes=width * element_bytes,
                decode_flops=flops,
                prefill_flops=flops,
                heads=heads,
                tiles=max(heads / _QUERY_TILE, kv_heads),
                cross=True,
            )
        case Recurrent():
            msg = "a recurrence has no attention work"
            raise TypeError(msg)


def _recurrent_work(mixer: Recurrent, layout: Layout) -> RecurrentWork:
    """State is read and written once per step; each token updates and reads it: about 6 FLOPs per state element."""
    shards = kv_shards(mixer, layout.tp)
    return RecurrentWork(state_bytes=state_bytes(mixer) / shards, flops_per_token=6.0 * mixer.state_elements / shards)
