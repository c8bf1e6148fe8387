"""Towers of Gemma 3n and 4: a ViT for images, two Conformers for sound."""

from __future__ import annotations

from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.gemma3 import NORMS
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.towers import Encoder


def gemma4_vision(config: Config) -> Encoder:
    """Gemma 4's ViT: two tables of positions, gated feed-forward, four norms a layer."""
    hidden = config.integer("hidden_size", default=768)
    inner = config.integer("intermediate_size", default=3072)
    layers = config.integer("num_hidden_layers", default=16)
    heads = config.integer("num_attention_heads", default=12)
    kv_heads = config.integer("num_key_value_heads", default=12)
    head_dim = config.integer("head_dim", default=64)
    patch = config.integer("patch_size", default=16)
    parts = Parts("model.vision_tower.")
    positions = config.integer("position_embedding_size", default=10_240)
    parts.vector("patch_embedder.position_embedding_table", 2, positions, hidden)
    parts.linear("patch_embedder.input_proj", hidden, 3 * patch * patch, bias=False)
    layer = "encoder.layers.*"
    for name, rows in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
        parts.linear(f"{layer}.self_attn.{name}.linear", rows * head_dim, hidden, bias=False, copies=layers)
    parts.linear(f"{layer}.self_attn.o_proj.linear", hidden, heads * head_dim, bias=False, copies=layers)
    parts.norm(f"{layer}.self_attn.q_norm", head_dim, bias=False, copies=layers)
    parts.norm(f"{layer}.self_attn.k_norm", head_dim, bias=False, copies=layers)
    for name in ("gate_proj", "up_proj"):
        parts.linear(f"{layer}.mlp.{name}.linear", inner, hidden, bias=False, copies=layers)
    parts.linear(f"{layer}.mlp.down_proj.linear", hidden, inner, bias=False, copies=layers)
    for name in NORMS:
        parts.norm(f"{layer}.{name}", hidden, bias=False, copies=layers)
    bounds = 4 * 7 * layers if config.boolean("use_clipped_linears", default=False) else 0
    scales = 2 * hidden if config.boolean("standardize", default=False) else 0
    config.ignore("global_head_dim", "attention_bias", "default_output_length", "pooling_kernel_size")
    config.ignore("max_position_embeddings", "video_seq_length", "image_seq_length")
    return Encoder(tensors=parts.done(), width=hidden, buffer_elements=bounds + scales)


def gemma4_audio(config: Config) -> Encoder:
    """Gemma 4's Conformer; each clipped linear keeps four bounds as buffers."""
    hidden = config.integer("hidden_size", default=1024)
    layers = config.integer("num_hidden_layers", default=12)
    heads = config.integer("num_attention_heads", default=8)
    channels = config.optional_integers("subsampling_conv_channels", length=2, minimum=1) or (128, 32)
    kernel = config.integer("conv_kernel_size", default=5)
    output = config.integer("output_proj_dims", default=1536)
    parts = Parts("model.audio_tower.")
    previous = 1
    for i, channel in enumerate(channels):
        parts.conv(f"subsample_conv_projection.layer{i}.conv", channel, previous, 3, 3, bias=False)
        parts.norm(f"subsample_conv_projection.layer{i}.norm", channel, bias=False)
        previous = channel
    parts.linear("subsample_conv_projection.input_proj_linear", hidden, channels[0] // 4 * channels[1], bias=False)
    layer = "layers.*"
    for block in ("feed_forward1", "feed_forward2"):
        names = ("ffw_layer_1.linear", "ffw_layer_2.linear")
        parts.mlp(f"{layer}.{block}", hidden, 4 * hidden, copies=layers, names=names, bias=False)
        parts.norm(f"{layer}.{block}.pre_layer_norm", hidden, bias=False, copies=layers)
        parts.norm(f"{layer}.{block}.post_layer_norm", hidden, bias=False, copies=layers)
    names4 = ("q_proj.linear", "k_proj.linear", "v_proj.linear", "post.linear")
    parts.attention(f"{layer}.self_attn", hidden, copies=layers, names=names4, bias=False)
    parts.linear(f"{layer}.self_attn.relative_k_proj", hidden, hidden, bias=False, copies=layers)
    parts.vector(f"{layer}.self_attn.per_dim_scale", hidden // heads, copies=layers)
    parts.linear(f"{layer}.lconv1d.linear_start.linear", 2 * hidden, hidden, bias=False, copies=layers)
    parts.linear(f"{layer}.lconv1d.linear_end.linear", hidden, hidden, bias=False, copies=layers)
    parts.vector(f"{layer}.lconv1d.depthwise_conv1d", hidden, 1, kernel, copies=layers)
    for name in ("lconv1d.pre_layer_norm", "lconv1d.conv_norm", "norm_pre_attn", "norm_post_attn", "norm_out"):
        parts.norm(f"{layer}.{name}", hidden, bias=False, copies=layers)
    parts.linear("output_proj", output, hidden)
    clipped = 10 * layers if config.boolean("use_clipped_linears", default=True) else 0
    config.ignore("attention_chunk_size", "attention_context_left", "attention_context_right", "attention_logit_cap")
    config.ignore("attention_invalid_logits_value", "residual_weight", "gradient_clipping")
    return Encoder(tensors=parts.done(), width=output, buffer_elements=4 * clipped)


def gemma3n_audio(config: Config) -> Encoder:
    """Gemma 3n's Conformer (Universal Speech Model)."""
    hidden = config.integer("hidden_size", default=1536)
    layers = config.integer("conf_num_hidden_layers", default=12)
    heads = config.integer("conf_num_attention_heads", default=8)
    kernel = config.integer("conf_conv_kernel_size", default=5)
    channels = config.optional_integers("sscp_conv_channel_size", length=2, minimum=1) or (128, 32)
    kernels = _pairs(config, "sscp_conv_kernel_size", default=3)
    strides = _pairs(config, "sscp_conv_stride_size", default=2)
    width = config.integer("input_feat_size", default=128)
    parts = Parts("model.audio_tower.")
    previous = 1
    for i, channel in enumerate(channels):
        parts.conv(f"subsample_conv_projection.conv_{i}.conv", channel, previous, *kernels[i], bias=False)
        parts.norm(f"subsample_conv_projection.conv_{i}.norm", channel, bias=False)
        width = (width + 2 - kernels[i][1]) // strides[i][1] + 1
        previous = channel
    parts.linear("subsample_conv_projection.input_proj_linear", hidden, channels[1] * width, bias=False)
    layer = "conformer.*"
    for block in ("ffw_layer_start", "ffw_layer_end"):
        parts.mlp(
            f"{layer}.{block}", hidden, 4 * hidden, copies=layers, names=("ffw_layer_1", "ffw_layer_2"), bias=False
        )
        parts.norm(f"{layer}.{block}.pre_layer_norm", hidden, bias=False, copies=layers)
        parts.norm(f"{layer}.{block}.post_layer_norm", hidden, bias=False, copies=layers)
    names = ("attn.q_proj", "attn.k_proj", "attn.v_proj", "post")
    parts.attention(f"{layer}.attention", hidden, copies=layers, names=names, bias=False)
    parts.linear(
        f"{layer}.attention.attn.relative_position_embedding.pos_proj", hidden, hidden, bias=False, copies=layers
    )
    parts.vector(f"{layer}.attention.attn.per_dim_scale", hidden // heads, copies=layers)
    parts.norm(f"{layer}.attention.pre_attn_norm", hidden, bias=False, copies=layers)
    parts.norm(f"{layer}.attention.post_norm", hidden, bias=False, copies=layers)
    parts.linear(f"{layer}.lconv1d.linear_start", 2 * hidden, hidden, bias=False, copies=layers)
    parts.linear(f"{layer}.lconv1d.linear_end", hidden, hidden, bias=False, copies=layers)
    parts.vector(f"{layer}.lconv1d.depthwise_conv1d", hidden, 1, kernel, copies=layers)
    parts.norm(f"{layer}.lconv1d.pre_layer_norm", hidden, bias=False, copies=layers)
    parts.norm(f"{layer}.lconv1d.conv_norm", hidden, bias=False, copies=layers)
    parts.norm(f"{layer}.norm", hidden, bias=False, copies=layers)
    for name in ("attention_chunk_size", "attention_context_left", "attention_context_right", "attention_logit_cap"):
        config.ignore(f"conf_{name}")
    config.ignore("conf_reduction_factor", "conf_residual_weight", "gradient_clipping", "sscp_conv_group_norm_eps")
    return Encoder(tensors=parts.done(), width=hidden)


def _pairs(config: Config, name: str, *, default: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Two pairs of integers, one for each convolution."""
    value = config.raw(name)
    if value is None:
        return (default, default), (default, default)
    rule = "must be two pairs of integers"
    if not isinstance(value, list | tuple) or len(value) != 2:  # noqa: PLR2004 - two convolutions
        raise config.error(name, rule)
    pairs: list[tuple[int, int]] = []
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(type(n) is int and n > 0 for n in pair):  # noqa: PLR2004
            raise config.error(name, rule)
        pairs.append((pair[0], pair[1]))
    return pairs[0], pairs[1]
