"""Attention and recurrences of one layer on one rank: bytes, FLOPs and tiles by hand for each kind of mixer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.core.layout import Layout
from kvplan.core.mixer_work import AttentionWork, RecurrentWork, attention_work, recurrent_work
from kvplan.core.model import CompressedAttention, CrossAttention
from tests.core import builders

PLAIN = builders.attention()
CROSS = CrossAttention(num_attention_heads=8, num_key_value_heads=2, head_dim=16)


def attention_of(mixer, *, tp=1, kv_dtype="bf16"):
    return attention_work(mixer, Layout(tp=tp), kv_dtype=kv_dtype)


def test_attention_reads_keys_and_values_and_multiplies_with_both():
    """2 KV heads of 16 + 16 at 2 bytes; 8 query heads, 2 FLOPs for each of 32 products."""
    assert attention_of(PLAIN) == AttentionWork(cache_bytes=128, decode_flops=512, prefill_flops=512, heads=8, tiles=2)
    wide = attention_of(builders.attention(v_head_dim=32), kv_dtype="fp8")
    assert (wide.cache_bytes, wide.decode_flops, wide.prefill_flops) == (2 * (16 + 32), 2 * 8 * 48, 2 * 8 * 48)


def test_ranks_divide_query_heads_and_kv_heads_down_to_one():
    two, eight = (attention_of(PLAIN, tp=tp) for tp in (2, 8))
    assert (two.cache_bytes, two.decode_flops, two.heads, two.tiles) == (64, 256, 4, 1)
    assert (eight.cache_bytes, eight.decode_flops, eight.heads, eight.tiles) == (64, 64, 1, 1)


def test_a_decoding_sequence_fills_a_tile_for_each_16_heads_and_each_kv_head():
    assert attention_of(builders.attention(heads=128, kv_heads=1)).tiles == 8
    assert attention_of(builders.attention(heads=128, kv_heads=32)).tiles == 32


def test_windows_and_chunks():
    whole, window = attention_of(PLAIN), attention_of(builders.attention(window=100))
    chunk = attention_of(builders.attention(chunk=200))
    assert [(one.window, one.chunked) for one in (whole, window, chunk)] == [(None, False), (100, False), (200, True)]
    assert attention_of(builders.attention(window=100, chunk=200)).chunked is False


def test_latent_attention_expands_in_prefill_and_works_on_the_latent_in_decode():
    """DeepSeek-V3: 512 + 64 cached; 128 heads, decode on 576 + 512, prefill on 128 + 64 + 128 (arXiv:2405.04434, 2.1)."""
    assert attention_of(builders.latent()) == AttentionWork(
        cache_bytes=2 * 576, decode_flops=2 * 128 * 1088, prefill_flops=2 * 128 * 320, heads=128, tiles=8
    )
    sixteen = attention_of(builders.latent(), tp=16)
    assert (sixteen.cache_bytes, sixteen.heads, sixteen.tiles) == (2 * 576, 8, 1)  # the latent serves all heads
    assert (sixteen.decode_flops, sixteen.prefill_flops) == (2 * 8 * 1088, 2 * 8 * 320)


@pytest.mark.parametrize("mixer", [builders.attention, builders.latent])
def test_an_indexer_reads_keys_of_one_byte_unless_it_reuses_earlier_picks(mixer):
    """64 heads score keys of 128 (DeepSeek-V3.2)."""

    def index(**more):
        found = attention_of(mixer(**more))
        return found.top_k, found.index_bytes, found.index_flops

    assert index(indexer=builders.indexer()) == (2048, 128, 2 * 64 * 128)
    assert index(indexer=builders.indexer(cached=False)) == (2048, 0, 0)
    assert index() == (None, 0, 0)


def test_compressed_attention_has_one_entry_for_key_and_value():
    """64 heads of 512; an index key of 128 bytes for each 4 tokens."""
    mixer = CompressedAttention(num_attention_heads=64, head_dim=512, window=128, ratio=4, indexer=builders.indexer())
    found = attention_of(mixer)
    assert found == AttentionWork(
        cache_bytes=1024, decode_flops=4 * 64 * 512, prefill_flops=4 * 64 * 512, heads=64, tiles=4, window=128,
        top_k=2048, index_bytes=32, index_flops=2 * 64 * 128 / 4, ratio=4,
    )  # fmt: skip
    rank = attention_of(mixer, tp=8)
    assert (rank.cache_bytes, rank.decode_flops, rank.heads, rank.tiles) == (1024, 4 * 8 * 512, 8, 1)
    window = attention_of(replace(mixer, ratio=None))
    assert (window.ratio, window.index_bytes, window.index_flops) == (None, 0, 0)


def test_cross_attention_reads_keys_and_values_of_the_source():
    found, rank = attention_of(CROSS), attention_of(CROSS, tp=4)
    assert found == AttentionWork(cache_bytes=128, decode_flops=512, prefill_flops=512, heads=8, tiles=2, cross=True)
    assert not attention_of(PLAIN).cross
    assert (rank.cache_bytes, rank.decode_flops, rank.heads, rank.tiles) == (64, 128, 2, 1)
    assert attention_of(replace(CROSS, num_attention_heads=64)).tiles == 4


@pytest.mark.parametrize(("tp", "shards"), [(1, 1), (2, 2), (8, 4)])
def test_a_recurrence_divides_its_state_by_heads(tp, shards):
    """1000 elements of 4 bytes and 300 of 2; six operations a state element."""
    found = recurrent_work(builders.recurrent(), Layout(tp=tp))
    assert found == RecurrentWork(state_bytes=4600 / shards, flops_per_token=6000 / shards)
