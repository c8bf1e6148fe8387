"""Phi-4-multimodal in transformers' form: a Phi-4-mini with SigLIP and a Conformer; its LoRAs are not part of it."""

from __future__ import annotations

from kvplan.specs.huggingface import towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import tower_config, with_towers
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.registry import adapt
from kvplan.specs.huggingface.towers import Encoder

_IMAGE = "model.embed_tokens_extend.image_embed."
_AUDIO = "model.embed_tokens_extend.audio_embed."


def phi4_multimodal(config: Config) -> Blueprint:
    """Decoder fields at the top of the file, towers nested."""
    text = adapt(config, model_type="phi3")
    seeing = _image(tower_config(config), text.hidden_size)
    hearing = _sound(tower_config(config, "audio_config"), text.hidden_size)
    return with_towers(config, text, {"vision": seeing, "audio": hearing})


def _image(config: Config, hidden: int) -> Encoder:
    config.with_defaults({"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27})
    config.with_defaults({"num_attention_heads": 16, "image_size": 448, "patch_size": 14})
    encoder = towers.siglip(config.with_fields({"vision_use_head": True}), f"{_IMAGE}img_processor.")
    parts = Parts(_IMAGE)
    parts.vector("global_img_feature_extensor", encoder.width)
    parts.vector("sub_img_feature_extensor", encoder.width)
    parts.linear("img_projection_up", hidden, encoder.width)
    parts.linear("img_projection_down", hidden, hidden)
    config.ignore("crop_size", "feature_layer")
    return Encoder(tensors=(*encoder.tensors, *parts.done()), width=hidden)


def _sound(config: Config, hidden: int) -> Encoder:
    width = config.integer("hidden_size", default=1024)
    inner = config.integer("intermediate_size", default=1536)
    layers = config.integer("num_blocks", default=24)
    heads = config.integer("num_attention_heads", default=16)
    channels = config.integer("nemo_conv_channels", default=1024)
    mels = config.integer("input_size", default=80)
    parts = Parts(_AUDIO)
    bins = _subsampling(parts, channels, mels, config.integer("time_reduction", default=8))
    parts.linear("encoder.embed.out", width, channels * bins)
    distance = config.integer("bias_max_distance", default=1000)
    buckets = distance if config.boolean("bias_symmetric", default=False) else 2 * distance
    parts.vector("encoder.relative_attention_bias_layer.bias_values", buckets, heads)
    layer = "encoder.encoders.*"
    for name in ("feed_forward_in", "feed_forward_out"):
        parts.norm(f"{layer}.{name}.layer_norm", width, copies=layers)
        parts.linear(f"{layer}.{name}.gate_up_proj", 2 * inner, width, copies=layers)
        parts.linear(f"{layer}.{name}.down_proj", width, inner, copies=layers)
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    parts.attention(f"{layer}.self_attn", width, copies=layers, names=names)
    _convolution(parts, config, f"{layer}.conv", width, layers)
    for name in ("layer_norm_att", "layer_norm"):
        parts.norm(f"{layer}.{name}", width, copies=layers)
    rate = config.integer("downsample_rate", default=1)
    for name in ("speech", "vision_speech"):
        parts.linear(f"up_proj_for_{name}", hidden, width * rate)
        parts.linear(f"down_proj_for_{name}", hidden, hidden)
    config.ignore(
        "chunk_size",
        "left_chunk",
        "conv_glu_type",
        "feature_layer",
        "nemo_final_size",
        "num_buckets",
        "nemo_activation",
        "conv_activation",
    )
    return Encoder(tensors=parts.done(), width=hidden, buffer_elements=2 * mels)


def _subsampling(parts: Parts, channels: int, mels: int, reduction: int) -> int:
    """Strided convolutions, each halving time and frequency; returns the frequency bins left."""
    parts.conv("encoder.embed.conv.0", channels, 1, 3, 3)
    bins, step = (mels + 1) // 2, 1
    while 2**step < reduction:
        parts.conv(f"encoder.embed.conv.{3 * step - 1}", channels, 1, 3, 3)
        parts.conv(f"encoder.embed.conv.{3 * step}", channels, channels, 1, 1)
        bins, step = (bins + 1) // 2, step + 1
    return bins


def _convolution(parts: Parts, config: Config, name: str, width: int, layers: int) -> None:
    """The gated, depthwise-separable convolution of each layer."""
    outer = config.integer("ext_pw_out_channel", default=1024)
    separable = config.integer("depthwise_separable_out_channel", default=1024)
    wide = width * config.integer("depthwise_multiplier", default=1)
    kernel = config.integer("kernel_size", default=3)
    parts.norm(f"{name}.layer_norm", width, copies=layers)
    for bias in ("glu.b1", "glu.b2"):
        parts.vector(f"{name}.{bias}", outer, copies=layers)
    shapes = {
        "glu.ext_pw_conv_1d": (2 * outer, width, 1),
        "dw_sep_conv_1d.dw_conv": (wide, 1, kernel),
        "dw_sep_conv_1d.pw_conv": (separable, wide, 1),
        "ext_pw_conv_1d": (outer, separable, 1),
    }
    for part, shape in shapes.items():
        parts.vector(f"{name}.{part}", *shape, copies=layers)
        parts.vector(f"{name}.{part}.bias", shape[0], copies=layers)
