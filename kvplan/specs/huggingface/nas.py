"""Models found by NVIDIA's and Deci's architecture search, each layer with sizes of its own: Llama-Nemotron, DeciLM.

References: Puzzle (arXiv:2411.19146); `configuration_decilm.py` of the checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvplan.core.model import Attention, DenseFeedForward, Layer
from kvplan.core.tensors import Tensor, TensorClass, linear, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config


def nemotron_nas(config: Config) -> Blueprint:
    """Llama-Nemotron Super and Ultra: attention and feed-forward of each layer found by search (`block_configs`)."""
    stated = config.raw("block_configs")
    if not isinstance(stated, list) or not all(isinstance(item, Mapping) for item in stated):
        raise config.error("block_configs", "must be a list with one object per layer")
    dims = _dimensions(config)
    if len(stated) != dims.num_hidden_layers:
        rule = f"must have {dims.num_hidden_layers} entries, one per layer, not {len(stated)}"
        raise config.error("block_configs", rule)
    config.ignore("intermediate_size")
    biases = (config.boolean("attention_bias", default=False), config.boolean("mlp_bias", default=False))
    return Blueprint(
        hidden_size=dims.hidden_size,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context,
        layers=tuple(
            _layer(Config(item, source=config.source, parent=config, path=f"block_configs.{index}"), dims, biases)
            for index, item in enumerate(stated)
        ),
        tensors=blocks.ends(config, dims),
    )


def _layer(block: Config, dims: Dimensions, biases: tuple[bool, bool]) -> Layer:
    attention, ffn = block.nested("attention"), block.nested("ffn")
    mixer, mixer_tensors = _attention(attention, dims, bias=biases[0])
    feed_forward = _feed_forward(ffn, dims.hidden_size, bias=biases[1])
    for owner, name, value in block.unread():
        if value not in (None, False, 0, [], {}) and name not in {"hidden_act", "use_prefill_window_in_sink_attention"}:
            raise owner.error(name, "is not understood")
    tensors = (
        *mixer_tensors,
        *(norm("input_layernorm", dims.hidden_size) if mixer is not None or mixer_tensors else ()),
        *(norm("post_attention_layernorm", dims.hidden_size) if feed_forward is not None else ()),
    )
    return Layer(mixers=() if mixer is None else (mixer,), feed_forward=feed_forward, tensors=tensors)


def _attention(block: Config, dims: Dimensions, *, bias: bool) -> tuple[Attention | None, tuple[Tensor, ...]]:
    """The attention of one layer: none, a linear map instead (nothing cached), or grouped with its own group size."""
    if block.boolean("no_op", default=False):
        block.ignore("n_heads_in_group", "replace_with_linear", "window_length")
        return None, ()
    if block.boolean("replace_with_linear", default=False):
        block.ignore("n_heads_in_group", "window_length")
        hidden = dims.hidden_size
        return None, linear("self_attn.linear_attn", TensorClass.ATTENTION, out_features=hidden, in_features=hidden)
    group = block.integer("n_heads_in_group", maximum=dims.num_attention_heads)
    if dims.num_attention_heads % group:
        raise block.error("n_heads_in_group", f"{group} does not divide the {dims.num_attention_heads} heads")
    own = replace(dims, num_key_value_heads=dims.num_attention_heads // group)
    window = block.optional_integer("window_length")
    return blocks.gqa(own, qkv_bias=bias, o_bias=bias, window=window), ()


def _feed_forward(block: Config, hidden: int, *, bias: bool) -> DenseFeedForward | None:
    """The feed-forward of one layer: none, one linear map, or gated with its own width (`ffn_mult`)."""
    if block.boolean("no_op", default=False):
        block.ignore("ffn_mult", "replace_with_linear", "intermediate_size")
        return None
    if block.boolean("replace_with_linear", default=False):
        block.ignore("ffn_mult", "intermediate_size")
        tensors = linear("mlp.linear_mlp", TensorClass.MLP, out_features=hidden, in_features=hidden, bias=bias)
        return DenseFeedForward(tensors=tensors)
    width = block.optional_integer("intermediate_size")
    if width is None:
        width = -(-int(2 * block.number("ffn_mult", maximum=1000) * hidden / 3) // 256) * 256
    block.ignore("ffn_mult")
    return blocks.gated_mlp(hidden, width, bias=bias)


def deci(config: Config) -> Blueprint:
    """DeciLM-7B: a Llama whose number of KV heads differs from layer to layer."""
    dims = _dimensions(config)
    per_layer = config.integers("num_key_value_heads_per_layer", length=dims.num_hidden_layers, minimum=1)
    for kv_heads in per_layer:
        if dims.num_attention_heads % kv_heads:
            rule = f"{kv_heads} does not divide the {dims.num_attention_heads} heads"
            raise config.error("num_key_value_heads_per_layer", rule)
    bias = config.boolean("attention_bias", default=False)
    return blocks.stack(
        dims,
        mixers=tuple(
            blocks.gqa(replace(dims, num_key_value_heads=kv_heads), qkv_bias=bias, o_bias=bias)
            for kv_heads in per_layer
        ),
        feed_forward=blocks.gated_mlp(dims.hidden_size, config.integer("intermediate_size")),
        tensors=blocks.ends(config, dims),
    )


def _dimensions(config: Config) -> Dimensions:
    """Sizes that all layers share; their KV heads stand elsewhere."""
    config.ignore("num_key_value_heads")
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    return Dimensions(
        hidden_size=hidden,
        num_hidden_layers=config.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=config.optional_integer("head_dim") or hidden // heads,
        vocab_size=config.integer("vocab_size"),
        max_context=blocks.read_max_context(config),
    )
