"""Plain decoders of the Llama kind: grouped-query attention and a gated feed-forward under two norms."""

from __future__ import annotations

from kvplan.core.model import Layer, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config


def llama(config: Config) -> Blueprint:
    """Llama 1 to 3.3, Code Llama, Yi, SmolLM and what else is published under `llama`."""
    dims = blocks.read_dimensions(config)
    bias = config.boolean("attention_bias", default=False)
    layer = Layer(
        mixers=(blocks.gqa(dims, qkv_bias=bias, o_bias=bias),),
        feed_forward=blocks.gated_mlp(
            dims.hidden_size, config.integer("intermediate_size"), bias=config.boolean("mlp_bias", default=False)
        ),
        tensors=(*norm("input_layernorm", dims.hidden_size), *norm("post_attention_layernorm", dims.hidden_size)),
    )
    return Blueprint(
        hidden_size=dims.hidden_size,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context,
        layers=(layer,) * dims.num_hidden_layers,
        tensors=blocks.ends(config, dims),
    )
