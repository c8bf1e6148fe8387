"""Liquid's hybrids of gated short convolutions and attention: LFM2, LFM2-MoE, LFM3."""

from __future__ import annotations

from typing import Any, Final

from kvplan.core.model import DenseFeedForward, FeedForward, Mixer, Recurrent
from kvplan.core.tensors import TensorClass, linear, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.experts import W_NAMES, alternate, read_sparse_layers
from kvplan.specs.huggingface.recurrent import short_convolution

_CONV: Final = "conv"
_FULL: Final = "full_attention"
_SLIDING: Final = "sliding_attention"
_LFM3_PATTERN: Final = (_SLIDING, _CONV, _FULL, _CONV)


def lfm2(config: Config) -> Blueprint:
    """LFM2. The feed-forward's width is two thirds of what is stated, rounded up, unless told otherwise.

    Liquid's own spellings (`block_ff_dim`, `tie_embedding`) win over the common ones, as in transformers.
    """
    dims = blocks.read_dimensions(config)
    hidden = dims.hidden_size
    width = config.optional_integer("block_ff_dim") or config.integer("intermediate_size")
    config.ignore("intermediate_size")
    if config.boolean("block_auto_adjust_ff_dim", default=True):
        width = int(2 * width / 3)
        factor = config.optional_number("block_ffn_dim_multiplier", maximum=1000)
        multiple = config.integer("block_multiple_of", default=256)
        width = -(-int((factor or 1.0) * width) // multiple) * multiple
    else:
        config.ignore("block_ffn_dim_multiplier", "block_multiple_of")
    _check_width(config, hidden)
    mlp = DenseFeedForward(tensors=blocks.gated_tensors("feed_forward", hidden, width, names=W_NAMES))
    mixers = _lfm2_mixers(config, dims)
    return _finish(config, dims, mixers, (mlp,) * len(mixers), norms=("operator_norm", "ffn_norm"))


def _check_width(config: Config, hidden: int) -> None:
    for name in ("block_dim", "conv_dim", "conv_dim_out"):
        if config.optional_integer(name) not in (None, hidden):
            raise config.error(name, f"must equal hidden_size {hidden}")
    if not config.boolean("block_use_swiglu", default=True):
        raise config.error("block_use_swiglu", "false is not understood")
    config.ignore("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init")
    config.ignore("block_norm_eps", "theta", "use_pos_enc", "num_heads")


def _lfm2_kinds(config: Config, count: int) -> tuple[str, ...]:
    kinds = config.kinds("layer_types", known=(_CONV, _FULL), length=count)
    full = config.optional_integers("full_attn_idxs")
    if kinds is None and full is None:
        config.assumptions.append(f"layer_types is not in {config.source}: attention on all layers assumed")
        return (_FULL,) * count
    if kinds is None:
        return tuple(_FULL if index in (full or ()) else _CONV for index in range(count))
    return kinds


def _convolution(config: Config, hidden: int, *, kernel: int) -> Recurrent:
    return short_convolution(
        hidden_size=hidden,
        kernel=config.integer("conv_L_cache", default=kernel),
        bias=config.boolean("conv_bias", default=False),
        name="conv",
    )


def _lfm2_mixers(config: Config, dims: blocks.Dimensions) -> tuple[Mixer, ...]:
    kinds = _lfm2_kinds(config, dims.num_hidden_layers)
    norms = blocks.norms(("self_attn.q_layernorm", "self_attn.k_layernorm"), dims.head_dim)
    mixers: dict[str, Mixer] = {_FULL: blocks.gqa(dims, names=("q_proj", "k_proj", "v_proj", "out_proj"), extra=norms)}
    if _CONV in kinds:  # else fields of convolutions stay unread, and a config that has them is refused
        mixers[_CONV] = _convolution(config, dims.hidden_size, kernel=3)
    return tuple(mixers[kind] for kind in kinds)


def lfm2_moe(config: Config) -> Blueprint:
    """LFM2-MoE: as LFM2, experts after the first dense layers."""
    defaults: dict[str, Any] = {"num_dense_layers": 2, "num_experts_per_tok": 4, "num_experts": 32}
    config.with_defaults(defaults)
    dims = blocks.read_dimensions(config)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    _check_width(config, hidden)
    experts = config.integer("num_experts")
    mixture = blocks.gated_moe(
        hidden,
        config.integer("moe_intermediate_size"),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts),
        name="feed_forward.experts",
        names=W_NAMES,
        routing=blocks.router("feed_forward.gate", hidden, experts),
    )
    width = config.integer("intermediate_size")
    dense = DenseFeedForward(tensors=blocks.gated_tensors("feed_forward", hidden, width, names=W_NAMES))
    if not config.has("layer_types") and not config.has("full_attn_idxs"):
        raise config.error("layer_types", "is missing: it says which layers are attention")
    sparse = read_sparse_layers(config, count)
    bias = config.boolean("use_expert_bias", default=True)
    return _finish(
        config,
        dims,
        _lfm2_mixers(config, dims),
        alternate(sparse, mixture, dense),
        norms=("operator_norm", "ffn_norm"),
        buffers=sum(sparse) * experts if bias else 0,
    )


def lfm3(config: Config) -> Blueprint:
    """LFM3: convolutions, windowed and full attention with an output gate per head, norms around each sublayer."""
    dims = blocks.read_dimensions(config, head_dim=128)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    kinds = config.kinds("layer_types", known=(_CONV, _FULL, _SLIDING), length=count)
    if kinds is None:
        kinds = (_CONV, *(_LFM3_PATTERN[index % len(_LFM3_PATTERN)] for index in range(1, count)))
        config.assumptions.append(f"layer_types is not in {config.source}: the pattern of LFM3 assumed")
    window = config.integer("sliding_window", default=256)
    bias = config.boolean("attention_bias", default=False)
    gate = (
        linear("self_attn.g_proj", TensorClass.ATTENTION, out_features=dims.num_attention_heads, in_features=hidden)
        if config.boolean("use_attention_gate", default=True)
        else ()
    )
    mlp = DenseFeedForward(
        tensors=blocks.gated_tensors("feed_forward", hidden, config.integer("intermediate_size"), names=W_NAMES)
    )
    norms: tuple[str, ...] = ("operator_norm", "ffn_norm")
    if config.boolean("use_sandwich_norm", default=True):
        norms = (*norms, "post_operator_norm", "post_ffn_norm")
    mixers: dict[str, Mixer] = {
        kind: blocks.gqa(
            dims,
            qkv_bias=bias,
            o_bias=bias,
            window=window if kind == _SLIDING else None,
            extra=(*blocks.qk_norm(dims), *gate),
        )
        for kind in (_FULL, _SLIDING)
    }
    mixers[_CONV] = _convolution(config, hidden, kernel=7)
    return _finish(config, dims, tuple(mixers[kind] for kind in kinds), (mlp,) * count, norms=norms)


def _finish(
    config: Config,
    dims: blocks.Dimensions,
    mixers: tuple[Mixer, ...],
    feed_forward: tuple[FeedForward, ...],
    *,
    norms: tuple[str, ...],
    buffers: int = 0,
) -> Blueprint:
    tied = config.boolean("tie_embedding", default=config.boolean("tie_word_embeddings", default=True))
    return blocks.stack(
        dims,
        mixers=mixers,
        feed_forward=feed_forward,
        layer_tensors=blocks.norms(norms, dims.hidden_size),
        tensors=(
            *blocks.embedding(dims.vocab_size, dims.hidden_size),
            *norm("model.embedding_norm", dims.hidden_size),
            *blocks.lm_head(dims.vocab_size, dims.hidden_size, tied=tied),
        ),
        buffer_elements=buffers,
    )
