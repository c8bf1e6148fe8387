"""Mixtral and its kin: softmax over experts on every layer. Phi-3.5-MoE, MiniMax-M2, Arctic, DBRX, Grok, MiniCPM-MoE."""

from __future__ import annotations

from kvplan.core.tensors import TensorClass, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.experts import W_NAMES, read_mixtral


def mixtral(config: Config) -> Blueprint:
    """Mixtral: all layers sparse, one window where given."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8)
    return blocks.stack(
        dims,
        mixers=blocks.windowed(blocks.gqa(dims), (blocks.read_window(config),) * dims.num_hidden_layers),
        feed_forward=read_mixtral(config, dims.hidden_size, experts=8, top_k=2),
        tensors=blocks.ends(config, dims),
    )


def phimoe(config: Config) -> Blueprint:
    """Phi-3.5-MoE: Mixtral with layer norms that have biases, biases in attention and on the head."""
    config.with_defaults({"max_position_embeddings": 131072})
    dims = blocks.read_dimensions(config, num_key_value_heads=8)
    hidden = dims.hidden_size
    bias = config.boolean("attention_bias", default=False)
    config.ignore("original_max_position_embeddings")
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias)
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, (blocks.read_window(config),) * dims.num_hidden_layers),
        feed_forward=read_mixtral(config, hidden, experts=16, top_k=2),
        layer_tensors=blocks.norms(blocks.TWO_NORMS, hidden, bias=True),
        tensors=blocks.ends(
            config,
            dims,
            final_norm=norm("model.norm", hidden, bias=True),
            head_bias=config.boolean("lm_head_bias", default=False),
        ),
    )


def minimax_m2(config: Config) -> Blueprint:
    """MiniMax-M2: norms of queries and keys over all heads, a correction bias per expert."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8, head_dim=128)
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
    sparse = read_mixtral(config, dims.hidden_size, experts=256, top_k=8)
    modules = config.optional_integer("num_mtp_modules", minimum=0) or 0
    if not config.boolean("use_mtp", default=False):
        modules = 0
    made = blocks.stack(
        dims,
        mixers=blocks.gqa(dims, extra=extra),
        feed_forward=sparse,
        tensors=blocks.ends(config, dims),
        buffer_elements=sparse.num_experts * dims.num_hidden_layers,
    )
    return blocks.with_mtp(made, modules)


def arctic(config: Config) -> Blueprint:
    """Arctic: each layer a small dense feed-forward beside many experts, with a norm of its own."""
    dims = blocks.read_dimensions(config)
    hidden = dims.hidden_size
    bias = config.boolean("attention_bias", default=False)
    period = config.integer("moe_layer_frequency", default=1)
    beside = config.boolean("parallel_attn_mlp_res", default=config.boolean("use_residual", default=False))
    config.ignore("enable_expert_tensor_parallelism", "moe_eval_capacity_factor", "moe_train_capacity_factor")
    config.ignore("moe_min_capacity", "moe_token_dropping", "enc_index")
    if period != 1 or not beside:
        raise config.unsupported("moe_layer_frequency", "only the published layout (1, with residual) is understood")
    residual = blocks.gated_tensors("residual_mlp", hidden, hidden, tensor_class=TensorClass.SHARED, names=W_NAMES)
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=read_mixtral(config, hidden, extra=residual),
        layer_tensors=blocks.norms((*blocks.TWO_NORMS, "residual_layernorm"), hidden),
        tensors=blocks.ends(config, dims),
    )


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


def minicpm_moe(config: Config) -> Blueprint:
    """MiniCPM-MoE: MiniCPM with experts as wide as its dense feed-forward."""
    dims = blocks.read_dimensions(config)
    experts = config.integer("num_experts")
    config.ignore("scale_emb", "dim_model_base", "scale_depth", "mup_denominator")
    bias = config.boolean("attention_bias", default=False)
    sparse = blocks.gated_moe(
        dims.hidden_size,
        config.integer("intermediate_size"),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts),
        names=W_NAMES,
    )
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=sparse,
        tensors=blocks.ends(config, dims, tied_default=True),
    )
