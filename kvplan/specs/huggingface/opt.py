"""Decoders of the OPT kind and Phi-1 to Phi-2: biases everywhere, a plain feed-forward of two matrices."""

from __future__ import annotations

from dataclasses import replace

from kvplan.core.model import Attention
from kvplan.core.tensors import Tensor, TensorClass, linear, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.gpt import inner_size, multi_head, position_table


def opt(config: Config) -> Blueprint:
    """OPT: positions offset by two, optional projections to a narrower embedding (350M), no final norm after it."""
    dims = multi_head(config)
    hidden = dims.hidden_size
    bias = config.boolean("enable_bias", default=True)
    affine = config.boolean("layer_norm_elementwise_affine", default=True)
    width = config.optional_integer("word_embed_proj_dim") or hidden
    first = config.boolean("do_layer_norm_before", default=True)
    no_final = config.boolean("_remove_final_layer_norm", default=False)
    around: tuple[Tensor, ...] = ()
    if affine:
        around = blocks.norms(("self_attn_layer_norm", "final_layer_norm"), hidden, bias=True)
    attention = blocks.gqa(dims, names=("q_proj", "k_proj", "v_proj", "out_proj"), qkv_bias=bias, o_bias=bias)
    final: tuple[Tensor, ...] = position_table(
        "model.decoder.embed_positions", config.integer("max_position_embeddings") + 2, hidden
    )
    if width != hidden:
        final += linear("model.decoder.project_in", TensorClass.OTHER, out_features=hidden, in_features=width)
        final += linear("model.decoder.project_out", TensorClass.OTHER, out_features=width, in_features=hidden)
    if first and not no_final and affine:
        final += norm("model.decoder.final_layer_norm", hidden, bias=True)
    return blocks.stack(
        dims,
        mixers=attention,
        feed_forward=blocks.plain_mlp(("fc1", "fc2"), hidden, config.integer("ffn_dim"), bias=bias),
        layer_tensors=around,
        tensors=blocks.ends(
            config,
            replace(dims, hidden_size=width),
            tied_default=True,
            final_norm=final,
            embedding_name="model.decoder.embed_tokens",
        ),
        prefix="model.decoder.layers.{i}.",
    )


def xglm(config: Config) -> Blueprint:
    """XGLM: OPT-like with computed positions."""
    dims = multi_head(config)
    config.ignore("scale_embedding", "layerdrop")
    return _fairseq(config, dims, config.integer("ffn_dim"), positions=(), root="model")


def biogpt(config: Config) -> Blueprint:
    """BioGPT: XGLM with learned positions offset by two."""
    dims = multi_head(config)
    config.ignore("scale_embedding", "layerdrop")
    positions = position_table(
        "biogpt.embed_positions", config.integer("max_position_embeddings") + 2, dims.hidden_size
    )
    return _fairseq(config, dims, config.integer("intermediate_size"), positions=positions, root="biogpt")


def _fairseq(config: Config, dims: Dimensions, inner: int, *, positions: tuple[Tensor, ...], root: str) -> Blueprint:
    hidden = dims.hidden_size
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, names=("q_proj", "k_proj", "v_proj", "out_proj"), qkv_bias=True, o_bias=True),
        feed_forward=blocks.plain_mlp(("fc1", "fc2"), hidden, inner, bias=True),
        layer_tensors=blocks.norms(("self_attn_layer_norm", "final_layer_norm"), hidden, bias=True),
        tensors=blocks.ends(
            config,
            dims,
            tied_default=True,
            final_norm=(*positions, *norm(f"{root}.layer_norm", hidden, bias=True)),
            embedding_name=f"{root}.embed_tokens",
        ),
        prefix=root + ".layers.{i}.",
    )


def phi(config: Config) -> Blueprint:
    """Phi-1 to Phi-2 (converted): one norm, attention beside feed-forward, biases everywhere."""
    dims = blocks.read_dimensions(config)
    extra: tuple[Tensor, ...] = ()
    if config.boolean("qk_layernorm", default=False):
        extra = blocks.norms(("self_attn.q_layernorm", "self_attn.k_layernorm"), dims.head_dim, bias=True)
    attention = blocks.gqa(dims, names=("q_proj", "k_proj", "v_proj", "dense"), qkv_bias=True, o_bias=True, extra=extra)
    return _phi(config, dims, attention, config.integer("intermediate_size"))


def phi_msft(config: Config) -> Blueprint:
    """Phi-1 to Phi-2 in Microsoft's first layout: fused QKV, otherwise `phi`."""
    dims = multi_head(config)
    config.ignore("img_processor", "fused_dense", "flash_attn", "flash_rotary", "n_head_kv")
    attention = blocks.fused_gqa(dims, qkv="mixer.Wqkv", output="mixer.out_proj", qkv_bias=True, o_bias=True)
    return _phi(config, dims, attention, inner_size(config, dims))


def _phi(config: Config, dims: Dimensions, attention: Attention, inner: int) -> Blueprint:
    hidden = dims.hidden_size
    return blocks.stack(
        dims,
        mixers=attention,
        feed_forward=blocks.plain_mlp(("mlp.fc1", "mlp.fc2"), hidden, inner, bias=True),
        layer_tensors=norm("input_layernorm", hidden, bias=True),
        tensors=blocks.ends(config, dims, final_norm=norm("model.final_layernorm", hidden, bias=True), head_bias=True),
        parallel_attention=True,
    )
