"""RecurrentGemma: RG-LRU layers and windowed attention (Griffin, arXiv:2402.19427)."""

from __future__ import annotations

from typing import Final

from kvplan.core.model import DenseFeedForward, Recurrent
from kvplan.core.tensors import Tensor, TensorClass, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.recurrent import depthwise, parameter, project

_NAME: Final = "temporal_block"


def recurrent_gemma(config: Config) -> Blueprint:
    """RecurrentGemma 2B and 9B. `block_types` repeats over the layers; all attention is windowed."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    count = config.integer("num_hidden_layers")
    if hidden % heads:
        raise config.error("num_attention_heads", f"{heads} does not divide hidden_size {hidden}")
    if config.optional_integer("head_dim") not in (None, hidden // heads):
        raise config.error("head_dim", f"must be hidden_size / num_attention_heads = {hidden // heads}")
    dims = blocks.Dimensions(
        hidden_size=hidden,
        num_hidden_layers=count,
        num_attention_heads=heads,
        num_key_value_heads=config.integer("num_key_value_heads", default=heads),
        head_dim=hidden // heads,
        vocab_size=config.integer("vocab_size"),
        max_context=blocks.read_max_context(config),
    )
    attention = blocks.gqa(
        dims,
        name=_NAME,
        qkv_bias=config.boolean("attention_bias", default=False),
        o_bias=True,
        window=config.integer("attention_window_size", "sliding_window", default=2048),
    )
    recurrent = _recurrent(config, hidden, heads)
    width = config.integer("intermediate_size")
    mlp = DenseFeedForward(tensors=blocks.gated_tensors("mlp_block", hidden, width // 2, bias=True))
    config.ignore("w_init_variance_scale", "final_w_init_variance_scale", "logits_soft_cap", "hidden_activation")
    config.ignore("embeddings_scale_by_sqrt_dim")
    pattern = config.kinds("block_types", "_block_types", known=("recurrent", "attention"))
    pattern = pattern or ("recurrent", "recurrent", "attention")
    return blocks.stack(
        dims,
        mixers=tuple(
            recurrent if pattern[index % len(pattern)] == "recurrent" else attention for index in range(count)
        ),
        feed_forward=mlp,
        layer_tensors=blocks.norms(("temporal_pre_norm", "channel_pre_norm"), hidden),
        tensors=blocks.ends(config, dims, tied_default=True, final_norm=norm("model.final_norm", hidden)),
    )


def _recurrent(config: Config, hidden: int, heads: int) -> Recurrent:
    """Two branches, a convolution and the RG-LRU, whose gates are block-diagonal over the heads."""
    width = config.integer("lru_width", default=hidden)
    kernel = config.integer("conv1d_width", default=4)
    if width % heads:
        raise config.error("lru_width", f"{width} is no multiple of the {heads} heads")
    return Recurrent(
        kind="rg_lru",
        state_elements=width,
        conv_elements=width * (kernel - 1),
        num_heads=heads,
        tensors=(
            *project(f"{_NAME}.linear_y", width, hidden, bias=True),
            *project(f"{_NAME}.linear_x", width, hidden, bias=True),
            *project(f"{_NAME}.linear_out", hidden, width, bias=True),
            *depthwise(f"{_NAME}.conv_1d", width, kernel, bias=True),
            *parameter(f"{_NAME}.rg_lru.recurrent_param", width),
            *_gate(f"{_NAME}.rg_lru.input_gate", heads, width),
            *_gate(f"{_NAME}.rg_lru.recurrent_gate", heads, width),
        ),
    )


def _gate(name: str, heads: int, width: int) -> tuple[Tensor, ...]:
    block = width // heads
    weight = Tensor(
        name=f"{name}_weight", tensor_class=TensorClass.ATTENTION, shape=(block, block), copies=heads, matmul=True
    )
    return (weight, *parameter(f"{name}_bias", heads, block))
