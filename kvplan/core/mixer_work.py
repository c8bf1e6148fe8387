"""What a mixer does in a step besides its matrix products, on one GPU: attention over the cache, or a recurrence."""

from __future__ import annotations

from typing import assert_never

from kvplan.core.cache import kv_shards, state_bytes, window_tokens
from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import kv_bits
from kvplan.core.layout import Layout
from kvplan.core.model import Attention, CompressedAttention, CrossAttention, Indexer, LatentAttention, Recurrent

#: Query heads that one tile of an attention kernel holds.
_QUERY_TILE = 16
#: About as many per token: a multiply and an add each for the decay, the new token's outer product and the read-out.
_FLOPS_PER_STATE_ELEMENT = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWork:
    """The attention of one layer on one GPU.

    Attributes:
        cache_bytes: Bytes read per visible cached token and sequence [byte].
        decode_flops: FLOPs per query token and visible token in decode [FLOP].
        prefill_flops: The same in prefill (MLA expands its latent there) [FLOP].
        heads: Query heads here.
        tiles: Query tiles of one decoding sequence: its heads in tiles of 16, one per key–value head at least.
        window: Most tokens that a query sees, or None.
        chunked: True where the window is a fixed chunk, of which half is visible on average.
        top_k: Most tokens that sparse attention visits, or None.
        index_bytes: Bytes of index keys read per cached token [byte].
        index_flops: FLOPs of the indexer per query and cached token [FLOP].
        ratio: Tokens per compressed entry that is kept beyond the window, or None.
        cross: True for attention over the encoder's output.
        causal: False where a token also sees those behind it (encoders).
    """

    cache_bytes: float
    decode_flops: float
    prefill_flops: float
    heads: float
    tiles: float
    window: int | None = None
    chunked: bool = False
    top_k: int | None = None
    index_bytes: float = 0.0
    index_flops: float = 0.0
    ratio: int | None = None
    cross: bool = False
    causal: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentWork:
    """The recurrence of one layer on one GPU.

    Attributes:
        state_bytes: State of one sequence here [byte]; read and written once a step.
        flops_per_token: Operations per token [FLOP].
    """

    state_bytes: float
    flops_per_token: float


def attention_work(
    mixer: Attention | LatentAttention | CompressedAttention | CrossAttention, layout: Layout, *, kv_dtype: str
) -> AttentionWork:
    """The attention of one layer on one rank, whose share of the query heads is `heads / tp`.

    A visible token costs each head its product with the key and with the value, `2 · (d + d_v)` FLOPs. Latent attention
    works on the latent itself in decode, `2 · (latent + kv_lora_rank)`, and on expanded keys and values in prefill.
    """
    heads = mixer.num_attention_heads / layout.tp
    element_bytes = kv_bits(kv_dtype) / 8
    match mixer:
        case Attention():
            width = mixer.head_dim + mixer.v_head_dim
            kv_heads = mixer.num_key_value_heads / kv_shards(mixer, layout.tp)
            top_k, index_bytes, index_flops = _index_work(mixer.indexer)
            return AttentionWork(
                cache_bytes=kv_heads * width * element_bytes,
                decode_flops=2.0 * heads * width,
                prefill_flops=2.0 * heads * width,
                heads=heads,
                tiles=max(heads / _QUERY_TILE, kv_heads),
                window=window_tokens(mixer),
                chunked=mixer.window is None and mixer.chunk is not None,
                causal=mixer.causal,
                top_k=top_k,
                index_bytes=index_bytes,
                index_flops=index_flops,
            )
        case LatentAttention():
            latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
            top_k, index_bytes, index_flops = _index_work(mixer.indexer)
            return AttentionWork(
                cache_bytes=latent * element_bytes,
                decode_flops=2.0 * heads * (latent + mixer.kv_lora_rank),
                prefill_flops=2.0 * heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim),
                heads=heads,
                tiles=max(heads / _QUERY_TILE, 1.0),
                top_k=top_k,
                index_bytes=index_bytes,
                index_flops=index_flops,
            )
        case CompressedAttention():
            top_k, index_bytes, index_flops = _index_work(mixer.indexer)
            return AttentionWork(
                cache_bytes=mixer.head_dim * element_bytes,
                decode_flops=4.0 * heads * mixer.head_dim,
                prefill_flops=4.0 * heads * mixer.head_dim,
                heads=heads,
                tiles=max(heads / _QUERY_TILE, 1.0),
                window=mixer.window,
                top_k=top_k,
                index_bytes=index_bytes / mixer.ratio if mixer.ratio else 0.0,
                index_flops=index_flops / mixer.ratio if mixer.ratio else 0.0,
                ratio=mixer.ratio,
            )
        case CrossAttention():
            kv_heads = mixer.num_key_value_heads / kv_shards(mixer, layout.tp)
            return AttentionWork(
                cache_bytes=2 * kv_heads * mixer.head_dim * element_bytes,
                decode_flops=4.0 * heads * mixer.head_dim,
                prefill_flops=4.0 * heads * mixer.head_dim,
                heads=heads,
                tiles=max(heads / _QUERY_TILE, kv_heads),
                cross=True,
            )
        case _:
            assert_never(mixer)


def _index_work(indexer: Indexer | None) -> tuple[int | None, float, float]:
    """`(top_k, bytes per cached token, FLOPs per query and cached token)`; index keys are kept in 8 bits."""
    if indexer is None:
        return None, 0.0, 0.0
    if not indexer.cached:
        return indexer.top_k, 0.0, 0.0
    return indexer.top_k, float(indexer.head_dim), 2.0 * indexer.num_heads * indexer.head_dim


def recurrent_work(mixer: Recurrent, layout: Layout) -> RecurrentWork:
    """The recurrence of one layer on one rank, whose share of the state is `1 / min(tp, heads)`."""
    shards = kv_shards(mixer, layout.tp)
    return RecurrentWork(
        state_bytes=state_bytes(mixer) / shards,
        flops_per_token=_FLOPS_PER_STATE_ELEMENT * mixer.state_elements / shards,
    )
