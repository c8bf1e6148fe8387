"""Decoders of the NeoX kind, whose checkpoints fuse queries, keys and values: Pythia, BLOOM, MPT, Falcon, Persimmon."""

from __future__ import annotations

from dataclasses import replace

from kvplan.core.tensors import Tensor, TensorClass, norm, vector
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.gpt import inner_size, multi_head


def gpt_neox(config: Config) -> Blueprint:
    """GPT-NeoX, Pythia, Dolly, RedPajama: fused QKV, two norms, parallel residual by default."""
    dims = multi_head(config)
    hidden = dims.hidden_size
    bias = config.boolean("attention_bias", default=True)
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(
            dims, qkv="attention.query_key_value", output="attention.dense", qkv_bias=bias, o_bias=bias
        ),
        feed_forward=blocks.plain_mlp(
            ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), hidden, config.integer("intermediate_size"), bias=True
        ),
        layer_tensors=blocks.norms(blocks.TWO_NORMS, hidden, bias=True),
        tensors=blocks.ends(
            config,
            dims,
            final_norm=norm("gpt_neox.final_layer_norm", hidden, bias=True),
            embedding_name="gpt_neox.embed_in",
            head_name="embed_out",
        ),
        prefix="gpt_neox.layers.{i}.",
        parallel_attention=config.boolean("use_parallel_residual", default=True),
    )


def gpt_neox_japanese(config: Config) -> Blueprint:
    """GPT-NeoX Japanese: no biases but one, on the last layer's attention output."""
    dims = multi_head(config)
    hidden = dims.hidden_size
    inner = hidden * config.integer("intermediate_multiple_size", default=4)
    made = blocks.stack(
        dims,
        mixers=blocks.fused_gqa(dims, qkv="attention.query_key_value", output="attention.dense"),
        feed_forward=blocks.plain_mlp(("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), hidden, inner),
        layer_tensors=blocks.norms(blocks.TWO_NORMS, hidden, bias=True),
        tensors=blocks.ends(
            config,
            dims,
            tied_default=True,
            final_norm=norm("gpt_neox_japanese.final_layer_norm", hidden, bias=True),
            embedding_name="gpt_neox_japanese.embed_in",
            head_name="embed_out",
        ),
        prefix="gpt_neox_japanese.layers.{i}.",
    )
    last = made.layers[-1]
    biased = replace(last, tensors=(*last.tensors, *vector("attention.dense_bias", TensorClass.ATTENTION, hidden)))
    return replace(made, layers=(*made.layers[:-1], biased))


def bloom(config: Config) -> Blueprint:
    """BLOOM: ALiBi, a norm after the embedding, tied head."""
    dims = multi_head(config)
    hidden = dims.hidden_size
    config.ignore(
        "apply_residual_connection_post_layernorm",
        "slow_but_exact",
        "offset_alibi",
        "skip_bias_add",
        "skip_bias_add_qkv",
        "masked_softmax_fusion",
        "attention_softmax_in_fp32",
        "hidden_dropout",
        "unk_token_id",
        "n_inner",
        "bias_dropout_fusion",
    )
    final = (
        *norm("transformer.word_embeddings_layernorm", hidden, bias=True),
        *norm("transformer.ln_f", hidden, bias=True),
    )
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(
            dims, qkv="self_attention.query_key_value", output="self_attention.dense", qkv_bias=True, o_bias=True
        ),
        feed_forward=blocks.plain_mlp(("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), hidden, 4 * hidden, bias=True),
        layer_tensors=blocks.norms(blocks.TWO_NORMS, hidden, bias=True),
        tensors=blocks.ends(
            config, dims, tied_default=True, final_norm=final, embedding_name="transformer.word_embeddings"
        ),
        prefix="transformer.h.{i}.",
    )


def persimmon(config: Config) -> Blueprint:
    """Persimmon-8B and Fuyu's decoder: fused QKV, norms of queries and keys with biases."""
    dims = multi_head(config)
    hidden = dims.hidden_size
    extra: tuple[Tensor, ...] = ()
    if config.boolean("qk_layernorm", default=True):
        extra = blocks.norms(("self_attn.q_layernorm", "self_attn.k_layernorm"), dims.head_dim, bias=True)
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(
            dims,
            qkv="self_attn.query_key_value",
            output="self_attn.dense",
            qkv_bias=True,
            o_bias=True,
            extra=extra,
        ),
        feed_forward=blocks.plain_mlp(
            ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), hidden, config.integer("intermediate_size"), bias=True
        ),
        layer_tensors=blocks.norms(blocks.TWO_NORMS, hidden, bias=True),
        tensors=blocks.ends(config, dims, final_norm=norm("model.final_layernorm", hidden, bias=True)),
    )


def mpt(config: Config) -> Blueprint:
    """MPT: ALiBi, no biases, norms without biases, tied head."""
    dims = multi_head(config)
    hidden = dims.hidden_size
    attn = config.optional_nested("attn_config")
    if attn is not None:
        kind = attn.string("attn_type", default="multihead_attention")
        if kind != "multihead_attention":
            raise attn.unsupported("attn_type", f"{kind!r} is not understood")
        if attn.boolean("qk_ln", default=False):
            raise attn.unsupported("qk_ln", "true is not understood")
        if not attn.boolean("alibi", default=True):
            raise attn.unsupported("alibi", "false needs learned positions, which are not understood")
        attn.ignore("attn_impl", "attn_pdrop", "attn_uses_sequence_id", "clip_qkv", "prefix_lm", "softmax_scale")
        attn.ignore("alibi_bias_max", "model_type")
    if not config.boolean("no_bias", default=True):
        raise config.unsupported("no_bias", "false is not understood for this family")
    config.ignore("init_config", "init_device", "learned_pos_emb", "norm_type", "verbose", "logit_scale")
    config.ignore("embedding_fraction", "tokenizer_name", "use_pad_tok_in_ffn", "resid_pdrop", "emb_pdrop")
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(dims, qkv="attn.Wqkv", output="attn.out_proj"),
        feed_forward=blocks.plain_mlp(
            ("ffn.up_proj", "ffn.down_proj"), hidden, hidden * config.integer("expansion_ratio", default=4)
        ),
        layer_tensors=blocks.norms(("norm_1", "norm_2"), hidden),
        tensors=blocks.ends(
            config,
            dims,
            tied_default=True,
            final_norm=norm("transformer.norm_f", hidden),
            embedding_name="transformer.wte",
        ),
        prefix="transformer.blocks.{i}.",
    )


def falcon(config: Config) -> Blueprint:
    """Falcon 7B (one KV head), 40B, 180B and 11B (grouped): fused QKV, attention beside feed-forward."""
    heads = config.integer("num_attention_heads", "n_head")
    hidden = config.integer("hidden_size", "n_embed")
    if hidden % heads:
        raise config.error("hidden_size", f"{hidden} is no multiple of {heads} attention heads")
    grouped = config.boolean("new_decoder_architecture", default=False)
    multi_query = config.boolean("multi_query", default=True)
    kv_heads = 1 if multi_query else heads
    if grouped:
        kv_heads = config.integer("num_kv_heads", "n_head_kv", default=heads)
        if heads % kv_heads:
            raise config.error("num_kv_heads", f"{kv_heads} does not divide the {heads} attention heads")
    else:
        config.ignore("num_kv_heads", "n_head_kv")
    dims = Dimensions(
        hidden_size=hidden,
        num_hidden_layers=config.integer("num_hidden_layers", "n_layer"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden // heads,
        vocab_size=config.integer("vocab_size"),
        max_context=blocks.read_max_context(config),
    )
    bias = config.boolean("bias", default=False)
    config.ignore("apply_residual_connection_post_layernorm")
    parallel = config.boolean("parallel_attn", default=True)
    norm_count = config.optional_integer("num_ln_in_parallel_attn", maximum=2) or (2 if grouped else 1)
    if grouped and norm_count == 2:  # noqa: PLR2004 - one norm each for attention and feed-forward
        names: tuple[str, ...] = ("ln_attn", "ln_mlp")
    else:
        names = ("input_layernorm",) if parallel else blocks.TWO_NORMS
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(
            dims, qkv="self_attention.query_key_value", output="self_attention.dense", qkv_bias=bias, o_bias=bias
        ),
        feed_forward=blocks.plain_mlp(
            ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), hidden, inner_size(config, dims), bias=bias
        ),
        layer_tensors=blocks.norms(names, hidden, bias=True),
        tensors=blocks.ends(
            config,
            dims,
            tied_default=True,
            final_norm=norm("transformer.ln_f", hidden, bias=True),
            embedding_name="transformer.word_embeddings",
        ),
        prefix="transformer.h.{i}.",
        parallel_attention=parallel,
    )
