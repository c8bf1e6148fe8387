"""Idefics 2 and 3 and SmolVLM: a headless SigLIP and two kinds of connectors."""

from __future__ import annotations

from kvplan.core.tensors import Tensor
from kvplan.specs.huggingface import towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import Spelling, read_pair, tower_config
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.towers import Encoder


def idefics3(config: Config) -> Blueprint:
    """Idefics 3 and SmolVLM: SigLIP without a head and one projection after a pixel shuffle."""

    def projector(outer: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        parts = Parts("model.connector.")
        width = encoder.width * outer.integer("scale_factor", default=2) ** 2
        parts.linear("modality_projection.proj", hidden, width, bias=False)
        return parts.done()

    blueprint = read_pair(
        config,
        text_type="llama",
        vision=towers.siglip_headless,
        projector=projector,
        spelling=Spelling(decoder="model.text_model.", head="lm_head"),
    )
    for name in ("text_config", "vision_config"):
        if config.has(name):
            _ignore_idefics(config.nested(name))
    return blueprint


def _ignore_idefics(nested: Config) -> None:
    """Fields of the authors' own training code that the published files carry along."""
    nested.ignore("qk_layer_norms_perceiver", "neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor")
    nested.ignore("use_resampler", "max_image_size", "size", "use_base_siglip", "vision_use_head")


def idefics2(config: Config) -> Blueprint:
    """Idefics 2: SigLIP without a head, a gated projection and a perceiver resampler."""
    text_config = config.nested("text_config")

    def projector(outer: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        perceiver, _ = tower_config(outer, "perceiver_config")
        inner = text_config.integer("intermediate_size")
        layers = perceiver.integer("resampler_depth", default=3)
        heads = perceiver.integer("resampler_n_heads", default=16)
        head_dim = perceiver.integer("resampler_head_dim", default=96)
        kv_heads = perceiver.integer("num_key_value_heads", default=4)
        parts = Parts("model.connector.")
        for name in ("gate_proj", "up_proj"):
            parts.linear(f"modality_projection.{name}", inner, encoder.width, bias=False)
        parts.linear("modality_projection.down_proj", hidden, inner, bias=False)
        parts.vector("perceiver_resampler.latents", perceiver.integer("resampler_n_latents", default=64), hidden)
        layer = "perceiver_resampler.layers.*"
        for name in ("input_latents_norm", "input_context_norm", "post_attention_layernorm"):
            parts.norm(f"{layer}.{name}", hidden, bias=False, copies=layers)
        for name, rows in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
            parts.linear(f"{layer}.self_attn.{name}", rows * head_dim, hidden, bias=False, copies=layers)
        parts.linear(f"{layer}.self_attn.o_proj", hidden, heads * head_dim, bias=False, copies=layers)
        parts.gated(f"{layer}.mlp", hidden, 4 * hidden, copies=layers)
        parts.norm("perceiver_resampler.norm", hidden, bias=False)
        perceiver.ignore("hidden_size", "hidden_act", "attention_dropout", "qk_layer_norms_perceiver")
        return parts.done()

    blueprint = read_pair(
        config,
        text_type="mistral",
        vision=lambda vision: towers.siglip_headless(vision, small=True),
        projector=projector,
        spelling=Spelling(decoder="model.text_model.", head="lm_head"),
    )
    for name in ("text_config", "vision_config"):
        if config.has(name):
            _ignore_idefics(config.nested(name))
    return blueprint
