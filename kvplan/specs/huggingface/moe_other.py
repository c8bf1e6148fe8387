"""Mixtures of experts with a layout of their own: Granite, gpt-oss, MiniMax-M2, DBRX, Grok, Arctic, Cohere."""

from __future__ import annotations

from kvplan.core.model import Attention, MixtureOfExperts
from kvplan.core.tensors import Tensor, TensorClass, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.moe import alternate

_W = ("w1", "w3", "w2")


def granitemoe(config: Config) -> Blueprint:
    """Granite 3 MoE: fused gate and up of the experts, optionally a shared feed-forward."""
    dims = blocks.read_dimensions(config)
    return _granitemoe(config, dims, windows=None)


def granitemoe_swa(config: Config) -> Blueprint:
    """Granite MoE with windows and sinks: full attention on every fourth layer, from the first."""
    dims = blocks.read_dimensions(config)
    count = dims.num_hidden_layers
    windows = blocks.read_windows(
        config,
        count,
        window=blocks.read_window(config, default=128),
        default=tuple(index % 4 != 0 for index in range(count)),
    )
    config.ignore("layer_rope_theta")
    return _granitemoe(config, dims, windows=windows, sink=True)


def _granitemoe(
    config: Config, dims: Dimensions, *, windows: tuple[int | None, ...] | None, sink: bool = False
) -> Blueprint:
    hidden = dims.hidden_size
    experts = config.integer("num_local_experts", default=8)
    bias = config.boolean("attention_bias", default=False)
    size = config.integer("intermediate_size")
    shared_size = config.optional_integer("shared_intermediate_size", minimum=0) or 0
    routed = blocks.two_tensors(
        ("block_sparse_moe.input_linear", "block_sparse_moe.output_linear"),
        hidden,
        size,
        tensor_class=TensorClass.EXPERTS,
        up_factor=2,
        copies=experts,
    )
    shared: tuple[Tensor, ...] = ()
    if shared_size:
        names = ("shared_mlp.input_linear", "shared_mlp.output_linear")
        shared = blocks.two_tensors(names, hidden, shared_size, tensor_class=TensorClass.SHARED, up_factor=2)
    sparse = MixtureOfExperts(
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, default=2),
        tensors=(*blocks.router("block_sparse_moe.router.layer", hidden, experts), *routed, *shared),
    )
    attention = blocks.gqa(
        dims, qkv_bias=bias, o_bias=bias, extra=blocks.sinks(dims.num_attention_heads) if sink else ()
    )
    return blocks.stack(
        dims,
        mixers=attention if windows is None else blocks.windowed(attention, windows),
        feed_forward=sparse,
        tensors=blocks.ends(config, dims),
    )


def gpt_oss(config: Config) -> Blueprint:
    """gpt-oss: sinks, biases everywhere, every other layer windowed from the first."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8, head_dim=64)
    hidden = dims.hidden_size
    experts = config.integer("num_local_experts", "num_experts", default=128)
    top_k = blocks.read_top_k(config, experts, "num_experts_per_tok", "experts_per_token", default=4)
    bias = config.boolean("attention_bias", default=True)
    config.ignore("initial_context_length", "swiglu_limit", "swiglu_alpha")
    size = config.integer("intermediate_size")
    routed = blocks.two_tensors(
        ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
        hidden,
        size,
        tensor_class=TensorClass.EXPERTS,
        up_factor=2,
        bias=True,
        copies=experts,
    )
    sparse = MixtureOfExperts(
        num_experts=experts,
        top_k=top_k,
        tensors=(*blocks.router("mlp.router", hidden, experts, bias=True), *routed),
    )
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.sinks(dims.num_attention_heads))
    windows = blocks.read_windows(
        config,
        dims.num_hidden_layers,
        window=blocks.read_window(config, default=128),
        default=blocks.patterned(dims.num_hidden_layers, 2),
    )
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=sparse,
        tensors=blocks.ends(config, dims),
    )


def minimax_m2(config: Config) -> Blueprint:
    """MiniMax-M2: norms of queries and keys over all heads, a correction bias per expert."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8, head_dim=128)
    experts = config.integer("num_local_experts", "num_experts", default=256)
    if config.optional_integer("shared_intermediate_size", minimum=0):
        raise config.unsupported("shared_intermediate_size", "a shared expert is not understood for this family")
    extra = blocks.qk_norm(dims, full_width=True)
    if config.string("qk_norm_type", default="per_layer") != "per_layer":
        raise config.unsupported("qk_norm_type", "only 'per_layer' is understood")
    if not config.boolean("use_qk_norm", default=True):
        raise config.unsupported("use_qk_norm", "false is not understood for this family")
    types = config.raw("attn_type_list")
    if types is not None and (not isinstance(types, list) or any(kind != 1 for kind in types)):
        raise config.unsupported("attn_type_list", "only full attention (1) is understood for this family")
    config.ignore("use_routing_bias", "layernorm_full_attention_beta", "layernorm_linear_attention_beta")
    config.ignore("layernorm_mlp_beta", "mlp_intermediate_size", "mtp_transformer_layers")
    sparse = blocks.gated_moe(
        dims.hidden_size,
        config.integer("intermediate_size"),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, default=8),
        name="block_sparse_moe.experts",
        names=_W,
        routing=blocks.router("block_sparse_moe.gate", dims.hidden_size, experts),
    )
    modules = config.optional_integer("num_mtp_modules", minimum=0) or 0
    if not config.boolean("use_mtp", default=False):
        modules = 0
    made = blocks.stack(
        dims,
        mixers=blocks.gqa(dims, extra=extra),
        feed_forward=sparse,
        tensors=blocks.ends(config, dims),
        buffer_elements=experts * dims.num_hidden_layers,
    )
    return blocks.with_mtp(made, modules)


def dbrx(config: Config) -> Blueprint:
    """DBRX: fused QKV, norms without biases, all layers sparse."""
    attn = config.nested("attn_config")
    ffn = config.nested("ffn_config")
    hidden = config.integer("d_model", "hidden_size")
    heads = config.integer("n_heads", "num_attention_heads")
    kv_heads = attn.integer("kv_n_heads", default=1)
    if hidden % heads or heads % kv_heads:
        raise attn.error("kv_n_heads", f"{kv_heads} KV heads, {heads} heads and width {hidden} do not divide")
    attn.ignore("clip_qkv", "attn_pdrop", "model_type")
    ffn.ignore("ffn_act_fn", "moe_normalize_expert_weights", "moe_jitter_eps", "moe_loss_weight", "hidden_size")
    ffn.ignore("uniform_expert_assignment", "model_type")
    config.ignore("num_key_value_heads")
    dims = Dimensions(
        hidden_size=hidden,
        num_hidden_layers=config.integer("n_layers", "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden // heads,
        vocab_size=config.integer("vocab_size"),
        max_context=blocks.read_max_context(config),
    )
    experts = ffn.integer("moe_num_experts", default=4)
    sparse = blocks.gated_moe(
        hidden,
        ffn.integer("ffn_hidden_size", default=3584),
        num_experts=experts,
        top_k=blocks.read_top_k(ffn, experts, "moe_top_k", default=1),
        name="ffn.experts.mlp",
        names=("w1", "v1", "w2"),
        routing=blocks.router("ffn.router.layer", hidden, experts),
    )
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(dims, qkv="norm_attn_norm.attn.Wqkv", output="norm_attn_norm.attn.out_proj"),
        feed_forward=sparse,
        layer_tensors=blocks.norms(("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"), hidden),
        tensors=blocks.ends(
            config, dims, final_norm=norm("transformer.norm_f", hidden), embedding_name="transformer.wte"
        ),
        prefix="transformer.blocks.{i}.",
    )


def grok1(config: Config) -> Blueprint:
    """Grok-1: Mixtral with four norms and a tied head."""
    dims = blocks.read_dimensions(config)
    experts = config.integer("num_experts")
    config.ignore("attn_output_multiplier", "embedding_multiplier_scale", "output_multiplier_scale", "max_attn_value")
    sparse = blocks.gated_moe(
        dims.hidden_size,
        config.integer("intermediate_size"),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts),
        name="moe_block.experts",
        names=("linear", "linear_v", "linear_1"),
        routing=blocks.router("moe_block.gate", dims.hidden_size, experts),
    )
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, name="attn"),
        feed_forward=sparse,
        layer_tensors=blocks.norms(
            ("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"), dims.hidden_size
        ),
        tensors=blocks.ends(config, dims, tied_default=True),
    )


def arctic(config: Config) -> Blueprint:
    """Arctic: each layer a small dense feed-forward beside many experts, with a norm of its own."""
    dims = blocks.read_dimensions(config)
    hidden = dims.hidden_size
    experts = config.integer("num_local_experts")
    bias = config.boolean("attention_bias", default=False)
    period = config.integer("moe_layer_frequency", default=1)
    beside = config.boolean("parallel_attn_mlp_res", default=config.boolean("use_residual", default=False))
    config.ignore("enable_expert_tensor_parallelism", "moe_eval_capacity_factor", "moe_train_capacity_factor")
    config.ignore("moe_min_capacity", "moe_token_dropping", "enc_index")
    if period != 1 or not beside:
        raise config.unsupported("moe_layer_frequency", "only the published layout (1, with residual) is understood")
    shared = blocks.gated_tensors("residual_mlp", hidden, hidden, tensor_class=TensorClass.SHARED, names=_W)
    sparse = blocks.gated_moe(
        hidden,
        config.integer("intermediate_size"),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts),
        name="block_sparse_moe.experts",
        names=_W,
        routing=blocks.router("block_sparse_moe.gate", hidden, experts),
        extra=shared,
    )
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=sparse,
        layer_tensors=blocks.norms((*blocks.TWO_NORMS, "residual_layernorm"), hidden),
        tensors=blocks.ends(config, dims),
    )


def minicpm_moe(config: Config) -> Blueprint:
    """MiniCPM-MoE: MiniCPM with experts as wide as its dense feed-forward."""
    dims = blocks.read_dimensions(config)
    experts = config.integer("num_experts", minimum=0)
    config.ignore("scale_emb", "dim_model_base", "scale_depth", "mup_denominator")
    bias = config.boolean("attention_bias", default=False)
    sparse = blocks.gated_moe(
        dims.hidden_size,
        config.integer("intermediate_size"),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts),
        names=_W,
    )
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=sparse,
        tensors=blocks.ends(config, dims, tied_default=True),
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
    attention: Attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias)
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=alternate(sparse_layers, sparse, blocks.gated_mlp(hidden, prefix_size)),
        layer_tensors=norm("input_layernorm", hidden),
        tensors=blocks.ends(config, dims, tied_default=True),
        parallel_attention=True,
    )


def jetmoe(config: Config) -> Blueprint:
    """JetMoE: experts in attention as well; their projections of queries and output are told as routed experts."""
    raise config.unsupported("model_type", "'jetmoe' routes its attention over experts, which is not modelled")
