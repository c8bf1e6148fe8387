"""Multimodal models of the mixture-of-experts generation: Llama 4, Qwen3-VL and 3.5, GLM-V, Kimi-K2.5, MiniMax-M3."""

from __future__ import annotations

from kvplan.core.tensors import Tensor
from kvplan.specs.huggingface import qwen_towers, towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import MODERN, read_pair, tower_config
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.registry import adapter_of
from kvplan.specs.huggingface.towers import Encoder


def llama4(config: Config) -> Blueprint:
    """Llama 4 Scout and Maverick."""

    def projector(_: Config, encoder: Encoder, hidden: int) -> tuple[Tensor, ...]:
        parts = Parts("multi_modal_projector.")
        parts.linear("linear_1", hidden, encoder.width, bias=False)
        return parts.done()

    return read_pair(config, text_type="llama4_text", vision=towers.llama4_vision, projector=projector, tying="inner")


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
    return read_pair(
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
    return read_pair(
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

    blueprint = read_pair(
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

    blueprint = read_pair(
        config,
        text_type="minimax_m3_vl_text",
        vision=towers.minimax_vision,
        projector=projector,
        either_ties=True,
    )
    config.ignore("img_token_compression_config", "multimodal_projector_bias", "num_reward_heads", "merged_hidden_size")
    config.ignore("vision_feature_layer")
    return blueprint
