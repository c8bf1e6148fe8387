"""Audio towers that came from Whisper's encoder: reused as it is, and the two of Qwen-Omni."""

from __future__ import annotations

from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.towers import Encoder


def whisper_encoder(config: Config) -> Encoder:
    """Whisper's encoder: two convolutions over the mel spectrogram, learned positions, pre-norm layers."""
    hidden, inner, layers, mels = _read_sizes(config)
    parts = Parts("audio_tower.")
    parts.conv("conv1", hidden, mels, 3)
    parts.conv("conv2", hidden, hidden, 3)
    parts.vector("embed_positions", config.integer("max_source_positions", default=1500), hidden)
    _layers(parts, hidden, inner, layers, k_bias=False)
    parts.norm("layer_norm", hidden)
    config.ignore("vocab_size", "head_dim", "num_key_value_heads")
    return Encoder(tensors=parts.done(), width=hidden)


def qwen2_5_audio(config: Config) -> Encoder:
    """Qwen2.5-Omni: Whisper's encoder with computed positions, marks of start and end, and a projection."""
    hidden, inner, layers, mels = _read_sizes(config)
    output = config.integer("output_dim", default=3584)
    parts = Parts("thinker.audio_tower.")
    parts.conv("conv1", hidden, mels, 3)
    parts.conv("conv2", hidden, hidden, 3)
    parts.vector("audio_bos_eos_token", 2, output)
    _layers(parts, hidden, inner, layers, k_bias=False)
    parts.norm("ln_post", hidden)
    parts.linear("proj", output, hidden)
    config.ignore("max_source_positions", "n_window")
    return Encoder(tensors=parts.done(), width=output)


def qwen3_audio(config: Config) -> Encoder:
    """Qwen3-Omni: three strided convolutions over time and frequency, then layers like Whisper's."""
    hidden, inner, layers, mels = _read_sizes(config)
    output = config.integer("output_dim", default=3584)
    channels = config.integer("downsample_hidden_size", default=480)
    parts = Parts("thinker.audio_tower.")
    previous = 1
    for i in (1, 2, 3):
        parts.conv(f"conv2d{i}", channels, previous, 3, 3)
        previous, mels = channels, (mels + 1) // 2
    parts.linear("conv_out", hidden, channels * mels, bias=False)
    _layers(parts, hidden, inner, layers, k_bias=True)
    parts.norm("ln_post", hidden)
    parts.linear("proj1", hidden, hidden)
    parts.linear("proj2", output, hidden)
    config.ignore("max_source_positions", "n_window", "n_window_infer", "conv_chunksize")
    return Encoder(tensors=parts.done(), width=output)


def _read_sizes(config: Config) -> tuple[int, int, int, int]:
    """Width, width inside the feed-forward, layers and mel bins, with Whisper large's values as defaults."""
    config.integer("encoder_attention_heads", "num_attention_heads", default=20)
    config.ignore("encoder_layerdrop", "layerdrop", "scale_embedding")
    return (
        config.integer("d_model", "hidden_size", default=1280),
        config.integer("encoder_ffn_dim", "intermediate_size", default=5120),
        config.integer("encoder_layers", "num_hidden_layers", default=32),
        config.integer("num_mel_bins", default=128),
    )


def _layers(parts: Parts, hidden: int, inner: int, layers: int, *, k_bias: bool) -> None:
    parts.attention("layers.*.self_attn", hidden, copies=layers, k_bias=k_bias)
    parts.norm("layers.*.self_attn_layer_norm", hidden, copies=layers)
    parts.mlp("layers.*", hidden, inner, copies=layers)
    parts.norm("layers.*.final_layer_norm", hidden, copies=layers)
