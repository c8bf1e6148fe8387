"""Idefics 2 and 3 and SmolVLM: a headless SigLIP and two kinds of connectors."""

from __future__ import annotations

from kvplan.specs.huggingface import towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import Spelling, tower_config
from kvplan.specs.huggingface.pair import Joint, Pair
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.towers import Encoder

_SPELLING = Spelling(decoder="model.text_model.", head="lm_head")


def _small_siglip(config: Config) -> Encoder:
    return towers.siglip_headless(config, small=True)


def _shuffle(joint: Joint) -> Parts:
    """One projection after a pixel shuffle."""
    width = joint.width * joint.outer.integer("scale_factor", default=2) ** 2
    parts = Parts("model.connector.")
    parts.linear("modality_projection.proj", joint.hidden, width, bias=False)
    return parts


def _resampler(joint: Joint) -> Parts:
    """A gated projection and a perceiver resampler."""
    perceiver, hidden = tower_config(joint.outer, "perceiver_config"), joint.hidden
    inner = joint.outer.nested("text_config").integer("intermediate_size")
    layers = perceiver.integer("resampler_depth", default=3)
    heads = perceiver.integer("resampler_n_heads", default=16)
    head_dim = perceiver.integer("resampler_head_dim", default=96)
    kv_heads = perceiver.integer("num_key_value_heads", default=4)
    parts = Parts("model.connector.")
    for name in ("gate_proj", "up_proj"):
        parts.linear(f"modality_projection.{name}", inner, joint.width, bias=False)
    parts.linear("modality_projection.down_proj", hidden, inner, bias=False)
    parts.vector("perceiver_resampler.latents", perceiver.integer("resampler_n_latents", default=64), hidden)
    layer = "perceiver_resampler.layers.*"
    names = ("input_latents_norm", "input_context_norm", "post_attention_layernorm")
    parts.norms(layer, names, hidden, bias=False, copies=layers)
    for name, rows in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
        parts.linear(f"{layer}.self_attn.{name}", rows * head_dim, hidden, bias=False, copies=layers)
    parts.linear(f"{layer}.self_attn.o_proj", hidden, heads * head_dim, bias=False, copies=layers)
    parts.gated(f"{layer}.mlp", hidden, 4 * hidden, copies=layers)
    parts.norm("perceiver_resampler.norm", hidden, bias=False)
    perceiver.ignore("hidden_size", "hidden_act", "attention_dropout", "qk_layer_norms_perceiver")
    return parts


_IDEFICS2 = Pair(text_type="mistral", vision=_small_siglip, projector=_resampler, spelling=_SPELLING)
_IDEFICS3 = Pair(text_type="llama", vision=towers.siglip_headless, projector=_shuffle, spelling=_SPELLING)


def idefics2(config: Config) -> Blueprint:
    """Idefics 2."""
    return _read(config, _IDEFICS2)


def idefics3(config: Config) -> Blueprint:
    """Idefics 3 and SmolVLM."""
    return _read(config, _IDEFICS3)


def _read(config: Config, pair: Pair) -> Blueprint:
    """Read a pair whose published files carry along fields of the authors' own training code."""
    for name in ("text_config", "vision_config"):
        nested = config.optional_nested(name)
        if nested is not None:
            nested.ignore("qk_layer_norms_perceiver", "neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor")
            nested.ignore("use_resampler", "max_image_size", "size", "use_base_siglip", "vision_use_head")
    return pair(config)
