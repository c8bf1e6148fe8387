"""Zamba: Mamba layers, some of which first pass a transformer block whose weights several layers share.

A hybrid layer reads the shared block on the residual stream beside the embeddings (twice the hidden size) and keeps a
KV cache of its own. Zamba 2 has several blocks in turn, each with low-rank adapters per layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvplan.core.model import Attention, DenseFeedForward, Layer, Recurrent
from kvplan.core.tensors import Tensor, TensorClass, linear, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.mamba import read_mamba1
from kvplan.specs.huggingface.recurrent import Mamba2, mamba1, mamba2, project, read_state_bits

_LINEAR: Final = frozenset({"mamba", "linear_attention"})
_HYBRID: Final = "hybrid"


def _read_hybrids(config: Config, count: int) -> tuple[bool, ...] | None:
    kinds = config.kinds("layers_block_type", "layer_types", known=(*_LINEAR, _HYBRID), length=count)
    return None if kinds is None else tuple(kind == _HYBRID for kind in kinds)


def _stored(tensors: tuple[Tensor, ...], *, stored: bool) -> tuple[Tensor, ...]:
    return tensors if stored else tuple(replace(tensor, stored=False) for tensor in tensors)


def _share(attention: Attention, feed_forward: DenseFeedForward, *, stored: bool) -> tuple[Attention, DenseFeedForward]:
    """The shared block as one layer has it: stored with the first layer that uses it."""
    return (
        replace(attention, tensors=_stored(attention.tensors, stored=stored)),
        replace(feed_forward, tensors=_stored(feed_forward.tensors, stored=stored)),
    )


def _attention_dims(config: Config, *, head_dim: int | None = None) -> blocks.Dimensions:
    """Attention over twice the hidden size."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
    return blocks.Dimensions(
        hidden_size=config.optional_integer("attention_hidden_size") or 2 * hidden,
        num_hidden_layers=config.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim or config.optional_integer("attention_head_dim", "head_dim") or 2 * hidden // heads,
        vocab_size=config.integer("vocab_size"),
        max_context=blocks.read_max_context(config),
    )


def _shared_attention(dims: blocks.Dimensions, hidden: int, name: str) -> Attention:
    """Attention that reads `dims.hidden_size` and writes `hidden`."""
    plain = blocks.gqa(dims, name=f"{name}.self_attn")
    width = dims.num_attention_heads * dims.head_dim
    return replace(plain, tensors=(*plain.tensors[:-1], *project(f"{name}.self_attn.o_proj", hidden, width)))


def zamba(config: Config) -> Blueprint:
    """Zamba 1: Mamba 1 with several heads, one shared block."""
    hidden = config.integer("hidden_size")
    dims = _attention_dims(config)
    count = dims.num_hidden_layers
    config.ignore("n_mamba_heads", "num_logits_to_keep", "use_mamba_kernels", "use_associative_scan")
    config.ignore("time_step_min", "time_step_max", "time_step_floor", "hidden_mamba_act", "sliding_window")
    config.ignore("attn_layer_period", "attn_layer_offset", "expert_layer_period", "num_experts", "num_experts_per_tok")
    sizes = read_mamba1(config, hidden)
    hybrids = _read_hybrids(config, count)
    if hybrids is None:
        period = config.integer("attn_layer_period", default=6)
        offset = config.integer("attn_layer_offset", default=4, minimum=0)
        rest = (index % period == offset for index in range(max(count - 3, 0)))
        hybrids = (False, False, True, *rest)[:count]
    block = "shared_transf"
    attention = _shared_attention(dims, hidden, block)
    mlp = blocks.gated_mlp(hidden, config.integer("intermediate_size"), name=f"{block}.feed_forward")
    norms = (*norm(f"{block}.input_layernorm", dims.hidden_size), *norm(f"{block}.pre_ff_layernorm", hidden))
    layers = []
    for index, is_hybrid in enumerate(hybrids):
        if not is_hybrid:
            layers.append(_plain_layer(mamba1(sizes, name="mamba", state_bits=read_state_bits(config)), hidden))
            continue
        stored = not any(hybrids[:index])
        mixer, feed_forward = _share(attention, mlp, stored=stored)
        recurrent = mamba1(sizes, name="mamba_decoder.mamba", state_bits=read_state_bits(config))
        layers.append(_hybrid_layer(mixer, feed_forward, recurrent, hidden, _stored(norms, stored=stored)))
    return _finish(config, dims, hidden, tuple(layers))


def zamba2(config: Config) -> Blueprint:
    """Zamba 2: Mamba 2, `num_mem_blocks` shared blocks in turn, adapters per hybrid layer."""
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    config.ignore("attention_head_dim", "attention_hidden_size", "kv_channels", "num_query_groups", "head_dim")
    dims = replace(_attention_dims(config, head_dim=2 * hidden // heads), hidden_size=2 * hidden)
    count = dims.num_hidden_layers
    hybrids = _read_hybrids(config, count)
    if hybrids is None:
        rule = "is missing: it says which layers have the shared block"
        raise config.error("layers_block_type", rule)
    sizes = _zamba2_sizes(config, hidden)
    layers, used = [], 0
    shared_blocks = config.integer("num_mem_blocks", default=1)
    for is_hybrid in hybrids:
        if not is_hybrid:
            layers.append(_plain_layer(mamba2(sizes, name="mamba", state_bits=read_state_bits(config)), hidden))
            continue
        recurrent = mamba2(sizes, name="mamba_decoder.mamba", state_bits=read_state_bits(config))
        layers.append(_zamba2_hybrid(config, dims, recurrent, hidden, stored=used < shared_blocks))
        used += 1
    _ignore_zamba2(config)
    return _finish(config, dims, hidden, tuple(layers))


def _zamba2_sizes(config: Config, hidden: int) -> Mamba2:
    inner = config.integer("mamba_expand", "expansion_factor", default=2) * hidden
    stated = config.optional_integer("mamba_headdim")
    heads = config.integer("n_mamba_heads", default=8 if stated is None else inner // stated)
    width = stated or inner // heads
    if heads * width != inner:
        raise config.error("n_mamba_heads", f"{heads} heads of width {width} don't make up the {inner} channels")
    bias = config.boolean("add_bias_linear", default=False)
    return Mamba2(
        hidden_size=hidden,
        num_heads=heads,
        head_dim=width,
        state_size=config.integer("mamba_d_state", "state_size", default=64),
        groups=config.integer("mamba_ngroups", default=1),
        kernel=config.integer("mamba_d_conv", "conv_dimension", default=4),
        conv_bias=True,
        in_bias=bias,
        out_bias=bias,
    )


def _zamba2_hybrid(
    config: Config, dims: blocks.Dimensions, recurrent: Recurrent, hidden: int, *, stored: bool
) -> Layer:
    name = "shared_transformer"
    rank = config.integer("adapter_rank", "lora_rank", default=128)
    width = config.integer("intermediate_size", "ffn_hidden_size", default=4 * hidden)
    bias = config.boolean("add_bias_linear", default=False)
    attention = _shared_attention(dims, hidden, name)
    mlp = DenseFeedForward(
        tensors=blocks.two_tensors(
            (f"{name}.feed_forward.gate_up_proj", f"{name}.feed_forward.down_proj"),
            hidden,
            width,
            up_factor=2,
            bias=bias,
        )
    )
    mixer, feed_forward = _share(attention, mlp, stored=stored)
    if config.boolean("use_shared_attention_adapter", "use_shared_attention_lora", default=False):
        adapters = tuple(
            tensor
            for part in "qkv"
            for tensor in _adapter(f"{name}.self_attn.linear_{part}_adapter", 2 * hidden, rank, 2 * hidden)
        )
        mixer = replace(mixer, tensors=(*mixer.tensors, *adapters))
    adapter = _adapter(f"{name}.feed_forward.gate_up_proj_adapter", hidden, rank, 2 * width, TensorClass.MLP)
    feed_forward = replace(feed_forward, tensors=(*feed_forward.tensors, *adapter))
    norms = (*norm(f"{name}.input_layernorm", 2 * hidden), *norm(f"{name}.pre_ff_layernorm", hidden))
    return _hybrid_layer(mixer, feed_forward, recurrent, hidden, _stored(norms, stored=stored))


def _adapter(
    name: str, in_features: int, rank: int, out_features: int, tensor_class: TensorClass = TensorClass.ATTENTION
) -> tuple[Tensor, ...]:
    return (
        *linear(f"{name}.0", tensor_class, out_features=rank, in_features=in_features, shards=1),
        *linear(f"{name}.1", tensor_class, out_features=out_features, in_features=rank),
    )


def _ignore_zamba2(config: Config) -> None:
    config.ignore("chunk_size", "use_mem_eff_path", "use_mem_rope", "use_long_context", "use_conv_bias")
    config.ignore("hybrid_layer_ids", "num_logits_to_keep", "use_mamba_kernels", "time_step_min", "time_step_max")
    config.ignore("time_step_floor", "time_step_limit", "mamba_headdim", "adapter_rank", "lora_rank")
    for name in ("gated_linear_unit", "use_shared_block_lora", "use_shared_mlp_adapter"):
        if not config.boolean(name, default=True):
            raise config.error(name, "false is not understood")
    if config.boolean("ft_lora", default=False):
        raise config.error("ft_lora", "true is not understood")


def _plain_layer(mixer: Recurrent, hidden: int) -> Layer:
    return Layer(mixers=(mixer,), feed_forward=None, tensors=norm("input_layernorm", hidden))


def _hybrid_layer(
    attention: Attention,
    feed_forward: DenseFeedForward,
    recurrent: Recurrent,
    hidden: int,
    norms: tuple[Tensor, ...],
) -> Layer:
    return Layer(
        mixers=(attention, recurrent),
        feed_forward=feed_forward,
        tensors=(
            *norms,
            *norm("mamba_decoder.input_layernorm", hidden),
            *linear("linear", TensorClass.OTHER, out_features=hidden, in_features=hidden, shards=1),
        ),
    )


def _finish(config: Config, dims: blocks.Dimensions, hidden: int, layers: tuple[Layer, ...]) -> Blueprint:
    tied = config.boolean("tie_word_embeddings", default=True)
    return Blueprint(
        hidden_size=hidden,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context,
        layers=layers,
        tensors=(
            *blocks.embedding(dims.vocab_size, hidden),
            *norm("model.final_layernorm", hidden),
            *blocks.lm_head(dims.vocab_size, hidden, tied=tied),
        ),
    )
