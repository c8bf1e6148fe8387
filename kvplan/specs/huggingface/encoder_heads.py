"""What sits on top of an encoder, told by the class name in `architectures`."""

from __future__ import annotations

import re
from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.core.tensors import Tensor, TensorClass, linear, norm, vector
from kvplan.specs.huggingface.config import Config

_KIND: Final = re.compile(
    r"(ForMaskedLM|LMHeadModel|ForCausalLM|ForPreTraining|ForSequenceClassification|ForTokenClassification"
    r"|ForQuestionAnswering|ForNextSentencePrediction|Model|Encoder|ForTextEncoding)$"
)
_BARE: Final = frozenset({"Model", "Encoder", "ForTextEncoding"})
_LANGUAGE: Final = frozenset({"ForMaskedLM", "LMHeadModel", "ForCausalLM"})
_PAIR: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadStyle:
    """What tells the heads of the families apart.

    Attributes:
        hidden: Width of the layers.
        vocab_size: Rows of the tied output.
        pooler: Whether the bare model has a pooler.
        width: Width of the embeddings, where they have their own (ALBERT's second task then follows `num_labels`).
        discriminator: True where pre-training means telling replaced tokens (ELECTRA).
        dense_bias: Bias of the dense layer before an output.
        norm_bias: Bias of the norm before an output.
        decoder_bias: Bias of the output over the vocabulary.
        normed: True where classifiers have that norm too (ModernBERT).
        own_bias: True where an untied output keeps a second bias.
    """

    hidden: int
    vocab_size: int
    pooler: bool = False
    width: int | None = None
    discriminator: bool = False
    dense_bias: bool = True
    norm_bias: bool = True
    decoder_bias: bool = True
    normed: bool = False
    own_bias: bool = False


def read_head(config: Config, style: HeadStyle) -> tuple[Tensor, ...]:
    """The tensors above the last layer; without `architectures` the bare model is meant.

    Raises:
        SpecError: A class whose head is not known.
    """
    architectures = config.strings("architectures") or ("Model",)
    found = _KIND.search(architectures[0])
    if found is None:
        raise config.error("architectures", f"{architectures[0]!r} has a head that kvplan does not know")
    config.ignore("tie_word_embeddings")  # without an output over the vocabulary there is nothing to tie
    kind, hidden = found[1], style.hidden
    pooler = _dense("pooler.dense", hidden, hidden)
    if kind in _BARE:
        return pooler if style.pooler else ()
    if kind in _LANGUAGE:
        return _over_vocabulary(config, style)
    if kind == "ForPreTraining":
        return _pre_training(config, style)
    if kind == "ForNextSentencePrediction":
        return (*pooler, *_dense("cls.seq_relationship", _PAIR, hidden))
    return _classifier(kind, style, labels=_labels(config))


def _pre_training(config: Config, style: HeadStyle) -> tuple[Tensor, ...]:
    hidden = style.hidden
    if style.discriminator:
        return (
            *_dense("discriminator_predictions.dense", hidden, hidden),
            *_dense("discriminator_predictions.dense_prediction", 1, hidden),
        )
    return (
        *_dense("pooler.dense", hidden, hidden),
        *_over_vocabulary(config, style),
        *_dense("cls.seq_relationship", _labels(config) if style.width else _PAIR, hidden),
    )


def _classifier(kind: str, style: HeadStyle, *, labels: int) -> tuple[Tensor, ...]:
    """One linear layer per token, or a dense layer (or pooler) and a linear one per sequence."""
    hidden = style.hidden
    if kind in {"ForTokenClassification", "ForQuestionAnswering"} and not style.normed:
        return _dense("classifier", labels, hidden)
    return (
        *_dense("classifier.dense", hidden, hidden, bias=style.dense_bias),
        *(norm("head.norm", hidden, bias=style.norm_bias) if style.normed else ()),
        *_dense("classifier.out_proj", labels, hidden),
    )


def _labels(config: Config) -> int:
    names = config.raw("id2label")
    if isinstance(names, dict) and names:
        return len(names)
    return config.integer("num_labels") if config.has("num_labels") else _PAIR


def _dense(name: str, out_features: int, in_features: int, *, bias: bool = True) -> tuple[Tensor, ...]:
    return linear(name, TensorClass.HEAD, out_features=out_features, in_features=in_features, bias=bias)


def _over_vocabulary(config: Config, style: HeadStyle) -> tuple[Tensor, ...]:
    """Dense layer, norm, and the tied output with its own bias."""
    tied = config.boolean("tie_word_embeddings", default=True)
    width, vocab_size = style.width or style.hidden, style.vocab_size
    output = Tensor(
        name="cls.predictions.decoder",
        tensor_class=TensorClass.HEAD,
        shape=(vocab_size, width),
        matmul=True,
        linear=not tied,
        stored=not tied,
    )
    return (
        *_dense("cls.predictions.transform.dense", width, style.hidden, bias=style.dense_bias),
        *norm("cls.predictions.transform.LayerNorm", width, bias=style.norm_bias),
        output,
        *(vector("cls.predictions.bias", TensorClass.HEAD, vocab_size, shards=None) if style.decoder_bias else ()),
        *(vector(f"{output.name}.bias", TensorClass.HEAD, vocab_size) if style.own_bias and not tied else ()),
    )
