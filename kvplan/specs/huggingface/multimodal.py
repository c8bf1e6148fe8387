"""Vision–language models: a decoder, a vision tower and a projector between them."""

from __future__ import annotations

from typing import Final

from kvplan.core.model import Tower
from kvplan.core.tensors import Tensor
from kvplan.specs.huggingface import towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import (
    VisionReader,
    by_type,
    read_pair,
    read_text,
    tower_config,
    with_towers,
)
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.towers import Encoder

_GENERIC: Final[dict[str, VisionReader]] = {
    "clip_vision_model": towers.clip,
    "siglip_vision_model": towers.siglip,
    "siglip2_vision_model": towers.siglip2,
    "pixtral": towers.pixtral,
    "internvl_vision": towers.internvl_vision,
}
_CLIP_L: Final = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}
_SIGLIP_SO: Final = {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "patch_size": 14}


def _feature_layers(config: Config, default: int) -> int:
    """How many layers' features are concatenated for the projector."""
    value = config.raw("vision_feature_layer")
    if value is None:
        value = default
    if isinstance(value, list | tuple):
        return len(value) or 1
    if isinstance(value, bool) or not isinstance(value, int):
        raise config.error("vision_feature_layer", "must be an integer or a list of integers")
    return 1


def _two_linears(config: Config, encoder: Encoder, hidden: int) -> Parts:
    parts = Parts("multi_modal_projector.")
    bias = config.boolean("multimodal_projector_bias", default=True)
    parts.linear("linear_1", hidden, encoder.width * _feature_layers(config, -2), bias=bias)
    parts.linear("linear_2", hidden, hidden, bias=bias)
    return parts


def _llava_projector(config: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
    return _two_linears(config, encoder, hidden).done()


def _llava_next_projector(config: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
    newline = Parts("")
    newline.vector("image_newline", hidden)
    config.ignore(
        "use_image_newline_parameter", "spatial_pool_mode", "spatial_pool_stride", "spatial_pool_out_channels"
    )
    return (*newline.done(), *_two_linears(config, encoder, hidden).done())


def llava(config: Config) -> Blueprint:
    """LLaVA 1.5 and what is published in its form (Pixtral among them)."""
    return read_pair(
        config,
        text_type="llama",
        vision=by_type(_GENERIC, "clip_vision_model"),
        projector=_llava_projector,
        vision_defaults=_CLIP_L,
        either_ties=True,
    )


def llava_next(config: Config) -> Blueprint:
    """LLaVA-NeXT (1.6), image and video."""
    return read_pair(
        config,
        text_type="llama",
        vision=by_type(_GENERIC, "clip_vision_model"),
        projector=_llava_next_projector,
        vision_defaults=_CLIP_L,
        either_ties=True,
    )


def llava_onevision(config: Config) -> Blueprint:
    """LLaVA-OneVision: SigLIP and Qwen2."""
    return read_pair(
        config,
        text_type="qwen2",
        vision=by_type(_GENERIC, "siglip_vision_model"),
        projector=_llava_next_projector,
        vision_defaults={**_SIGLIP_SO, "num_hidden_layers": 26, "image_size": 384, "vision_use_head": False},
        either_ties=True,
    )


def vipllava(config: Config) -> Blueprint:
    """ViP-LLaVA: features of several layers under one norm."""

    def projector(outer: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        layers = outer.raw("vision_feature_layers", "vision_feature_layer")
        width = encoder.width * (len(layers) if isinstance(layers, list) else 1 if layers is not None else 5)
        parts = Parts("multi_modal_projector.")
        parts.norm("projector_layernorm", width)
        parts.linear("linear_1", hidden, width)
        parts.linear("linear_2", hidden, hidden)
        return parts.done()

    return read_pair(
        config,
        text_type="llama",
        vision=by_type(_GENERIC, "clip_vision_model"),
        projector=projector,
        vision_defaults=_CLIP_L,
    )


def mistral3(config: Config) -> Blueprint:
    """Mistral Small 3.x, Ministral 3, Devstral Small: Pixtral tower with a patch merger.

    Some published files name the outer config `ministral3`, as the inner one; without a nested config that is a plain
    decoder.
    """

    def projector(outer: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        merge = outer.integer("spatial_merge_size", default=2)
        bias = outer.boolean("multimodal_projector_bias", default=False)
        parts = Parts("multi_modal_projector.")
        parts.norm("norm", encoder.width, bias=False)
        parts.linear("patch_merger.merging_layer", encoder.width, encoder.width * merge**2, bias=False)
        parts.linear("linear_1", hidden, encoder.width * _feature_layers(outer, -1), bias=bias)
        parts.linear("linear_2", hidden, hidden, bias=bias)
        return parts.done()

    return read_pair(
        config,
        text_type="mistral",
        vision=by_type(_GENERIC, "pixtral"),
        projector=projector,
        tied_default=True,
        vision_defaults={"image_size": 1540, "patch_size": 14},
    )


def gemma3(config: Config) -> Blueprint:
    """Gemma 3 from 4B on: SigLIP and one projection matrix."""

    def projector(_: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        parts = Parts("multi_modal_projector.")
        parts.vector("mm_input_projection_weight", encoder.width, hidden)
        parts.norm("mm_soft_emb_norm", encoder.width, bias=False)
        return parts.done()

    return read_pair(
        config,
        text_type="gemma3_text",
        vision=by_type(_GENERIC, "siglip_vision_model"),
        projector=projector,
        tied_default=True,
    )


def paligemma(config: Config) -> Blueprint:
    """PaliGemma 1 and 2: SigLIP and one linear layer."""

    def projector(outer: Config, encoder: Encoder, _: int) -> tuple[Tensor, ...]:
        parts = Parts("multi_modal_projector.")
        parts.linear("linear", outer.integer("projection_dim", default=2048), encoder.width)
        return parts.done()

    vision = {**_SIGLIP_SO, "intermediate_size": 4096, "num_hidden_layers": 27, "vision_use_head": False}
    text = config.nested("text_config")
    # The prompt is seen in both directions, but cached all the same.
    text.data = {name: value for name, value in text.data.items() if name != "use_bidirectional_attention"}
    blueprint = read_pair(
        config,
        text_type="gemma",
        vision=by_type(_GENERIC, "siglip_vision_model"),
        projector=projector,
        vision_defaults=vision,
        tied_default=True,
    )
    text.ignore("num_image_tokens")
    vision_config, _ = tower_config(config)
    vision_config.ignore("num_image_tokens", "projector_hidden_act")
    return blueprint


def internvl(config: Config) -> Blueprint:
    """InternVL 2.5 to 3.5 in transformers' form."""

    def projector(outer: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        width = encoder.width * int(1 / outer.number("downsample_ratio", default=0.5, minimum=0.01)) ** 2
        parts = Parts("multi_modal_projector.")
        parts.norm("layer_norm", width)
        parts.linear("linear_1", hidden, width)
        parts.linear("linear_2", hidden, hidden)
        outer.ignore("vision_feature_layer")
        return parts.done()

    return read_pair(
        config,
        text_type="qwen2",
        vision=by_type(_GENERIC, "internvl_vision"),
        projector=projector,
        tied_default=True,
    )


def internvl_chat(config: Config) -> Blueprint:
    """InternVL as its authors publish it: `llm_config`, fused tower, projector `mlp1`."""
    text, llm = read_text(config, default_type="qwen2", names=("llm_config", "text_config"))
    vision = config.nested("vision_config")
    encoder = towers.intern_vit(vision)
    width = encoder.width * int(1 / config.number("downsample_ratio", default=0.5, minimum=0.01)) ** 2
    parts = Parts("mlp1.")
    parts.norm("0", width)
    parts.linear("1", text.hidden_size, width)
    parts.linear("3", text.hidden_size, text.hidden_size)
    for name in ("use_backbone_lora", "use_llm_lora"):
        if config.raw(name):
            raise config.error(name, "an unmerged LoRA is not known to kvplan")
    config.ignore("select_layer", "dynamic_image_size", "max_dynamic_patch", "min_dynamic_patch", "ps_version")
    config.ignore(
        "template", "use_thumbnail", "force_image_size", "pad2square", "system_message", "vision_feature_layer"
    )
    llm.ignore("moe_config", "layer_types")
    return with_towers(
        config, text, Tower(name="vision", tensors=encoder.tensors), Tower(name="projector", tensors=parts.done())
    )


def aya_vision(config: Config) -> Blueprint:
    """Aya Vision: SigLIP and a gated projector under a norm."""

    def projector(outer: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        width = encoder.width * outer.integer("downsample_factor", default=2) ** 2
        inner = outer.optional_integer("alignment_intermediate_size") or hidden
        parts = Parts("multi_modal_projector.")
        parts.norm("layernorm", width)
        parts.linear("linear_1", inner, width)
        parts.linear("linear_2", hidden, inner // 2)
        outer.ignore("vision_feature_layer")
        return parts.done()

    return read_pair(
        config,
        text_type="cohere2",
        vision=by_type(_GENERIC, "siglip_vision_model"),
        projector=projector,
        vision_defaults={**_SIGLIP_SO, "num_hidden_layers": 26, "image_size": 384, "vision_use_head": False},
        tied_default=True,
    )


def cohere2_vision(config: Config) -> Blueprint:
    """Command A Vision: SigLIP 2 and a gated projector."""

    def projector(outer: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        width = encoder.width * outer.integer("downsample_factor", default=2) ** 2
        inner = outer.integer("alignment_intermediate_size", default=36_864)
        parts = Parts("multi_modal_projector.")
        parts.linear("linear_1", inner, width)
        parts.linear("linear_2", hidden, inner // 2)
        return parts.done()

    return read_pair(
        config,
        text_type="cohere2",
        vision=by_type(_GENERIC, "siglip_vision_model"),
        projector=projector,
        vision_defaults={"hidden_size": 1152, "num_hidden_layers": 27, "image_size": 512, "num_attention_heads": 12},
        tied_default=True,
    )


def lfm2_vl(config: Config) -> Blueprint:
    """LFM2-VL: SigLIP 2 and a two-layer projector after a pixel unshuffle."""

    def projector(outer: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        width = encoder.width * outer.integer("downsample_factor", default=2) ** 2
        inner = outer.integer("projector_hidden_size", default=2560)
        bias = outer.boolean("projector_bias", default=True)
        parts = Parts("multi_modal_projector.")
        if outer.boolean("projector_use_layernorm", default=True):
            parts.norm("layer_norm", width)
        parts.linear("linear_1", inner, width, bias=bias)
        parts.linear("linear_2", hidden, inner, bias=bias)
        outer.ignore("vision_feature_layer")
        return parts.done()

    return read_pair(
        config,
        text_type="lfm2",
        vision=by_type(_GENERIC, "siglip2_vision_model"),
        projector=projector,
        tied_default=True,
    )


def paddleocr_vl(config: Config) -> Blueprint:
    """PaddleOCR-VL: SigLIP with native resolution before an ERNIE 4.5 decoder."""
    nested, _ = tower_config(config)

    def projector(_: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        merged = encoder.width * nested.integer("spatial_merge_size", default=2) ** 2
        parts = Parts("projector.")
        parts.norm("pre_norm", encoder.width)
        parts.linear("linear_1", merged, merged)
        parts.linear("linear_2", hidden, merged)
        return parts.done()

    def vision(tower: Config) -> Encoder:
        tower.with_defaults({"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27})
        tower.with_defaults({"num_attention_heads": 16, "image_size": 384, "patch_size": 14})
        tower.data = {**tower.data, "vision_use_head": False}
        tower.ignore("temporal_patch_size", "tokens_per_second")
        return towers.siglip(tower, "visual.vision_model.")

    return read_pair(
        config,
        text_type="paddleocr_vl_text",
        vision=vision,
        projector=projector,
        tied_default=True,
        either_ties=True,
    )
