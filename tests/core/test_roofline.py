"""Roofline of each kind of work: values by hand, limits, laws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.efficiency import IDEAL, Efficiency
from kvplan.core.roofline import (
    Machine,
    decode_attention_cost,
    expert_cost,
    experts_touched,
    gemm_cost,
    mean_visible,
    prefill_attention_cost,
    recurrent_cost,
)
from kvplan.core.work import AttentionWork, ExpertWork, GemmWork, RecurrentWork
from tests.core import builders

MACHINE = Machine(gpu=builders.gpu(), efficiency=Efficiency())
GEMM = GemmWork(
    op="other_gemm", elements=10**6, inputs=1000, weight_bytes=2 * 10**6, activation_bytes=4000, compute="bf16", dequantised=False
)  # fmt: skip
EXPERTS = ExpertWork(
    num_experts=64, top_k=8, ranks=1, elements=10**6, weight_bytes=10**6, activation_bytes=4000, hidden_bytes=2000,
    compute="fp8", dequantised=False,
)  # fmt: skip
ATTENTION = AttentionWork(cache_bytes=4096, decode_flops=32768, prefill_flops=32768, heads=32, tiles=8)


def with_efficiency(**fields):
    return replace(MACHINE, efficiency=Efficiency(**fields))


def test_a_product_streams_its_weights_and_multiplies_each_token():
    """2 MB at 2 TB/s are 1 µs; 2 · 10⁶ · 400 FLOP at 400 TFLOP/s are 2 µs."""
    cost = gemm_cost(GEMM, 400, MACHINE)
    assert cost.memory_s == pytest.approx(1e-6)
    assert cost.compute_s == pytest.approx(2e-6)
    assert cost.flops == 8e8


def test_idle_tiles_cost_one_wave_of_128_by_128_outputs():
    """One tile on each of 100 SMs: 2 · 100 · 16384 · 1000 FLOP at 400 TFLOP/s."""
    idle = gemm_cost(GEMM, 0, with_efficiency(gemm_idle_tiles=1.0))
    assert idle.compute_s == pytest.approx(2 * 100 * 16384 * 1000 / 4e14)


def test_weight_only_formats_keep_their_flops_and_lose_bytes():
    narrow = replace(GEMM, weight_bytes=5 * 10**5, dequantised=True)
    machine = with_efficiency(dequantise_mfu=0.5)
    assert gemm_cost(narrow, 400, machine).compute_s == pytest.approx(2 * gemm_cost(GEMM, 400, machine).compute_s)
    assert gemm_cost(narrow, 0, machine).memory_s == pytest.approx(gemm_cost(GEMM, 0, machine).memory_s / 4)


def test_mxfp4_runs_on_8_bit_units_where_the_card_has_4_bit_ones_and_is_expanded_elsewhere():
    new = Machine(gpu=builders.gpu(peak_flops_per_s={"bf16": 1.0, "fp8": 2.0, "fp4": 4.0}), efficiency=Efficiency())
    assert new.unit("mxfp4") == ("fp8", 2.0, False)
    assert MACHINE.unit("mxfp4") == ("bf16", 4e14, True)
    assert MACHINE.unit("fp4") == ("bf16", 4e14, True)


def test_16_bit_accumulation_lifts_cards_whose_printed_rate_is_halved():
    card = builders.gpu(peak_flops_per_s={"bf16": 1e14, "int8": 4e14})
    assert Machine(gpu=card, efficiency=IDEAL).unit("bf16")[1] == 2e14
    assert Machine(gpu=card, efficiency=Efficiency()).unit("bf16")[1] == 1e14


def test_experts_touched_by_one_token_and_by_many():
    assert experts_touched(EXPERTS, 1, skew=1e9) == pytest.approx(64 * (1 - math.exp(-8 / 64)), rel=1e-6)
    assert experts_touched(EXPERTS, 10**6, skew=1.25) == pytest.approx(64, rel=1e-3)


@given(st.integers(1, 4000), st.floats(0.5, 5), st.floats(1.1, 10))
def test_skewed_routing_touches_fewer_experts(tokens, skew, more):
    assert experts_touched(EXPERTS, tokens, skew=skew) <= experts_touched(EXPERTS, tokens, skew=skew * more) + 1e-9


@given(st.integers(1, 10**5), st.integers(1, 10**5))
def test_more_tokens_never_cost_less(a, b):
    low, high = sorted((a, b))
    machine = with_efficiency(expert_pad_tokens=60, expert_tile=8, expert_skew=1.25, expert_token_traffic=2)
    for cost in (gemm_cost, expert_cost):
        work = GEMM if cost is gemm_cost else EXPERTS
        one, two = cost(work, low, machine), cost(work, high, machine)
        assert one.memory_s <= two.memory_s * (1 + 1e-12)
        assert one.compute_s <= two.compute_s * (1 + 1e-12)


def test_mean_visible_of_a_window():
    assert mean_visible(0, 100, None) == 50
    assert mean_visible(200, 300, 50) == 50
    assert mean_visible(0, 100, 50) == 37.5


@given(st.integers(1, 10**5), st.integers(0, 10**5))
def test_a_window_as_long_as_the_context_is_full_attention(length, start):
    assert mean_visible(start, start + length, start + length) == pytest.approx(
        mean_visible(start, start + length, None)
    )


def test_decode_reads_the_cache_of_every_sequence_once():
    """8 sequences of 1,000 tokens of 4,096 bytes at 2 TB/s."""
    cost = decode_attention_cost(ATTENTION, sequences=8, start=1000, end=1000, machine=MACHINE)
    assert cost.memory_s == pytest.approx(8 * 1000 * 4096 / 2e12)


@given(st.integers(1, 64), st.integers(1, 500))
def test_chunked_prefill_sums_to_whole_prefill(chunks, size):
    """Query–key pairs of chunks add up to those of the whole prompt."""
    whole = prefill_attention_cost(ATTENTION, tokens=chunks * size, prompts=1, prior=0, machine=MACHINE).compute_s
    parts = sum(
        prefill_attention_cost(ATTENTION, tokens=size, prompts=1, prior=k * size, machine=MACHINE).compute_s
        for k in range(chunks)
    )
    assert parts == pytest.approx(whole)


def test_softmax_costs_as_much_as_so_many_head_dimensions():
    """Heads of 256 (K and V together) and 64 more for the softmax: half as much again for 2 · 32 · 128 … FLOPs."""
    plain = prefill_attention_cost(ATTENTION, tokens=1000, prompts=1, prior=0, machine=MACHINE).compute_s
    soft = with_efficiency(attention_softmax_dims=128)
    assert prefill_attention_cost(ATTENTION, tokens=1000, prompts=1, prior=0, machine=soft).compute_s == pytest.approx(
        plain * (32768 + 4 * 32 * 128) / 32768
    )


def test_a_scan_is_serial_in_one_prompt_and_parallel_over_prompts():
    machine = with_efficiency(scan_s=1e-6)
    work = RecurrentWork(state_bytes=0.0, flops_per_token=0.0)
    one = recurrent_cost(work, sequences=0, prefill=6400, prompts=1, machine=machine).compute_s
    four = recurrent_cost(work, sequences=0, prefill=6400, prompts=4, machine=machine).compute_s
    assert one == pytest.approx(100e-6)
    assert four == pytest.approx(25e-6)


def test_arrays_give_what_plain_numbers_give():
    tokens = np.array([1.0, 7.0, 300.0, 9000.0])
    machine = with_efficiency(expert_pad_tokens=60, expert_tile=8, expert_skew=1.25, gemm_idle_tiles=0.2)
    for cost, work in ((gemm_cost, GEMM), (expert_cost, EXPERTS)):
        found = cost(work, tokens, machine)
        for index, one in enumerate(tokens):
            alone = cost(work, float(one), machine)
            assert found.memory_s[index] == pytest.approx(alone.memory_s, rel=1e-12)
            assert found.compute_s[index] == pytest.approx(alone.compute_s, rel=1e-12)
