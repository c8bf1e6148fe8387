"""Decoders of the GPT kind: layer norms with biases and a plain feed-forward of two matrices."""

from __future__ import annotations

from dataclasses import replace

from kvplan.core.model import Attention
from kvplan.core.tensors import Tensor, TensorClass, norm, vector
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config

_INNER = ("n_inner", "intermediate_size", "ffn_hidden_size", "ffn_dim")


def inner_size(config: Config, dims: Dimensions) -> int:
    """Width inside the feed-forward, four times the hidden size by the family's own rule when left out."""
    return config.optional_integer(*_INNER) or 4 * dims.hidden_size


def multi_head(config: Config) -> Dimensions:
    """Sizes of a family whose attention has as many KV heads as query heads."""
    hidden = config.integer("hidden_size", "n_embd", "n_embed", "d_model")
    heads = config.integer("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
    if hidden % heads:
        raise config.error("hidden_size", f"{hidden} is no multiple of {heads} attention heads")
    width = config.optional_integer("head_dim")
    if width is not None and width * heads != hidden:
        raise config.error("head_dim", "times the attention heads must be hidden_size for this family")
    return Dimensions(
        hidden_size=hidden,
        num_hidden_layers=config.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        vocab_size=config.integer("vocab_size"),
        max_context=blocks.read_max_context(config),
    )


def position_table(name: str, rows: int, width: int) -> tuple[Tensor, ...]:
    """Learned absolute positions: looked up like the embedding, told apart from it."""
    return vector(name, TensorClass.OTHER, rows, width, shards=1)


def gpt2(config: Config) -> Blueprint:
    """GPT-2: learned positions, fused QKV, tied head."""
    return _gpt2(config, multi_head(config))


def openai_gpt(config: Config) -> Blueprint:
    """GPT-1: GPT-2 without a final norm, and with the older module names."""
    dims = multi_head(config)
    hidden = dims.hidden_size
    config.ignore("afn", "n_special", "predict_special_tokens", "n_ctx")
    positions = position_table(
        "transformer.positions_embed", config.integer("n_positions", "max_position_embeddings"), hidden
    )
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(dims, qkv="attn.c_attn", output="attn.c_proj", qkv_bias=True, o_bias=True),
        feed_forward=blocks.plain_mlp(("mlp.c_fc", "mlp.c_proj"), hidden, 4 * hidden, bias=True),
        layer_tensors=blocks.norms(("ln_1", "ln_2"), hidden, bias=True),
        tensors=blocks.ends(
            config, dims, tied_default=True, final_norm=positions, embedding_name="transformer.tokens_embed"
        ),
        prefix="transformer.h.{i}.",
    )


def gpt_bigcode(config: Config) -> Blueprint:
    """StarCoder 1 and SantaCoder: GPT-2 with one KV head when `multi_query`."""
    dims = multi_head(config)
    config.ignore("attention_softmax_in_fp32", "inference_runner", "validate_runner_input", "pre_allocate_kv_cache")
    config.ignore("max_batch_size", "max_sequence_length", "pad_key_length", "num_key_value_heads")
    if config.boolean("multi_query", default=True):
        dims = replace(dims, num_key_value_heads=1)
    return _gpt2(config, dims)


def _gpt2(config: Config, dims: Dimensions) -> Blueprint:
    if config.boolean("add_cross_attention", default=False):
        raise config.unsupported("add_cross_attention", "true is not understood for this family")
    config.ignore("scale_attn_by_inverse_layer_idx", "n_special", "predict_special_tokens", "n_ctx")
    hidden = dims.hidden_size
    positions = config.integer("n_positions", "max_position_embeddings")
    final = (
        *position_table("transformer.wpe", positions, hidden),
        *norm("transformer.ln_f", hidden, bias=True),
    )
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(dims, qkv="attn.c_attn", output="attn.c_proj", qkv_bias=True, o_bias=True),
        feed_forward=blocks.plain_mlp(("mlp.c_fc", "mlp.c_proj"), hidden, inner_size(config, dims), bias=True),
        layer_tensors=blocks.norms(("ln_1", "ln_2"), hidden, bias=True),
        tensors=blocks.ends(config, dims, tied_default=True, final_norm=final, embedding_name="transformer.wte"),
        prefix="transformer.h.{i}.",
    )


def gpt_neo(config: Config) -> Blueprint:
    """GPT-Neo: alternating local attention, which no engine turns into a smaller cache: counted as full."""
    dims = multi_head(config)
    hidden = dims.hidden_size
    config.ignore("attention_types", "attention_layers")
    window = config.optional_integer("window_size")
    if window is not None:
        config.warnings.append(f"window_size: local layers see {window} tokens, but their cache is kept whole")
    attention = blocks.gqa(dims, name="attn.attention", names=("q_proj", "k_proj", "v_proj", "out_proj"), o_bias=True)
    final = (
        *position_table("transformer.wpe", config.integer("max_position_embeddings"), hidden),
        *norm("transformer.ln_f", hidden, bias=True),
    )
    return blocks.stack(
        dims,
        mixers=attention,
        feed_forward=blocks.plain_mlp(("mlp.c_fc", "mlp.c_proj"), hidden, inner_size(config, dims), bias=True),
        layer_tensors=blocks.norms(("ln_1", "ln_2"), hidden, bias=True),
        tensors=blocks.ends(config, dims, tied_default=True, final_norm=final, embedding_name="transformer.wte"),
        prefix="transformer.h.{i}.",
    )


def gptj(config: Config) -> Blueprint:
    """GPT-J: one norm, attention beside feed-forward, head with a bias."""
    dims = multi_head(config)
    attention = blocks.gqa(dims, name="attn", names=("q_proj", "k_proj", "v_proj", "out_proj"))
    return _gptj(config, dims, attention)


def codegen(config: Config) -> Blueprint:
    """CodeGen: GPT-J with fused QKV."""
    dims = multi_head(config)
    config.ignore("n_ctx")
    return _gptj(config, dims, blocks.fused_gqa(dims, qkv="attn.qkv_proj", output="attn.out_proj"))


def _gptj(config: Config, dims: Dimensions, attention: Attention) -> Blueprint:
    hidden = dims.hidden_size
    return blocks.stack(
        dims,
        mixers=attention,
        feed_forward=blocks.plain_mlp(("mlp.fc_in", "mlp.fc_out"), hidden, inner_size(config, dims), bias=True),
        layer_tensors=norm("ln_1", hidden, bias=True),
        tensors=blocks.ends(
            config,
            dims,
            final_norm=norm("transformer.ln_f", hidden, bias=True),
            embedding_name="transformer.wte",
            head_bias=True,
        ),
        prefix="transformer.h.{i}.",
        parallel_attention=True,
    )
