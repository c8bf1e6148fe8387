"""What one rank caches, kind by kind."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.cached_layers import CachedLayer, cached_layers, logical_state_bytes, logical_token_bytes
from kvplan.core.layout import Layout
from kvplan.core.model import CompressedAttention, CrossAttention, Indexer
from tests.core.builders import attention, dense, indexer, latent, layer, model, recurrent

CROSS = CrossAttention(num_attention_heads=16, num_key_value_heads=4, head_dim=64)
COMPRESSED = CompressedAttention(
    num_attention_heads=64, head_dim=512, window=128, ratio=4, indexer=Indexer(num_heads=64, head_dim=128, top_k=512)
)


def kept(*mixers, kv_dtype="bf16", tp=1, pp=1, **more):
    spec = model(*[layer(mixer) for mixer in mixers], max_source_tokens=1500)
    return cached_layers(spec, Layout(tp=tp, pp=pp), kv_dtype=kv_dtype, **more)


def test_one_layer_of_each_kind():
    row = 2 * 2 * 16 * 2
    assert kept(attention(), attention()) == (CachedLayer(kind="full", count=2, token_bytes=row),)
    assert kept(attention(window=8)) == (CachedLayer(kind="window", count=1, token_bytes=row, window=8),)
    assert kept(attention(chunk=8)) == (CachedLayer(kind="chunk", count=1, token_bytes=row, window=8),)
    assert kept(attention(head_dim=192, v_head_dim=128)) == (
        CachedLayer(kind="full", count=1, token_bytes=2 * 320 * 2),
    )
    assert kept(attention(indexer=indexer()))[0].token_bytes == row + 256
    assert kept(attention(indexer=indexer(cached=False)))[0].token_bytes == row
    assert kept(latent()) == (CachedLayer(kind="latent", count=1, token_bytes=1152),)
    assert kept(CROSS) == (CachedLayer(kind="cross", count=1, token_bytes=2 * 4 * 64 * 2, source_tokens=1500),)
    assert kept(attention(cached=False), attention(causal=False)) == ()
    assert kept(attention(), kv_dtype="q4_0")[0].token_bytes == row / 2 * 4.5 / 8


def test_compressed_attention_is_a_window_and_entries_of_four_tokens():
    window, entries = kept(COMPRESSED, kv_dtype="fp8")
    assert window == CachedLayer(kind="window", count=1, token_bytes=512, window=128)
    assert entries == CachedLayer(kind="compressed", count=1, token_bytes=640, entry_tokens=4)
    assert [one.token_bytes for one in kept(COMPRESSED)] == [1024, 1280]
    assert len(kept(replace(COMPRESSED, ratio=None))) == 1
    assert logical_token_bytes((window, entries)) == 512 + 160


def test_kv_heads_divide_and_latents_are_copied():
    four = attention(kv_heads=4)
    assert [kept(four, tp=tp)[0].token_bytes for tp in (1, 2, 4, 8)] == [256, 128, 64, 64]
    assert [kept(attention(kv_heads=3), tp=tp)[0].token_bytes for tp in (1, 2, 4)] == [192, 128, 64]
    assert [kept(CROSS, tp=tp)[0].token_bytes for tp in (1, 2, 8)] == [1024, 512, 256]
    assert {kept(latent(), tp=tp)[0].token_bytes for tp in (1, 2, 4, 8, 128)} == {1152}


def test_sparse_latents_in_fp8_keep_scales_and_a_16_bit_rotary_part():
    # vLLM's fp8_ds_mla rows: 512 + 4 scales of 4 B + 64 rotary elements of 2 B = 656 B, index keys 128 + 4 B
    sparse = latent(indexer=indexer())
    assert kept(sparse, kv_dtype="fp8", sparse_latent_rows=True)[0].token_bytes == 656 + 132
    shared = latent(indexer=indexer(cached=False))
    assert kept(shared, kv_dtype="fp8", sparse_latent_rows=True)[0].token_bytes == 656
    assert kept(sparse, kv_dtype="fp8")[0].token_bytes == 576 + 128
    assert kept(sparse, kv_dtype="bf16", sparse_latent_rows=True)[0].token_bytes == 2 * 704
    assert kept(latent(), kv_dtype="fp8", sparse_latent_rows=True)[0].token_bytes == 576
    narrow = replace(sparse, kv_lora_rank=332, indexer=replace(indexer(), head_dim=130))
    row = 332 + 3 * 4 + 128 + 130 + 2 * 4
    assert kept(narrow, kv_dtype="fp8", sparse_latent_rows=True)[0].token_bytes == row


def test_recurrent_state_divides_over_its_heads_and_keeps_more_columns_for_drafts():
    assert kept(recurrent()) == (CachedLayer(kind="state", count=1, state_bytes=4000 + 600),)
    assert kept(recurrent(), tp=4)[0].state_bytes == 1000 + 150
    assert kept(recurrent(), tp=8)[0].state_bytes == 1000 + 150
    assert kept(recurrent(), speculative_tokens=2)[0].state_bytes == 4000 + 600 * 5 // 3
    assert kept(recurrent(state_elements=1001, state_bits=16, conv_elements=301), tp=4)[0].state_bytes == 501 + 151


def test_stages_split_the_layers_and_the_fullest_counts():
    mixers = [attention()] * 2 + [attention(kv_heads=8)] * 2
    assert kept(*mixers, pp=2) == (CachedLayer(kind="full", count=2, token_bytes=512),)
    assert kept(*mixers, pp=4) == (CachedLayer(kind="full", count=1, token_bytes=512),)
    assert kept(*[recurrent()] * 2, *[recurrent(state_elements=2000)] * 2, pp=2)[0].state_bytes == 8600
    assert kept(*[recurrent()] * 3, attention(), pp=2)[-1].kind == "full"
    alike = [layer(), layer(feed_forward=dense(intermediate=8))] * 3  # what follows a mixer caches nothing
    assert [one.count for one in cached_layers(model(*alike), Layout(), kv_dtype="bf16")] == [6]
    windows = [attention(), attention(window=8)] * 4 + [attention()]  # of stages alike, the one with fewer windows
    assert {(one.kind, one.count) for one in kept(*windows[:3], *windows[1:4], pp=2)} == {("full", 2), ("window", 1)}
    assert {(one.kind, one.count) for one in kept(*windows[1:4], *windows[:3], pp=2)} == {("full", 2), ("window", 1)}
    several = kept(recurrent(), recurrent(), recurrent(), attention(), attention(), pp=1)
    assert {(one.kind, one.count) for one in several} == {("state", 3), ("full", 2)}


def test_layers_on_the_cpu_are_the_leading_ones():
    mixers = [attention()] * 3 + [attention(window=8)]
    assert [(one.kind, one.count) for one in kept(*mixers, skip_layers=2)] == [("full", 1), ("window", 1)]
    assert kept(*mixers, skip_layers=4) == ()


def test_mtp_layers_cache_on_the_last_stage_when_they_draft():
    drafting = model(*[layer()] * 2, mtp_layers=(layer(attention(kv_heads=8)),))
    without = cached_layers(drafting, Layout(), kv_dtype="bf16")
    assert [(one.count, one.token_bytes) for one in without] == [(2, 128)]
    found = cached_layers(drafting, Layout(), kv_dtype="bf16", speculative_tokens=1)
    assert [(one.count, one.token_bytes) for one in found] == [(2, 128), (1, 512)]
    last = cached_layers(drafting, Layout(pp=2), kv_dtype="bf16", speculative_tokens=1)
    assert [(one.count, one.token_bytes) for one in last] == [(1, 128), (1, 512)]


def test_logical_bytes_of_a_rank():
    layers = kept(attention(), attention(window=8), recurrent(), CROSS)
    assert logical_token_bytes(layers) == 256
    assert logical_state_bytes(layers) == 4600 + 1024 * 1500
    assert [one.grows for one in layers] == [True, True, False, False]


@given(st.integers(1, 8), st.sampled_from([1, 2, 4, 8]), st.sampled_from(["bf16", "fp8"]))
def test_ranks_together_hold_at_least_the_whole(layers, tp, kv_dtype):
    spec = model(*[layer(attention(kv_heads=4)), layer(recurrent())] * layers)
    whole, rank = (cached_layers(spec, Layout(tp=n), kv_dtype=kv_dtype) for n in (1, tp))
    assert logical_token_bytes(rank) * tp >= logical_token_bytes(whole)
    assert logical_state_bytes(rank) * tp >= logical_state_bytes(whole)
    assert logical_token_bytes(rank) == pytest.approx(logical_token_bytes(whole) / min(tp, 4))
