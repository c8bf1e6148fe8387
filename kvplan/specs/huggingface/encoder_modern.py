"""Newer encoders: ModernBERT (and its twin that decodes), Nomic Embed, EuroBERT."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvplan.core.model import Attention, DenseFeedForward, Layer
from kvplan.core.tensors import TensorClass, linear, norm, vector
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.encoder import Names, blueprint_of, embeddings
from kvplan.specs.huggingface.encoder_heads import HeadStyle, read_head
from kvplan.specs.huggingface.gpt import multi_head
from kvplan.specs.huggingface.llama import llama

_SIZES: Final = {
    "vocab_size": 50_368,
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
}


def modernbert(config: Config) -> Blueprint:
    """ModernBERT: fused projections, gated feed-forward, two of three layers attend to a window only."""
    config.with_defaults(_SIZES)
    dims = blocks.read_dimensions(config)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    inner = config.integer("intermediate_size")
    bias = config.boolean("attention_bias", default=False)
    norm_bias = config.boolean("norm_bias", default=False)
    window = config.integer("local_attention", default=128)
    every = config.integer("global_attn_every_n_layers", default=3)
    windows = blocks.read_windows(config, count, window=window, default=tuple(bool(i % every) for i in range(count)))
    forward = DenseFeedForward(
        tensors=blocks.two_tensors(
            ("mlp.Wi", "mlp.Wo"), hidden, inner, up_factor=2, bias=config.boolean("mlp_bias", default=False)
        )
    )
    layers = []
    for i in range(count):
        attention = blocks.fused_gqa(
            dims, qkv="attn.Wqkv", output="attn.Wo", qkv_bias=bias, o_bias=bias, window=windows[i]
        )
        tensors = norm("mlp_norm", hidden, bias=norm_bias)
        if i:
            tensors += norm("attn_norm", hidden, bias=norm_bias)
        layers.append(Layer(mixers=(replace(attention, causal=False),), feed_forward=forward, tensors=tensors))
    style = HeadStyle(
        hidden=hidden,
        vocab_size=dims.vocab_size,
        dense_bias=config.boolean("classifier_bias", default=False),
        norm_bias=norm_bias,
        decoder_bias=config.boolean("decoder_bias", default=True),
        normed=True,
    )
    head = read_head(config, style)
    config.ignore("deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index", "embedding_dropout")
    config.ignore("classifier_pooling", "reference_compile", "repad_logits_with_grad", "local_rope_theta")
    config.ignore("layer_norm_eps", "norm_eps", "gradient_checkpointing", "position_embedding_type")
    return Blueprint(
        hidden_size=hidden,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context,
        layers=tuple(layers),
        tensors=(
            *blocks.embedding(dims.vocab_size, hidden, name="embeddings.tok_embeddings"),
            *norm("embeddings.norm", hidden, bias=norm_bias),
            *norm("final_norm", hidden, bias=norm_bias),
            *head,
        ),
        layer_prefix="layers.{i}.",
    )


def modernbert_decoder(config: Config) -> Blueprint:
    """Ettin's decoders: ModernBERT with separate projections and a causal mask.

    `local_attention` counts both sides of a token as in the encoder; a decoder's window is the half of it. The first
    layer has no norm before attention.
    """
    dims = multi_head(config.with_defaults({**_SIZES, "max_position_embeddings": 8192}))
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    bias = config.boolean("attention_bias", default=False)
    norm_bias = config.boolean("norm_bias", default=False)
    every = config.integer("global_attn_every_n_layers", default=3)
    windows = blocks.read_windows(
        config,
        count,
        window=config.integer("local_attention", default=128, minimum=2) // 2,
        default=tuple(bool(i % every) for i in range(count)),
    )
    attention = blocks.gqa(dims, name="attn", names=("q_proj", "k_proj", "v_proj", "Wo"), qkv_bias=bias, o_bias=bias)
    made = blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=blocks.plain_mlp(
            ("mlp.Wi", "mlp.Wo"),
            hidden,
            config.integer("intermediate_size"),
            up_factor=2,
            bias=config.boolean("mlp_bias", default=False),
        ),
        layer_tensors=blocks.norms(("attn_norm", "mlp_norm"), hidden, bias=norm_bias),
        tensors=blocks.ends(
            config,
            dims,
            tied_default=True,
            final_norm=(
                *blocks.norms(("model.embeddings.norm", "model.final_norm"), hidden, bias=norm_bias),
                *linear(
                    "lm_head.dense",
                    TensorClass.HEAD,
                    out_features=hidden,
                    in_features=hidden,
                    bias=config.boolean("classifier_bias", default=False),
                ),
                *norm("lm_head.norm", hidden, bias=norm_bias),
            ),
            embedding_name="model.embeddings.tok_embeddings",
            head_name="decoder",
            head_bias=config.boolean("decoder_bias", default=True),
        ),
    )
    first = replace(made.layers[0], tensors=norm("mlp_norm", hidden, bias=norm_bias))
    config.ignore("sliding_window", "global_rope_theta", "local_rope_theta")
    return replace(made, layers=(first, *made.layers[1:]))


def nomic_bert(config: Config) -> Blueprint:
    """Nomic Embed: rotary positions, gated feed-forward without biases; sizes under GPT-2 names in older files."""
    dims = blocks.read_dimensions(config)
    hidden = dims.hidden_size
    inner = config.integer("intermediate_size", "n_inner", default=4 * hidden)
    bias = config.boolean("qkv_proj_bias", default=False)
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias)
    layer = Layer(
        mixers=(replace(attention, causal=False),),
        feed_forward=blocks.gated_mlp(hidden, inner, bias=config.boolean("mlp_fc1_bias", default=False)),
        tensors=blocks.norms(("post_attention_layernorm", "post_mlp_layernorm"), hidden, bias=True),
    )
    tensors = (
        *embeddings(
            config,
            dims,
            width=hidden,
            types=config.integer("type_vocab_size", default=2, minimum=0),
            positions=False,
        ),
        *read_head(config, HeadStyle(hidden=hidden, vocab_size=dims.vocab_size, pooler=False)),
    )
    if config.boolean("mlp_fc2_bias", default=False) != config.boolean("mlp_fc1_bias", default=False):
        raise config.error("mlp_fc2_bias", "must say the same as mlp_fc1_bias")
    for name in ("prenorm", "parallel_block", "use_rms_norm"):
        if config.boolean(name, default=False):
            raise config.error(name, "is not known to kvplan for this family")
    if config.has("num_experts") and config.integer("num_experts", minimum=0):
        raise config.error("num_experts", "experts of this family are not known to kvplan")
    config.ignore("causal", "fused_bias_fc", "fused_dropout_add_ln", "mlp_fc1_bias", "parallel_block_tied_norm")
    config.ignore(
        "use_xentropy", "max_trained_positions", "pad_vocab_size_multiple", "attn_pdrop", "reorder_and_upcast_attn"
    )
    config.ignore("scale_attn_by_inverse_layer_idx", "shared_expert", "layer_norm_epsilon", "dense_seq_output")
    config.ignore("last_layer_subset", "num_shared_experts", "moe_every_n_layers", "expert_choice_router", "ffn_div")
    config.ignore("moe_impl", "moe_normalize_expert_weights", "moe_resid_pdrop", "moe_top_k", "router_aux_loss_coef")
    config.ignore("add_pooling_layer", "n_positions", "summary_type", "sequence_parallel", "tie_word_embeddings")
    names = Names(layers="layers.{i}.")
    return blueprint_of(dims, (layer,) * dims.num_hidden_layers, tensors, names)


def eurobert(config: Config) -> Blueprint:
    """EuroBERT: a Llama that sees all tokens."""
    base = llama(config)
    architecture = (config.strings("architectures") or ("",))[0]
    layers = tuple(
        replace(layer, mixers=tuple(replace(m, causal=False) for m in layer.mixers if isinstance(m, Attention)))
        for layer in base.layers
    )
    config.ignore("classifier_pooling", "clf_pooling", "mask_token_id")
    if architecture.endswith("ForMaskedLM"):
        bias = config.boolean("mlp_bias", default=False)
        own = vector("lm_head.bias", TensorClass.HEAD, base.vocab_size, shards=None) if bias else ()
        return replace(base, layers=layers, tensors=(*base.tensors, *own))
    return replace(
        base, layers=layers, tensors=tuple(t for t in base.tensors if t.tensor_class is not TensorClass.HEAD)
    )
