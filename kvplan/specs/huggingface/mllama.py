"""Llama 3.2 Vision: a Llama decoder with cross-attention layers over the features of image tiles."""

from __future__ import annotations

from dataclasses import replace

from kvplan.core.model import CrossAttention, Layer
from kvplan.core.tensors import TensorClass, norm, vector
from kvplan.specs.huggingface import blocks, towers
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import INNER, rename, tower_config, with_towers
from kvplan.specs.huggingface.parts import Parts, read_patches

_EXTRA_ROWS = 8
_DEFAULT_CROSS_LAYERS = (3, 8, 13, 18, 23, 28, 33, 38)


def mllama(config: Config) -> Blueprint:
    """Llama 3.2 11B and 90B Vision.

    Cross-attention layers keep keys and values of the image once per sequence and add nothing per text token. The
    embedding has eight rows more than the head, so the two are never tied.
    """
    text_config = config.nested("text_config")
    text = rename(mllama_text(text_config), INNER)
    nested = tower_config(config)
    encoder = towers.mllama_vision(nested)
    count, _ = read_patches(nested, image=448, patch=14)
    parts = Parts("")
    parts.linear("multi_modal_projector", text.hidden_size, encoder.width)
    config.ignore("tie_word_embeddings", "hidden_size", "vocab_size")
    blueprint = with_towers(config, text, {"vision": encoder, "projector": parts})
    tokens = nested.integer("max_num_tiles", default=4) * (count + 1)
    return replace(blueprint, max_source_tokens=tokens)


def mllama_text(config: Config) -> Blueprint:
    """The decoder alone."""
    config.with_defaults({"vocab_size": 128_256, "hidden_size": 4096, "num_hidden_layers": 40})
    config.with_defaults({"num_attention_heads": 32, "intermediate_size": 14_336})
    dims = blocks.read_dimensions(config, num_key_value_heads=8)
    listed = config.optional_integers("cross_attention_layers")
    cross = frozenset(_DEFAULT_CROSS_LAYERS if listed is None else listed)
    hidden = dims.hidden_size
    mlp = blocks.gated_mlp(hidden, config.integer("intermediate_size"))
    norms = (*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden))
    plain = Layer(mixers=(blocks.gqa(dims),), feed_forward=mlp, tensors=norms)
    gates = (
        *vector("cross_attn_attn_gate", TensorClass.OTHER, 1),
        *vector("cross_attn_mlp_gate", TensorClass.OTHER, 1),
    )
    crossing = Layer(mixers=(_cross(dims),), feed_forward=mlp, tensors=(*norms, *gates))
    config.ignore("tie_word_embeddings")
    return Blueprint(
        hidden_size=hidden,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context or config.integer("max_position_embeddings", default=131_072),
        layers=tuple(crossing if i in cross else plain for i in range(dims.num_hidden_layers)),
        tensors=(
            *blocks.embedding(dims.vocab_size + _EXTRA_ROWS, hidden),
            *norm("model.norm", hidden),
            *blocks.lm_head(dims.vocab_size, hidden, tied=False),
        ),
    )


def _cross(dims: Dimensions) -> CrossAttention:
    attention = blocks.gqa(dims, name="cross_attn", extra=blocks.qk_norm(dims, name="cross_attn"))
    return blocks.cross_attention(dims, attention.tensors)
