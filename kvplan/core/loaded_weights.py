"""What an engine loads onto the fullest rank: parameters, adapters and drafting layers, and tables beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from kvplan.core.dtypes import FORMATS
from kvplan.core.engine import Settings
from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.memory_rules import Budget, MemoryRules
from kvplan.core.model import Attention, LatentAttention, Model
from kvplan.core.parameters import tensor_bytes, weights_bytes_per_rank
from kvplan.core.reservations import Amount, activation_bytes_per_element, gib_text
from kvplan.core.tensors import Tensor, TensorClass
from kvplan.core.units import round_up

_MATRIX = 2
_MXFP4 = FORMATS["mxfp4"]


def loaded_weights(rules: MemoryRules, model: Model, *, layout: Layout, settings: Settings, gpu: Gpu) -> Amount:
    """Weights on the fullest rank, with what serves them: padding, LoRA slots, prediction layers, a draft model [byte].

    llama.cpp looks embeddings up on the CPU where the head is a matrix of its own, and leaves whole layers there on request.
    """
    stored = weights_bytes_per_rank(model, layout)
    ranks = " × ".join(f"{name}{n}" for name, n in (("tp", layout.tp), ("pp", layout.pp), ("ep", layout.ep)) if n)
    parts = [
        Amount(stored, f"parameters of the fullest rank ({ranks}) {gib_text(stored)}"),
        expert_padding(rules, model, layout=layout, family=gpu.family),
        lora_slots(model, layout, settings),
        *_drafting(model, layout, settings),
    ]
    value = sum(part.bytes for part in parts)
    formula = " + ".join(part.formula for part in parts if part.formula)
    if rules.budget is Budget.UP_FRONT and not gpu.unified_memory:
        table = _lookup_bytes(model, layout)
        value -= table
        formula += f" − embedding table on the CPU {gib_text(table)}" if table else ""
        layers = model.num_hidden_layers
        here = layers - layers_on_cpu(model, settings=settings, gpu=gpu)
        if here < layers:
            value = int(value * (here / layers))
            formula = f"({formula}) × {here} of {layers} layers on the GPU"
    return Amount(value, formula)


def layers_on_cpu(model: Model, *, settings: Settings, gpu: Gpu) -> int:
    """Leading layers that stay on the CPU (llama.cpp's `-ngl`); none where both share one memory."""
    if settings.n_gpu_layers is None or gpu.unified_memory:
        return 0
    return max(0, model.num_hidden_layers - settings.n_gpu_layers)


def _drafting(model: Model, layout: Layout, settings: Settings) -> Iterator[Amount]:
    if settings.speculative_tokens and model.mtp_layers:
        tensors = [*(t for layer in model.mtp_layers for t in layer.all_tensors()), *model.mtp_tensors]
        value = sum(tensor_bytes(t, model.dtype, divisor=layout.divisor(t)) for t in tensors)
        yield Amount(value, f"MTP layers {gib_text(value)}")
    draft = settings.draft_model
    if draft is not None:
        value = weights_bytes_per_rank(draft, layout)
        yield Amount(value, f"draft model {draft.id} {gib_text(value)}")


def _lookup_bytes(model: Model, layout: Layout) -> int:
    """What the fullest rank saves where embeddings of a model whose head is a matrix of its own lie on the CPU [byte].

    Of several pipeline stages only the first holds them, and another one may then be the fullest.
    """
    if not any(t.tensor_class is TensorClass.HEAD and t.stored for t in model.tensors):
        return 0
    whole = replace(model, exact_weight_bytes=None)
    without = replace(whole, tensors=tuple(t for t in model.tensors if t.tensor_class is not TensorClass.EMBEDDING))
    return weights_bytes_per_rank(whole, layout) - weights_bytes_per_rank(without, layout)


def expert_padding(rules: MemoryRules, model: Model, *, layout: Layout, family: str) -> Amount:
    """What MXFP4 experts weigh beyond their parameters: kernels want widths and hidden sizes of whole tiles [byte].

    `Σ experts / ep · (⌈width / tp⌉_w · ⌈hidden⌉_h − width / tp · hidden) · bits / 8`, w and h by device family (vLLM's
    `Mxfp4MoEMethod.create_weights`). Their biases are left out, 0.1 % of it.
    """
    width_of, hidden_of = (
        multiples.get(family, multiples.get("default", 1))
        for multiples in (rules.expert_width_multiples, rules.expert_hidden_multiples)
    )
    ranks = 1 if layout.expert_ranks else layout.tp
    value = 0
    for group in model.groups:
        experts = [t for t in group.layer.all_tensors() if _is_mxfp4_expert(t)]
        # One side of each matrix is the hidden size, the other the width, twice where gate and up are one matrix.
        widths = [math.prod(t.shape) // model.hidden_size for t in experts]
        for tensor, width in zip(experts, widths, strict=True):
            single = min(widths) // ranks
            padded = _MXFP4.stored_bytes(round_up(single, width_of), round_up(model.hidden_size, hidden_of))
            excess = padded - _MXFP4.stored_bytes(single, model.hidden_size)
            value += group.count * tensor.copies * (width // min(widths)) * excess // (layout.expert_ranks or 1)
    value //= layout.pp
    return Amount(value, f"padding of MXFP4 experts {gib_text(value)}" if value else "")


def _is_mxfp4_expert(tensor: Tensor) -> bool:
    return tensor.tensor_class is TensorClass.EXPERTS and len(tensor.shape) == _MATRIX and tensor.format == _MXFP4


def lora_slots(model: Model, layout: Layout, settings: Settings) -> Amount:
    """LoRA adapters that are allocated up front, one pair of matrices for each linear layer of the decoder.

    `slots · rank · Σ (in + out / tp) · 2 B`; routed experts get none. Not checked against a log.
    """
    if not settings.max_loras:
        return Amount(0, "")
    elements = sum(
        group.count * (tensor.shape[1] + tensor.shape[0] // layout.divisor(tensor))
        for group in model.groups
        for tensor in group.layer.all_tensors()
        if tensor.linear and len(tensor.shape) == _MATRIX and tensor.tensor_class is not TensorClass.EXPERTS
    )
    value = settings.max_loras * settings.max_lora_rank * elements * activation_bytes_per_element(model) // layout.pp
    return Amount(value, f"{settings.max_loras} LoRA slots of rank {settings.max_lora_rank} {gib_text(value)}")


def weights_extra(rules: MemoryRules, model: Model) -> Amount:
    """What loading adds to the parameters: the rotary table, whole on every rank, and a copy of extra towers."""
    rows = [
        mixer.head_dim if isinstance(mixer, Attention) else mixer.qk_rope_head_dim
        for group in model.groups
        for mixer in group.layer.mixers
        if isinstance(mixer, Attention | LatentAttention)
    ]
    positions = model.max_context or 0
    width = min(max(rows, default=0), rules.rope_table_elements)
    dtype_bytes = activation_bytes_per_element(model)
    table = positions * width * dtype_bytes
    towers = min(rules.tower_copy_bytes, _tower_bytes(model))
    formula = f"rotary table {positions} × {width} × {dtype_bytes} B" if table else ""
    if towers:
        formula += f"{' + ' if formula else ''}towers {gib_text(towers)}"
    return Amount(table + towers, formula)


def _tower_bytes(model: Model) -> int:
    return sum(t.elements for tower in model.towers for t in tower.tensors) * activation_bytes_per_element(model)
