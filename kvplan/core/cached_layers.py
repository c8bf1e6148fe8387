"""The caching layers of one rank as an engine sees them: kind, bytes per token or per sequence, window.

The fullest rank counts: tensor parallelism divides KV heads down to one per rank and copies a latent; pipeline stages
split the layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from kvplan.core.cache import elements_per_token, index_elements, kv_shards, window_tokens
from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import kv_bits
from kvplan.core.layout import Layout, stage_sizes
from kvplan.core.model import (
    Attention,
    CompressedAttention,
    CrossAttention,
    LatentAttention,
    Layer,
    Mixer,
    Model,
    Recurrent,
)
from kvplan.core.units import ceil_div

_BITS = 8
_CONV_COLUMNS = 3  # kernel 4, of which engines keep three columns
_FP8_SCALE_GROUP = 128
_SCALE_BYTES = 4
_ROTARY_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedLayer:
    """`count` equal caching layers on one rank.

    Attributes:
        kind: `full`, `latent`, `window`, `chunk`, `compressed`, `cross` or `state`.
        count: Layers.
        token_bytes: Bytes of one entry on one layer; an entry stands for `entry_tokens` tokens [byte].
        window: Tokens that it keeps at most, or None.
        entry_tokens: Tokens of one entry (above 1 only for compressed caches).
        source_tokens: Encoder tokens that a cross cache holds, whatever the context [token].
        state_bytes: Fixed state of one sequence on one layer [byte].
    """

    kind: str
    count: int
    token_bytes: float = 0.0
    window: int | None = None
    entry_tokens: int = 1
    source_tokens: int = 0
    state_bytes: int = 0

    @property
    def grows(self) -> bool:
        """True where a longer sequence needs more."""
        return self.kind not in {"state", "cross"}


def cached_layers(
    model: Model,
    layout: Layout,
    *,
    kv_dtype: str,
    source_tokens: int | None = None,
    sparse_latent_rows: bool = False,
    speculative_tokens: int = 0,
    skip_layers: int = 0,
) -> tuple[CachedLayer, ...]:
    """The caching layers of the rank with the largest cache, equal ones together.

    Args:
        model: The model.
        layout: Ranks.
        kv_dtype: Cache format.
        source_tokens: Encoder tokens whose cross cache a sequence keeps; None is the model's most [token].
        sparse_latent_rows: True where fp8 latents of sparse MLA keep scales and a 16-bit rotary part.
        speculative_tokens: Drafted tokens; above 0 the MTP layers cache too and convolution states are longer.
        skip_layers: Leading layers that are not on the accelerator (llama.cpp).
    """
    source = (model.max_source_tokens or 0) if source_tokens is None else source_tokens
    layers = [model.groups[index].layer for index in model.layer_order][skip_layers:]
    mtp = model.mtp_layers if speculative_tokens else ()

    bytes_per_element = kv_bits(kv_dtype) / _BITS

    def on_rank(part: Sequence[Layer]) -> list[CachedLayer]:
        found: dict[CachedLayer, int] = {}
        times = Counter(map(id, part))  # layers of a group are one object, so each is looked at once
        for layer in {id(layer): layer for layer in part}.values():
            for mixer in layer.mixers:
                for one in _caches(
                    mixer,
                    tp=layout.tp,
                    bytes_per_element=bytes_per_element,
                    sparse_rows=sparse_latent_rows and kv_dtype == "fp8",
                    source_tokens=source,
                    speculative_tokens=speculative_tokens,
                ):
                    found[one] = found.get(one, 0) + times[id(layer)]
        return [replace(one, count=count) for one, count in found.items()]

    stages: list[list[CachedLayer]] = []
    start = 0
    for size in stage_sizes(len(layers), layout.pp):
        last = start + size == len(layers)
        stages.append(on_rank([*layers[start : start + size], *(mtp if last else ())]))
        start += size
    fullest: list[CachedLayer] = max(stages, key=_weight)
    return tuple(fullest)


def _weight(layers: Sequence[CachedLayer]) -> tuple[float, float, float]:
    """Bytes of a token; where stages are alike in those, bytes of layers without a window; then of states."""
    tokens = sum(one.count * one.token_bytes for one in layers)
    unbounded = sum(one.count * one.token_bytes for one in layers if one.window is None)
    return tokens, unbounded, sum(one.count * one.state_bytes for one in layers)


def _caches(
    mixer: Mixer,
    *,
    tp: int,
    bytes_per_element: float,
    sparse_rows: bool,
    source_tokens: int,
    speculative_tokens: int,
) -> Iterator[CachedLayer]:
    match mixer:
        case Attention():
            if not (mixer.cached and mixer.causal):
                return
            heads = ceil_div(mixer.num_key_value_heads, kv_shards(mixer, tp))
            elements = heads * (mixer.head_dim + mixer.v_head_dim) + index_elements(mixer.indexer)
            kind = "window" if mixer.window is not None else "chunk" if mixer.chunk is not None else "full"
            yield CachedLayer(kind=kind, count=1, token_bytes=elements * bytes_per_element, window=window_tokens(mixer))
        case LatentAttention():
            row = elements_per_token(mixer) * bytes_per_element
            if sparse_rows and mixer.indexer is not None:
                row = _sparse_row_bytes(mixer)
            yield CachedLayer(kind="latent", count=1, token_bytes=row)
        case CompressedAttention():
            entry = mixer.head_dim * bytes_per_element
            yield CachedLayer(kind="window", count=1, token_bytes=entry, window=mixer.window)
            if mixer.ratio is not None:
                keys = index_elements(mixer.indexer) * bytes_per_element
                yield CachedLayer(kind="compressed", count=1, token_bytes=entry + keys, entry_tokens=mixer.ratio)
        case CrossAttention():
            heads = ceil_div(mixer.num_key_value_heads, kv_shards(mixer, tp))
            row = 2 * heads * mixer.head_dim * bytes_per_element
            yield CachedLayer(kind="cross", count=1, token_bytes=row, source_tokens=source_tokens)
        case Recurrent():
            shards = kv_shards(mixer, tp)
            columns = _CONV_COLUMNS + speculative_tokens
            conv = mixer.conv_elements * columns // _CONV_COLUMNS * mixer.conv_bits // _BITS
            state = ceil_div(mixer.state_elements * mixer.state_bits, _BITS * shards)
            yield CachedLayer(kind="state", count=1, state_bytes=state + ceil_div(conv, shards))
        case _:
            assert_never(mixer)


def _sparse_row_bytes(mixer: LatentAttention) -> int:
    """One row of vLLM's fp8 cache for sparse MLA: fp8 latent, its scales, 16-bit rotary key; index keys beside it.

    512 + 4 · 4 + 64 · 2 = 656 B, and 128 + 4 = 132 B on layers that own an indexer.
    """
    row = mixer.kv_lora_rank + ceil_div(mixer.kv_lora_rank, _FP8_SCALE_GROUP) * _SCALE_BYTES
    row += mixer.qk_rope_head_dim * _ROTARY_BYTES
    keys = index_elements(mixer.indexer)
    return row + (keys + ceil_div(keys, _FP8_SCALE_GROUP) * _SCALE_BYTES if keys else 0)


def logical_token_bytes(layers: Sequence[CachedLayer]) -> int:
    """Bytes that one more token adds on this rank while every window is open [byte]."""
    return round(sum(one.count * one.token_bytes / one.entry_tokens for one in layers if one.grows))


def logical_state_bytes(layers: Sequence[CachedLayer]) -> int:
    """Fixed bytes of one sequence on this rank: recurrent state and cross cache [byte]."""
    return round(
        sum(one.count * (one.state_bytes + one.token_bytes * one.source_tokens) for one in layers if not one.grows)
    )
