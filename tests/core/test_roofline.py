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
    visible_tokens,
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


def test_idle_tiles_of_a_card_whose_multiprocessors_are_known():
    card = builders.gpu(sm_count=132)
    wasteful = Machine(gpu=card, efficiency=Efficiency(gemm_idle_tiles=0.5, gemm_mfu={"default": 0.5}))
    assert gemm_cost(GEMM, 0, wasteful).compute_s == pytest.approx(2 * 0.5 * 132 * 16384 * 1000 / (4e14 * 0.5))


def in_format(compute, **more):
    return replace(GEMM, compute=compute, **more)


#: A card with 4-bit units; `MACHINE` has 8-bit ones, `PLAIN` neither.
FP4 = builders.gpu(peak_flops_per_s={"bf16": 4e14, "fp8": 8e14, "fp4": 1.6e15})
PLAIN = builders.gpu(peak_flops_per_s={"bf16": 4e14})


@pytest.mark.parametrize(
    ("gemm", "card", "bytes_per_s", "flops_per_s"),
    [
        (GEMM, None, 1.6e12, 4e14 * 0.7),
        (in_format("fp8"), None, 1.6e12, 8e14 * 0.6),
        (in_format("fp8"), PLAIN, 0.8e12, 4e14 * 0.7 * 0.25),  # expanded: no units
        (in_format("fp4"), FP4, 0.4e12, 1.6e15 * 0.7),
        (in_format("fp4"), PLAIN, 0.8e12, 4e14 * 0.7 * 0.25),
        (in_format("bf16", dequantised=True), None, 0.8e12, 4e14 * 0.7 * 0.25),
        (in_format("mxfp4"), FP4, 1.6e12, 8e14 * 0.6),  # 8-bit activations
        (in_format("mxfp4"), None, 0.8e12, 4e14 * 0.7 * 0.25),
    ],
)
def test_weights_stream_and_multiply_at_the_share_of_their_format(gemm, card, bytes_per_s, flops_per_s):
    """80 % of 2 TB/s, a quarter of that where 4-bit products run, half of it where weights are expanded."""
    machine = Machine(
        gpu=card or builders.gpu(),
        efficiency=Efficiency(
            gemm_bandwidth=0.8, fp4_bandwidth=0.25, dequantise_bandwidth=0.5, dequantise_mfu=0.25,
            gemm_mfu={"default": 0.7, "fp8": 0.6},
        ),
    )  # fmt: skip
    cost = gemm_cost(gemm, 1000, machine)
    assert cost.memory_s == pytest.approx(2e6 / bytes_per_s)
    assert cost.compute_s == pytest.approx(2e9 / flops_per_s)


@pytest.mark.parametrize(
    ("gemm", "card", "traffic", "microseconds"),
    [
        (GEMM, None, 0.5, 2),
        (in_format("fp8"), None, 3, 2 + 1),
        (in_format("fp8", blockwise=True), None, 3, 2 + 1 + 0.25),
        (in_format("bf16", blockwise=True), None, 0.5, 2),
        (in_format("bf16", dequantised=True), None, 0.5, 2 + 1),
        (in_format("fp8"), PLAIN, 0.5, 2 + 1),  # expanded: no units
        (in_format("mxfp4"), None, 0.5, 2 + 1),
        (in_format("mxfp4"), FP4, 3, 2 + 1),
    ],
)
def test_quantising_activations_costs_traffic_and_time_and_expanding_weights_time(gemm, card, traffic, microseconds):
    """500 tokens of 4 kB are 2 MB each time they cross memory; weights are 2 MB."""
    efficiency = Efficiency(
        gemm_activation_traffic=0.5, quantised_activation_traffic=3, kernel_s=2e-6, quantise_kernel_s=1e-6, block_kernel_s=0.25e-6
    )  # fmt: skip
    cost = gemm_cost(gemm, 500, Machine(gpu=card or builders.gpu(), efficiency=efficiency))
    assert cost.memory_s == pytest.approx((2e6 + traffic * 2e6) / 2e12)
    assert cost.fixed_s == pytest.approx(microseconds * 1e-6)
    assert cost.bytes == 4e6


@pytest.mark.parametrize("compute", ["fp8", "fp4", "mxfp4"])
def test_a_format_without_units_is_a_weight_only_one(compute):
    efficiency = Efficiency(
        gemm_activation_traffic=0.5, quantised_activation_traffic=3, kernel_s=2e-6, quantise_kernel_s=1e-6,
        block_kernel_s=1e-6, dequantise_bandwidth=0.5, dequantise_mfu=0.25, gemm_mfu={"default": 0.7, "fp8": 0.6},
    )  # fmt: skip
    machine = Machine(gpu=PLAIN, efficiency=efficiency)
    wide = gemm_cost(in_format("bf16", dequantised=True), 500, machine)
    assert gemm_cost(in_format(compute, blockwise=True), 500, machine) == wide


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


def test_grouped_products_have_shares_of_their_own():
    """Experts in MXFP4 have one where 8-bit units multiply them, that of 16-bit products where they are expanded."""
    efficiency = Efficiency(
        gemm_mfu={"default": 0.9}, expert_mfu={"default": 0.5, "fp8": 0.4, "mxfp4": 0.3}, dequantise_mfu=0.5
    )
    new, old = Machine(gpu=FP4, efficiency=efficiency), Machine(gpu=builders.gpu(), efficiency=efficiency)
    assert new.flops_per_s("mxfp4", dequantised=False, grouped=True) == pytest.approx(8e14 * 0.3)
    assert new.flops_per_s("fp8", dequantised=False, grouped=True) == pytest.approx(8e14 * 0.4)
    assert old.flops_per_s("mxfp4", dequantised=False, grouped=True) == pytest.approx(4e14 * 0.5 * 0.5)
    assert old.flops_per_s("bf16", dequantised=False, grouped=True) == pytest.approx(4e14 * 0.5)


def test_the_host_takes_longer_for_each_layer_that_it_launches():
    """5 ms for a step, 50 µs more for each of 40 layers without graphs."""
    machine = with_efficiency(host_floor_s=5e-3, eager_layer_s=5e-5)
    assert machine.host_floor_s(40) == 5e-3
    assert replace(machine, eager=True).host_floor_s(40) == pytest.approx(7e-3)


def test_16_bit_accumulation_lifts_cards_whose_printed_rate_is_halved():
    card = builders.gpu(peak_flops_per_s={"bf16": 1e14, "int8": 4e14})
    assert Machine(gpu=card, efficiency=IDEAL).unit("bf16")[1] == 2e14
    assert Machine(gpu=card, efficiency=Efficiency()).unit("bf16")[1] == 1e14


def test_experts_touched_by_one_token_and_by_many():
    """A lone token passes its 8 experts, whatever the routing; ranks share them; uneven routing of many leaves few out."""
    assert experts_touched(EXPERTS, 1, skew=1e9) == experts_touched(EXPERTS, 1, skew=1.25) == 8
    assert experts_touched(EXPERTS, 0.5, skew=1e9) == 4
    assert experts_touched(replace(EXPERTS, num_experts=16, ranks=4), 1, skew=1e9) == 2
    assert experts_touched(replace(EXPERTS, num_experts=4, ranks=16), 1, skew=1e9) == 0.5
    assert experts_touched(EXPERTS, 2, skew=1e9) == pytest.approx(64 * (1 - math.exp(-16 / 64)), rel=1e-6)
    assert experts_touched(EXPERTS, 2, skew=1.25) == pytest.approx(64 * (1 - (1 + 0.25 / 1.25) ** -1.25))
    assert experts_touched(EXPERTS, 10**6, skew=1.25) == pytest.approx(64, rel=1e-3)


SIXTEEN_TOKENS = 64 * (1 - math.exp(-2))  # 16 tokens choose 8 of 64: two choices an expert


def test_touched_experts_stream_and_their_rows_are_multiplied():
    """128 chosen rows; 1 MB an expert; 4 kB twice for each local row, 2 kB three times for each chosen one."""
    machine = with_efficiency(
        expert_bandwidth=0.5,
        expert_mfu={"fp8": 0.25},
        expert_activation_traffic=2,
        expert_token_traffic=3,
        moe_layer_s=2e-5,
    )
    cost = expert_cost(EXPERTS, 16, machine)
    assert cost.memory_s == pytest.approx(SIXTEEN_TOKENS * 1e6 / 1e12 + (2 * 4000 + 3 * 2000) * 128 / 2e12, rel=1e-6)
    assert cost.compute_s == pytest.approx(2e6 * 128 / 2e14)
    assert cost.flops == 2e6 * 128
    assert cost.bytes == pytest.approx(SIXTEEN_TOKENS * 1e6 + 128 * 4000, rel=1e-6)
    assert cost.fixed_s == 2e-5


@pytest.mark.parametrize(("tile", "most", "rows"), [(0.5, 4, 1), (3, 4, 4), (3, 1e9, 6), (0, 4, 0)])
def test_each_touched_expert_is_padded_by_part_of_a_tile(tile, most, rows):
    """Two rows an expert on average: half of them are one, three times as many are six, never more than the tile."""
    padded = expert_cost(EXPERTS, 16, with_efficiency(expert_tile=tile, expert_pad_tokens=most))
    assert padded.compute_s == pytest.approx(2e6 * (128 + SIXTEEN_TOKENS * rows) / 8e14, rel=1e-6)


def test_expert_ranks_share_choices_and_the_slowest_has_more():
    """4 ranks of 16 experts: a quarter of 128 choices each, `4^½` times as many on the slowest."""
    rank = replace(EXPERTS, num_experts=16, ranks=4)
    even, uneven = (expert_cost(rank, 16, with_efficiency(expert_imbalance=x)) for x in (0, 0.5))
    assert (even.flops, uneven.flops) == (2e6 * 32, 2e6 * 64)
    assert even.memory_s == uneven.memory_s == pytest.approx(SIXTEEN_TOKENS / 4 * 1e6 / 2e12, rel=1e-6)
    padded = expert_cost(rank, 16, with_efficiency(expert_tile=0.5, expert_pad_tokens=4, expert_token_traffic=3))
    assert padded.compute_s == pytest.approx(2e6 * (32 + SIXTEEN_TOKENS / 4) / 8e14, rel=1e-6)
    assert padded.memory_s == pytest.approx(even.memory_s + 3 * 2000 * 128 / 2e12)


def test_experts_expanded_on_the_way_stream_and_multiply_slower():
    machine = with_efficiency(dequantise_bandwidth=0.5, dequantise_mfu=0.25)
    plain, narrow = (expert_cost(replace(EXPERTS, compute="bf16", dequantised=d), 16, machine) for d in (False, True))
    assert narrow.memory_s == pytest.approx(2 * plain.memory_s)
    assert narrow.compute_s == pytest.approx(4 * plain.compute_s)


@given(st.floats(1e-3, 1e4), st.integers(1, 64), st.floats(0.5, 1e9))
def test_no_more_experts_are_touched_than_there_are_or_were_chosen(tokens, ranks, skew):
    rank = replace(EXPERTS, ranks=ranks)
    touched = experts_touched(rank, tokens, skew=skew)
    assert 0 < touched <= min(64, max(tokens * 8 / ranks, 1))


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


@given(st.floats(0, 1e5), st.floats(1e-3, 1e5), st.integers(1, 10**5))
def test_a_mean_lies_between_its_ends(start, length, window):
    end = start + length
    mean = mean_visible(start, end, window)
    assert min(start, window) * (1 - 1e-9) <= mean <= min(end, window) * (1 + 1e-9)


def test_sparse_attention_visits_its_picks():
    """Contexts from 1,000 to 3,000 around 2,000 picks: half of the way 1,500 on average, then 2,000."""
    sparse = replace(ATTENTION, top_k=2000)
    assert visible_tokens(sparse, 1000, 3000) == 1750
    assert visible_tokens(sparse, 100, 300) == 200


def test_compressed_attention_visits_its_window_and_compressed_entries():
    """Contexts around 8,000: 128 raw entries and one of 4 tokens each, or the 500 best of these."""
    compressed = replace(ATTENTION, window=128, ratio=4)
    assert visible_tokens(compressed, 7000, 9000) == 128 + 2000
    assert visible_tokens(replace(compressed, top_k=500), 7000, 9000) == 128 + 500
    assert visible_tokens(replace(compressed, top_k=5000), 7000, 9000) == 128 + 2000
    assert visible_tokens(replace(compressed, ratio=None), 7000, 9000) == 128


def test_a_chunk_is_half_full_on_average_once_it_is_not_the_first():
    chunked = replace(ATTENTION, window=1000, chunked=True)
    assert visible_tokens(chunked, 5000, 9000) == 500
    assert visible_tokens(chunked, 500, 1000) == 750
    assert visible_tokens(chunked, 0, 1001) == 500
    assert visible_tokens(replace(chunked, chunked=False), 5000, 9000) == 1000


def test_an_indexer_reads_all_keys_and_attention_its_picks():
    """4 sequences of 10,000 tokens, 2,048 picked: kernels reach half of 2 TB/s and a quarter of 400 TFLOP/s.

    Eight tiles a sequence take 1 µs each on one of 100 multiprocessors.
    """
    indexed = replace(ATTENTION, top_k=2048, index_bytes=128, index_flops=16384)
    machine = with_efficiency(
        attention_bandwidth=0.5, attention_mfu_decode=0.25, attention_row_s=1e-6, attention_s=5e-6, indexer_s=3e-6
    )
    cost = decode_attention_cost(indexed, sequences=4, start=9000, end=11000, machine=machine)
    assert cost.bytes == 4 * (2048 * 4096 + 10000 * 128)
    assert cost.flops == 4 * (2048 * 32768 + 10000 * 16384)
    assert cost.memory_s == pytest.approx(cost.bytes / 1e12)
    assert cost.compute_s == pytest.approx(cost.flops / 1e14 + 4 * 8 * 1e-6 / 100)
    assert cost.fixed_s == pytest.approx(8e-6)
    plain = decode_attention_cost(ATTENTION, sequences=4, start=9000, end=11000, machine=machine)
    assert plain.fixed_s == 5e-6


def test_prompts_beside_each_other_see_what_is_before_them_alone():
    """Two prompts of 1,000 tokens behind 500 cached ones: 1,000 visible on average, from 500 to 1,500."""
    machine = with_efficiency(attention_bandwidth=0.5, attention_mfu_prefill=0.25, attention_s=5e-6, indexer_s=3e-6)
    cost = prefill_attention_cost(ATTENTION, tokens=2000, prompts=2, prior=500, machine=machine)
    assert cost.flops == 2000 * 1000 * 32768
    assert cost.compute_s == pytest.approx(cost.flops / 1e14)
    assert cost.bytes == (2 * 500 + 2000) * 4096
    assert cost.memory_s == pytest.approx(cost.bytes / 1e12)
    assert cost.fixed_s == 5e-6
    indexed = replace(ATTENTION, top_k=800, index_bytes=128, index_flops=16384)
    scored = prefill_attention_cost(indexed, tokens=2000, prompts=2, prior=500, machine=machine)
    assert scored.flops == pytest.approx(2000 * (755 * 32768 + 1000 * 16384))  # (300 · 650 + 700 · 800) / 1000 picked
    assert scored.fixed_s == pytest.approx(8e-6)


def test_cross_attention_reads_the_source_and_an_encoder_sees_both_ways():
    """20 tokens of 2 prompts, each with a source of 500; encoders see their 1,000 tokens or a window of 300 of them."""
    cross = prefill_attention_cost(replace(ATTENTION, cross=True), tokens=20, prompts=2, prior=500, machine=MACHINE)
    assert (cross.flops, cross.bytes) == (20 * 500 * 32768, 2 * 500 * 4096)
    for window, seen in ((None, 1000), (300, 300)):
        encoder = replace(ATTENTION, causal=False, window=window)
        cost = prefill_attention_cost(encoder, tokens=2000, prompts=2, prior=0, machine=MACHINE)
        assert (cost.flops, cost.bytes) == (2000 * seen * 32768, 2000 * 4096)


def test_part_of_a_prompt_is_one_prompt_and_no_tokens_are_no_kernel():
    machine = with_efficiency(attention_s=5e-6, indexer_s=3e-6)
    one, part = (
        prefill_attention_cost(ATTENTION, tokens=1000, prompts=prompts, prior=0, machine=machine)
        for prompts in (1, 0.25)
    )
    assert part == one
    assert prefill_attention_cost(ATTENTION, tokens=0, prompts=1, prior=0, machine=machine).fixed_s == 0


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


def test_a_state_is_read_and_written_once_a_step_and_once_a_scanned_chunk():
    """8 sequences, 2 prompts, 10 chunks of 64: 20 times 2 MB at half of 2 TB/s; 648 tokens of 6 MFLOP; 5 chunks in turn."""
    machine = with_efficiency(state_bandwidth=0.5, scan_s=1e-6, recurrent_s=7e-6)
    work = RecurrentWork(state_bytes=1e6, flops_per_token=6e6)
    cost = recurrent_cost(work, sequences=8, prefill=640, prompts=2, machine=machine)
    assert cost.bytes == 20 * 2e6
    assert cost.memory_s == pytest.approx(40e6 / 1e12)
    assert cost.flops == 648 * 6e6
    assert cost.compute_s == pytest.approx(648 * 6e6 / 4e14 + 5e-6)
    assert cost.fixed_s == 7e-6


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
