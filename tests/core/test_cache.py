"""The KV cache: its formula by hand, what published models need per token, and the laws that every variant keeps."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.cache import (
    compressed_elements_per_token,
    cross_elements_per_source_token,
    cross_kv_elements_per_source_token,
    elements_at,
    elements_per_token,
    kv_bytes_per_token_model,
    kv_cache_bytes,
    kv_elements_per_token,
    kv_shards,
    state_bytes,
    state_bytes_per_sequence_model,
    state_elements,
    state_elements_per_sequence,
    unwindowed_elements_per_token,
    window_layers,
    window_tokens,
)
from kvplan.core.model import CompressedAttention, CrossAttention, Indexer
from kvplan.specs.models import load_model
from tests.core.builders import attention, indexer, latent, layer, model, recurrent

CROSS = CrossAttention(num_attention_heads=16, num_key_value_heads=4, head_dim=64)
COMPRESSED = CompressedAttention(
    num_attention_heads=64, head_dim=512, window=128, ratio=4, indexer=Indexer(num_heads=64, head_dim=128, top_k=512)
)
WINDOW_ONLY = CompressedAttention(num_attention_heads=64, head_dim=512, window=128, ratio=None)

#: Bytes per token in bf16. Layers × 2 × KV heads × head_dim × 2 B from the published configs; DeepSeek-V3 (61 layers) keeps
#: 512 + 64 elements per layer (arXiv:2412.19437, section 2.1.1).
PER_TOKEN = {
    "gpt2": 12 * 2 * 12 * 64 * 2,
    "llama-2-7b-hf": 524_288,
    "llama-3-8b": 131_072,
    "mistral-7b-v0.1": 131_072,
    "llama-3-70b": 327_680,
    "qwen3-32b": 262_144,
    "gpt-oss-20b": 49_152,
    "gemma-3-27b-it": 62 * 2 * 16 * 128 * 2,
    "deepseek-v3": 70_272,
}


@pytest.mark.parametrize(("name", "size_bytes"), PER_TOKEN.items())
def test_bytes_per_token_of_well_known_models(name, size_bytes):
    assert kv_bytes_per_token_model(load_model(name), "bf16") == size_bytes


def test_the_core_formula():
    sizes = {"num_hidden_layers": 32, "tokens": 4096, "num_key_value_heads": 32, "head_dim": 128}
    assert kv_cache_bytes(**sizes) == 2_147_483_648
    assert kv_cache_bytes(**sizes, bytes_per_element=1, batch=6) == 3 * 2_147_483_648
    assert kv_cache_bytes(**{**sizes, "tokens": 0}) == 0


COUNTS = st.integers(1, 128)


FACTORS = {
    "num_hidden_layers": COUNTS, "tokens": st.integers(0, 10**6), "num_key_value_heads": COUNTS, "head_dim": COUNTS,
    "bytes_per_element": st.sampled_from([1, 2, 4]), "batch": COUNTS,
}  # fmt: skip


@given(st.fixed_dictionaries(FACTORS), st.integers(2, 5))
def test_the_core_formula_is_linear_in_every_factor(sizes, factor):
    once = kv_cache_bytes(**sizes)
    for name, value in sizes.items():
        assert kv_cache_bytes(**{**sizes, name: factor * value}) == factor * once


@given(st.integers(1, 8), st.integers(1, 16), st.integers(1, 128), st.sampled_from(["fp32", "bf16", "fp8", "int4"]))
def test_a_models_cache_is_the_core_formula(layers, kv_heads, head_dim, kv_dtype):
    plain = model(*[layer(attention(heads=16, kv_heads=kv_heads, head_dim=head_dim))] * layers)
    bits = {"fp32": 32, "bf16": 16, "fp8": 8, "int4": 4}[kv_dtype]
    assert kv_elements_per_token(plain) * bits == 8 * kv_bytes_per_token_model(plain, kv_dtype)
    assert kv_elements_per_token(plain) == kv_cache_bytes(
        num_hidden_layers=layers, tokens=1, num_key_value_heads=kv_heads, head_dim=head_dim, bytes_per_element=1
    )


@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 128))
def test_gqa_with_all_heads_is_mha_and_mqa_is_one_head_of_it(heads, head_dim):
    mha = attention(heads=heads, kv_heads=heads, head_dim=head_dim)
    assert elements_per_token(mha) == 2 * heads * head_dim
    for kv_heads in (kv for kv in (1, 2, 4, 8, 16) if heads % kv == 0):
        gqa = attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
        assert elements_per_token(gqa) * heads == elements_per_token(mha) * kv_heads


@given(st.integers(1, 4096), st.integers(0, 10**5), st.sampled_from(["window", "chunk"]))
def test_a_window_is_full_attention_until_it_is_full(size, tokens, kind):
    full, windowed = attention(), attention(**{kind: size})
    assert window_tokens(windowed) == size
    assert elements_per_token(windowed) == elements_per_token(full)
    assert elements_at(windowed, tokens) == elements_at(full, min(tokens, size))


def test_plain_attention():
    assert elements_per_token(attention()) == unwindowed_elements_per_token(attention()) == 2 * 2 * 16
    assert elements_per_token(attention(head_dim=192, v_head_dim=128)) == 2 * (192 + 128)
    assert elements_at(attention(), 100) == 6400
    assert window_tokens(attention()) is None
    assert unwindowed_elements_per_token(attention(window=7)) == 0
    assert elements_per_token(attention(indexer=indexer())) == 64 + 128
    assert elements_per_token(attention(indexer=indexer(cached=False))) == 64


def test_encoders_and_layers_that_share_a_cache_keep_none():
    for mixer in (attention(causal=False), attention(cached=False)):
        assert elements_per_token(mixer) == 0
        assert elements_at(mixer, 1000) == 0


def test_latent_attention_keeps_one_latent_for_all_heads():
    assert elements_per_token(latent()) == 576
    assert elements_at(latent(), 10) == 5760
    assert elements_per_token(latent(indexer=indexer())) == 576 + 128
    assert elements_per_token(latent(indexer=indexer(cached=False))) == 576


def test_compressed_attention_keeps_a_window_and_every_fourth_entry():
    assert compressed_elements_per_token(COMPRESSED) == unwindowed_elements_per_token(COMPRESSED) == (512 + 128) / 4
    assert elements_per_token(COMPRESSED) == 512 + 160
    assert elements_at(COMPRESSED, 103) == 103 * 512 + 25 * 640
    assert elements_at(COMPRESSED, 1003) == 128 * 512 + 250 * 640
    assert compressed_elements_per_token(WINDOW_ONLY) == 0
    assert elements_per_token(WINDOW_ONLY) == 512
    assert elements_at(WINDOW_ONLY, 1000) == 128 * 512
    assert window_tokens(COMPRESSED) is None  # it keeps compressed entries for good


def test_recurrent_state_is_fixed_and_stands_in_its_own_bits():
    mixer = recurrent()
    assert elements_per_token(mixer) == elements_at(mixer, 10**6) == 0
    assert state_elements(mixer) == 1300
    assert state_bytes(mixer) == 1000 * 4 + 300 * 2
    assert state_bytes(recurrent(state_bits=16, conv_bits=32)) == 1000 * 2 + 300 * 4
    assert state_elements(attention()) == state_bytes(attention()) == 0


def test_cross_attention_keeps_its_source():
    assert elements_per_token(CROSS) == 0
    assert cross_elements_per_source_token(CROSS) == 2 * 4 * 64
    assert cross_elements_per_source_token(attention()) == 0


@given(st.integers(1, 64))
def test_kv_heads_divide_down_to_one_per_rank_and_latents_do_not(tp):
    assert kv_shards(attention(heads=16, kv_heads=4), tp) == min(tp, 4)
    assert kv_shards(CROSS, tp) == min(tp, 4)
    assert kv_shards(recurrent(), tp) == min(tp, 4)
    assert kv_shards(latent(), tp) == kv_shards(COMPRESSED, tp) == 1


def test_a_mixed_model_adds_up():
    full, window, state = attention(), attention(window=128), recurrent()
    side = replace(layer(), mixers=(window, state))
    mixed = model(
        layer(full), layer(full), layer(window), side, layer(state), layer(CROSS), layer(attention(cached=False))
    )
    assert kv_elements_per_token(mixed) == 4 * 64
    assert kv_elements_per_token(mixed, full_only=True) == 2 * 64
    assert window_layers(mixed) == 2
    assert state_elements_per_sequence(mixed) == 2 * 1300
    assert state_bytes_per_sequence_model(mixed) == 2 * 4600
    assert cross_kv_elements_per_source_token(mixed) == 512
    assert kv_bytes_per_token_model(mixed, "q8_0") == 4 * 64 * 8.5 / 8
    assert isinstance(kv_elements_per_token(mixed), int)


def test_layers_with_a_window_that_keep_nothing_are_not_counted():
    assert window_layers(model(layer(attention(window=8, cached=False)), layer(attention(chunk=8)))) == 1
    assert window_layers(model(layer(COMPRESSED), layer(WINDOW_ONLY), layer(latent()))) == 2
    odd = model(layer(replace(COMPRESSED, ratio=128)))
    assert kv_elements_per_token(odd) == 512 + 5
    assert kv_elements_per_token(model(layer(replace(COMPRESSED, ratio=3)))) == pytest.approx(512 + 640 / 3)
