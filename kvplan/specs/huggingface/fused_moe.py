"""Mixtures whose checkpoints keep all experts of a layer in two tensors, gate and up fused: Granite, gpt-oss."""

from __future__ import annotations

from kvplan.core.model import MixtureOfExperts
from kvplan.core.tensors import Tensor, TensorClass
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config


def granitemoe(config: Config) -> Blueprint:
    """Granite 3 MoE: fused gate and up of the experts, optionally a shared feed-forward."""
    dims = blocks.read_dimensions(config)
    return _granitemoe(config, dims, windows=None)


def granitemoe_swa(config: Config) -> Blueprint:
    """Granite MoE with windows and sinks: full attention on every fourth layer, from the first."""
    dims = blocks.read_dimensions(config)
    windows = blocks.read_periodic_windows(config, dims.num_hidden_layers, window=128, period=4, full_first=True)
    config.ignore("layer_rope_theta")
    return _granitemoe(config, dims, windows=windows, sink=True)


def _granitemoe(
    config: Config, dims: Dimensions, *, windows: tuple[int | None, ...] | None, sink: bool = False
) -> Blueprint:
    hidden = dims.hidden_size
    experts = config.integer("num_local_experts", default=8)
    bias = config.boolean("attention_bias", default=False)
    size = config.integer("intermediate_size")
    shared_size = config.optional_integer("shared_intermediate_size", minimum=0) or 0
    routed = blocks.two_tensors(
        ("block_sparse_moe.input_linear", "block_sparse_moe.output_linear"),
        hidden,
        size,
        tensor_class=TensorClass.EXPERTS,
        up_factor=2,
        copies=experts,
    )
    shared: tuple[Tensor, ...] = ()
    if shared_size:
        names = ("shared_mlp.input_linear", "shared_mlp.output_linear")
        shared = blocks.two_tensors(names, hidden, shared_size, tensor_class=TensorClass.SHARED, up_factor=2)
    sparse = MixtureOfExperts(
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, default=2),
        tensors=(*blocks.router("block_sparse_moe.router.layer", hidden, experts), *routed, *shared),
    )
    attention = blocks.gqa(
        dims, qkv_bias=bias, o_bias=bias, extra=blocks.sinks(dims.num_attention_heads) if sink else ()
    )
    return blocks.stack(
        dims,
        mixers=attention if windows is None else blocks.windowed(attention, windows),
        feed_forward=sparse,
        tensors=blocks.ends(config, dims),
    )


def gpt_oss(config: Config) -> Blueprint:
    """gpt-oss: sinks, biases everywhere, every other layer windowed from the first."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8, head_dim=64)
    hidden = dims.hidden_size
    experts = config.integer("num_local_experts", "num_experts", default=128)
    top_k = blocks.read_top_k(config, experts, "num_experts_per_tok", "experts_per_token", default=4)
    bias = config.boolean("attention_bias", default=True)
    config.ignore("initial_context_length", "swiglu_limit", "swiglu_alpha")
    size = config.integer("intermediate_size")
    routed = blocks.two_tensors(
        ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
        hidden,
        size,
        tensor_class=TensorClass.EXPERTS,
        up_factor=2,
        bias=True,
        copies=experts,
    )
    sparse = MixtureOfExperts(
        num_experts=experts,
        top_k=top_k,
        tensors=(*blocks.router("mlp.router", hidden, experts, bias=True), *routed),
    )
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.sinks(dims.num_attention_heads))
    windows = blocks.read_periodic_windows(config, dims.num_hidden_layers, window=128, period=2)
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=sparse,
        tensors=blocks.ends(config, dims),
    )


def jetmoe(config: Config) -> Blueprint:
    """JetMoE: experts in attention as well; their projections of queries and output are told as routed experts."""
    raise config.unsupported("model_type", "'jetmoe' routes its attention over experts, which is not modelled")
