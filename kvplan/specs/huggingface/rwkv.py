"""RWKV-4: a recurrence without attention (arXiv:2305.13048). Later versions are refused: their layout differs."""

from __future__ import annotations

from typing import Final

from kvplan.core.model import DenseFeedForward, Layer, Recurrent
from kvplan.core.tensors import TensorClass, linear, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.recurrent import parameter, project

_NAME: Final = "attention"


def rwkv(config: Config) -> Blueprint:
    """RWKV-4. The state of a layer: two inputs of the step before and three running sums."""
    hidden = config.integer("hidden_size")
    width = config.integer("attention_hidden_size", default=hidden)
    inner = config.integer("intermediate_size", default=4 * hidden)
    mixer = Recurrent(
        kind="rwkv",
        state_elements=2 * hidden + 3 * width,
        conv_elements=0,
        num_heads=1,
        tensors=(
            *parameter(f"{_NAME}.time_decay", width),
            *parameter(f"{_NAME}.time_first", width),
            *(t for part in ("key", "value", "receptance") for t in parameter(f"{_NAME}.time_mix_{part}", hidden)),
            *(t for part in ("key", "value", "receptance") for t in project(f"{_NAME}.{part}", width, hidden)),
            *project(f"{_NAME}.output", hidden, width),
        ),
    )
    feed_forward = DenseFeedForward(
        tensors=(
            *(t for part in ("key", "receptance") for t in parameter(f"feed_forward.time_mix_{part}", hidden)),
            *linear("feed_forward.key", TensorClass.MLP, out_features=inner, in_features=hidden),
            *linear("feed_forward.receptance", TensorClass.MLP, out_features=hidden, in_features=hidden),
            *linear("feed_forward.value", TensorClass.MLP, out_features=hidden, in_features=inner),
        )
    )
    around = (*norm("ln1", hidden, bias=True), *norm("ln2", hidden, bias=True))
    layer = Layer(mixers=(mixer,), feed_forward=feed_forward, tensors=around)
    first = Layer(mixers=(mixer,), feed_forward=feed_forward, tensors=(*around, *norm("pre_ln", hidden, bias=True)))
    config.ignore("rescale_every")
    vocab_size = config.integer("vocab_size")
    tied = config.boolean("tie_word_embeddings", default=False)
    return Blueprint(
        hidden_size=hidden,
        vocab_size=vocab_size,
        max_context=config.optional_integer("context_length"),
        layers=(first, *(layer,) * (config.integer("num_hidden_layers") - 1)),
        layer_prefix="rwkv.blocks.{i}.",
        tensors=(
            *blocks.embedding(vocab_size, hidden, name="rwkv.embeddings"),
            *norm("rwkv.ln_out", hidden, bias=True),
            *blocks.lm_head(vocab_size, hidden, tied=tied, name="head"),
        ),
    )
