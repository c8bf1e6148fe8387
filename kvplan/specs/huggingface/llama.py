"""Plain decoders of the Llama kind: grouped-query attention and a gated feed-forward under root-mean-square norms.

Sizes, tying and defaults are those of each family's published config and of its modelling code in `transformers`.
"""

from __future__ import annotations

from kvplan.core.tensors import TensorClass, vector
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config


def llama_like(
    config: Config,
    *,
    dims: Dimensions | None = None,
    qkv_bias: bool | None = None,
    o_bias: bool | None = None,
    mlp_bias: bool | None = None,
    windows: tuple[int | None, ...] | None = None,
    head_norm: bool = False,
    extra_norms: tuple[str, ...] = (),
    tied: bool = False,
    sink: bool = False,
) -> Blueprint:
    """A decoder that differs from Llama by biases, windows or norms.

    Args:
        config: The (text) config.
        dims: Its sizes; None reads them with Llama's defaults.
        qkv_bias: Biases of Q, K and V; None follows `attention_bias`.
        o_bias: Bias of the output projection; None follows `attention_bias`.
        mlp_bias: Biases of the feed-forward; None follows `mlp_bias`.
        windows: Window of each layer; None is full attention.
        head_norm: True for norms of queries and keys, one head wide.
        extra_norms: Norms beyond the two of a layer.
        tied: The family's default of `tie_word_embeddings`.
        sink: True for one learned sink per head.
    """
    dims = dims or blocks.read_dimensions(config)
    attention_bias = config.boolean("attention_bias", default=False)
    extra = blocks.qk_norm(dims) if head_norm else ()
    if sink:
        extra = (*extra, *blocks.sinks(dims.num_attention_heads))
    attention = blocks.gqa(
        dims,
        qkv_bias=attention_bias if qkv_bias is None else qkv_bias,
        o_bias=attention_bias if o_bias is None else o_bias,
        extra=extra,
    )
    bias = config.boolean("mlp_bias", default=False) if mlp_bias is None else mlp_bias
    return blocks.stack(
        dims,
        mixers=attention if windows is None else blocks.windowed(attention, windows),
        feed_forward=blocks.gated_mlp(dims.hidden_size, config.integer("intermediate_size"), bias=bias),
        layer_tensors=blocks.norms((*blocks.TWO_NORMS, *extra_norms), dims.hidden_size),
        tensors=blocks.ends(config, dims, tied_default=tied),
    )


def llama(config: Config) -> Blueprint:
    """Llama 1 to 3.3, Code Llama, Yi, SmolLM and what else is published under `llama`."""
    return llama_like(config)


def mistral(config: Config) -> Blueprint:
    """Mistral: one window on all layers, none where `sliding_window` is null."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8)
    window = blocks.read_window(config, default=4096)
    config.ignore("prefill_chunk_size", "attention_sink_size")
    return llama_like(
        config, dims=dims, qkv_bias=False, o_bias=False, mlp_bias=False, windows=(window,) * dims.num_hidden_layers
    )


def ministral(config: Config) -> Blueprint:
    """Ministral 2410: windows by `layer_types`."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8)
    window = blocks.read_window(config, default=4096)
    windows = blocks.read_windows(
        config, dims.num_hidden_layers, window=window, default=(window is not None,) * dims.num_hidden_layers
    )
    return llama_like(config, dims=dims, qkv_bias=False, o_bias=False, mlp_bias=False, windows=windows)


def ministral3(config: Config) -> Blueprint:
    """Ministral 3: full attention unless a window is given; some files wrap it with its vision tower."""
    if config.has("text_config"):
        from kvplan.specs.huggingface.registry import adapter_of

        return adapter_of("mistral3")(config)
    dims = blocks.read_dimensions(config, num_key_value_heads=8, head_dim=128)
    window = blocks.read_window(config)
    return llama_like(
        config, dims=dims, qkv_bias=False, o_bias=False, mlp_bias=False, windows=(window,) * dims.num_hidden_layers
    )


def late_windows(config: Config, num_hidden_layers: int) -> tuple[int | None, ...]:
    """Windows of the Qwen kind: with `use_sliding_window`, on the layers from `max_window_layers` on."""
    window = config.optional_integer("sliding_window", minimum=0) or None
    first = config.optional_integer("max_window_layers", minimum=0)
    if not config.boolean("use_sliding_window", default=False):
        window = None
    if window is not None and first is None and not config.has("layer_types"):
        first = config.integer("max_window_layers", default=28)
    default = tuple(window is not None and index >= (first or 0) for index in range(num_hidden_layers))
    return blocks.read_windows(config, num_hidden_layers, window=window, default=default)


def qwen2(config: Config) -> Blueprint:
    """Qwen 1.5 to 2.5 and MiMo-7B: biases on Q, K and V."""
    dims = blocks.read_dimensions(config)
    config.ignore("attention_bias", "use_mrope")
    config.ignore("dual_chunk_attention_config")
    windows = late_windows(config, dims.num_hidden_layers)
    made = llama_like(config, dims=dims, qkv_bias=True, o_bias=False, mlp_bias=False, windows=windows)
    return blocks.with_mtp(made, config.optional_integer("num_nextn_predict_layers", minimum=0) or 0)


def qwen3(config: Config) -> Blueprint:
    """Qwen 3 dense: norms of queries and keys, head width 128 by default."""
    dims = blocks.read_dimensions(config, head_dim=128)
    windows = late_windows(config, dims.num_hidden_layers)
    return llama_like(config, dims=dims, mlp_bias=False, head_norm=True, windows=windows)


def smollm3(config: Config) -> Blueprint:
    """SmolLM 3: some layers without rotation, which changes no memory."""
    dims = blocks.read_dimensions(config, num_key_value_heads=4)
    config.ignore("no_rope_layers", "no_rope_layer_interval")
    return llama_like(config, dims=dims, tied=True, windows=late_windows(config, dims.num_hidden_layers))


def seed_oss(config: Config) -> Blueprint:
    """Seed-OSS: biases on Q, K, V by default, its own switch for the output."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8, head_dim=128)
    return llama_like(
        config,
        dims=dims,
        qkv_bias=config.boolean("attention_bias", default=True),
        o_bias=config.boolean("attention_out_bias", default=False),
    )


def helium(config: Config) -> Blueprint:
    """Helium: no bias on the output projection."""
    dims = blocks.read_dimensions(config, head_dim=128)
    _check_square(config, dims)
    return llama_like(config, dims=dims, o_bias=False)


def internlm3(config: Config) -> Blueprint:
    """InternLM 3: Llama whose bias switches are called `qkv_bias` and `bias`."""
    dims = blocks.read_dimensions(config, num_key_value_heads=2, head_dim=128)
    bias = config.boolean("qkv_bias", "attention_bias", default=False)
    mlp_bias = config.boolean("bias", "mlp_bias", default=False)
    return llama_like(config, dims=dims, qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias)


def iquestcoder(config: Config) -> Blueprint:
    """IQuest Coder: Llama with head width 128."""
    return llama_like(config, dims=blocks.read_dimensions(config, num_key_value_heads=8, head_dim=128))


def ernie4_5(config: Config) -> Blueprint:
    """ERNIE 4.5 dense: one switch for all biases."""
    dims = blocks.read_dimensions(config, num_key_value_heads=2, head_dim=128)
    bias = config.boolean("use_bias", default=False)
    ignore_ernie(config)
    return llama_like(config, dims=dims, qkv_bias=bias, o_bias=bias, mlp_bias=bias, tied=True)


def ignore_ernie(config: Config) -> None:
    """Pass what ERNIE's own code writes beside the sizes; a compression of positions stretches rotation only."""
    config.ignore("compression_ratio", "fuse_ln", "fuse_rms_norm", "freq_allocation", "use_rmsnorm", "rope_3d")
    config.ignore("weight_share_add_bias", "micro_batch_size", "sinkhorn_2gate", "sinkhorn_temp", "moe_gate_act")
    config.ignore(
        "moe_multimodal_dispatch_use_allgather", "moe_use_hard_gate", "moe_fuse_experts", "moe_reverse_token_drop"
    )


def granite(config: Config) -> Blueprint:
    """Granite 3 dense: Llama with scalar multipliers."""
    return llama_like(config)


def granite_swa(config: Config) -> Blueprint:
    """Granite with windows and sinks: full attention on every fourth layer, from the first."""
    dims = blocks.read_dimensions(config)
    windows = blocks.read_periodic_windows(config, dims.num_hidden_layers, window=128, period=4, full_first=True)
    config.ignore("layer_rope_theta")
    return llama_like(config, dims=dims, windows=windows, sink=True, tied=True)


def hyperclovax(config: Config) -> Blueprint:
    """HyperCLOVA X: Granite with two more norms when `use_post_norm`."""
    post = config.boolean("use_post_norm", default=True)
    return llama_like(config, extra_norms=("post_norm1", "post_norm2") if post else ())


def cwm(config: Config) -> Blueprint:
    """CWM: Llama without attention biases, windows by `layer_types`, full on every fourth layer from the first."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8, head_dim=128)
    windows = blocks.read_periodic_windows(config, dims.num_hidden_layers, window=8192, period=4, full_first=True)
    return llama_like(config, dims=dims, qkv_bias=False, o_bias=False, windows=windows)


def exaone4(config: Config) -> Blueprint:
    """EXAONE 4: norms after attention and feed-forward, norms of queries and keys, full attention each fourth layer."""
    dims = blocks.read_dimensions(config)
    window = blocks.read_window(config, default=4096)
    windows = exaone_windows(config, dims, window)
    return llama_like(config, dims=dims, qkv_bias=False, o_bias=False, mlp_bias=False, head_norm=True, windows=windows)


def exaone_windows(config: Config, dims: Dimensions, window: int | None) -> tuple[int | None, ...]:
    """Windows of EXAONE 4: `sliding_window_pattern` is a period, or one letter per layer of it (`LLLG`)."""
    pattern = config.raw("sliding_window_pattern")
    if isinstance(pattern, str):
        letters = pattern.upper()
        if not letters or set(letters) - {"L", "G"}:
            raise config.error("sliding_window_pattern", f"must be a number or letters L and G, not {pattern!r}")
        default = tuple(letters[index % len(letters)] == "L" for index in range(dims.num_hidden_layers))
    else:
        period = 4 if pattern is None else config.integer("sliding_window_pattern", minimum=0)
        default = (
            blocks.patterned(dims.num_hidden_layers, period)
            if period and window is not None
            else (False,) * dims.num_hidden_layers
        )
    if window is None:
        default = (False,) * dims.num_hidden_layers
    return blocks.read_windows(config, dims.num_hidden_layers, window=window, default=default)


def minicpm(config: Config) -> Blueprint:
    """MiniCPM 1 and 2 dense; the mixture-of-experts variant keeps experts under the same type."""
    if config.optional_integer("num_experts", minimum=0):
        from kvplan.specs.huggingface.mixtral import minicpm_moe

        return minicpm_moe(config)
    config.ignore("scale_emb", "dim_model_base", "scale_depth", "mup_denominator")
    return llama_like(config, tied=True)


def hunyuan_dense(config: Config) -> Blueprint:
    """Hunyuan dense: norms of queries and keys, switched by `use_qk_norm` in the original code."""
    dims = blocks.read_dimensions(config)
    read_qk_norm(config)
    config.ignore("pretraining_tp")
    return llama_like(config, dims=dims, mlp_bias=False, head_norm=True)


def read_qk_norm(config: Config) -> None:
    """Refuse a Hunyuan model without norms of queries and keys, which its modelling code always builds."""
    if not config.boolean("use_qk_norm", default=True):
        raise config.unsupported("use_qk_norm", "false is not understood for this family")
    if config.boolean("use_cla", default=False):
        raise config.unsupported("use_cla", "layers that share K and V (CLA) are not understood for this family")
    if config.boolean("use_mla", default=False):
        raise config.unsupported("use_mla", "latent attention is not understood for this family")
    config.ignore("cla_share_factor", "anyres_pooling_size", "anyres_vit_max_image_size", "anyres_vit_two_views")
    config.ignore(
        "class_num", "dense_list", "pool_type", "org_vocab_size", "position_embedding_xdrope", "xdrope_section"
    )
    config.ignore("add_classification_head", "skip_cls_token", "use_rotary_pos_emb", "norm_type", "num_media_embeds")


def nanochat(config: Config) -> Blueprint:
    """nanochat: norms without weights, a plain feed-forward."""
    dims = blocks.read_dimensions(config)
    bias = config.boolean("attention_bias", default=False)
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=blocks.plain_mlp(("mlp.fc1", "mlp.fc2"), dims.hidden_size, config.integer("intermediate_size")),
        layer_tensors=(),
        tensors=blocks.ends(config, dims, final_norm=()),
    )


def bitnet(config: Config) -> Blueprint:
    """BitNet b1.58: a norm before each output projection. Ternary packing is the quantisation's matter."""
    dims = blocks.read_dimensions(config, num_key_value_heads=5)
    _check_square(config, dims)
    intermediate = config.integer("intermediate_size")
    bias = config.boolean("attention_bias", default=False)
    extra = vector("self_attn.attn_sub_norm", TensorClass.OTHER, dims.hidden_size)
    inner = vector("mlp.ffn_sub_norm", TensorClass.OTHER, intermediate)
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=extra),
        feed_forward=blocks.gated_mlp(dims.hidden_size, intermediate),
        layer_tensors=(*blocks.norms(blocks.TWO_NORMS, dims.hidden_size), *inner),
        tensors=blocks.ends(config, dims),
    )


def _check_square(config: Config, dims: Dimensions) -> None:
    """Refuse heads that don't make up the hidden size, where the family's code needs them to."""
    if dims.num_attention_heads * dims.head_dim != dims.hidden_size:
        raise config.error("head_dim", "times num_attention_heads must be hidden_size for this family")
