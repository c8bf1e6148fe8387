"""Vision–language models: a decoder, a vision tower and a projector between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from kvplan.core.model import Tensor, Tower
from kvplan.specs.huggingface import qwen_towers, towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import (
    INNER,
    MODERN,
    Spelling,
    VisionReader,
    by_type,
    read_text,
    tower_config,
    with_towers,
)
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.registry import adapter_of
from kvplan.specs.huggingface.towers import Encoder

Projector = Callable[[Config, Encoder, int], tuple[Tensor, ...]]

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


def _read(
    config: Config,
    *,
    text_type: str,
    vision: VisionReader,
    projector: Projector,
    vision_defaults: Mapping[str, Any] | None = None,
    spelling: Spelling = INNER,
    tied_default: bool | None = None,
    either_ties: bool = False,
    tying: Literal["outer", "inner"] = "outer",
) -> Blueprint:
    """A decoder, one vision tower and its projector."""
    text, _ = read_text(
        config,
        default_type=text_type,
        spelling=spelling,
        tied_default=tied_default,
        either_ties=either_ties,
        tying=tying,
    )
    nested, given = tower_config(config, defaults=vision_defaults)
    encoder = vision(nested)
    return with_towers(
        config,
        text,
        Tower(name="vision", tensors=encoder.tensors),
        Tower(name="projector", tensors=projector(config, encoder, text.hidden_size)),
        buffers=encoder.buffer_elements,
        given=given,
    )


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
    return _read(
        config,
        text_type="llama",
        vision=by_type(_GENERIC, "clip_vision_model"),
        projector=_llava_projector,
        vision_defaults=_CLIP_L,
        either_ties=True,
    )


def llava_next(config: Config) -> Blueprint:
    """LLaVA-NeXT (1.6), image and video."""
    return _read(
        config,
        text_type="llama",
        vision=by_type(_GENERIC, "clip_vision_model"),
        projector=_llava_next_projector,
        vision_defaults=_CLIP_L,
        either_ties=True,
    )


def llava_onevision(config: Config) -> Blueprint:
    """LLaVA-OneVision: SigLIP and Qwen2."""
    return _read(
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

    return _read(
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

    return _read(
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

    return _read(
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
    blueprint = _read(
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

    return _read(
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

    return _read(
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

    return _read(
        config,
        text_type="cohere2",
        vision=by_type(_GENERIC, "siglip_vision_model"),
        projector=projector,
        vision_defaults={"hidden_size": 1152, "num_hidden_layers": 27, "image_size": 512, "num_attention_heads": 12},
        tied_default=True,
    )


def idefics3(config: Config) -> Blueprint:
    """Idefics 3 and SmolVLM: SigLIP without a head and one projection after a pixel shuffle."""

    def projector(outer: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        parts = Parts("model.connector.")
        width = encoder.width * outer.integer("scale_factor", default=2) ** 2
        parts.linear("modality_projection.proj", hidden, width, bias=False)
        return parts.done()

    blueprint = _read(
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

    blueprint = _read(
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


def llama4(config: Config) -> Blueprint:
    """Llama 4 Scout and Maverick."""

    def projector(_: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        parts = Parts("multi_modal_projector.")
        parts.linear("linear_1", hidden, encoder.width, bias=False)
        return parts.done()

    return _read(config, text_type="llama4_text", vision=towers.llama4_vision, projector=projector, tying="inner")


def _no_projector(_: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
    """Towers whose merger already ends at the decoder's width."""
    del encoder, hidden
    return ()


def qwen3_vl(config: Config) -> Blueprint:
    """Qwen3-VL, dense."""
    return _qwen3(config, text_type="qwen3_vl_text", deepstack=True)


def qwen3_vl_moe(config: Config) -> Blueprint:
    """Qwen3-VL with experts."""
    return _qwen3(config, text_type="qwen3_vl_moe_text", deepstack=True)


def qwen3_5(config: Config) -> Blueprint:
    """Qwen3.5 and 3.6, dense."""
    return _qwen3(config, text_type="qwen3_5_text", deepstack=False)


def qwen3_5_moe(config: Config) -> Blueprint:
    """Qwen3.5 and 3.6 with experts."""
    return _qwen3(config, text_type="qwen3_5_moe_text", deepstack=False)


def _qwen3(config: Config, *, text_type: str, deepstack: bool) -> Blueprint:
    return _read(
        config,
        text_type=text_type,
        vision=lambda vision: qwen_towers.qwen3_vl_vision(vision, deepstack=deepstack),
        projector=_no_projector,
        spelling=MODERN,
        either_ties=False,
    )


def glm4v(config: Config) -> Blueprint:
    """GLM-4.1V, GLM-4.6V-Flash: GLM-4 decoder."""
    return _glm(config, text_type="glm4v_text")


def glm4v_moe(config: Config) -> Blueprint:
    """GLM-4.5V and 4.6V: GLM-4.5 decoder."""
    return _glm(config, text_type="glm4v_moe_text")


def glm4v_text(config: Config) -> Blueprint:
    """The decoder of GLM-4.1V: GLM-4 whose Q, K and V always have biases."""
    if not config.has("head_dim"):
        width = config.integer("hidden_size") // config.integer("num_attention_heads")
        config.with_defaults({"head_dim": max(width, 1)})
    config.data = {**config.data, "attention_bias": True}
    return adapter_of("glm4")(config)


def glm4v_moe_text(config: Config) -> Blueprint:
    """The decoder of GLM-4.5V: GLM-4.5 with biases by default."""
    if not config.has("attention_bias"):
        config.data = {**config.data, "attention_bias": True}
    return adapter_of("glm4_moe")(config)


def _glm(config: Config, *, text_type: str) -> Blueprint:
    return _read(
        config,
        text_type=text_type,
        vision=qwen_towers.glm4v_vision,
        projector=_no_projector,
        spelling=MODERN,
        either_ties=True,
    )


def kimi_k25(config: Config) -> Blueprint:
    """Kimi-K2.5 and later: MoonViT and a patch merger before a DeepSeek-V3 decoder."""
    nested, _ = tower_config(config)
    merge = nested.optional_integers("merge_kernel_size", length=2, minimum=1) or (2, 2)

    def projector(outer: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        norm_width = nested.optional_integer("mm_hidden_size") or outer.optional_integer("projection_hidden_size")
        width = encoder.width * merge[0] * merge[1]
        parts = Parts("mm_projector.")
        parts.norm("pre_norm", norm_width or encoder.width)
        parts.linear("proj.0", width, width)
        parts.linear("proj.2", hidden, width)
        return parts.done()

    blueprint = _read(
        config,
        text_type="deepseek_v3",
        vision=towers.kimi_vision,
        projector=projector,
        tied_default=True,
    )
    nested.ignore("mm_projector_type", "text_hidden_size", "projector_hidden_act", "projector_ln_eps")
    config.ignore("use_unified_vision_chunk", "video_placeholder", "projection_hidden_size")
    return blueprint


def minimax_m3_vl(config: Config) -> Blueprint:
    """MiniMax-M3 with vision: two projections of patches, two of merged patches."""
    nested, _ = tower_config(config)

    def projector(outer: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        inner = outer.integer("projector_hidden_size", default=6144)
        compression = nested.optional_nested("img_token_compression_config") or nested
        merged = hidden * compression.integer("spatial_merge_size", default=2) ** 2
        parts = Parts("multi_modal_projector.")
        parts.linear("linear_1", inner, encoder.width)
        parts.linear("linear_2", hidden, inner)
        parts.linear("merge_linear_1", inner, merged)
        parts.linear("merge_linear_2", hidden, inner)
        return parts.done()

    blueprint = _read(
        config,
        text_type="minimax_m3_vl_text",
        vision=towers.minimax_vision,
        projector=projector,
        either_ties=True,
    )
    config.ignore("img_token_compression_config", "multimodal_projector_bias", "num_reward_heads", "merged_hidden_size")
    config.ignore("vision_feature_layer")
    return blueprint


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

    return _read(
        config,
        text_type="lfm2",
        vision=by_type(_GENERIC, "siglip2_vision_model"),
        projector=projector,
        tied_default=True,
    )
