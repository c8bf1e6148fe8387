"""Layers in words: what kind each group is, which layers belong to it, what one more token adds to its cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from kvplan.core.cache import elements_per_token, state_bytes, window_tokens
from kvplan.core.model import (
    Attention,
    CompressedAttention,
    CrossAttention,
    DenseFeedForward,
    Indexer,
    LatentAttention,
    LayerGroup,
    Mixer,
    MixtureOfExperts,
    Model,
    Recurrent,
)
from kvplan.core.tensors import TensorClass
from kvplan.report.text import exact, whole

_MAX_RANGES = 3


def mixer_words(mixer: Mixer) -> str:
    """A mixer in a few words.

    >>> mixer_words(Attention(num_attention_heads=32, num_key_value_heads=8, head_dim=128, v_head_dim=128))
    'attention, 32 query heads on 8 KV heads of 128'
    """
    match mixer:
        case Attention():
            heads = f"{mixer.num_attention_heads} query heads on {mixer.num_key_value_heads} KV heads"
            sizes = [mixer.head_dim] if mixer.head_dim == mixer.v_head_dim else [mixer.head_dim, mixer.v_head_dim]
            parts = [f"attention, {heads} of {' and '.join(str(item) for item in sizes)}"]
            if mixer.window is not None:
                parts.append(f"window {whole(mixer.window)}")
            if mixer.chunk is not None:
                parts.append(f"chunks of {whole(mixer.chunk)}")
            if not mixer.causal:
                parts.append("encoder")
            elif not mixer.cached:
                parts.append("reads an earlier layer's cache")
            return ", ".join([*parts, *_indexer_words(mixer.indexer)])
        case LatentAttention():
            latent = f"{mixer.kv_lora_rank} + {mixer.qk_rope_head_dim}"
            words = f"latent attention (MLA), {mixer.num_attention_heads} heads on one latent of {latent}"
            return ", ".join([words, *_indexer_words(mixer.indexer)])
        case CompressedAttention():
            words = f"compressed attention, {mixer.num_attention_heads} heads, window {whole(mixer.window)}"
            entries = "" if mixer.ratio is None else f" and one entry per {mixer.ratio} tokens"
            return ", ".join([f"{words}{entries}", *_indexer_words(mixer.indexer)])
        case CrossAttention():
            return (
                f"cross attention, {mixer.num_attention_heads} heads on {mixer.num_key_value_heads} of {mixer.head_dim}"
            )
        case Recurrent():
            return f"{mixer.kind.replace('_', ' ')}, fixed state of {whole(state_bytes(mixer))} bytes"
        case _:
            assert_never(mixer)


def _indexer_words(indexer: Indexer | None) -> list[str]:
    return [] if indexer is None else [f"sparse, top {whole(indexer.top_k)} tokens"]


def feed_forward_words(group: LayerGroup) -> str:
    """A feed-forward in a few words."""
    match group.layer.feed_forward:
        case None:
            return "none"
        case DenseFeedForward(tensors=tensors):
            width = max((tensor.shape[0] for tensor in tensors if tensor.matmul), default=0)
            return f"dense, widest {whole(width)}" if width else "dense"
        case MixtureOfExperts() as moe:
            shared = any(tensor.tensor_class is TensorClass.SHARED for tensor in moe.tensors)
            return f"{moe.top_k} of {moe.num_experts} experts{' + shared' if shared else ''}"


def layer_numbers(model: Model, index: int) -> str:
    """The layers of a group as ranges, from 0.

    Long alternations are cut after a few ranges; the count stands beside them.
    """
    numbers = [number for number, group in enumerate(model.layer_order) if group == index]
    ranges = _ranges(numbers)
    text = ", ".join(ranges[:_MAX_RANGES])
    return f"{text}, …" if len(ranges) > _MAX_RANGES else text


def _ranges(numbers: Sequence[int]) -> list[str]:
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [str(first) if first == last else f"{first}–{last}" for first, last in found]


def group_parameters(group: LayerGroup) -> int:
    """Parameters of one layer of a group [parameter]."""
    return sum(tensor.parameters for tensor in group.layer.all_tensors())


def cache_formula(mixer: Mixer) -> str | None:
    """Cache elements that one token adds on one layer, as arithmetic, or None where it adds none."""
    if elements_per_token(mixer) == 0:
        return None
    match mixer:
        case Attention():
            index = mixer.indexer.head_dim if mixer.indexer is not None and mixer.indexer.cached else 0
            heads = f"{mixer.num_key_value_heads} KV heads × (K {mixer.head_dim} + V {mixer.v_head_dim})"
            return f"({heads} + index key {index})" if index else heads
        case LatentAttention():
            index = mixer.indexer.head_dim if mixer.indexer is not None and mixer.indexer.cached else 0
            latent = f"latent {mixer.kv_lora_rank} + rotary key {mixer.qk_rope_head_dim}"
            return f"({latent} + index key {index})" if index else f"({latent})"
        case CompressedAttention(ratio=None):
            return f"{mixer.head_dim}"
        case CompressedAttention():
            index = mixer.indexer.head_dim if mixer.indexer is not None and mixer.indexer.cached else 0
            return f"({mixer.head_dim} + ({mixer.head_dim} + index key {index}) ÷ {mixer.ratio})"
        case CrossAttention() | Recurrent():
            return None
        case _:
            assert_never(mixer)


def window_words(mixer: Mixer) -> str:
    """What a layer's window does to its cache, or nothing."""
    if isinstance(mixer, CompressedAttention):
        return f"; the {mixer.head_dim} raw elements only until {exact(mixer.window)} tokens are held"
    window = window_tokens(mixer)
    return "" if window is None else f"; none once {exact(window)} tokens are held"
