"""Vision–language models: a decoder, a vision tower and a projector between them, a family each."""

from __future__ import annotations

from typing import Final

from kvplan.specs.huggingface import towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import MODERN, read_text, rename, tower_config, with_towers
from kvplan.specs.huggingface.pair import Joint, Pair
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.registry import adapt
from kvplan.specs.huggingface.towers import Encoder, by_type

_CLIP_L: Final = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}
_SIGLIP_SO: Final = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 26,
    "num_attention_heads": 16,
    "image_size": 384,
    "patch_size": 14,
    "vision_use_head": False,
}
_PROJECTOR: Final = "multi_modal_projector."


def _feature_layers(config: Config) -> int:
    """How many layers' features are concatenated for the projector."""
    value = config.raw("vision_feature_layer")
    if isinstance(value, list | tuple):
        return len(value) or 1
    if isinstance(value, bool) or not isinstance(value, int | None):
        raise config.error("vision_feature_layer", "must be an integer or a list of integers")
    return 1


def _llava_projector(joint: Joint) -> Parts:
    parts = Parts(_PROJECTOR)
    bias = joint.outer.boolean("multimodal_projector_bias", default=True)
    parts.two_linears(joint.width * _feature_layers(joint.outer), joint.hidden, joint.hidden, bias=bias)
    return parts


def _llava_next_projector(joint: Joint) -> Parts:
    newline = Parts("")
    newline.vector("image_newline", joint.hidden)
    joint.outer.ignore(
        "use_image_newline_parameter", "spatial_pool_mode", "spatial_pool_stride", "spatial_pool_out_channels"
    )
    newline.tensors += _llava_projector(joint).tensors
    return newline


llava = Pair(
    text_type="llama",
    vision=by_type("clip_vision_model"),
    projector=_llava_projector,
    vision_defaults=_CLIP_L,
    either_ties=True,
)
"""LLaVA 1.5 and what is published in its form (Pixtral among them)."""

llava_next = Pair(
    text_type="llama",
    vision=by_type("clip_vision_model"),
    projector=_llava_next_projector,
    vision_defaults=_CLIP_L,
    either_ties=True,
)
"""LLaVA-NeXT (1.6), image and video."""

llava_onevision = Pair(
    text_type="qwen2",
    vision=by_type("siglip_vision_model"),
    projector=_llava_next_projector,
    vision_defaults=_SIGLIP_SO,
    either_ties=True,
)
"""LLaVA-OneVision: SigLIP and Qwen2."""


def _vipllava_projector(joint: Joint) -> Parts:
    """Features of several layers under one norm."""
    layers = joint.outer.raw("vision_feature_layers", "vision_feature_layer")
    width = joint.width * (len(layers) if isinstance(layers, list) else 1 if layers is not None else 5)
    parts = Parts(_PROJECTOR)
    parts.norm("projector_layernorm", width)
    parts.two_linears(width, joint.hidden, joint.hidden)
    return parts


vipllava = Pair(
    text_type="llama",
    vision=by_type("clip_vision_model"),
    projector=_vipllava_projector,
    vision_defaults=_CLIP_L,
)
"""ViP-LLaVA."""


def _mistral3_projector(joint: Joint) -> Parts:
    """A merger of neighbouring patches, then two matrices."""
    merge = joint.outer.integer("spatial_merge_size", default=2)
    bias = joint.outer.boolean("multimodal_projector_bias", default=False)
    parts = Parts(_PROJECTOR)
    parts.norm("norm", joint.width, bias=False)
    parts.linear("patch_merger.merging_layer", joint.width, joint.width * merge**2, bias=False)
    parts.two_linears(joint.width * _feature_layers(joint.outer), joint.hidden, joint.hidden, bias=bias)
    return parts


mistral3 = Pair(
    text_type="mistral",
    vision=by_type("pixtral"),
    projector=_mistral3_projector,
    vision_defaults={"image_size": 1540, "patch_size": 14},
    tied_default=True,
)
"""Mistral Small 3.x, Ministral 3, Devstral Small."""


def _gemma3_projector(joint: Joint) -> Parts:
    parts = Parts(_PROJECTOR)
    parts.vector("mm_input_projection_weight", joint.width, joint.hidden)
    parts.norm("mm_soft_emb_norm", joint.width, bias=False)
    return parts


gemma3 = Pair(
    text_type="gemma3_text", vision=by_type("siglip_vision_model"), projector=_gemma3_projector, tied_default=True
)
"""Gemma 3 from 4B on."""


def _paligemma_projector(joint: Joint) -> Parts:
    parts = Parts(_PROJECTOR)
    parts.linear("linear", joint.outer.integer("projection_dim", default=2048), joint.width)
    joint.vision.ignore("num_image_tokens", "projector_hidden_act")
    return parts


_PALIGEMMA: Final = Pair(
    text_type="gemma",
    vision=by_type("siglip_vision_model"),
    projector=_paligemma_projector,
    vision_defaults={**_SIGLIP_SO, "intermediate_size": 4096, "num_hidden_layers": 27, "image_size": 224},
    tied_default=True,
)


def paligemma(config: Config) -> Blueprint:
    """PaliGemma 1 and 2. The prompt is seen in both directions, but cached all the same."""
    text = config.nested("text_config").with_fields({"use_bidirectional_attention": False})
    text.ignore("num_image_tokens")
    return _PALIGEMMA(config)


def _shuffled(config: Config, width: int) -> int:
    """Features of one token after InternVL's pixel shuffle, which folds neighbouring patches into the width."""
    return width * int(1 / config.number("downsample_ratio", default=0.5, minimum=0.01)) ** 2


def _internvl_projector(joint: Joint) -> Parts:
    width = _shuffled(joint.outer, joint.width)
    parts = Parts(_PROJECTOR)
    parts.norm("layer_norm", width)
    parts.two_linears(width, joint.hidden, joint.hidden)
    joint.outer.ignore("vision_feature_layer")
    return parts


internvl = Pair(text_type="qwen2", vision=by_type("internvl_vision"), projector=_internvl_projector, tied_default=True)
"""InternVL 2.5 to 3.5 in transformers' form."""


def internvl_chat(config: Config) -> Blueprint:
    """InternVL as its authors publish it: `llm_config`, fused tower, projector `mlp1`."""
    text, llm = read_text(config, default_type="qwen2", names=("llm_config", "text_config"))
    encoder = towers.intern_vit(config.nested("vision_config"))
    width = _shuffled(config, encoder.width)
    parts = Parts("mlp1.")
    parts.norm("0", width)
    parts.two_linears(width, text.hidden_size, text.hidden_size, names=("1", "3"))
    for name in ("use_backbone_lora", "use_llm_lora"):
        if config.raw(name):
            raise config.error(name, "an unmerged LoRA is not known to kvplan")
    config.ignore("select_layer", "dynamic_image_size", "max_dynamic_patch", "min_dynamic_patch", "ps_version")
    config.ignore(
        "template", "use_thumbnail", "force_image_size", "pad2square", "system_message", "vision_feature_layer"
    )
    llm.ignore("moe_config", "layer_types")
    return with_towers(config, text, {"vision": encoder, "projector": parts})


def _unshuffled(joint: Joint) -> int:
    """Features of one token after a pixel unshuffle by `downsample_factor`."""
    return joint.width * joint.outer.integer("downsample_factor", default=2) ** 2


def _aya_projector(joint: Joint) -> Parts:
    width = _unshuffled(joint)
    parts = Parts(_PROJECTOR)
    parts.norm("layernorm", width)
    inner = joint.outer.optional_integer("alignment_intermediate_size") or joint.hidden
    parts.two_linears(width, inner, joint.hidden, gated=True)
    joint.outer.ignore("vision_feature_layer")
    return parts


aya_vision = Pair(
    text_type="cohere2",
    vision=by_type("siglip_vision_model"),
    projector=_aya_projector,
    vision_defaults=_SIGLIP_SO,
    tied_default=True,
)
"""Aya Vision."""


def _command_projector(joint: Joint) -> Parts:
    parts = Parts(_PROJECTOR)
    inner = joint.outer.integer("alignment_intermediate_size", default=36_864)
    parts.two_linears(_unshuffled(joint), inner, joint.hidden, gated=True)
    return parts


cohere2_vision = Pair(
    text_type="cohere2",
    vision=by_type("siglip_vision_model"),
    projector=_command_projector,
    vision_defaults={"hidden_size": 1152, "num_hidden_layers": 27, "image_size": 512, "num_attention_heads": 12},
    tied_default=True,
)
"""Command A Vision."""


def _lfm2_projector(joint: Joint) -> Parts:
    width = _unshuffled(joint)
    parts = Parts(_PROJECTOR)
    if joint.outer.boolean("projector_use_layernorm", default=True):
        parts.norm("layer_norm", width)
    inner = joint.outer.integer("projector_hidden_size", default=2560)
    parts.two_linears(width, inner, joint.hidden, bias=joint.outer.boolean("projector_bias", default=True))
    joint.outer.ignore("vision_feature_layer")
    return parts


lfm2_vl = Pair(text_type="lfm2", vision=by_type("siglip2_vision_model"), projector=_lfm2_projector, tied_default=True)
"""LFM2-VL."""


def _paddle_tower(config: Config) -> Encoder:
    """SigLIP with native resolution."""
    config.with_defaults({**_SIGLIP_SO, "num_hidden_layers": 27}).with_fields({"vision_use_head": False})
    config.ignore("temporal_patch_size", "tokens_per_second")
    return towers.siglip(config, "visual.vision_model.")


def _paddle_projector(joint: Joint) -> Parts:
    merged = joint.width * joint.vision.integer("spatial_merge_size", default=2) ** 2
    parts = Parts("projector.")
    parts.norm("pre_norm", joint.width)
    parts.two_linears(merged, merged, joint.hidden)
    return parts


paddleocr_vl = Pair(
    text_type="paddleocr_vl_text",
    vision=_paddle_tower,
    projector=_paddle_projector,
    tied_default=True,
    either_ties=True,
)
"""PaddleOCR-VL: SigLIP before an ERNIE 4.5 decoder."""


def _llama4_projector(joint: Joint) -> Parts:
    parts = Parts(_PROJECTOR)
    parts.linear("linear_1", joint.hidden, joint.width, bias=False)
    return parts


llama4 = Pair(text_type="llama4_text", vision=towers.llama4_vision, projector=_llama4_projector, tying="inner")
"""Llama 4 Scout and Maverick."""


def _kimi_projector(joint: Joint) -> Parts:
    """A merger of neighbouring patches."""
    outer, vision = joint.outer, joint.vision
    merge = vision.optional_integers("merge_kernel_size", length=2, minimum=1) or (2, 2)
    norm_width = vision.optional_integer("mm_hidden_size") or outer.optional_integer("projection_hidden_size")
    width = joint.width * merge[0] * merge[1]
    parts = Parts("mm_projector.")
    parts.norm("pre_norm", norm_width or joint.width)
    parts.two_linears(width, width, joint.hidden, names=("proj.0", "proj.2"))
    vision.ignore("mm_projector_type", "text_hidden_size", "projector_hidden_act", "projector_ln_eps")
    outer.ignore("use_unified_vision_chunk", "video_placeholder", "projection_hidden_size")
    return parts


kimi_k25 = Pair(text_type="deepseek_v3", vision=towers.kimi_vision, projector=_kimi_projector, tied_default=True)
"""Kimi-K2.5 and later: MoonViT before a DeepSeek-V3 decoder."""


def _minimax_projector(joint: Joint) -> Parts:
    """Two projections of patches, two of merged patches."""
    outer = joint.outer
    inner = outer.integer("projector_hidden_size", default=6144)
    compression = joint.vision.optional_nested("img_token_compression_config") or joint.vision
    merged = joint.hidden * compression.integer("spatial_merge_size", default=2) ** 2
    parts = Parts(_PROJECTOR)
    parts.two_linears(joint.width, inner, joint.hidden)
    parts.two_linears(merged, inner, joint.hidden, names=("merge_linear_1", "merge_linear_2"))
    outer.ignore("img_token_compression_config", "multimodal_projector_bias", "num_reward_heads", "merged_hidden_size")
    outer.ignore("vision_feature_layer")
    return parts


minimax_m3_vl = Pair(
    text_type="minimax_m3_vl_text", vision=towers.minimax_vision, projector=_minimax_projector, either_ties=True
)
"""MiniMax-M3 with vision."""


def step3p7(config: Config) -> Blueprint:
    """Step-3.7-Flash: its decoder is nested, or flattened to the top in trimmed files."""
    if config.has("text_config"):
        config.nested("text_config").with_fields({"model_type": "step3p7_text"})
        text, _ = read_text(config, default_type="step3p7_text", spelling=MODERN)
    else:
        text = rename(adapt(config, model_type="step3p7_text"), MODERN)
    encoder = towers.step_vision(tower_config(config))
    parts = Parts("model.")
    bias = config.boolean("projector_bias", default=False)
    parts.linear("multi_modal_projector", text.hidden_size, encoder.width, bias=bias)
    config.ignore("understand_projector_stride", "vision_select_layer", "image_token_len", "patch_token_len")
    return with_towers(config, text, {"vision": encoder, "projector": parts})
