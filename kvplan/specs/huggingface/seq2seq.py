"""Encoder–decoder models: the decoder keeps a growing self cache and, per source token, a cross cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.core.model import DenseFeedForward, Layer
from kvplan.core.tensors import Tensor, TensorClass, norm, vector
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config

_OTHER: Final = TensorClass.OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What tells the members of the BART kin apart.

    Attributes:
        positions: Rows beyond `max_position_embeddings` of the stored position tables; None where none are stored.
        embedding_norm: A norm right after the embeddings.
        final_norm: A norm after the last layer.
        logits_bias: A buffer added to the logits.
    """

    positions: int | None
    embedding_norm: bool
    final_norm: bool
    logits_bias: bool = True


_STYLES: Final[dict[str, Style]] = {
    "bart": Style(positions=2, embedding_norm=True, final_norm=False),
    "blenderbot": Style(positions=0, embedding_norm=False, final_norm=True),
    "blenderbot-small": Style(positions=0, embedding_norm=True, final_norm=False),
    "m2m_100": Style(positions=None, embedding_norm=False, final_norm=True, logits_bias=False),
    "marian": Style(positions=0, embedding_norm=False, final_norm=False),
    "mbart": Style(positions=2, embedding_norm=True, final_norm=True),
    "pegasus": Style(positions=0, embedding_norm=False, final_norm=True),
    "plbart": Style(positions=2, embedding_norm=True, final_norm=False),
}


def bart(config: Config) -> Blueprint:
    """BART, mBART, Pegasus, Marian, Blenderbot, PLBart, M2M-100 and NLLB."""
    style = _STYLES[config.model_type]
    encoder, decoder = _sides(config)
    vocab, hidden = decoder.vocab_size, decoder.hidden_size
    if not config.boolean("share_encoder_decoder_embeddings", default=True):
        raise config.error("share_encoder_decoder_embeddings", "separate embeddings are not known to kvplan")
    if (other := config.optional_integer("decoder_vocab_size")) is not None and other != vocab:
        raise config.error("decoder_vocab_size", "another vocabulary for the decoder is not known to kvplan")
    architecture = _architecture(config)
    with_logits = architecture.endswith(("ForConditionalGeneration", "MTModel"))
    tied = config.boolean("tie_word_embeddings", default=True)
    own = () if tied else ("model.encoder.embed_tokens", "model.decoder.embed_tokens")
    tensors = (
        *blocks.embedding(vocab, hidden, name="model.shared"),
        *(tensor for name in own for tensor in vector(name, _OTHER, vocab, hidden, shards=None)),
        *_around("model.encoder", encoder, style),
        *_around("model.decoder", decoder, style),
        *blocks.lm_head(vocab, hidden, tied=tied),
    )
    config.ignore("num_hidden_layers", "hidden_size", "num_attention_heads", "scale_embedding", "encoder_layerdrop")
    config.ignore("decoder_layerdrop", "normalize_before", "normalize_embedding", "add_final_layer_norm")
    config.ignore("static_position_embeddings", "extra_pos_embeddings", "add_bias_logits", "classif_dropout")
    config.ignore("force_bos_token_to_be_generated", "num_beams", "max_length", "save_step", "extra_layer_norm")
    config.ignore(
        "layernorm_variant", "do_blenderbot_90_layernorm", "unk_token_id", "tokenizer_class", "gradient_checkpointing"
    )
    return Blueprint(
        hidden_size=hidden,
        vocab_size=vocab,
        max_context=decoder.max_context,
        layers=(_decoder_layer(decoder, config.integer("decoder_ffn_dim")),) * decoder.num_hidden_layers,
        tensors=tensors,
        layer_prefix="model.decoder.layers.{i}.",
        encoder_layers=(_encoder_layer(encoder, config.integer("encoder_ffn_dim")),) * encoder.num_hidden_layers,
        encoder_prefix="model.encoder.layers.{i}.",
        max_source_tokens=encoder.max_context,
        buffer_elements=vocab if style.logits_bias and with_logits else 0,
    )


def whisper(config: Config) -> Blueprint:
    """Whisper: convolutions over 30 s of sound, 1500 source positions, keys without bias."""
    encoder, decoder = _sides(config, context="max_target_positions")
    hidden = decoder.hidden_size
    source = config.integer("max_source_positions", default=1500)
    mels = config.integer("num_mel_bins", default=80)
    _architecture(config)
    tensors = (
        *vector("model.encoder.conv1", _OTHER, hidden, mels, 3),
        *vector("model.encoder.conv1.bias", _OTHER, hidden),
        *vector("model.encoder.conv2", _OTHER, hidden, hidden, 3),
        *vector("model.encoder.conv2.bias", _OTHER, hidden),
        *vector("model.encoder.embed_positions", _OTHER, source, hidden),
        *norm("model.encoder.layer_norm", hidden, bias=True),
        *blocks.embedding(decoder.vocab_size, hidden, name="model.decoder.embed_tokens"),
        *vector("model.decoder.embed_positions", _OTHER, decoder.max_context or 448, hidden),
        *norm("model.decoder.layer_norm", hidden, bias=True),
        *blocks.lm_head(
            decoder.vocab_size, hidden, tied=config.boolean("tie_word_embeddings", default=True), name="proj_out"
        ),
    )
    config.ignore("num_hidden_layers", "encoder_layerdrop", "decoder_layerdrop", "scale_embedding", "alignment_heads")
    config.ignore("classifier_proj_size", "use_weighted_layer_sum", "median_filter_width", "apply_spec_augment")
    config.ignore(*(name for name in config.data if name.startswith("mask_")), "max_length", "forced_decoder_ids")
    config.ignore("lang_ids", "lang_to_id", "task_ids", "is_multilingual", "suppress_ids", "suppress_ids_begin")
    return Blueprint(
        hidden_size=hidden,
        vocab_size=decoder.vocab_size,
        max_context=decoder.max_context,
        layers=(_decoder_layer(decoder, config.integer("decoder_ffn_dim"), k_bias=False),) * decoder.num_hidden_layers,
        tensors=tensors,
        layer_prefix="model.decoder.layers.{i}.",
        encoder_layers=(_encoder_layer(encoder, config.integer("encoder_ffn_dim"), k_bias=False),)
        * encoder.num_hidden_layers,
        encoder_prefix="model.encoder.layers.{i}.",
        max_source_tokens=source,
    )


def _architecture(config: Config) -> str:
    """The class name; classes with heads of their own are refused."""
    name = (config.strings("architectures") or ("ForConditionalGeneration",))[0]
    if not name.endswith(("ForConditionalGeneration", "MTModel", "Model", "EncoderDecoder")):
        raise config.error("architectures", f"{name!r} has a head that kvplan does not know")
    return name


def _sides(config: Config, *, context: str = "max_position_embeddings") -> tuple[Dimensions, Dimensions]:
    """Sizes of encoder and decoder."""
    hidden = config.integer("d_model", "hidden_size")
    vocab = config.integer("vocab_size")
    positions = config.integer(context, default=448 if context == "max_target_positions" else 1024)

    def side(name: str) -> Dimensions:
        heads = config.integer(f"{name}_attention_heads")
        if hidden % heads:
            field, rule = f"{name}_attention_heads", f"{heads} does not divide d_model {hidden}"
            raise config.error(field, rule)
        return Dimensions(
            hidden_size=hidden,
            num_hidden_layers=config.integer(f"{name}_layers"),
            num_attention_heads=heads,
            num_key_value_heads=heads,
            head_dim=hidden // heads,
            vocab_size=vocab,
            max_context=positions,
        )

    return side("encoder"), side("decoder")


def _around(name: str, dims: Dimensions, style: Style) -> tuple[Tensor, ...]:
    """Positions and outer norms of one side."""
    hidden = dims.hidden_size
    rows = None if style.positions is None else (dims.max_context or 0) + style.positions
    return (
        *(vector(f"{name}.embed_positions", _OTHER, rows, hidden) if rows is not None else ()),
        *(norm(f"{name}.layernorm_embedding", hidden, bias=True) if style.embedding_norm else ()),
        *(norm(f"{name}.layer_norm", hidden, bias=True) if style.final_norm else ()),
    )


_OUT_PROJ: Final = ("q_proj", "k_proj", "v_proj", "out_proj")


def _without(tensors: tuple[Tensor, ...], name: str) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in tensors if tensor.name != name)


def _encoder_layer(dims: Dimensions, inner: int, *, k_bias: bool = True) -> Layer:
    attention = blocks.gqa(dims, names=_OUT_PROJ, qkv_bias=True, o_bias=True)
    tensors = attention.tensors if k_bias else _without(attention.tensors, "self_attn.k_proj.bias")
    return Layer(
        mixers=(replace(attention, causal=False, tensors=tensors),),
        feed_forward=DenseFeedForward(tensors=blocks.two_tensors(("fc1", "fc2"), dims.hidden_size, inner, bias=True)),
        tensors=blocks.norms(("self_attn_layer_norm", "final_layer_norm"), dims.hidden_size, bias=True),
    )


def _decoder_layer(dims: Dimensions, inner: int, *, k_bias: bool = True) -> Layer:
    attention = blocks.gqa(dims, names=_OUT_PROJ, qkv_bias=True, o_bias=True)
    cross = blocks.gqa(dims, name="encoder_attn", names=_OUT_PROJ, qkv_bias=True, o_bias=True).tensors
    tensors = attention.tensors
    if not k_bias:
        tensors = _without(tensors, "self_attn.k_proj.bias")
        cross = _without(cross, "encoder_attn.k_proj.bias")
    names = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
    return Layer(
        mixers=(replace(attention, tensors=tensors), blocks.cross_attention(dims, cross)),
        feed_forward=DenseFeedForward(tensors=blocks.two_tensors(("fc1", "fc2"), dims.hidden_size, inner, bias=True)),
        tensors=blocks.norms(names, dims.hidden_size, bias=True),
    )


def t5(config: Config) -> Blueprint:
    """T5, Flan-T5 and mT5: relative positions on the first layer of each side."""
    return _t5(config, every_layer=False)


def umt5(config: Config) -> Blueprint:
    """umT5: relative positions on every layer."""
    return _t5(config, every_layer=True)


def _t5(config: Config, *, every_layer: bool) -> Blueprint:
    hidden = config.integer("d_model")
    heads = config.integer("num_heads")
    count = config.integer("num_layers")
    dims = Dimensions(
        hidden_size=hidden,
        num_hidden_layers=count,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=config.integer("d_kv"),
        vocab_size=config.integer("vocab_size"),
        max_context=config.optional_integer("n_positions"),
    )
    decoder_count = config.optional_integer("num_decoder_layers") or count
    inner = config.integer("d_ff")
    default = "relu" if config.model_type == "t5" else "gated-gelu"
    activation = config.string("feed_forward_proj", default=default) or default
    parts = activation.split("-")
    if len(parts) > 2 or (len(parts) == 2 and parts[0] != "gated"):  # noqa: PLR2004 - at most gated-name
        raise config.error("feed_forward_proj", f"{activation!r} is neither an activation nor gated-<activation>")
    gated = parts[0] == "gated"
    buckets = config.integer("relative_attention_num_buckets", default=32)
    architecture = (config.strings("architectures") or ("ForConditionalGeneration",))[0]
    encoder_only = architecture.endswith("EncoderModel")
    if not architecture.endswith(("ForConditionalGeneration", "Model", "WithLMHeadModel")):
        raise config.error("architectures", f"{architecture!r} has a head that kvplan does not know")

    def layers(number: int, *, decoder: bool) -> tuple[Layer, ...]:
        return tuple(
            _t5_layer(dims, inner, gated=gated, decoder=decoder, buckets=buckets if every_layer or i == 0 else 0)
            for i in range(number)
        )

    tied = config.boolean("tie_word_embeddings", default=True)
    embedding = blocks.embedding(dims.vocab_size, hidden, name="shared")
    encoder_norm = norm("encoder.final_layer_norm", hidden)
    config.ignore("relative_attention_max_distance", "is_gated_act", "dense_act_fn", "n_positions", "output_past")
    if encoder_only:
        return Blueprint(
            hidden_size=hidden,
            vocab_size=dims.vocab_size,
            max_context=dims.max_context,
            layers=layers(count, decoder=False),
            tensors=(*embedding, *encoder_norm),
            layer_prefix="encoder.block.{i}.",
        )
    return Blueprint(
        hidden_size=hidden,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context,
        layers=layers(decoder_count, decoder=True),
        tensors=(
            *embedding,
            *encoder_norm,
            *norm("decoder.final_layer_norm", hidden),
            *blocks.lm_head(dims.vocab_size, hidden, tied=tied),
        ),
        layer_prefix="decoder.block.{i}.",
        encoder_layers=layers(count, decoder=False),
        encoder_prefix="encoder.block.{i}.",
        max_source_tokens=config.integer("n_positions", default=512),
    )


def _t5_layer(dims: Dimensions, inner: int, *, gated: bool, decoder: bool, buckets: int) -> Layer:
    hidden = dims.hidden_size
    short = ("q", "k", "v", "o")
    attention = blocks.gqa(dims, name="layer.0.SelfAttention", names=short)
    bias = (
        vector("layer.0.SelfAttention.relative_attention_bias", _OTHER, buckets, dims.num_attention_heads)
        if buckets
        else ()
    )
    last = 2 if decoder else 1
    dense = f"layer.{last}.DenseReluDense"
    if gated:
        mlp = blocks.gated_tensors(dense, hidden, inner, names=("wi_0", "wi_1", "wo"))
    else:
        mlp = blocks.two_tensors((f"{dense}.wi", f"{dense}.wo"), hidden, inner)
    own = replace(attention, causal=decoder, tensors=(*attention.tensors, *bias))
    cross = blocks.gqa(dims, name="layer.1.EncDecAttention", names=short).tensors
    return Layer(
        mixers=(own, blocks.cross_attention(dims, cross)) if decoder else (own,),
        feed_forward=DenseFeedForward(tensors=mlp),
        tensors=blocks.norms(tuple(f"layer.{i}.layer_norm" for i in range(last + 1)), hidden),
    )
