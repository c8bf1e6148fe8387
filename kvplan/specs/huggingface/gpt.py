"""Decoders of the GPT kind: layer norms with biases and a plain feed-forward of two matrices."""

from __future__ import annotations

from dataclasses import replace

from kvplan.core.model import Attention, Tensor, TensorClass, linear, norm, vector
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config

_INNER = ("n_inner", "intermediate_size", "ffn_hidden_size", "ffn_dim")


def _inner(config: Config, dims: Dimensions, *, factor: int = 4) -> int:
    """Width inside the feed-forward, four times the hidden size by the family's own rule when left out."""
    return config.optional_integer(*_INNER) or factor * dims.hidden_size


def _multi_head(config: Config) -> Dimensions:
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


def _positions(name: str, rows: int, width: int) -> tuple[Tensor, ...]:
    """Learned absolute positions: looked up like the embedding, told apart from it."""
    return vector(name, TensorClass.OTHER, rows, width, shards=1)


def gpt2(config: Config) -> Blueprint:
    """GPT-2: learned positions, fused QKV, tied head."""
    return _gpt2(config, _multi_head(config), tied=True)


def openai_gpt(config: Config) -> Blueprint:
    """GPT-1: GPT-2 without a final norm, and with the older module names."""
    dims = _multi_head(config)
    hidden = dims.hidden_size
    config.ignore("afn", "n_special", "predict_special_tokens", "n_ctx")
    positions = _positions(
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
    dims = _multi_head(config)
    config.ignore("attention_softmax_in_fp32", "inference_runner", "validate_runner_input", "pre_allocate_kv_cache")
    config.ignore("max_batch_size", "max_sequence_length", "pad_key_length", "num_key_value_heads")
    if config.boolean("multi_query", default=True):
        dims = Dimensions(
            hidden_size=dims.hidden_size,
            num_hidden_layers=dims.num_hidden_layers,
            num_attention_heads=dims.num_attention_heads,
            num_key_value_heads=1,
            head_dim=dims.head_dim,
            vocab_size=dims.vocab_size,
            max_context=dims.max_context,
        )
    return _gpt2(config, dims, tied=True)


def _gpt2(config: Config, dims: Dimensions, *, tied: bool) -> Blueprint:
    if config.boolean("add_cross_attention", default=False):
        raise config.unsupported("add_cross_attention", "true is not understood for this family")
    config.ignore("scale_attn_by_inverse_layer_idx", "n_special", "predict_special_tokens", "n_ctx")
    hidden = dims.hidden_size
    positions = config.integer("n_positions", "max_position_embeddings")
    final = (
        *_positions("transformer.wpe", positions, hidden),
        *norm("transformer.ln_f", hidden, bias=True),
    )
    return blocks.stack(
        dims,
        mixers=blocks.fused_gqa(dims, qkv="attn.c_attn", output="attn.c_proj", qkv_bias=True, o_bias=True),
        feed_forward=blocks.plain_mlp(("mlp.c_fc", "mlp.c_proj"), hidden, _inner(config, dims), bias=True),
        layer_tensors=blocks.norms(("ln_1", "ln_2"), hidden, bias=True),
        tensors=blocks.ends(config, dims, tied_default=tied, final_norm=final, embedding_name="transformer.wte"),
        prefix="transformer.h.{i}.",
    )


def gpt_neo(config: Config) -> Blueprint:
    """GPT-Neo: alternating local attention, which no engine turns into a smaller cache: counted as full."""
    dims = _multi_head(config)
    hidden = dims.hidden_size
    config.ignore("attention_types", "attention_layers")
    window = config.optional_integer("window_size")
    if window is not None:
        config.warnings.append(f"window_size: local layers see {window} tokens, but their cache is kept whole")
    attention = blocks.gqa(dims, name="attn.attention", names=("q_proj", "k_proj", "v_proj", "out_proj"), o_bias=True)
    final = (
        *_positions("transformer.wpe", config.integer("max_position_embeddings"), hidden),
        *norm("transformer.ln_f", hidden, bias=True),
    )
    return blocks.stack(
        dims,
        mixers=attention,
        feed_forward=blocks.plain_mlp(("mlp.c_fc", "mlp.c_proj"), hidden, _inner(config, dims), bias=True),
        layer_tensors=blocks.norms(("ln_1", "ln_2"), hidden, bias=True),
        tensors=blocks.ends(config, dims, tied_default=True, final_norm=final, embedding_name="transformer.wte"),
        prefix="transformer.h.{i}.",
    )


def gptj(config: Config) -> Blueprint:
    """GPT-J: one norm, attention beside feed-forward, head with a bias."""
    dims = _multi_head(config)
    attention = blocks.gqa(dims, name="attn", names=("q_proj", "k_proj", "v_proj", "out_proj"))
    return _gptj(config, dims, attention)


def codegen(config: Config) -> Blueprint:
    """CodeGen: GPT-J with fused QKV."""
    dims = _multi_head(config)
    config.ignore("n_ctx")
    return _gptj(config, dims, blocks.fused_gqa(dims, qkv="attn.qkv_proj", output="attn.out_proj"))


def _gptj(config: Config, dims: Dimensions, attention: Attention) -> Blueprint:
    hidden = dims.hidden_size
    return blocks.stack(
        dims,
        mixers=attention,
        feed_forward=blocks.plain_mlp(("mlp.fc_in", "mlp.fc_out"), hidden, _inner(config, dims), bias=True),
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


def gpt_neox(config: Config) -> Blueprint:
    """GPT-NeoX, Pythia, Dolly, RedPajama: fused QKV, two norms, parallel residual by default."""
    dims = _multi_head(config)
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
    dims = _multi_head(config)
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
    dims = _multi_head(config)
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


def opt(config: Config) -> Blueprint:
    """OPT: positions offset by two, optional projections to a narrower embedding (350M), no final norm after it."""
    dims = _multi_head(config)
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
    narrow = Dimensions(
        hidden_size=width,
        num_hidden_layers=dims.num_hidden_layers,
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context,
    )
    final: tuple[Tensor, ...] = _positions(
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
            config, narrow, tied_default=True, final_norm=final, embedding_name="model.decoder.embed_tokens"
        ),
        prefix="model.decoder.layers.{i}.",
    )


def xglm(config: Config) -> Blueprint:
    """XGLM: OPT-like with computed positions."""
    dims = _multi_head(config)
    config.ignore("scale_embedding", "layerdrop")
    return _fairseq(config, dims, config.integer("ffn_dim"), positions=(), root="model")


def biogpt(config: Config) -> Blueprint:
    """BioGPT: XGLM with learned positions offset by two."""
    dims = _multi_head(config)
    config.ignore("scale_embedding", "layerdrop")
    positions = _positions("biogpt.embed_positions", config.integer("max_position_embeddings") + 2, dims.hidden_size)
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
    dims = _multi_head(config)
    config.ignore("img_processor", "fused_dense", "flash_attn", "flash_rotary", "n_head_kv")
    attention = blocks.fused_gqa(dims, qkv="mixer.Wqkv", output="mixer.out_proj", qkv_bias=True, o_bias=True)
    return _phi(config, dims, attention, _inner(config, dims))


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


def persimmon(config: Config) -> Blueprint:
    """Persimmon-8B and Fuyu's decoder: fused QKV, norms of queries and keys with biases."""
    dims = _multi_head(config)
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
    dims = _multi_head(config)
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
            ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), hidden, _inner(config, dims), bias=bias
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
