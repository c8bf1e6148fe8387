"""Mixtures of experts of Qwen and OLMoE: experts under `mlp.experts`, dense layers in between by a step."""

from __future__ import annotations

from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.experts import read_feed_forwards


def _read_sparse_layers(config: Config, num_hidden_layers: int) -> tuple[bool, ...]:
    """Which layers are sparse by Qwen's rule: each `decoder_sparse_step`-th, but for `mlp_only_layers`."""
    step = config.integer("decoder_sparse_step", default=1)
    dense = set(config.optional_integers("mlp_only_layers") or ())
    return tuple(index not in dense and (index + 1) % step == 0 for index in range(num_hidden_layers))


def qwen2_moe(config: Config) -> Blueprint:
    """Qwen 1.5 MoE and Qwen 2 57B-A14B: a shared expert with a gate of its own."""
    dims = blocks.read_dimensions(config)
    hidden = dims.hidden_size
    experts = config.integer("num_experts", default=60)
    sparse = blocks.gated_moe(
        hidden,
        config.integer("moe_intermediate_size", default=1408),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, default=4),
        shared_size=config.integer("shared_expert_intermediate_size", default=5632),
        shared_name="mlp.shared_expert",
        extra=blocks.router("mlp.shared_expert_gate", hidden, 1),
    )
    sparse_layers = _read_sparse_layers(config, dims.num_hidden_layers)
    attention = blocks.gqa(dims, qkv_bias=config.boolean("qkv_bias", default=True))
    windows = _qwen2_moe_windows(config, dims.num_hidden_layers)
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=read_feed_forwards(config, dims.hidden_size, sparse_layers, sparse),
        tensors=blocks.ends(config, dims),
    )


def _qwen2_moe_windows(config: Config, num_hidden_layers: int) -> tuple[int | None, ...]:
    used = config.boolean("use_sliding_window", default=False)
    window = config.optional_integer("sliding_window", minimum=0) or None
    first = config.optional_integer("max_window_layers", minimum=0)
    if not used:
        return blocks.read_windows(config, num_hidden_layers, window=None)
    limit = 28 if first is None else first
    default = tuple(index % 2 == 0 and index < limit for index in range(num_hidden_layers))
    return blocks.read_windows(config, num_hidden_layers, window=window or 4096, default=default)


def qwen3_moe(config: Config) -> Blueprint:
    """Qwen 3 MoE: norms of queries and keys, no shared expert."""
    dims = blocks.read_dimensions(config, num_key_value_heads=4)
    if not config.boolean("use_qk_norm", default=True):
        raise config.unsupported("use_qk_norm", "false is not understood for this family")
    experts = config.integer("num_experts", "num_local_experts", default=128)
    sparse = blocks.gated_moe(
        dims.hidden_size,
        config.integer("moe_intermediate_size", default=768),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, default=8),
    )
    sparse_layers = _read_sparse_layers(config, dims.num_hidden_layers)
    bias = config.boolean("attention_bias", default=False)
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims))
    window = config.optional_integer("sliding_window", minimum=0) or None
    if not config.boolean("use_sliding_window", default=False):
        window = None
    config.ignore("max_window_layers")
    windows = blocks.read_windows(
        config,
        dims.num_hidden_layers,
        window=window,
        default=(window is not None,) * dims.num_hidden_layers,
    )
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=read_feed_forwards(config, dims.hidden_size, sparse_layers, sparse),
        tensors=blocks.ends(config, dims),
    )


def flint(config: Config) -> Blueprint:
    """Flint: Qwen 3 MoE with sinks, a shared expert and windows."""
    dims = blocks.read_dimensions(config, num_key_value_heads=4, head_dim=128)
    count = dims.num_hidden_layers
    experts = config.integer("num_experts", default=256)
    sparse = blocks.gated_moe(
        dims.hidden_size,
        config.integer("moe_intermediate_size", default=512),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, default=6),
        shared_size=config.integer("shared_expert_intermediate_size", default=1024),
        shared_name="mlp.shared_expert",
    )
    config.integer("decoder_sparse_step", default=1, maximum=1)
    dense = config.optional_integers("mlp_only_layers")
    dense = (0, 1) if dense is None else dense
    sparse_layers = tuple(index not in dense for index in range(count))
    bias = config.boolean("attention_bias", default=False)
    extra = (*blocks.sinks(dims.num_attention_heads), *blocks.qk_norm(dims))
    full = {0, 1, count - 1}
    windows = blocks.read_windows(
        config,
        count,
        window=blocks.read_window(config, default=513),
        default=tuple(index not in full and index % 4 != 1 for index in range(count)),
    )
    return blocks.stack(
        dims,
        mixers=blocks.windowed(blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=extra), windows),
        feed_forward=read_feed_forwards(config, dims.hidden_size, sparse_layers, sparse),
        tensors=blocks.ends(config, dims),
    )


def olmoe(config: Config) -> Blueprint:
    """OLMoE: norms of queries and keys over all heads; expert width is `intermediate_size`."""
    return _olmoe(config, blocks.TWO_NORMS, num_experts=64, top_k=8)


def flex_olmo(config: Config) -> Blueprint:
    """FlexOLMo: OLMoE with OLMo 2's norms."""
    return _olmoe(config, ("post_attention_layernorm", "post_feedforward_layernorm"), num_experts=7, top_k=5)


def _olmoe(config: Config, norm_names: tuple[str, ...], *, num_experts: int, top_k: int) -> Blueprint:
    dims = blocks.read_dimensions(config)
    experts = config.integer("num_experts", default=num_experts)
    bias = config.boolean("attention_bias", default=False)
    config.ignore("clip_qkv")
    sparse = blocks.gated_moe(
        dims.hidden_size,
        config.integer("intermediate_size"),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, default=top_k),
    )
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims, full_width=True)),
        feed_forward=sparse,
        layer_tensors=blocks.norms(norm_names, dims.hidden_size),
        tensors=blocks.ends(config, dims),
    )
