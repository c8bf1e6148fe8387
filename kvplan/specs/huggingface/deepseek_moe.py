"""Mixtures of experts of the DeepSeek kind over plain attention: dense layers first, shared experts, biased routers."""

from __future__ import annotations

from kvplan.core.model import FeedForward
from kvplan.core.tensors import TensorClass, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.experts import alternate, count_sparse, dense_first, read_experts
from kvplan.specs.huggingface.llama import exaone_windows


def deepseek(config: Config) -> Blueprint:
    """DeepSeek 1: DeepSeekMoE over multi-head attention, or a plain Llama without experts."""
    dims = blocks.read_dimensions(config)
    bias = config.boolean("attention_bias", default=False)
    forwards: tuple[FeedForward, ...]
    if config.has("n_routed_experts"):
        if config.integer("moe_layer_freq", default=1) != 1:
            raise config.unsupported("moe_layer_freq", "only 1 is understood")
        forwards = dense_first(config, dims, read_experts(config).block(dims.hidden_size))
    else:
        config.ignore("moe_intermediate_size", "n_shared_experts", "num_experts_per_tok", "first_k_dense_replace")
        config.ignore("moe_layer_freq")
        forwards = (blocks.gated_mlp(dims.hidden_size, config.integer("intermediate_size")),) * dims.num_hidden_layers
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
    )


def glm4_moe(config: Config) -> Blueprint:
    """GLM-4.5 to 4.7 and INTELLECT-3: biases on Q, K, V and norms of queries and keys by switches."""
    return _glm_like(config, norms_default=False, dense_default=1)


def sarvam_moe(config: Config) -> Blueprint:
    """Sarvam MoE: GLM-4.5 with norms of queries and keys by default."""
    return _glm_like(config, norms_default=True, dense_default=1, head_dim=64, kv_heads=4)


def solar_open(config: Config) -> Blueprint:
    """Solar Open: GLM-4.5 with all layers sparse."""
    return _glm_like(config, norms_default=False, dense_default=0, head_dim=128)


def _glm_like(
    config: Config,
    *,
    norms_default: bool,
    dense_default: int,
    head_dim: int | None = None,
    kv_heads: int = 8,
) -> Blueprint:
    dims = blocks.read_dimensions(config, num_key_value_heads=kv_heads, head_dim=head_dim)
    experts = read_experts(config, shared_default=1)
    forwards = dense_first(config, dims, experts.block(dims.hidden_size), default=dense_default)
    extra = blocks.qk_norm(dims) if config.boolean("use_qk_norm", default=norms_default) else ()
    made = blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=config.boolean("attention_bias", default=False), extra=extra),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
        buffer_elements=experts.count * count_sparse(forwards),
    )
    return blocks.with_mtp(made, config.optional_integer("num_nextn_predict_layers", minimum=0) or 0)


def dots1(config: Config) -> Blueprint:
    """dots.llm1: norms of queries and keys, windows by Qwen's late-layer rule."""
    dims = blocks.read_dimensions(config)
    experts = read_experts(config)
    forwards = dense_first(config, dims, experts.block(dims.hidden_size))
    bias = config.boolean("attention_bias", default=False)
    window = blocks.read_window(config)
    first = config.optional_integer("max_window_layers", minimum=0)
    config.ignore("use_sliding_window")
    limit = 62 if first is None else first
    windows = blocks.read_windows(
        config,
        dims.num_hidden_layers,
        window=window,
        default=tuple(window is not None and index >= limit for index in range(dims.num_hidden_layers)),
    )
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims))
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
        buffer_elements=experts.count * count_sparse(forwards),
    )


def exaone_moe(config: Config) -> Blueprint:
    """K-EXAONE: EXAONE 4's windows and norms of queries and keys over a DeepSeek-style mixture."""
    dims = blocks.read_dimensions(config)
    window = blocks.read_window(config, default=4096)
    windows = exaone_windows(config, dims, window)
    experts = read_experts(config, shared_default=1)
    config.ignore("is_moe_layer")
    forwards = dense_first(config, dims, experts.block(dims.hidden_size), default=1)
    made = blocks.stack(
        dims,
        mixers=blocks.windowed(blocks.gqa(dims, extra=blocks.qk_norm(dims)), windows),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
        buffer_elements=experts.count * count_sparse(forwards),
    )
    return blocks.with_mtp(made, config.optional_integer("num_nextn_predict_layers", minimum=0) or 0)


def hy_v3(config: Config) -> Blueprint:
    """Hunyuan 3: norms of queries and keys, optional biases everywhere but in routed experts."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8, head_dim=128)
    experts = read_experts(config, shared_default=1)
    bias = config.boolean("attention_bias", default=False)
    mlp_bias = config.boolean("mlp_bias", default=False)
    config.ignore("router_scaling_factor", "enable_moe_fp32_combine")
    sparse = experts.block(dims.hidden_size, shared_bias=mlp_bias)
    forwards = dense_first(config, dims, sparse, default=1, dense_bias=mlp_bias)
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims)),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
        buffer_elements=experts.count * count_sparse(forwards),
    )


def mellum(config: Config) -> Blueprint:
    """Mellum 2: Qwen 3 MoE with windows and sparse layers by type."""
    dims = blocks.read_dimensions(config, num_key_value_heads=4, head_dim=128)
    experts = read_experts(config)
    bias = config.boolean("attention_bias", default=False)
    windows = blocks.read_windows(config, dims.num_hidden_layers, window=blocks.read_window(config, default=1024))
    config.ignore("mtp_layer_types", "mtp_mlp_layer_types")
    if config.optional_integer("num_nextn_predict_layers", minimum=0):
        config.warnings.append("num_nextn_predict_layers: prediction layers are not counted")
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims))
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=dense_first(config, dims, experts.block(dims.hidden_size)),
        tensors=blocks.ends(config, dims),
    )


def kolibri1(config: Config) -> Blueprint:
    """Kolibri 1: four norms, norms of queries and keys, windows on all but each fifth layer, one shared expert."""
    dims = blocks.read_dimensions(config, num_key_value_heads=4, head_dim=128)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    experts = config.integer("num_local_experts", "num_experts", default=384)
    sparse = blocks.gated_moe(
        hidden,
        config.integer("moe_intermediate_size", default=512),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, default=6),
        shared_size=config.integer("shared_expert_intermediate_size", default=512),
    )
    windows = blocks.read_periodic_windows(config, count, window=513, period=5)
    config.ignore("attention_bias")
    names = (*blocks.TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")
    return blocks.stack(
        dims,
        mixers=blocks.windowed(blocks.gqa(dims, extra=blocks.qk_norm(dims)), windows),
        feed_forward=sparse,
        layer_tensors=blocks.norms(names, hidden),
        tensors=blocks.ends(config, dims),
        buffer_elements=experts * count,
    )


def aria_text(config: Config) -> Blueprint:
    """Aria's decoder: fused experts, shared ones with biases by `mlp_bias`."""
    dims = blocks.read_dimensions(config)
    hidden = dims.hidden_size
    bias = config.boolean("attention_bias", default=False)
    experts = config.integer("moe_num_experts", default=8)
    size = config.integer("intermediate_size")
    shared = config.integer("moe_num_shared_experts", default=2, minimum=0)
    sparse = blocks.gated_moe(
        hidden,
        size,
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, "moe_topk", default=2),
        routing=blocks.router("mlp.router", hidden, experts),
        extra=blocks.gated_tensors(
            "mlp.shared_experts",
            hidden,
            shared * size,
            tensor_class=TensorClass.SHARED,
            bias=config.boolean("mlp_bias", default=False),
        )
        if shared
        else (),
    )
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=sparse,
        tensors=blocks.ends(config, dims),
    )


def cohere2_moe(config: Config) -> Blueprint:
    """Cohere 2 with experts: a parallel block, dense layers first, shared experts."""
    dims = blocks.read_dimensions(config, head_dim=128)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    first = config.optional_integer("first_k_dense_replace", minimum=0) or 0
    kinds = config.strings("mlp_layer_types", length=count)
    sparse_layers = (
        tuple(index >= first for index in range(count)) if kinds is None else tuple(k == "sparse" for k in kinds)
    )
    experts = config.integer("num_experts", default=8)
    shared = config.optional_integer("num_shared_experts", minimum=0) or 0
    size = config.integer("intermediate_size")
    sparse = blocks.gated_moe(
        hidden,
        size,
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, default=2),
        shared_size=shared * size,
    )
    prefix_size = config.optional_integer("prefix_dense_intermediate_size") or size
    own = config.integer("prefix_dense_sliding_window_pattern", default=1)
    period = config.integer("sliding_window_pattern", default=4)
    windows = blocks.read_windows(
        config,
        count,
        window=blocks.read_window(config, default=4096),
        default=(*blocks.patterned(min(first, count), own), *blocks.patterned(max(count - first, 0), period)),
    )
    bias = config.boolean("attention_bias", default=False)
    config.ignore("shared_expert_combination_strategy", "expert_selection_fn", "logit_scale")
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias)
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=alternate(sparse_layers, sparse, blocks.gated_mlp(hidden, prefix_size)),
        layer_tensors=norm("input_layernorm", hidden),
        tensors=blocks.ends(config, dims, tied_default=True),
        parallel_attention=True,
    )
