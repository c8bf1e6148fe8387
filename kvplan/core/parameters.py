"""Parameters and weight bytes, read off the tensors: the one place that counts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from kvplan.core.dtypes import Format, format_by_id
from kvplan.core.layout import Layout, stage_sizes
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

    Layers divide over `pp` stages (`stage_sizes`), tensors over `tp`, experts over `ep`. Embeddings, towers, an encoder
    and buffers lie on the first stage, final norm and head (for a tied one a copy of the embeddings) on the last.
    """
    arithmetic = _arithmetic_bytes_per_rank(model, layout)
    if model.exact_weight_bytes is None:
        return arithmetic
    whole = weights_bytes_model(replace(model, exact_weight_bytes=None))
    return ceil_div(arithmetic * model.exact_weight_bytes, whole)


def _arithmetic_bytes_per_rank(model: Model, layout: Layout) -> int:
    def on_rank(tensors: Iterable[Tensor]) -> int:
        return sum(tensor_bytes(tensor, model.dtype, divisor=layout.divisor(tensor)) for tensor in tensors)

    first = on_rank(t for t in model.tensors if t.tensor_class is TensorClass.EMBEDDING)
    first += on_rank(t for tower in model.towers for t in tower.tensors)
    first += sum(group.count * on_rank(group.layer.all_tensors()) for group in model.encoder_groups)
    first += _buffer_bytes(model)
    last = on_rank(t for t in model.tensors if t.tensor_class is not TensorClass.EMBEDDING)
    if layout.pp > 1:
        last += on_rank(replace(t, stored=True) for t in model.tensors if not t.stored)
    group_bytes = [on_rank(group.layer.all_tensors()) for group in model.groups]
    order = iter(model.layer_order)
    stages = [
        sum(group_bytes[index] for index in islice(order, size))
        for size in stage_sizes(model.num_hidden_layers, layout.pp)
    ]
    stages[0] += first
    stages[-1] += last
    return max(stages)
