"""Llama 4 text: chunked attention with full layers in between, experts on some layers or all."""

from __future__ import annotations

from kvplan.core.model import FeedForward, Layer
from kvplan.core.tensors import norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config


def llama4_text(config: Config) -> Blueprint:
    """Scout and Maverick.

    Layers with rotary positions attend inside chunks of `attention_chunk_size`; each fourth has no positions and sees
    everything. Their attention norm has no weights.
    """
    config.with_defaults({"vocab_size": 202_048, "hidden_size": 5120, "num_hidden_layers": 48})
    config.with_defaults({"num_attention_heads": 40})
    dims = blocks.read_dimensions(config, num_key_value_heads=8, head_dim=128)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    chunks = _chunks(config, count)
    bias = config.boolean("attention_bias", default=False)
    inner = config.integer("intermediate_size", default=8192)
    dense_inner = config.integer("intermediate_size_mlp", default=16_384)
    moe_layers = _moe_layers(config, count)
    experts: FeedForward | None = None
    if moe_layers:
        number = config.integer("num_local_experts", default=16)
        experts = blocks.gated_moe(
            hidden,
            inner,
            num_experts=number,
            top_k=blocks.read_top_k(config, number, default=1),
            shared_size=inner,
            shared_name="feed_forward.shared_expert",
            name="feed_forward.experts",
            routing=blocks.router("feed_forward.router", hidden, number),
        )
    dense = blocks.gated_mlp(hidden, dense_inner, name="feed_forward")
    norms = (*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden))
    layers = tuple(
        Layer(
            mixers=(blocks.gqa(dims, qkv_bias=bias, o_bias=bias, chunk=chunks[i]),),
            feed_forward=experts if i in moe_layers else dense,
            tensors=norms,
        )
        for i in range(count)
    )
    config.ignore("use_qk_norm", "attn_temperature_tuning", "floor_scale", "attn_scale", "num_experts_per_tok")
    config.ignore("num_local_experts", "for_llm_compressor", "cache_implementation")
    return Blueprint(
        hidden_size=hidden,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context or config.integer("max_position_embeddings", default=131_072),
        layers=layers,
        tensors=blocks.ends(config, dims),
    )


def _chunks(config: Config, count: int) -> tuple[int | None, ...]:
    """Chunk length of each layer: None on full layers."""
    chunk = config.optional_integer("attention_chunk_size")
    if chunk is None and "attention_chunk_size" not in config.data:
        chunk = config.integer("attention_chunk_size", default=8192)
    types = config.kinds("layer_types", known=("chunked_attention", "full_attention"), length=count)
    rope = config.raw("no_rope_layers")
    interval = config.integer("no_rope_layer_interval", default=4) if not rope and types is None else 0
    if types is not None:
        chunked = tuple(kind == "chunked_attention" for kind in types)
    elif rope:
        chunked = tuple(bool(flag) for flag in config.integers("no_rope_layers", length=count))
    else:
        chunked = tuple((i + 1) % interval != 0 for i in range(count))
    config.ignore("no_rope_layer_interval")
    return tuple(chunk if flag else None for flag in chunked)


def _moe_layers(config: Config, count: int) -> frozenset[int]:
    """Indices of layers with experts: `moe_layers`, else every `interleave_moe_layer_step`-th."""
    listed = config.optional_integers("moe_layers")
    step = config.integer("interleave_moe_layer_step", default=1)
    if listed is None:
        return frozenset(range(step - 1, count, step))
    if any(i >= count for i in listed):
        raise config.error("moe_layers", f"names a layer beyond the {count} layers")
    return frozenset(listed)
