"""Encoders and embedding models of the BERT kind: they see all tokens at once and keep no cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.core.model import DenseFeedForward, Layer
from kvplan.core.precision import map_tensors
from kvplan.core.tensors import Tensor, TensorClass, linear, norm, vector
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.encoder_heads import HeadStyle, read_head

_OTHER: Final = TensorClass.OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Module names of one family's layer.

    Attributes:
        attention: Module that the four projections are in.
        projections: Q, K, V and output.
        mlp: The two projections of the feed-forward.
        norms: The two layer norms.
        layers: Prefix of a layer.
        embeddings: Module of the embeddings.
    """

    attention: str = "attention"
    projections: tuple[str, str, str, str] = ("self.query", "self.key", "self.value", "output.dense")
    mlp: tuple[str, str] = ("intermediate.dense", "output.dense")
    norms: tuple[str, str] = ("attention.output.LayerNorm", "output.LayerNorm")
    layers: str = "encoder.layer.{i}."
    embeddings: str = "embeddings"


_BERT: Final = Names()
_DISTILBERT: Final = Names(
    projections=("q_lin", "k_lin", "v_lin", "out_lin"),
    mlp=("ffn.lin1", "ffn.lin2"),
    norms=("sa_layer_norm", "output_layer_norm"),
    layers="transformer.layer.{i}.",
)
_MPNET: Final = Names(
    projections=("attn.q", "attn.k", "attn.v", "attn.o"), norms=("attention.LayerNorm", "output.LayerNorm")
)
_DEBERTA_V2: Final = Names(projections=("self.query_proj", "self.key_proj", "self.value_proj", "output.dense"))


def encoder_layer(dims: Dimensions, inner: int, names: Names, *, extra: tuple[Tensor, ...] = ()) -> Layer:
    """A post-norm layer with biases everywhere."""
    attention = blocks.gqa(dims, name=names.attention, names=names.projections, qkv_bias=True, o_bias=True, extra=extra)
    hidden = dims.hidden_size
    return Layer(
        mixers=(replace(attention, causal=False),),
        feed_forward=DenseFeedForward(tensors=blocks.two_tensors(names.mlp, hidden, inner, bias=True)),
        tensors=blocks.norms(names.norms, hidden, bias=True),
    )


def blueprint_of(
    dims: Dimensions, layers: Iterable[Layer], tensors: tuple[Tensor, ...], names: Names, *, offset: int = 0
) -> Blueprint:
    """An encoder; `offset` positions are reserved and hold no token."""
    context = dims.max_context - offset if dims.max_context is not None else None
    return Blueprint(
        hidden_size=dims.hidden_size,
        vocab_size=dims.vocab_size,
        max_context=context,
        layers=tuple(layers),
        tensors=tensors,
        layer_prefix=names.layers,
    )


def embeddings(
    config: Config, dims: Dimensions, *, width: int, types: int, positions: bool = True, norm_width: int | None = None
) -> tuple[Tensor, ...]:
    """Word, position and token-type tables and their norm."""
    module = "embeddings"
    rows = dims.max_context
    if positions and rows is None:
        raise config.error("max_position_embeddings", "is missing")
    return (
        *blocks.embedding(dims.vocab_size, width, name=f"{module}.word_embeddings"),
        *(vector(f"{module}.position_embeddings", _OTHER, rows or 0, width) if positions else ()),
        *(vector(f"{module}.token_type_embeddings", _OTHER, types, width) if types else ()),
        *norm(f"{module}.LayerNorm", norm_width or width, bias=True),
    )


def _plain_bert(config: Config, *, pooler: bool, types: int = 2, offset: int = 0) -> Blueprint:
    dims = blocks.read_dimensions(config)
    layer = encoder_layer(dims, config.integer("intermediate_size"), _BERT)
    width = dims.hidden_size
    tensors = (
        *embeddings(config, dims, width=width, types=config.integer("type_vocab_size", default=types, minimum=0)),
        *read_head(config, HeadStyle(hidden=width, own_bias=True, vocab_size=dims.vocab_size, pooler=pooler)),
    )
    _refuse_decoder(config)
    config.ignore("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head")
    config.ignore("pooler_type", "layer_norm_type", "position_buckets", "directionality", "sbert_ce_default_activation")
    return blueprint_of(dims, (layer,) * dims.num_hidden_layers, tensors, _BERT, offset=offset)


def _refuse_decoder(config: Config) -> None:
    for name in ("is_decoder", "add_cross_attention"):
        if config.boolean(name, default=False):
            raise config.error(name, "decoders of this family are not known to kvplan")


def bert(config: Config) -> Blueprint:
    """BERT and the embedding models built on it (BGE, E5, GTE, MiniLM, Snowflake Arctic)."""
    return _plain_bert(config, pooler=True)


def roberta(config: Config) -> Blueprint:
    """RoBERTa, XLM-RoBERTa (BGE-M3, multilingual E5) and CamemBERT; the first two positions are reserved."""
    return _plain_bert(config, pooler=True, offset=2)


def electra(config: Config) -> Blueprint:
    """ELECTRA: embeddings may be narrower than the layers."""
    dims = blocks.read_dimensions(config)
    width = config.integer("embedding_size", default=128)
    hidden = dims.hidden_size
    projection = (
        linear("embeddings_project", _OTHER, out_features=hidden, in_features=width, bias=True)
        if width != hidden
        else ()
    )
    tensors = (
        *embeddings(config, dims, width=width, types=config.integer("type_vocab_size", default=2, minimum=0)),
        *projection,
        *read_head(
            config, HeadStyle(hidden=hidden, vocab_size=dims.vocab_size, pooler=False, width=width, discriminator=True)
        ),
    )
    _refuse_decoder(config)
    layer = encoder_layer(dims, config.integer("intermediate_size"), _BERT)
    return blueprint_of(dims, (layer,) * dims.num_hidden_layers, tensors, _BERT)


def distilbert(config: Config) -> Blueprint:
    """DistilBERT: no token types, no pooler; sizes under their own names."""
    dims = Dimensions(
        hidden_size=config.integer("dim"),
        num_hidden_layers=config.integer("n_layers"),
        num_attention_heads=config.integer("n_heads"),
        num_key_value_heads=config.integer("n_heads"),
        head_dim=_divided(config, config.integer("dim"), config.integer("n_heads")),
        vocab_size=config.integer("vocab_size"),
        max_context=config.integer("max_position_embeddings", default=512),
    )
    width = dims.hidden_size
    tensors = (
        *embeddings(config, dims, width=width, types=0),
        *read_head(config, HeadStyle(hidden=width, vocab_size=dims.vocab_size, pooler=False)),
    )
    config.ignore("tie_weights_", "sinusoidal_pos_embds")
    layer = encoder_layer(dims, config.integer("hidden_dim"), _DISTILBERT)
    return blueprint_of(dims, (layer,) * dims.num_hidden_layers, tensors, _DISTILBERT)


def _divided(config: Config, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise config.error("n_heads", f"{heads} does not divide the width {hidden}")
    return hidden // heads


def mpnet(config: Config) -> Blueprint:
    """MPNet (all-mpnet-base-v2): one table of relative positions for all layers."""
    dims = blocks.read_dimensions(config)
    width = dims.hidden_size
    buckets = config.integer("relative_attention_num_buckets", default=32)
    tensors = (
        *embeddings(config, dims, width=width, types=0),
        *vector("encoder.relative_attention_bias", _OTHER, buckets, dims.num_attention_heads),
        *read_head(config, HeadStyle(hidden=width, own_bias=True, vocab_size=dims.vocab_size, pooler=True)),
    )
    layer = encoder_layer(dims, config.integer("intermediate_size"), _MPNET)
    return blueprint_of(dims, (layer,) * dims.num_hidden_layers, tensors, _MPNET, offset=2)


def albert(config: Config) -> Blueprint:
    """ALBERT: all layers share the weights of one (or of `num_hidden_groups`)."""
    dims = blocks.read_dimensions(config)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    width = config.integer("embedding_size", default=128)
    kinds = config.integer("num_hidden_groups", default=1, maximum=count)
    if config.integer("inner_group_num", default=1) != 1:
        raise config.error("inner_group_num", "only 1 is known to kvplan")
    names = replace(
        _BERT,
        projections=("query", "key", "value", "dense"),
        mlp=("ffn", "ffn_output"),
        norms=("attention.LayerNorm", "full_layer_layer_norm"),
        layers="encoder.albert_layer_groups.0.albert_layers.0.",
    )
    layer = encoder_layer(dims, config.integer("intermediate_size"), names)
    # Layer i reads the weights of group int(i / (count / kinds)); only the first layer of a group stores them.
    first = {int(i * kinds / count): i for i in reversed(range(count))}
    layers = [layer if first[int(i * kinds / count)] == i else _shared(layer) for i in range(count)]
    tensors = (
        *embeddings(config, dims, width=width, types=config.integer("type_vocab_size", default=2, minimum=0)),
        *linear("encoder.embedding_hidden_mapping_in", _OTHER, out_features=hidden, in_features=width, bias=True),
        *read_head(
            config, HeadStyle(hidden=hidden, own_bias=True, vocab_size=dims.vocab_size, pooler=True, width=width)
        ),
    )
    config.ignore("net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor")
    return blueprint_of(dims, layers, tensors, names)


def _shared(layer: Layer) -> Layer:
    """The same layer with weights that another one stores."""
    return map_tensors(layer, lambda tensor: replace(tensor, stored=False))


def deberta_v2(config: Config) -> Blueprint:
    """DeBERTa v2 and v3: relative positions shared by all layers, optionally a convolution beside the first."""
    dims = blocks.read_dimensions(config)
    hidden, inner = dims.hidden_size, config.integer("intermediate_size")
    width = config.integer("embedding_size") if config.has("embedding_size") else hidden
    relative = config.boolean("relative_attention", default=False)
    shared = config.boolean("share_att_key", default=False)
    kinds = _attention_kinds(config)
    if not config.boolean("legacy", default=True):
        raise config.error("legacy", "the newer heads of DeBERTa are not known to kvplan")
    extra: tuple[Tensor, ...] = ()
    tensors = embeddings(
        config,
        dims,
        width=width,
        types=config.integer("type_vocab_size", default=0, minimum=0),
        positions=config.boolean("position_biased_input", default=True),
        norm_width=hidden,
    )
    if width != hidden:
        tensors += linear("embeddings.embed_proj", _OTHER, out_features=hidden, in_features=width)
    if relative:
        rows = config.raw("position_buckets") or -1
        if not isinstance(rows, int) or rows < 1:
            rows = _relative_rows(config, dims)
        tensors += vector("encoder.rel_embeddings", _OTHER, 2 * rows, hidden)
        if not shared:
            for kind, name in (("c2p", "pos_key_proj"), ("p2c", "pos_query_proj")):
                if kind in kinds:
                    full = f"attention.self.{name}"
                    extra += linear(full, TensorClass.ATTENTION, out_features=hidden, in_features=hidden, bias=True)
    if "layer_norm" in (config.string("norm_rel_ebd", default="none") or ""):
        tensors += norm("encoder.LayerNorm", hidden, bias=True)
    config.ignore("position_buckets", "share_att_key")
    kernel = config.integer("conv_kernel_size", default=0, minimum=0)
    if kernel:
        tensors += vector("encoder.conv.conv", _OTHER, hidden, hidden, kernel)
        tensors += vector("encoder.conv.conv.bias", _OTHER, hidden) + norm("encoder.conv.LayerNorm", hidden, bias=True)
    tensors += read_head(config, HeadStyle(hidden=hidden, own_bias=True, vocab_size=dims.vocab_size, width=width))
    config.ignore("pooler_hidden_size", "pooler_hidden_act", "conv_act", "max_relative_positions", "pos_att_type")
    layer = encoder_layer(dims, inner, _DEBERTA_V2, extra=extra)
    return blueprint_of(dims, (layer,) * dims.num_hidden_layers, tensors, _DEBERTA_V2)


def _attention_kinds(config: Config) -> frozenset[str]:
    value = config.raw("pos_att_type")
    if value is None:
        return frozenset()
    if isinstance(value, str):
        return frozenset(part.strip() for part in value.lower().split("|"))
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return frozenset(value)
    raise config.error("pos_att_type", "must be a string or a list of strings")


def _relative_rows(config: Config, dims: Dimensions) -> int:
    rows = config.raw("max_relative_positions")
    if isinstance(rows, int) and rows >= 1:
        return rows
    return dims.max_context or 512
