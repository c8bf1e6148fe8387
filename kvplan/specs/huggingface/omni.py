"""Models that also hear: Gemma 3n and 4, Qwen2-Audio, Voxtral, the thinkers of Qwen-Omni."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvplan.core.tensors import Tensor
from kvplan.errors import UnsupportedModelError
from kvplan.specs.huggingface import audio_towers, gemma_towers, qwen_towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import INNER, MODERN, Spelling, read_text, tower_config, with_towers
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.towers import Encoder, TowerReader

_THINKER: Final = Spelling(decoder="thinker.model.", head="thinker.lm_head")
#: Parameters of timm's `mobilenetv5_300m_enc`, counted on its meta build (timm 1.0.31).
_MOBILENET_V5_300M: Final = 294_126_912
#: A video of 32 frames, 70 tokens and 8 marks each: vLLM's `max_tokens_per_mm_item`, as its start-up error words it.
_GEMMA4_VIDEO_TOKENS: Final = 32 * (70 + 8)
#: What Voxtral's files leave out of their decoder.
_MINISTRAL_3B: Final = {
    "vocab_size": 131_072,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 30,
    "num_key_value_heads": 8,
    "head_dim": 128,
}


def gemma4(config: Config) -> Blueprint:
    """Gemma 4; towers only where the file describes them."""
    text, _ = read_text(config, default_type="gemma4_text", spelling=MODERN, tied_default=True)
    towers: dict[str, Encoder | Parts] = {}
    for name, read in (("vision", gemma_towers.gemma4_vision), ("audio", gemma_towers.gemma4_audio)):
        nested = config.optional_nested(f"{name}_config")
        if nested is not None:
            encoder = read(nested)
            parts = Parts(f"model.embed_{name}.")
            parts.linear("embedding_projection", text.hidden_size, encoder.width, bias=False)
            towers[name] = replace(encoder, tensors=(*encoder.tensors, *parts.done()))
    whole = _GEMMA4_VIDEO_TOKENS if "vision" in towers else 0
    return replace(with_towers(config, text, towers), whole_item_tokens=whole)


def gemma3n(config: Config) -> Blueprint:
    """Gemma 3n: MobileNet-V5 for images, a Conformer for sound, each with hard-token embeddings."""
    text, _ = read_text(config, default_type="gemma3n_text", spelling=MODERN, tied_default=True)
    vision, audio = tower_config(config), tower_config(config, "audio_config")
    network = vision.string("architecture", default="mobilenetv5_300m_enc")
    if network != "mobilenetv5_300m_enc":
        raise vision.error("architecture", f"{network!r} is not a tower that kvplan knows")
    parts = Parts("model.vision_tower.timm_model.")
    parts.vector("*", _MOBILENET_V5_300M)
    seeing = Encoder(tensors=parts.done(), width=vision.integer("hidden_size", default=2048))
    hearing = gemma_towers.gemma3n_audio(audio)
    vision.ignore("do_pooling", "model_args", "num_classes", "label_names", "pretrained_cfg", "num_features")
    towers = {
        name: replace(encoder, tensors=(*encoder.tensors, *_embedder(name, nested, encoder.width, text.hidden_size)))
        for name, nested, encoder in (("vision", vision, seeing), ("audio", audio, hearing))
    }
    return with_towers(config, text, towers)


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
    encoder = audio_towers.whisper_encoder(tower_config(config, "audio_config"))
    projector = Parts("multi_modal_projector.")
    projector.linear("linear", text.hidden_size, encoder.width)
    return with_towers(config, text, {"audio": encoder, "projector": projector})


def voxtral(config: Config) -> Blueprint:
    """Voxtral: Whisper's encoder, four frames to a token, before a Mistral decoder."""
    text, _ = read_text(config, default_type="llama", spelling=INNER, tying="never", defaults=_MINISTRAL_3B)
    audio = tower_config(config, "audio_config")
    encoder = audio_towers.whisper_encoder(audio)
    merged = audio.integer("encoder_ffn_dim", "intermediate_size", default=5120)
    projector = Parts("multi_modal_projector.")
    projector.two_linears(merged, text.hidden_size, text.hidden_size, bias=False)
    return with_towers(config, text, {"audio": encoder, "projector": projector})


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
    """Qwen2.5-Omni without talker: what engines serve as a language model that sees and hears."""

    def vision(nested: Config) -> Encoder:
        return qwen_towers.qwen2_5_vl_vision(nested, "thinker.visual.", fused=False)

    return _thinker(config, text_type="qwen2_5_omni_text", vision=vision, audio=audio_towers.qwen2_5_audio)


def qwen3_omni_moe_thinker(config: Config) -> Blueprint:
    """Qwen3-Omni without talker."""

    def vision(nested: Config) -> Encoder:
        nested.ignore("apply_vit_abs_pos_embed", "image_size", "tokens_per_second", "spatial_patch_size")
        return qwen_towers.qwen3_vl_vision(nested, "thinker.visual.")

    return _thinker(config, text_type="qwen3_omni_moe_text", vision=vision, audio=audio_towers.qwen3_audio)


def _thinker(config: Config, *, text_type: str, vision: TowerReader, audio: TowerReader) -> Blueprint:
    tied = config.boolean("tie_word_embeddings", default=False)  # whatever the nested config says
    text, _ = read_text(config, default_type=text_type, spelling=_THINKER, tying="outer" if tied else "never")
    seeing = vision(tower_config(config))
    hearing = audio(tower_config(config, "audio_config"))
    config.ignore("position_id_per_seconds", "seconds_per_chunk", "user_token_id", "audio_start_token_id")
    return with_towers(config, text, {"vision": seeing, "audio": hearing})
