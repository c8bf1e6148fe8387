"""DeepSeek-style mixtures whose layers differ in more than their feed-forward, or have gates and names of their own."""

from __future__ import annotations

from dataclasses import replace

from kvplan.core.tensors import TensorClass, linear, vector
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.experts import alternate, count_sparse, dense_first, read_experts
from kvplan.specs.huggingface.llama import ignore_ernie, read_qk_norm


def laguna(config: Config) -> Blueprint:
    """Laguna: a gate per head, heads that may differ by layer, one shared expert."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8, head_dim=128)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    heads = config.optional_integers("num_attention_heads_per_layer", length=count, minimum=1)
    bias = config.boolean("attention_bias", default=False)
    gating = config.raw("gating")
    if gating is not None and gating is not True and gating not in ("per-head", "per-element"):
        raise config.unsupported("gating", "only true, 'per-head' and 'per-element' are understood")
    per_head = gating != "per-element"
    experts = config.integer("num_experts", default=256)
    sparse = blocks.gated_moe(
        hidden,
        config.integer("moe_intermediate_size", default=512),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, default=8),
        shared_size=config.integer("shared_expert_intermediate_size", default=512),
        extra=vector("mlp.gate.e_score_correction_bias", TensorClass.OTHER, experts),
    )
    config.ignore("moe_routed_scaling_factor", "moe_apply_router_weight_on_input", "moe_router_logit_softcapping")
    windows = blocks.read_windows(config, count, window=blocks.read_window(config, default=512))
    mixers = []
    for index in range(count):
        own = replace(dims, num_attention_heads=heads[index]) if heads else dims
        if own.num_attention_heads % own.num_key_value_heads:
            raise config.error("num_attention_heads_per_layer", "must be multiples of num_key_value_heads")
        width = own.num_attention_heads * (1 if per_head else own.head_dim)
        gate = linear("self_attn.g_proj", TensorClass.ATTENTION, out_features=width, in_features=hidden)
        mixers.append(
            blocks.gqa(own, qkv_bias=bias, o_bias=bias, window=windows[index], extra=(*blocks.qk_norm(own), *gate))
        )
    return blocks.stack(
        dims,
        mixers=mixers,
        feed_forward=dense_first(config, dims, sparse, default=1),
        tensors=blocks.ends(config, dims),
    )


def afmoe(config: Config) -> Blueprint:
    """Trinity: gated attention, four norms, windows on all but each fourth layer."""
    dims = blocks.read_dimensions(config, head_dim=128)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    bias = config.boolean("attention_bias", default=False)
    experts = read_experts(config, shared_default=2)
    config.ignore("route_scale", "route_norm", "mup_enabled", "score_func", "num_limited_groups", "num_expert_groups")
    config.ignore("load_balance_coeff", "use_grouped_mm")
    sparse = blocks.gated_moe(
        hidden,
        experts.size,
        num_experts=experts.count,
        top_k=experts.top_k,
        shared_size=experts.shared * experts.size,
        routing=blocks.router("mlp.router.gate", hidden, experts.count),
        extra=vector("mlp.expert_bias", TensorClass.OTHER, experts.count),
    )
    period = config.integer("global_attn_every_n_layers", default=4)
    windows = blocks.read_periodic_windows(config, count, window=1024, period=period)
    width = dims.num_attention_heads * dims.head_dim
    gate = linear("self_attn.gate_proj", TensorClass.ATTENTION, out_features=width, in_features=hidden)
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=(*blocks.qk_norm(dims), *gate))
    names = (*blocks.TWO_NORMS, "pre_mlp_layernorm", "post_mlp_layernorm")
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=dense_first(config, dims, sparse, default=1),
        layer_tensors=blocks.norms(names, hidden),
        tensors=blocks.ends(config, dims),
    )


def ernie4_5_moe(config: Config) -> Blueprint:
    """ERNIE 4.5 MoE: sparse layers from a start to an end index, a correction bias that is a parameter."""
    dims = blocks.read_dimensions(config, num_key_value_heads=4)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    if config.boolean("use_bias", default=False):
        raise config.unsupported("use_bias", "true is not understood for this family")
    experts = config.integer("moe_num_experts", default=64)
    size = config.integer("moe_intermediate_size", default=1536)
    shared = config.integer("moe_num_shared_experts", default=2, minimum=0)
    sparse = blocks.gated_moe(
        hidden,
        size,
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, "moe_k", default=6),
        shared_size=shared * size,
        extra=vector("mlp.moe_statics.e_score_correction_bias", TensorClass.OTHER, 1, experts),
    )
    start = config.integer("moe_layer_start_index", default=1, minimum=0)
    end = config.optional_integer("moe_layer_end_index", minimum=-1)
    last = count - 1 if end is None or end == -1 else end
    step = config.integer("moe_layer_interval", default=1)
    ignore_ernie(config)
    config.ignore("moe_norm_min", "moe_capacity", "moe_gate", "moe_use_aux_free", "moe_aux_loss_lambda")
    if config.optional_integer("num_nextn_predict_layers", minimum=0):
        config.warnings.append("num_nextn_predict_layers: prediction layers are not counted")
    sparse_layers = tuple((index + 1) % step == 0 and start <= index <= last for index in range(count))
    dense = blocks.gated_mlp(hidden, config.integer("intermediate_size"))
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims),
        feed_forward=alternate(sparse_layers, sparse, dense),
        tensors=blocks.ends(config, dims, tied_default=True),
    )


def mimo_v2_flash(config: Config) -> Blueprint:
    """MiMo-V2-Flash: K and V of different width; windowed layers have KV heads of their own and sinks."""
    full = blocks.read_dimensions(config, num_key_value_heads=4, head_dim=192)
    count = full.num_hidden_layers
    v_head_dim = config.integer("v_head_dim", default=128)
    bias = config.boolean("attention_bias", default=False)
    local = replace(
        full,
        num_attention_heads=config.integer("swa_num_attention_heads", default=full.num_attention_heads),
        num_key_value_heads=config.integer("swa_num_key_value_heads", default=2 * full.num_key_value_heads),
        head_dim=config.integer("swa_head_dim", default=full.head_dim),
    )
    if local.num_attention_heads % local.num_key_value_heads:
        raise config.error("swa_num_key_value_heads", "must divide swa_num_attention_heads")
    config.ignore("attention_chunk_size", "attention_value_scale", "swa_rope_theta", "layernorm_epsilon")
    pattern = config.optional_integers("hybrid_layer_pattern", length=count)
    before = config.optional_integer("sliding_window_size")
    window = blocks.read_window(config, default=129)
    default = tuple(index != 0 and (index + 1) % 6 != 0 for index in range(count))
    if pattern is not None:
        default = tuple(kind == 1 for kind in pattern)
    windows = blocks.read_windows(config, count, window=window if before is None else before + 1, default=default)
    experts = read_experts(config)
    sparse_flags = config.optional_integers("moe_layer_freq", length=count)
    block = experts.block(full.hidden_size)
    if sparse_flags is None:
        forwards = dense_first(config, full, block, default=1)
    else:
        dense = blocks.gated_mlp(full.hidden_size, config.integer("intermediate_size"))
        forwards = alternate(tuple(flag == 1 for flag in sparse_flags), block, dense)
    full_sinks = config.boolean("add_full_attention_sink_bias", default=False)
    local_sinks = config.boolean("add_swa_attention_sink_bias", default=True)
    wide = blocks.gqa(
        full,
        qkv_bias=bias,
        v_head_dim=v_head_dim,
        extra=blocks.sinks(full.num_attention_heads) if full_sinks else (),
    )
    near = blocks.gqa(
        local,
        qkv_bias=bias,
        v_head_dim=config.integer("swa_v_head_dim", default=v_head_dim),
        extra=blocks.sinks(local.num_attention_heads) if local_sinks else (),
    )
    return blocks.stack(
        full,
        mixers=tuple(wide if width is None else replace(near, window=width) for width in windows),
        feed_forward=forwards,
        tensors=blocks.ends(config, full),
        buffer_elements=experts.count * count_sparse(forwards),
    )


def hunyuan_moe(config: Config) -> Blueprint:
    """Hunyuan-A13B: norms of queries and keys, one shared feed-forward; sizes may be lists, one entry per layer."""
    dims = blocks.read_dimensions(config)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    bias = config.boolean("attention_bias", default=False)
    read_qk_norm(config)
    experts = config.integers("num_experts", length=count, minimum=1)
    top_k = config.integers("moe_topk", length=count, minimum=1)
    sizes = config.optional_integers("moe_intermediate_size", length=count, minimum=1)
    shared = config.optional_integers("num_shared_expert", length=count) or (1,) * count
    if config.optional_integer("moe_layer_num_skipped", minimum=0):
        raise config.unsupported("moe_layer_num_skipped", "dense first layers are not understood for this family")
    size = config.integer("intermediate_size")
    config.ignore("use_mixed_mlp_moe", "moe_drop_tokens", "moe_random_routing_dropped_token", "capacity_factor")
    config.ignore("pretraining_tp", "group_limited_greedy", "n_group", "topk_group")
    forwards = []
    for index in range(count):
        if top_k[index] > experts[index]:
            raise config.error("moe_topk", f"{top_k[index]} is more than the {experts[index]} experts")
        inner = size if sizes is None else sizes[index]
        forwards.append(
            blocks.gated_moe(
                hidden,
                inner,
                num_experts=experts[index],
                top_k=top_k[index],
                shared_size=shared[index] * size,
                shared_name="mlp.shared_mlp",
                routing=blocks.router("mlp.gate.wg", hidden, experts[index]),
            )
        )
    extra = blocks.norms(("self_attn.query_layernorm", "self_attn.key_layernorm"), dims.head_dim)
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=extra),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
    )


def bailing_moe(config: Config) -> Blueprint:
    """Ling and Ring (1.5 and 2.0, softmax attention): fused QKV, dense layers first, shared experts."""
    dims = blocks.read_dimensions(config)
    hidden = dims.hidden_size
    experts = read_experts(config)
    qkv_bias = config.boolean("use_qkv_bias", default=False)
    bias = config.boolean("use_bias", default=False)
    extra = (
        blocks.norms(("attention.query_layernorm", "attention.key_layernorm"), dims.head_dim)
        if config.boolean("use_qk_norm", default=False)
        else ()
    )
    shared_size = config.optional_integer("moe_shared_expert_intermediate_size") or experts.size
    sparse = blocks.gated_moe(
        hidden,
        experts.size,
        num_experts=experts.count,
        top_k=experts.top_k,
        shared_size=experts.shared * shared_size,
    )
    biased = config.boolean("moe_router_enable_expert_bias", default=False)
    config.ignore("norm_head", "norm_softmax", "multi_gate", "moe_router_topk_scaling_factor", "use_rmsnorm")
    config.ignore("output_dropout", "embedding_dropout", "moe_router_enable_shared_expert", "max_window_layers")
    if config.boolean("use_sliding_window", default=False):
        raise config.unsupported("use_sliding_window", "true is not understood for this family")
    config.ignore("sliding_window")
    forwards = dense_first(config, dims, sparse)
    made = blocks.stack(
        dims,
        mixers=blocks.fused_gqa(
            dims,
            qkv="attention.query_key_value",
            output="attention.dense",
            qkv_bias=qkv_bias or bias,
            o_bias=bias,
            extra=extra,
        ),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims, embedding_name="model.word_embeddings"),
        buffer_elements=experts.count * count_sparse(forwards) if biased else 0,
    )
    return blocks.with_mtp(made, config.optional_integer("num_nextn_predict_layers", minimum=0) or 0)
