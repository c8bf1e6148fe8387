"""The Qwen-VL and GLM-V lines, whose towers merge patches and end at the decoder's width: no projector."""

from __future__ import annotations

from kvplan.specs.huggingface import qwen_towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import FLAT, MODERN, read_text, tower_config, with_towers
from kvplan.specs.huggingface.pair import Pair
from kvplan.specs.huggingface.registry import adapt, adapter_of
from kvplan.specs.huggingface.towers import Encoder, TowerReader


def qwen2_vl(config: Config) -> Blueprint:
    """Qwen2-VL."""
    return _qwen2(config, qwen_towers.qwen2_vl_vision)


def qwen2_5_vl(config: Config) -> Blueprint:
    """Qwen2.5-VL."""
    return _qwen2(config, qwen_towers.qwen2_5_vl_vision)


def _qwen2(config: Config, vision: TowerReader) -> Blueprint:
    """Published files hold the decoder's fields at the top; transformers 5 writes them nested."""
    if config.has("text_config"):
        text, _ = read_text(config, default_type="qwen2", spelling=FLAT, either_ties=True)
    else:
        text = adapt(config, model_type="qwen2")
    return with_towers(config, text, {"vision": vision(tower_config(config))})


def _qwen3_5_vision(config: Config) -> Encoder:
    """Qwen3-VL's tower without the extra mergers that feed early decoder layers."""
    return qwen_towers.qwen3_vl_vision(config, deepstack=False)


qwen3_vl = Pair(text_type="qwen3_vl_text", vision=qwen_towers.qwen3_vl_vision, spelling=MODERN)
"""Qwen3-VL, dense."""
qwen3_vl_moe = Pair(text_type="qwen3_vl_moe_text", vision=qwen_towers.qwen3_vl_vision, spelling=MODERN)
"""Qwen3-VL with experts."""
qwen3_5 = Pair(text_type="qwen3_5_text", vision=_qwen3_5_vision, spelling=MODERN)
"""Qwen3.5 and 3.6, dense."""
qwen3_5_moe = Pair(text_type="qwen3_5_moe_text", vision=_qwen3_5_vision, spelling=MODERN)
"""Qwen3.5 and 3.6 with experts."""
glm4v = Pair(text_type="glm4v_text", vision=qwen_towers.glm4v_vision, spelling=MODERN, either_ties=True)
"""GLM-4.1V, GLM-4.6V-Flash: GLM-4 decoder."""
glm4v_moe = Pair(text_type="glm4v_moe_text", vision=qwen_towers.glm4v_vision, spelling=MODERN, either_ties=True)
"""GLM-4.5V and 4.6V: GLM-4.5 decoder."""


def glm4v_text(config: Config) -> Blueprint:
    """The decoder of GLM-4.1V: GLM-4 whose Q, K and V always have biases."""
    if not config.has("head_dim"):
        width = config.integer("hidden_size") // config.integer("num_attention_heads")
        config.with_defaults({"head_dim": max(width, 1)})
    return adapter_of("glm4")(config.with_fields({"attention_bias": True}))


def glm4v_moe_text(config: Config) -> Blueprint:
    """The decoder of GLM-4.5V: GLM-4.5 with biases by default."""
    if not config.has("attention_bias"):
        config.with_fields({"attention_bias": True})
    return adapter_of("glm4_moe")(config)
