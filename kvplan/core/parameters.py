"""Parameters and weight bytes, read off the tensors: the one place that counts them."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.core.dtypes import Format, format_by_id
from kvplan.core.layout import Layout
from kvplan.core.model import LayerGroup, MixtureOfExperts, Model
from kvplan.core.tensors import Tensor, TensorClass
from kvplan.core.units import ceil_div


def model_tensors(model: Model) -> Iterator[tuple[int, Tensor]]:
    """Every tensor of a model with the number of layers that hold one (MTP layers excluded)."""
    for group in (*model.groups, *model.encoder_groups):
        for tensor in group.layer.all_tensors():
            yield group.count, tensor
    for tensor in model.tensors:
        yield 1, tensor
    for tower in model.towers:
        for tensor in tower.tensors:
            yield 1, tensor


def parameters_total(model: Model) -> int:
    """Parameters that the checkpoint holds, tied tensors once, MTP layers and buffers not counted [parameter]."""
    return sum(count * tensor.parameters for count, tensor in model_tensors(model))


def parameters_active(model: Model) -> int:
    """Parameters that one token passes: all but the routed experts it is not sent to [parameter].

    `total − Σ layers · expert_parameters · (1 − top_k / num_experts)`.
    """
    return parameters_total(model) - sum(
        group.count * _idle_expert_parameters(group) for group in (*model.groups, *model.encoder_groups)
    )


def _idle_expert_parameters(group: LayerGroup) -> int:
    feed_forward = group.layer.feed_forward
    if not isinstance(feed_forward, MixtureOfExperts):
        return 0
    routed = sum(t.parameters for t in feed_forward.tensors if t.tensor_class is TensorClass.EXPERTS)
    return routed * (feed_forward.num_experts - feed_forward.top_k) // feed_forward.num_experts


def parameters_embedding(model: Model) -> int:
    """Parameters of the input embeddings [parameter]."""
    return sum(t.parameters for t in model.tensors if t.tensor_class is TensorClass.EMBEDDING)


def tensor_format(tensor: Tensor, dtype: str) -> Format:
    """The format a tensor is stored in: its own, or the model's dtype."""
    return tensor.format if tensor.format is not None else format_by_id(dtype)


def tensor_bytes(tensor: Tensor, dtype: str, *, divisor: int = 1) -> int:
    """Bytes of a tensor on one rank that holds `1 / divisor` of it, rounded up [byte].

    Sharding divides the rows (or experts), so block scales divide with them.
    """
    if not tensor.stored:
        return 0
    fmt = tensor_format(tensor, dtype)
    if len(tensor.shape) == 2:  # noqa: PLR2004 - a matrix
        one = fmt.stored_bytes(tensor.shape[0], tensor.shape[1])
    else:
        one = fmt.stored_bytes(1, tensor.elements // tensor.copies)
    return ceil_div(one * tensor.copies, divisor)


def weights_bytes_model(model: Model) -> int:
    """Bytes of the whole checkpoint: file headers where they were read, else the sum over tensors [byte].

    Persistent buffers count at the model's dtype, in quantised checkpoints not at all (a few kilobytes whose dtype
    differs between exporters); MTP layers do not count.
    """
    if model.exact_weight_bytes is not None:
        return model.exact_weight_bytes
    return _buffer_bytes(model) + sum(
        count * tensor_bytes(tensor, model.dtype) for count, tensor in model_tensors(model)
    )


def _buffer_bytes(model: Model) -> int:
    if model.quantization is not None:
        return 0
    return format_by_id(model.dtype).stored_bytes(1, model.buffer_elements) if model.buffer_elements else 0


def weights_bytes_per_rank(model: Model, layout: Layout) -> int:
    """Bytes of weights on the fullest rank [byte].

    Layers divide over `pp` stages (the fullest holds `ceil(layers / pp)` of each group), tensors over `tp`, experts
    over `ep`. Embeddings lie on the first stage and the head on the last: the fuller of the two ends counts. Towers
    and buffers lie on the first stage.
    """
    arithmetic = _arithmetic_bytes_per_rank(model, layout)
    if model.exact_weight_bytes is None:
        return arithmetic
    whole = weights_bytes_model(_without_headers(model))
    return ceil_div(arithmetic * model.exact_weight_bytes, whole)


def _without_headers(model: Model) -> Model:
    from dataclasses import replace  # noqa: PLC0415 - only on this rare path

    return replace(model, exact_weight_bytes=None)


def _arithmetic_bytes_per_rank(model: Model, layout: Layout) -> int:
    def rank_bytes(tensor: Tensor) -> int:
        return tensor_bytes(tensor, model.dtype, divisor=layout.divisor(tensor))

    layers = sum(
        group.count * sum(rank_bytes(t) for t in group.layer.all_tensors())
        for group in (*model.groups, *model.encoder_groups)
    )
    first = sum(rank_bytes(t) for t in model.tensors if t.tensor_class is TensorClass.EMBEDDING)
    last = sum(rank_bytes(t) for t in model.tensors if t.tensor_class is not TensorClass.EMBEDDING)
    first += sum(rank_bytes(t) for tower in model.towers for t in tower.tensors)
    first += _buffer_bytes(model)
    if layout.pp == 1:
        return layers + first + last
    tied = sum(tensor_bytes(_stored(t), model.dtype, divisor=layout.divisor(t)) for t in model.tensors if not t.stored)
    stage = ceil_div(layers * ceil_div(model.num_hidden_layers, layout.pp), model.num_hidden_layers)
    return stage + max(first, last + tied)


def _stored(tensor: Tensor) -> Tensor:
    from dataclasses import replace  # noqa: PLC0415 - only with pipeline stages

    return replace(tensor, stored=True)
