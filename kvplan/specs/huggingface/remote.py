"""Families that are published with their own modelling code: Qwen 1, Baichuan, ChatGLM, InternLM 2."""

from __future__ import annotations

from dataclasses import replace

from kvplan.core.tensors import norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.llama import llama_like


def qwen(config: Config) -> Blueprint:
    """Qwen 1: fused QKV with bias; `intermediate_size` counts gate and up together."""
    dims = blocks.read_dimensions(config)
    both = config.integer("intermediate_size", minimum=2)
    config.ignore("use_dynamic_ntk", "use_logn_attn", "use_cache_quantization", "use_cache_kernel", "seq_length")
    config.ignore("softmax_in_fp32", "onnx_safe", "padded_vocab_size")
    if not config.boolean("no_bias", default=True):
        raise config.unsupported("no_bias", "false is not understood for this family")
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(dims, qkv="attn.c_attn", output="attn.c_proj", qkv_bias=True),
        feed_forward=blocks.gated_mlp(dims.hidden_size, both // 2, names=("w2", "w1", "c_proj")),
        layer_tensors=blocks.norms(("ln_1", "ln_2"), dims.hidden_size),
        tensors=blocks.ends(
            config,
            dims,
            final_norm=norm("transformer.ln_f", dims.hidden_size),
            embedding_name="transformer.wte",
        ),
        prefix="transformer.h.{i}.",
    )


def baichuan(config: Config) -> Blueprint:
    """Baichuan 1 and 2: Llama with fused QKV; the 13B's ALiBi changes no memory."""
    dims = blocks.read_dimensions(config)
    config.ignore("z_loss_weight", "gptq_mode", "model_max_length")
    base = llama_like(config, dims=dims, mlp_bias=False)
    fused = blocks.fused_gqa(dims, qkv="self_attn.W_pack", output="self_attn.o_proj")
    layer = replace(base.layers[0], mixers=(fused,))
    return replace(base, layers=(layer,) * dims.num_hidden_layers)


def internlm2(config: Config) -> Blueprint:
    """InternLM 2 and 2.5: fused QKV and its own module names."""
    dims = blocks.read_dimensions(config)
    bias = config.boolean("bias", default=False)
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(dims, qkv="attention.wqkv", output="attention.wo", qkv_bias=bias, o_bias=bias),
        feed_forward=blocks.gated_mlp(
            dims.hidden_size, config.integer("intermediate_size"), name="feed_forward", names=("w1", "w3", "w2")
        ),
        layer_tensors=blocks.norms(("attention_norm", "ffn_norm"), dims.hidden_size),
        tensors=blocks.ends(config, dims, embedding_name="model.tok_embeddings", head_name="output"),
    )


def internlm(config: Config) -> Blueprint:
    """InternLM 1: Llama with biases in attention."""
    bias = config.boolean("bias", default=True)
    return llama_like(config, qkv_bias=bias, o_bias=bias, mlp_bias=False)


def chatglm(config: Config) -> Blueprint:
    """ChatGLM 2 and 3, GLM-4-9B (original): fused QKV with bias, few KV groups, fused gate and up.

    The first ChatGLM-6B has other fields (`inner_hidden_size`) and is refused for the lack of `ffn_hidden_size`.
    """
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    inner = config.integer("ffn_hidden_size")
    kv_heads = heads
    if config.boolean("multi_query_attention", default=False):
        kv_heads = config.integer("multi_query_group_num")
    else:
        config.ignore("multi_query_group_num")
    config.ignore("vocab_size", "apply_query_key_layer_scaling", "fp32_residual_connection", "original_rope")
    config.ignore(
        "apply_residual_connection_post_layernorm", "bias_dropout_fusion", "pre_seq_len", "classifier_dropout"
    )
    config.ignore("prefix_projection", "max_sequence_length", "quantization_bit", "interleaved_qkv")
    if not config.boolean("rmsnorm", default=True):
        raise config.unsupported("rmsnorm", "false is not understood for this family")
    dims = Dimensions(
        hidden_size=hidden,
        num_hidden_layers=config.integer("num_layers", "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=config.optional_integer("kv_channels") or hidden // heads,
        vocab_size=config.integer("padded_vocab_size", "vocab_size"),
        max_context=blocks.read_max_context(config),
    )
    bias = config.boolean("add_bias_linear", default=False)
    final = (
        norm("transformer.encoder.final_layernorm", hidden) if config.boolean("post_layer_norm", default=True) else ()
    )
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(
            dims,
            qkv="self_attention.query_key_value",
            output="self_attention.dense",
            qkv_bias=bias or config.boolean("add_qkv_bias", default=False),
            o_bias=bias,
        ),
        feed_forward=blocks.plain_mlp(
            ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), hidden, inner, up_factor=2, bias=bias
        ),
        tensors=blocks.ends(
            config,
            dims,
            final_norm=final,
            embedding_name="transformer.embedding.word_embeddings",
            head_name="transformer.output_layer",
        ),
        prefix="transformer.encoder.layers.{i}.",
    )
