"""Cache sizes: what a token adds, what a sequence holds, what a step reads. Logical bytes, before an engine's blocks.

The plain case of everything here is `2 × layers × tokens × kv_heads × head_dim × bytes × batch`.
"""

from __future__ import annotations

from typing import assert_never

from kvplan.core.dtypes import kv_bits
from kvplan.core.model import (
    Attention,
    CompressedAttention,
    CrossAttention,
    Indexer,
    LatentAttention,
    Mixer,
    Model,
    Recurrent,
)


def kv_cache_bytes(
    *,
    num_hidden_layers: int,
    tokens: int,
    num_key_value_heads: int,
    head_dim: int,
    bytes_per_element: int = 2,
    batch: int = 1,
) -> int:
    """The core formula: bytes of a plain KV cache [byte].

    `2 × layers × tokens × kv_heads × head_dim × bytes × batch`.

    >>> kv_cache_bytes(num_hidden_layers=32, tokens=4096, num_key_value_heads=32, head_dim=128)
    2147483648
    >>> kv_cache_bytes(num_hidden_layers=32, tokens=4096, num_key_value_heads=8, head_dim=128) * 4
    2147483648
    """
    return 2 * num_hidden_layers * tokens * num_key_value_heads * head_dim * bytes_per_element * batch


def index_elements(indexer: Indexer | None) -> int:
    """Index keys that a sparse indexer caches per token on one layer; 0 where it reuses an earlier layer's [element]."""
    return indexer.head_dim if indexer is not None and indexer.cached else 0


def elements_per_token(mixer: Mixer) -> float:
    """Cache elements that one more token adds on one layer while every window is open [element].

    Attention: `kv_heads · (head_dim + v_head_dim)`; MLA: `kv_lora_rank + qk_rope_head_dim` once for all heads; index
    keys come on top; compressed attention adds one raw entry and `1 / ratio` compressed ones. Recurrent state and
    cross caches are not per token. Not an integer only for compressed attention.
    """
    match mixer:
        case Attention():
            if not (mixer.cached and mixer.causal):
                return 0
            width = mixer.head_dim + mixer.v_head_dim
            return mixer.num_key_value_heads * width + index_elements(mixer.indexer)
        case LatentAttention():
            return mixer.kv_lora_rank + mixer.qk_rope_head_dim + index_elements(mixer.indexer)
        case CompressedAttention():
            return mixer.head_dim + compressed_elements_per_token(mixer)
        case CrossAttention() | Recurrent():
            return 0
        case _:
            assert_never(mixer)


def compressed_elements_per_token(mixer: CompressedAttention) -> float:
    """Compressed entries and index keys that one more token adds, window or not [element].

    >>> compressed_elements_per_token(CompressedAttention(num_attention_heads=64, head_dim=512, window=128, ratio=128))
    4.0
    """
    return (mixer.head_dim + index_elements(mixer.indexer)) / mixer.ratio if mixer.ratio is not None else 0.0


def unwindowed_elements_per_token(mixer: Mixer) -> float:
    """As `elements_per_token`, without what a window throws away again [element]."""
    if isinstance(mixer, CompressedAttention):
        return compressed_elements_per_token(mixer)
    return 0 if window_tokens(mixer) is not None else elements_per_token(mixer)


def window_tokens(mixer: Mixer) -> int | None:
    """Tokens that a layer's cache keeps at most, or None where it keeps all [token]."""
    if isinstance(mixer, Attention):
        return mixer.window if mixer.window is not None else mixer.chunk
    return None


def elements_at(mixer: Mixer, tokens: int) -> float:
    """Cache elements that one layer holds for a sequence of `tokens` [element].

    Windowed layers keep `min(tokens, window)`; compressed attention keeps the window raw and all compressed entries.
    """
    if isinstance(mixer, CompressedAttention):
        entries = tokens // mixer.ratio if mixer.ratio is not None else 0
        compressed = entries * (mixer.head_dim + index_elements(mixer.indexer))
        return min(tokens, mixer.window) * mixer.head_dim + compressed
    window = window_tokens(mixer)
    kept = tokens if window is None else min(tokens, window)
    return kept * elements_per_token(mixer)


def state_elements(mixer: Mixer) -> int:
    """Fixed state of one sequence on one layer, convolution with kernel − 1 columns [element]."""
    return mixer.state_elements + mixer.conv_elements if isinstance(mixer, Recurrent) else 0


def state_bytes(mixer: Mixer) -> int:
    """Bytes of the fixed state of one sequence on one layer [byte]."""
    if not isinstance(mixer, Recurrent):
        return 0
    return (mixer.state_elements * mixer.state_bits + mixer.conv_elements * mixer.conv_bits) // 8


def cross_elements_per_source_token(mixer: Mixer) -> int:
    """Cache elements per encoder token on one layer [element]."""
    if isinstance(mixer, CrossAttention):
        return 2 * mixer.num_key_value_heads * mixer.head_dim
    return 0


def kv_shards(mixer: Mixer, tp: int) -> int:
    """Ranks that one layer's cache is divided over: KV heads divide down to one per rank; a latent is copied.

    >>> kv_shards(LatentAttention(num_attention_heads=128, kv_lora_rank=512, qk_nope_head_dim=128,
    ...                           qk_rope_head_dim=64, v_head_dim=128), 8)
    1
    """
    match mixer:
        case Attention() | CrossAttention():
            return min(tp, mixer.num_key_value_heads)
        case LatentAttention() | CompressedAttention():
            return 1
        case Recurrent():
            return min(tp, mixer.num_heads)
        case _:
            assert_never(mixer)


def kv_elements_per_token(model: Model, *, full_only: bool = False) -> int | float:
    """Cache elements that one more token adds over all layers while every window is open [element].

    Args:
        model: The model.
        full_only: Count only layers without a window (and the compressed entries of layers that keep both).
    """
    count = unwindowed_elements_per_token if full_only else elements_per_token
    total = sum(group.count * count(mixer) for group in model.groups for mixer in group.layer.mixers)
    return int(total) if total == int(total) else total


def kv_bytes_per_token_model(model: Model, kv_dtype: str) -> int:
    """Bytes of the whole model's cache for one more token [byte]."""
    return round(kv_elements_per_token(model) * kv_bits(kv_dtype) / 8)


def window_layers(model: Model) -> int:
    """Decoder layers with a cache that is a window: those that keep nothing else, and those of compressed attention.

    Windowed layers of encoders and layers that read an earlier layer's cache keep none and are not counted.
    """
    return sum(
        group.count
        for group in model.groups
        if any(
            (window_tokens(m) is not None and elements_per_token(m) > 0) or isinstance(m, CompressedAttention)
            for m in group.layer.mixers
        )
    )


def state_elements_per_sequence(model: Model) -> int:
    """Fixed state of one sequence over all layers [element]."""
    return sum(group.count * state_elements(mixer) for group in model.groups for mixer in group.layer.mixers)


def state_bytes_per_sequence_model(model: Model) -> int:
    """Bytes of the fixed state of one sequence over all layers [byte]."""
    return sum(group.count * state_bytes(mixer) for group in model.groups for mixer in group.layer.mixers)


def cross_kv_elements_per_source_token(model: Model) -> int:
    """Cross-attention cache per encoder token over all layers [element]."""
    return sum(
        group.count * cross_elements_per_source_token(mixer) for group in model.groups for mixer in group.layer.mixers
    )
