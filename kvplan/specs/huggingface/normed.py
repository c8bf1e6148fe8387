"""Decoders with grouped-query attention whose norms, biases or feed-forward differ from Llama's."""

from __future__ import annotations

from kvplan.core.tensors import Tensor, TensorClass, norm, vector
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config


def gemma(config: Config) -> Blueprint:
    """Gemma 1: head width 256 apart from the hidden size, tied head."""
    dims = blocks.read_dimensions(config, num_key_value_heads=16, head_dim=256)
    return _gemma(config, dims, windows=None, norm_names=blocks.TWO_NORMS)


def gemma2(config: Config) -> Blueprint:
    """Gemma 2: four norms, every other layer windowed from the first."""
    dims = blocks.read_dimensions(config, num_key_value_heads=4, head_dim=256)
    windows = blocks.read_periodic_windows(config, dims.num_hidden_layers, window=4096, period=2)
    names = (*blocks.TWO_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
    return _gemma(config, dims, windows=windows, norm_names=names)


def vaultgemma(config: Config) -> Blueprint:
    """VaultGemma: Gemma 2 without the norms after attention and feed-forward."""
    dims = blocks.read_dimensions(config, num_key_value_heads=4, head_dim=256)
    windows = blocks.read_periodic_windows(config, dims.num_hidden_layers, window=4096, period=2)
    return _gemma(config, dims, windows=windows, norm_names=("input_layernorm", "pre_feedforward_layernorm"))


def _gemma(
    config: Config,
    dims: Dimensions,
    *,
    windows: tuple[int | None, ...] | None,
    norm_names: tuple[str, ...],
) -> Blueprint:
    if config.boolean("use_bidirectional_attention", default=False):
        raise config.unsupported("use_bidirectional_attention", "true is not understood for a decoder")
    bias = config.boolean("attention_bias", default=False)
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias)
    return blocks.stack(
        dims,
        mixers=attention if windows is None else blocks.windowed(attention, windows),
        feed_forward=blocks.gated_mlp(dims.hidden_size, config.integer("intermediate_size")),
        layer_tensors=blocks.norms(norm_names, dims.hidden_size),
        tensors=blocks.ends(config, dims, tied_default=True),
    )


def olmo(config: Config) -> Blueprint:
    """OLMo 1: norms without weights."""
    dims = blocks.read_dimensions(config)
    bias = config.boolean("attention_bias", default=False)
    config.ignore("clip_qkv")
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=blocks.gated_mlp(dims.hidden_size, config.integer("intermediate_size")),
        layer_tensors=(),
        tensors=blocks.ends(config, dims, final_norm=()),
    )


def olmo2(config: Config) -> Blueprint:
    """OLMo 2: norms after attention and feed-forward, norms of queries and keys over all heads."""
    return _olmo2(config, blocks.read_dimensions(config), windows=None)


def olmo3(config: Config) -> Blueprint:
    """OLMo 3: OLMo 2 with windows on three of four layers."""
    dims = blocks.read_dimensions(config)
    windows = blocks.read_periodic_windows(config, dims.num_hidden_layers, window=4096, period=4)
    return _olmo2(config, dims, windows=windows)


def _olmo2(config: Config, dims: Dimensions, *, windows: tuple[int | None, ...] | None) -> Blueprint:
    bias = config.boolean("attention_bias", default=False)
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims, full_width=True))
    return blocks.stack(
        dims,
        mixers=attention if windows is None else blocks.windowed(attention, windows),
        feed_forward=blocks.gated_mlp(dims.hidden_size, config.integer("intermediate_size")),
        layer_tensors=blocks.norms(("post_attention_layernorm", "post_feedforward_layernorm"), dims.hidden_size),
        tensors=blocks.ends(config, dims),
    )


def glm(config: Config) -> Blueprint:
    """GLM-4-9B (converted): biases on Q, K and V, fused gate and up."""
    return _glm(config, blocks.TWO_NORMS)


def glm4(config: Config) -> Blueprint:
    """GLM-4-0414: GLM with two more norms."""
    return _glm(config, (*blocks.TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"))


def _glm(config: Config, norm_names: tuple[str, ...]) -> Blueprint:
    dims = blocks.read_dimensions(config, num_key_value_heads=2, head_dim=128)
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=config.boolean("attention_bias", default=True)),
        feed_forward=blocks.plain_mlp(
            ("mlp.gate_up_proj", "mlp.down_proj"), dims.hidden_size, config.integer("intermediate_size"), up_factor=2
        ),
        layer_tensors=blocks.norms(norm_names, dims.hidden_size),
        tensors=blocks.ends(config, dims),
    )


def phi3(config: Config) -> Blueprint:
    """Phi-3 and Phi-4: fused QKV, fused gate and up, one window on all layers where given."""
    dims = blocks.read_dimensions(config)
    attention = blocks.fused_gqa(dims, qkv="self_attn.qkv_proj", output="self_attn.o_proj")
    for name in ("attention_bias", "mlp_bias", "lm_head_bias"):
        if config.boolean(name, default=False):
            raise config.unsupported(name, "true is not understood for this family")
    config.ignore("original_max_position_embeddings", "full_attn_mod", "interpolate_factor")
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, (blocks.read_window(config),) * dims.num_hidden_layers),
        feed_forward=blocks.plain_mlp(
            ("mlp.gate_up_proj", "mlp.down_proj"), dims.hidden_size, config.integer("intermediate_size"), up_factor=2
        ),
        tensors=blocks.ends(config, dims),
    )


def cohere(config: Config) -> Blueprint:
    """Command R and Aya: one norm, attention beside feed-forward, tied head."""
    return _cohere(config, blocks.read_dimensions(config), windows=None)


def cohere2(config: Config) -> Blueprint:
    """Command R7B and A: Cohere with windows on three of four layers."""
    dims = blocks.read_dimensions(config)
    return _cohere(config, dims, windows=cohere_windows(config, dims.num_hidden_layers))


def cohere_windows(config: Config, num_hidden_layers: int) -> tuple[int | None, ...]:
    """Windows of Cohere 2: by `layer_types`, else all but each `sliding_window_pattern`-th layer."""
    pattern = 4
    if config.has("layer_types"):
        config.ignore("sliding_window_pattern", "_sliding_window_pattern", "order_of_interleaved_layers")
    else:
        pattern = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=4)
    return blocks.read_periodic_windows(config, num_hidden_layers, window=4096, period=pattern)


def _cohere(config: Config, dims: Dimensions, *, windows: tuple[int | None, ...] | None) -> Blueprint:
    bias = config.boolean("attention_bias", default=False)
    extra: tuple[Tensor, ...] = ()
    if config.boolean("use_qk_norm", default=False):
        extra = (
            *vector("self_attn.q_norm", TensorClass.OTHER, dims.num_attention_heads, dims.head_dim),
            *vector("self_attn.k_norm", TensorClass.OTHER, dims.num_key_value_heads, dims.head_dim),
        )
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=extra)
    config.ignore("order_of_interleaved_layers", "use_parallel_embedding")
    config.ignore("use_parallel_block", "use_embedding_sharing", "use_gated_activation", "layer_switch", "logit_scale")
    return blocks.stack(
        dims,
        mixers=attention if windows is None else blocks.windowed(attention, windows),
        feed_forward=blocks.gated_mlp(dims.hidden_size, config.integer("intermediate_size")),
        layer_tensors=norm("input_layernorm", dims.hidden_size),
        tensors=blocks.ends(config, dims, tied_default=True),
        parallel_attention=True,
    )


def stablelm(config: Config) -> Blueprint:
    """StableLM: norms with biases, optional norms per head, optional parallel block with one norm."""
    dims = blocks.read_dimensions(config)
    hidden = dims.hidden_size
    extra: tuple[Tensor, ...] = ()
    if config.boolean("qk_layernorm", default=False):
        extra = (
            *vector("self_attn.q_layernorm", TensorClass.OTHER, dims.num_attention_heads, dims.head_dim),
            *vector("self_attn.k_layernorm", TensorClass.OTHER, dims.num_key_value_heads, dims.head_dim),
        )
    parallel = config.boolean("use_parallel_residual", default=False)
    attention = blocks.gqa(dims, qkv_bias=config.boolean("use_qkv_bias", default=False), extra=extra)
    return blocks.stack(
        dims,
        mixers=attention,
        feed_forward=blocks.gated_mlp(hidden, config.integer("intermediate_size")),
        layer_tensors=blocks.norms(("input_layernorm",) if parallel else blocks.TWO_NORMS, hidden, bias=True),
        tensors=blocks.ends(config, dims, final_norm=norm("model.norm", hidden, bias=True)),
        parallel_attention=parallel,
    )


def orion(config: Config) -> Blueprint:
    """Orion: Llama with layer norms that have biases."""
    dims = blocks.read_dimensions(config)
    config.ignore("max_sequence_length")
    bias = config.boolean("attention_bias", default=False)
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=blocks.gated_mlp(dims.hidden_size, config.integer("intermediate_size")),
        layer_tensors=blocks.norms(blocks.TWO_NORMS, dims.hidden_size, bias=True),
        tensors=blocks.ends(config, dims, final_norm=norm("model.norm", dims.hidden_size, bias=True)),
    )


def starcoder2(config: Config) -> Blueprint:
    """StarCoder 2: a plain feed-forward, biases everywhere by `use_bias`, one window on all layers where given."""
    dims = blocks.read_dimensions(config, num_key_value_heads=2)
    bias = config.boolean("use_bias", default=True)
    kind = config.string("mlp_type", default="default")
    if kind != "default":
        raise config.unsupported("mlp_type", f"{kind!r} is not understood")
    config.ignore("norm_type")
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias)
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, (blocks.read_window(config),) * dims.num_hidden_layers),
        feed_forward=blocks.plain_mlp(
            ("mlp.c_fc", "mlp.c_proj"), dims.hidden_size, config.integer("intermediate_size"), bias=bias
        ),
        layer_tensors=blocks.norms(blocks.TWO_NORMS, dims.hidden_size, bias=True),
        tensors=blocks.ends(
            config, dims, tied_default=True, final_norm=norm("model.norm", dims.hidden_size, bias=True)
        ),
    )


def two_matrix(config: Config, *, norm_bias: bool, attention_bias: bool = False, mlp_bias: bool = False) -> Blueprint:
    """Llama with a plain feed-forward of two matrices."""
    dims = blocks.read_dimensions(config)
    bias = config.boolean("attention_bias", default=attention_bias)
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=blocks.plain_mlp(
            ("mlp.up_proj", "mlp.down_proj"),
            dims.hidden_size,
            config.integer("intermediate_size"),
            bias=config.boolean("mlp_bias", default=mlp_bias),
        ),
        layer_tensors=blocks.norms(blocks.TWO_NORMS, dims.hidden_size, bias=norm_bias),
        tensors=blocks.ends(config, dims, final_norm=norm("model.norm", dims.hidden_size, bias=norm_bias)),
    )


def arcee(config: Config) -> Blueprint:
    """AFM-4.5B: squared-ReLU feed-forward."""
    return two_matrix(config, norm_bias=False)


def nemotron(config: Config) -> Blueprint:
    """Nemotron-4 and Minitron: squared-ReLU feed-forward, layer norms with biases."""
    return two_matrix(config, norm_bias=True)


def diffllama(config: Config) -> Blueprint:
    """DiffLlama: four learned vectors per layer weigh the two halves of differential attention."""
    dims = blocks.read_dimensions(config)
    bias = config.boolean("attention_bias", default=False)
    config.ignore("lambda_std_dev")
    lambdas = blocks.norms([f"self_attn.lambda_{part}" for part in ("q1", "k1", "q2", "k2")], dims.head_dim)
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=lambdas),
        feed_forward=blocks.gated_mlp(dims.hidden_size, config.integer("intermediate_size")),
        tensors=blocks.ends(config, dims),
    )


def jais2(config: Config) -> Blueprint:
    """Jais 2: Nemotron with biases everywhere."""
    return two_matrix(config, norm_bias=True, attention_bias=True, mlp_bias=True)


def apertus(config: Config) -> Blueprint:
    """Apertus: xIELU feed-forward with two learned scalars and two buffers per layer, norms of queries and keys.

    Apertus 1.5 may have a head for fewer tokens than it reads (`output_vocab_size`).
    """
    dims = blocks.read_dimensions(config)
    bias = config.boolean("attention_bias", default=False)
    if config.boolean("mlp_bias", default=False):
        raise config.unsupported("mlp_bias", "true is not understood for this family")
    if not config.boolean("qk_norm", default=True) or config.boolean("post_norm", default=False):
        raise config.unsupported("qk_norm", "only the published layout (qk_norm true, post_norm false) is understood")
    tensors = blocks.ends(config, dims)
    rows = config.optional_integer("output_vocab_size")
    if rows is not None:
        head = blocks.lm_head(rows, dims.hidden_size, tied=False)
        tensors = (*(tensor for tensor in tensors if tensor.name != "lm_head"), *head)
    scalars = (
        *vector("mlp.act_fn.alpha_p", TensorClass.OTHER, 1),
        *vector("mlp.act_fn.alpha_n", TensorClass.OTHER, 1),
    )
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims)),
        feed_forward=blocks.plain_mlp(
            ("mlp.up_proj", "mlp.down_proj"), dims.hidden_size, config.integer("intermediate_size")
        ),
        layer_tensors=(*blocks.norms(("attention_layernorm", "feedforward_layernorm"), dims.hidden_size), *scalars),
        tensors=tensors,
        buffer_elements=2 * dims.num_hidden_layers,
    )
