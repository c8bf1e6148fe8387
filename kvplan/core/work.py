"""What one engine step does on one GPU: matrix products, attention, state updates, messages. Counts, not times.

`compile_work` reads the model's tensors once and merges equal layers, so that a step is a handful of operations whose
sizes depend only on tokens, sequences and contexts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import Format
from kvplan.core.layout import Layout
from kvplan.core.mixer_work import AttentionWork, RecurrentWork, attention_work, recurrent_work
from kvplan.core.model import CrossAttention, Layer, LayerGroup, MixtureOfExperts, Model, Recurrent
from kvplan.core.parameters import tensor_bytes, tensor_format
from kvplan.core.tensors import Tensor, TensorClass

_ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmWork:
    """One matrix product on one GPU.

    Attributes:
        op: Name in the breakdown.
        elements: Weight elements of one [element].
        inputs: Length of its dot products, as if ranks always divided outputs; output and down projections divide their
            inputs instead, which moves as many bytes where both are alike [element].
        weight_bytes: Bytes of its weights [byte].
        activation_bytes: Bytes of inputs and outputs per token [byte].
        compute: Compute format (`mxfp4` as well: which units multiply it depends on the card).
        dequantised: True for weight-only formats.
        blockwise: True where scales cover two-dimensional blocks, so that activations are quantised in groups.
        sampled: True where only sampled tokens pass (the head).
        of_source: True where the source's tokens pass, once per request (K and V of cross attention).
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
    of_source: bool = False


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
                recurrent[recurrent_work(mixer, layout)] += count
            else:
                attention[attention_work(mixer, layout, kv_dtype=kv_dtype)] += count
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
    return same_kind and a.of_source == b.of_source and a.shape[1] == b.shape[1] and (a.shards == 1) == (b.shards == 1)


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
        of_source=tensors[0].of_source,
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
