"""Models that also hear: Gemma 3n and 4, Qwen2-Audio, Voxtral and their kin."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvplan.core.model import Tower
from kvplan.core.tensors import Tensor
from kvplan.specs.huggingface import audio_towers, gemma3
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import INNER, MODERN, read_text, tower_config, with_towers
from kvplan.specs.huggingface.parts import Parts, parameters
from kvplan.specs.huggingface.towers import Encoder

#: Parameters of timm's `mobilenetv5_300m_enc`, counted on its meta build (timm 1.0.31).
_MOBILENET_V5_300M: Final = 294_126_912
#: A video of 32 frames, 70 tokens and 8 marks each: vLLM's `max_tokens_per_mm_item`, as its start-up error words it.
_GEMMA4_VIDEO_TOKENS: Final = 32 * (70 + 8)


def gemma4(config: Config) -> Blueprint:
    """Gemma 4; towers only where the file describes them."""
    text, _ = read_text(config, default_type="gemma4_text", spelling=MODERN, tied_default=True)
    towers: list[Tower] = []
    buffers = 0
    vision = config.optional_nested("vision_config")
    audio = config.optional_nested("audio_config")
    for name, nested in (("vision", vision), ("audio", audio)):
        if nested is None:
            continue
        encoder = _gemma4_vision(nested) if name == "vision" else audio_towers.gemma4_audio(nested)
        parts = Parts(f"model.embed_{name}.")
        parts.linear("embedding_projection", text.hidden_size, encoder.width, bias=False)
        towers.append(Tower(name=name, tensors=(*encoder.tensors, *parts.done())))
        buffers += encoder.buffer_elements
    whole = _GEMMA4_VIDEO_TOKENS if vision is not None else 0
    return replace(with_towers(config, text, *towers, buffers=buffers), whole_item_tokens=whole)


def _gemma4_vision(config: Config, prefix: str = "model.vision_tower.") -> Encoder:
    """Gemma 4's ViT: two tables of positions, gated feed-forward, four norms a layer."""
    hidden = config.integer("hidden_size", default=768)
    inner = config.integer("intermediate_size", default=3072)
    layers = config.integer("num_hidden_layers", default=16)
    heads = config.integer("num_attention_heads", default=12)
    kv_heads = config.integer("num_key_value_heads", default=12)
    head_dim = config.integer("head_dim", default=64)
    patch = config.integer("patch_size", default=16)
    parts = Parts(prefix)
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
    for name in gemma3.NORMS:
        parts.norm(f"{layer}.{name}", hidden, bias=False, copies=layers)
    bounds = 4 * 7 * layers if config.boolean("use_clipped_linears", default=False) else 0
    scales = 2 * hidden if config.boolean("standardize", default=False) else 0
    config.ignore("global_head_dim", "attention_bias", "default_output_length", "pooling_kernel_size")
    config.ignore("max_position_embeddings", "video_seq_length", "image_seq_length")
    return Encoder(tensors=parts.done(), width=hidden, buffer_elements=bounds + scales)


def gemma3n(config: Config) -> Blueprint:
    """Gemma 3n: MobileNet-V5 for images, a Conformer for sound, each with hard-token embeddings."""
    text, _ = read_text(config, default_type="gemma3n_text", spelling=MODERN, tied_default=True)
    vision, given = tower_config(config)
    audio, _ = tower_config(config, "audio_config")
    image_width = vision.integer("hidden_size", default=2048)
    network = vision.string("architecture", default="mobilenetv5_300m_enc")
    if network != "mobilenetv5_300m_enc":
        raise vision.error("architecture", f"{network!r} is not a tower that kvplan knows")
    parts = Parts("model.vision_tower.timm_model.")
    parts.vector("*", _MOBILENET_V5_300M)
    hearing = audio_towers.gemma3n_audio(audio)
    vision.ignore("do_pooling", "model_args", "num_classes", "label_names", "pretrained_cfg", "num_features")
    return with_towers(
        config,
        text,
        Tower(name="vision", tensors=(*parts.done(), *_embedder("vision", vision, image_width, text.hidden_size))),
        Tower(name="audio", tensors=(*hearing.tensors, *_embedder("audio", audio, hearing.width, text.hidden_size))),
        given=given,
    )


def _embedder(name: str, config: Config, width: int, hidden: int) -> tuple[Tensor, ...]:
    parts = Parts(f"model.embed_{name}.")
    parts.vector("embedding", config.integer("vocab_size", default=128), width)
    parts.norm("hard_embedding_norm", width, bias=False)
    parts.norm("soft_embedding_norm", width, bias=False)
    parts.linear("embedding_projection", hidden, width, bias=False)
    config.ignore("vocab_offset")
    return parts.done()


def qwen2_audio(config: Config) -> Blueprint:
    """Qwen2-Audio: Whisper's encoder and one linear layer before Qwen2."""
    text, _ = read_text(config, default_type="qwen2", spelling=INNER, tying="never")
    audio, given = tower_config(config, "audio_config")
    encoder = audio_towers.whisper_encoder(audio)
    parts = Parts("multi_modal_projector.")
    parts.linear("linear", text.hidden_size, encoder.width)
    return _heard(config, text, encoder, parts, given=given)


def voxtral(config: Config) -> Blueprint:
    """Voxtral: Whisper's encoder, four frames to a token, before a Mistral decoder."""
    text, _ = read_text(config, default_type="llama", spelling=INNER, tying="never", defaults=_MINISTRAL_3B)
    audio, given = tower_config(config, "audio_config")
    encoder = audio_towers.whisper_encoder(audio)
    parts = Parts("multi_modal_projector.")
    merged = audio.integer("encoder_ffn_dim", "intermediate_size", default=5120)
    parts.linear("linear_1", text.hidden_size, merged, bias=False)
    parts.linear("linear_2", text.hidden_size, text.hidden_size, bias=False)
    return _heard(config, text, encoder, parts, given=given)


_MINISTRAL_3B: Final = {
    "vocab_size": 131_072,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 30,
    "num_key_value_heads": 8,
    "head_dim": 128,
}


def _heard(config: Config, text: Blueprint, encoder: Encoder, parts: Parts, *, given: bool) -> Blueprint:
    if not given:
        config.warnings.append(
            f"audio_config is not in {config.source}: the default tower is counted "
            f"({parameters(encoder.tensors):,} parameters)"
        )
    return with_towers(
        config,
        text,
        Tower(name="audio", tensors=encoder.tensors),
        Tower(name="projector", tensors=parts.done()),
        buffers=encoder.buffer_elements,
    )
