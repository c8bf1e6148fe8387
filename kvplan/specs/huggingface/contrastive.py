"""CLIP and SigLIP: a text and an image encoder side by side, no cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvplan.core.model import DenseFeedForward, Layer
from kvplan.core.tensors import TensorClass, linear, norm, vector
from kvplan.specs.huggingface import blocks, towers
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import tower_config, with_towers

_OTHER: Final = TensorClass.OTHER


def clip(config: Config) -> Blueprint:
    """CLIP: both encoders end in a projection to one space."""
    text, encoder = tower_config(config, "text_config"), towers.clip(tower_config(config), "vision_model.")
    base = _text(text, vocab=49_408, hidden=512, inner=2048, heads=8, positions=77)
    width = config.integer("projection_dim", default=512)
    own = (
        *vector("logit_scale", _OTHER, 1),
        *linear("text_projection", _OTHER, out_features=width, in_features=base.hidden_size),
        *linear("visual_projection", _OTHER, out_features=width, in_features=encoder.width),
    )
    text.ignore("projection_dim")
    config.ignore("text_config_dict", "vision_config_dict", "logit_scale_init_value")
    return with_towers(config, replace(base, tensors=(*base.tensors, *own)), {"vision": encoder})


def siglip(config: Config) -> Blueprint:
    """SigLIP: pooled image features are compared with those of the last token."""
    text, encoder = tower_config(config, "text_config"), towers.siglip(tower_config(config), "vision_model.")
    base = _text(text, vocab=32_000, hidden=768, inner=3072, heads=12, positions=64)
    hidden = base.hidden_size
    width = text.optional_integer("projection_size") or hidden
    own = (
        *vector("logit_scale", _OTHER, 1),
        *vector("logit_bias", _OTHER, 1),
        *linear("text_model.head", _OTHER, out_features=width, in_features=hidden, bias=True),
    )
    return with_towers(config, replace(base, tensors=(*base.tensors, *own)), {"vision": encoder})


def _text(config: Config, *, vocab: int, hidden: int, inner: int, heads: int, positions: int) -> Blueprint:
    config.with_defaults({"vocab_size": vocab, "hidden_size": hidden, "num_hidden_layers": 12})
    config.with_defaults({"num_attention_heads": heads, "intermediate_size": inner})
    config.with_defaults({"max_position_embeddings": positions})
    dims = blocks.read_dimensions(config)
    rows = config.integer("max_position_embeddings")
    width = dims.hidden_size
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    attention = blocks.gqa(dims, names=names, qkv_bias=True, o_bias=True)
    mlp = blocks.two_tensors(("mlp.fc1", "mlp.fc2"), width, config.integer("intermediate_size"), bias=True)
    layer = Layer(
        mixers=(replace(attention, causal=False),),
        feed_forward=DenseFeedForward(tensors=mlp),
        tensors=blocks.norms(("layer_norm1", "layer_norm2"), width, bias=True),
    )
    return Blueprint(
        hidden_size=width,
        vocab_size=dims.vocab_size,
        max_context=rows,
        layers=(layer,) * dims.num_hidden_layers,
        tensors=(
            *blocks.embedding(dims.vocab_size, width, name="text_model.embeddings.token_embedding"),
            *vector("text_model.embeddings.position_embedding", _OTHER, rows, width),
            *norm("text_model.final_layer_norm", width, bias=True),
        ),
        layer_prefix="text_model.encoder.layers.{i}.",
    )
