"""Qwen2-VL and Qwen2.5-VL, whose published files hold the decoder's fields at the top, and Step-3.7 likewise."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.core.model import Tower
from kvplan.specs.huggingface import qwen_towers, towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import FLAT, MODERN, read_text, rename, tower_config, with_towers
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.registry import adapt
from kvplan.specs.huggingface.towers import Encoder


def qwen2_vl(config: Config) -> Blueprint:
    """Qwen2-VL."""
    return _qwen(config, qwen_towers.qwen2_vl_vision)


def qwen2_5_vl(config: Config) -> Blueprint:
    """Qwen2.5-VL."""
    return _qwen(config, qwen_towers.qwen2_5_vl_vision)


def _qwen(config: Config, vision: Callable[[Config], Encoder]) -> Blueprint:
    if config.has("text_config"):
        text, _ = read_text(config, default_type="qwen2", spelling=FLAT, either_ties=True)
    else:
        text = adapt(config, model_type="qwen2")
    nested, given = tower_config(config)
    encoder = vision(nested)
    return with_towers(config, text, Tower(name="vision", tensors=encoder.tensors), given=given)


def step3p7(config: Config) -> Blueprint:
    """Step-3.7-Flash: its decoder is nested, or flattened to the top in trimmed files."""
    if config.has("text_config"):
        nested_text = config.nested("text_config")
        nested_text.data = {**nested_text.data, "model_type": "step3p7_text"}
        text, _ = read_text(config, default_type="step3p7_text", spelling=MODERN)
    else:
        text = rename(adapt(config, model_type="step3p7_text"), MODERN)
    nested, given = tower_config(config)
    encoder = towers.step_vision(nested, "model.vision_model.")
    parts = Parts("model.")
    bias = config.boolean("projector_bias", default=False)
    parts.linear("multi_modal_projector", text.hidden_size, encoder.width, bias=bias)
    config.ignore("understand_projector_stride", "vision_select_layer", "image_token_len", "patch_token_len")
    return with_towers(
        config,
        text,
        Tower(name="vision", tensors=encoder.tensors),
        Tower(name="projector", tensors=parts.done()),
        given=given,
    )
