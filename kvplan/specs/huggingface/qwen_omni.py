"""The thinkers of Qwen2.5-Omni and Qwen3-Omni: what engines serve as a language model that sees and hears."""

from __future__ import annotations

from kvplan.core.model import Tower
from kvplan.errors import UnsupportedModelError
from kvplan.specs.huggingface import audio_towers, qwen_towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import Spelling, read_text, tower_config, with_towers
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.towers import Encoder

_THINKER = Spelling(decoder="thinker.model.", head="thinker.lm_head")


def refuse(config: Config) -> Blueprint:
    """The whole of an omni model: its speech generator is not counted, so it is refused.

    Raises:
        UnsupportedModelError: Always.
    """
    msg = f"{config.source}: talker_config: the speech generator of {config.model_type} is not known to kvplan"
    hint = (
        f"save its thinker_config as a config of its own (model_type {config.model_type}_thinker): engines serve that"
    )
    raise UnsupportedModelError(msg, hint=hint)


def qwen2_5_omni_thinker(config: Config) -> Blueprint:
    """Qwen2.5-Omni without talker: Qwen2.5-VL's tower with split projections, Whisper-like audio tower."""
    text, _ = read_text(config, default_type="qwen2_5_omni_text", spelling=_THINKER, tying="never")
    vision, given = tower_config(config)
    audio, _ = tower_config(config, "audio_config")
    seeing = qwen_towers.qwen2_5_vl_vision(vision, "thinker.visual.", fused=False)
    hearing = _qwen2_5_audio(audio)
    _ignore_tokens(config)
    return with_towers(
        config,
        text,
        Tower(name="vision", tensors=seeing.tensors),
        Tower(name="audio", tensors=hearing.tensors),
        given=given,
    )


def _qwen2_5_audio(config: Config, prefix: str = "thinker.audio_tower.") -> Encoder:
    hidden = config.integer("d_model", default=1280)
    inner = config.integer("encoder_ffn_dim", default=5120)
    layers = config.integer("encoder_layers", "num_hidden_layers", default=32)
    config.integer("encoder_attention_heads", default=20)
    output = config.integer("output_dim", default=3584)
    parts = Parts(prefix)
    parts.conv("conv1", hidden, config.integer("num_mel_bins", default=128), 3)
    parts.conv("conv2", hidden, hidden, 3)
    parts.vector("audio_bos_eos_token", 2, output)
    audio_towers.whisper_layers(parts, hidden, inner, layers)
    parts.norm("ln_post", hidden)
    parts.linear("proj", output, hidden)
    config.ignore("encoder_layerdrop", "layerdrop", "scale_embedding", "max_source_positions", "n_window")
    return Encoder(tensors=parts.done(), width=output)


def qwen3_omni_moe_thinker(config: Config) -> Blueprint:
    """Qwen3-Omni without talker: Qwen3-VL's tower under other names, a convolutional audio tower."""
    text, _ = read_text(config, default_type="qwen3_omni_moe_text", spelling=_THINKER, tying="never")
    vision, given = tower_config(config)
    audio, _ = tower_config(config, "audio_config")
    seeing = qwen_towers.qwen3_vl_vision(vision, "thinker.visual.")
    hearing = _qwen3_audio(audio)
    vision.ignore("apply_vit_abs_pos_embed", "image_size", "tokens_per_second", "spatial_patch_size")
    _ignore_tokens(config)
    return with_towers(
        config,
        text,
        Tower(name="vision", tensors=seeing.tensors),
        Tower(name="audio", tensors=hearing.tensors),
        given=given,
    )


def _qwen3_audio(config: Config, prefix: str = "thinker.audio_tower.") -> Encoder:
    hidden = config.integer("d_model", default=1280)
    inner = config.integer("encoder_ffn_dim", default=5120)
    layers = config.integer("encoder_layers", "num_hidden_layers", default=32)
    config.integer("encoder_attention_heads", default=20)
    output = config.integer("output_dim", default=3584)
    channels = config.integer("downsample_hidden_size", default=480)
    mels = config.integer("num_mel_bins", default=128)
    for _ in range(3):
        mels = (mels + 1) // 2
    parts = Parts(prefix)
    previous = 1
    for i in (1, 2, 3):
        parts.conv(f"conv2d{i}", channels, previous, 3, 3)
        previous = channels
    parts.linear("conv_out", hidden, channels * mels, bias=False)
    parts.attention("layers.*.self_attn", hidden, copies=layers)
    parts.norm("layers.*.self_attn_layer_norm", hidden, copies=layers)
    parts.mlp("layers.*", hidden, inner, copies=layers)
    parts.norm("layers.*.final_layer_norm", hidden, copies=layers)
    parts.norm("ln_post", hidden)
    parts.linear("proj1", hidden, hidden)
    parts.linear("proj2", output, hidden)
    config.ignore(
        "encoder_layerdrop", "layerdrop", "scale_embedding", "max_source_positions", "n_window", "n_window_infer"
    )
    config.ignore("conv_chunksize")
    return Encoder(tensors=parts.done(), width=output)


def _ignore_tokens(config: Config) -> None:
    config.ignore("position_id_per_seconds", "seconds_per_chunk", "user_token_id", "audio_start_token_id")
