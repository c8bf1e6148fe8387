"""One layer of a GGUF file: its tensors by class, its mixers and feed-forward from tensors and keys."""

from __future__ import annotations

import re
from typing import Final

from kvplan.core.dtypes import FORMATS, Format
from kvplan.core.model import (
    Attention,
    DenseFeedForward,
    FeedForward,
    Indexer,
    LatentAttention,
    Layer,
    Mixer,
    MixtureOfExperts,
    Recurrent,
)
from kvplan.core.tensors import Tensor, TensorClass
from kvplan.errors import SpecError, UnsupportedModelError
from kvplan.specs.gguf_header import GgufTensor
from kvplan.specs.gguf_keys import DELTA, LATENT, MAMBA1, MAMBA2, MAY_LACK_MIXERS, SHORT, Keys

BLOCK: Final = re.compile(r"^blk\.(\d{1,9})\.(.+)$")
STORED_FULL: Final = Format(id="fp32", element_bits=32, compute=None, quantised=False)
MATRIX: Final = 2


def read_layer(keys: Keys, index: int, stored: list[GgufTensor]) -> Layer:
    """One layer; which mixers it has is told by its tensors.

    Raises:
        SpecError: Tensors and keys disagree.
        UnsupportedModelError: No mixer that kvplan knows.
    """
    tensors = [_tensor(keys, t, index) for t in stored]
    names = {t.name for t in tensors}
    attention = tuple(t for t in tensors if t.tensor_class is TensorClass.ATTENTION and not _is_recurrent(t.name))
    recurrent = tuple(t for t in tensors if t.tensor_class is TensorClass.ATTENTION and _is_recurrent(t.name))
    feeding = tuple(
        t for t in tensors if t.tensor_class is not TensorClass.ATTENTION and t.name.startswith(("ffn_", "exp_probs"))
    )
    others = tuple(t for t in tensors if t not in attention and t not in recurrent and t not in feeding)
    mixers: list[Mixer] = []
    if recurrent:
        # The projections of a gated delta net are called `attn_qkv` and `attn_gate`.
        own = (*recurrent, *attention) if keys.arch in DELTA else recurrent
        mixers.append(_recurrent(keys, own))
    if (
        keys.heads[index]
        and (names & {"attn_q", "attn_qkv", "attn_q_a", "attn_k"})
        and not (recurrent and keys.arch in DELTA)
    ):
        mixers.append(_attention(keys, index, attention))
    elif attention and not (recurrent and keys.arch in DELTA):
        others = (*others, *attention)
    if not mixers and keys.arch not in MAY_LACK_MIXERS:
        msg = f"{keys.config.source}: layer {index}: has no attention and no recurrence that kvplan knows"
        raise UnsupportedModelError(msg)
    return Layer(mixers=tuple(mixers), feed_forward=_feed_forward(keys, feeding), tensors=others)


def _is_recurrent(name: str) -> bool:
    return name.startswith(("ssm_", "shortconv."))


def _attention(keys: Keys, index: int, tensors: tuple[Tensor, ...]) -> Mixer:
    config, heads, kv_heads = keys.config, keys.heads[index], keys.kv_heads[index]
    if keys.arch in LATENT:
        return _latent(keys, index, tensors)
    if kv_heads < 1 or heads % kv_heads:
        raise config.error("attention.head_count_kv", f"{kv_heads} does not divide the {heads} heads of layer {index}")
    default = keys.hidden // heads
    windowed = keys.windowed[index]
    key_dim = config.optional_integer("attention.key_length") or default
    value_dim = config.optional_integer("attention.value_length") or default
    swa_key = config.optional_integer("attention.key_length_swa")
    swa_value = config.optional_integer("attention.value_length_swa")
    if windowed:
        key_dim, value_dim = swa_key or key_dim, swa_value or value_dim
    for name, width in (("attn_k", key_dim), ("attn_v", value_dim)):
        stored = next((t for t in tensors if t.name == name), None)
        if stored is not None and stored.shape[0] != kv_heads * width:
            msg = (
                f"{config.source}: blk.{index}.{name}: is {stored.shape[0]} wide, but the keys say "
                f"{kv_heads} heads of {width}"
            )
            raise SpecError(msg)
    shared = config.data.get("attention.shared_kv_layers", 0)
    cached = not (isinstance(shared, int) and index >= keys.layers - shared)
    chunked = keys.arch == "llama4"
    return Attention(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=key_dim,
        v_head_dim=value_dim,
        window=keys.window if windowed and not chunked else None,
        chunk=keys.window if windowed and chunked else None,
        cached=cached,
        tensors=tensors,
    )


def _latent(keys: Keys, index: int, tensors: tuple[Tensor, ...]) -> LatentAttention:
    config = keys.config
    rope = config.integer("rope.dimension_count")
    # Newer files keep the lengths of the compressed cache beside those of its heads, which end in `_mla`.
    key, value = (
        config.integer(f"{name}_mla" if config.has(f"{name}_mla") else name)
        for name in ("attention.key_length", "attention.value_length")
    )
    config.ignore("attention.key_length", "attention.value_length", "attention.q_lora_rank")
    indexer = None
    if config.has("attention.indexer.head_count"):
        indexer = Indexer(
            num_heads=config.integer("attention.indexer.head_count"),
            head_dim=config.integer("attention.indexer.key_length"),
            top_k=config.integer("attention.indexer.top_k"),
            cached=any(t.name.startswith("indexer.") for t in tensors),
        )
    if key <= rope:
        raise config.error("attention.key_length", f"{key} is not more than rope.dimension_count {rope}")
    return LatentAttention(
        num_attention_heads=keys.heads[index],
        kv_lora_rank=config.integer("attention.kv_lora_rank"),
        qk_nope_head_dim=key - rope,
        qk_rope_head_dim=rope,
        v_head_dim=value,
        indexer=indexer,
        tensors=tensors,
    )


def _recurrent(keys: Keys, tensors: tuple[Tensor, ...]) -> Recurrent:
    config = keys.config
    if keys.arch in SHORT:
        kernel = config.integer("shortconv.l_cache")
        return Recurrent(
            kind="short_conv", state_elements=0, conv_elements=(kernel - 1) * keys.hidden, num_heads=1, tensors=tensors
        )
    kernel, inner = config.integer("ssm.conv_kernel"), config.integer("ssm.inner_size")
    state, rank = config.integer("ssm.state_size"), config.integer("ssm.time_step_rank")
    groups = config.optional_integer("ssm.group_count", minimum=0) or 1
    if keys.arch in MAMBA1:
        width, kind, heads = inner, "mamba", inner
    elif keys.arch in MAMBA2:
        width, kind, heads = inner + 2 * groups * state, "mamba2", rank
    else:
        width, kind, heads = inner + 2 * groups * state, "gated_delta_net", rank
    convolution = next((t for t in tensors if t.name == "ssm_conv1d"), None)
    if convolution is not None and convolution.elements != width * kernel:
        msg = f"{config.source}: ssm_conv1d: has {convolution.elements} elements, but the keys say {width} × {kernel}"
        raise SpecError(msg)
    return Recurrent(
        kind=kind, state_elements=inner * state, conv_elements=(kernel - 1) * width, num_heads=heads, tensors=tensors
    )


def _feed_forward(keys: Keys, tensors: tuple[Tensor, ...]) -> FeedForward | None:
    routed = [t for t in tensors if t.tensor_class is TensorClass.EXPERTS]
    if routed:
        experts = keys.config.integer("expert_count")
        if any(t.copies != experts for t in routed):
            raise keys.config.error("expert_count", f"{experts} is not the {routed[0].copies} of the tensors")
        top_k = keys.config.integer("expert_used_count", maximum=experts)
        return MixtureOfExperts(num_experts=experts, top_k=top_k, tensors=tensors)
    keys.config.ignore("expert_count", "expert_used_count")
    return DenseFeedForward(tensors=tensors) if tensors else None


def _class(name: str) -> TensorClass:
    if "norm" in name:
        return TensorClass.OTHER
    if re.search(r"_(ch)?exps(\.bias)?$", name):
        return TensorClass.EXPERTS
    if "_shexp" in name and "gate_inp" not in name:
        return TensorClass.SHARED
    if name.startswith(("attn_", "ssm_", "shortconv.", "indexer.")):
        return TensorClass.ATTENTION
    if name.startswith("ffn_") and "gate_inp" not in name:
        return TensorClass.MLP
    return TensorClass.OTHER


def format_of(tensor: GgufTensor, source: str) -> Format:
    """The stored format of a tensor; fp32 is expanded for multiplication like every other.

    Raises:
        UnsupportedModelError: Integers, which are no weights.
    """
    if tensor.type == "fp32":
        return STORED_FULL
    found = FORMATS.get(tensor.type)
    if found is None:
        msg = f"{source}: {tensor.name[:80]!r}: weights of type {tensor.type} are not understood"
        raise UnsupportedModelError(msg)
    return found


def _tensor(keys: Keys, stored: GgufTensor, index: int) -> Tensor:
    match = BLOCK.match(stored.name)
    name = (match[2] if match else stored.name).removesuffix(".weight")
    kind = _class(name)
    stacked = kind is TensorClass.EXPERTS
    shape, copies = (stored.shape[1:], stored.shape[0]) if stacked and len(stored.shape) > 1 else (stored.shape, 1)
    matrix = len(shape) == MATRIX and not name.endswith((".bias", "conv1d", "shortconv.conv", "ssm_a", "_sinks"))
    matrix = (matrix and kind is not TensorClass.OTHER) or ("ffn_gate_inp" in name and len(shape) == MATRIX)
    shards: int | None = 1 if kind is TensorClass.OTHER else None
    if name in {"attn_k", "attn_v", "attn_k.bias", "attn_v.bias"}:
        shards = max(1, keys.kv_heads[index])
    return Tensor(
        name=name,
        tensor_class=kind,
        shape=shape,
        copies=copies,
        matmul=matrix,
        linear=matrix and kind is not TensorClass.OTHER,
        shards=shards,
        format=format_of(stored, keys.config.source),
    )
