"""Steady state of continuous batching: limits, laws, Little's law, waves and benchmarks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.efficiency import IDEAL
from kvplan.core.serving import Load, steady_state
from tests.core.test_step import DENSE, REAL, ROUTED, machine

LOAD = Load(
    input_tokens=1000.0, output_tokens=200.0, concurrency=16.0, capacity=1e6, max_num_seqs=1024.0, budget_tokens=8192.0
)
LOADS = st.builds(
    Load,
    input_tokens=st.floats(1, 30000),
    output_tokens=st.floats(1, 5000),
    concurrency=st.floats(1, 600),
    capacity=st.floats(1, 1000),
    max_num_seqs=st.just(256.0),
    budget_tokens=st.sampled_from([2048.0, 8192.0]),
    mixes_prefill=st.booleans(),
    benchmark_requests=st.one_of(st.none(), st.floats(10, 5000)),
)


def test_one_request_alone_never_sees_prefill_in_its_decode():
    state = steady_state(DENSE, replace(LOAD, concurrency=1.0), machine())
    assert state.tpot_s == state.decode_step_s
    assert state.mixed_share == 0


def test_nine_others_bring_nine_prompts_while_one_answers():
    """10 sequences, 200 steps each: 9 · 1000 / 200 = 45 prompt tokens a step, so a chunk in 4.5 % of them."""
    state = steady_state(DENSE, replace(LOAD, concurrency=10.0), machine())
    assert state.mixed_share == pytest.approx(0.045)
    mixed = 0.955 * state.decode_step_s + 0.045 * state.mixed_step_s
    assert state.tpot_s == pytest.approx(mixed)


def test_a_long_prompt_runs_in_equal_chunks():
    """8,191 tokens of budget beside one decode: three chunks, which find none, one and two thirds of it cached."""
    state = steady_state(DENSE, replace(LOAD, concurrency=1.0, input_tokens=20000.0, cached_tokens=500.0), machine())
    assert state.mixed_load.prefill_tokens == pytest.approx(20000 / 3)
    assert state.mixed_load.prefill_prior == pytest.approx(500 + 20000 / 3)
    assert state.mixed_load.prefill_sequences == pytest.approx(1 / 3)
    assert state.prefill_s == pytest.approx(3 * state.mixed_step_s)


def test_short_prompts_share_an_iteration():
    """50 others end every second step: 25 prompts of 100 tokens join it, none of them cached."""
    state = steady_state(DENSE, replace(LOAD, concurrency=51.0, input_tokens=100.0, output_tokens=2.0), machine())
    assert state.mixed_load.prefill_tokens == 2500
    assert state.mixed_load.prefill_sequences == 25
    assert state.mixed_load.prefill_prior == 0
    assert state.mixed_share == 1


def test_decodes_are_as_long_as_their_prompt_and_half_their_answer_on_average():
    state = steady_state(DENSE, replace(LOAD, cached_tokens=50.0, source_tokens=70.0), machine())
    assert (state.decode_load.sequences, state.mixed_load.sequences) == (16, 15)
    for load in (state.decode_load, state.mixed_load):
        assert (load.context_start, load.context_end, load.source_tokens) == (1050, 1250, 70)
    assert steady_state(DENSE, LOAD, machine()).decode_load.source_tokens == 0


def test_decodes_leave_a_prompt_one_token_of_the_budget_at_least():
    state = steady_state(DENSE, replace(LOAD, budget_tokens=10.0, input_tokens=40.0, output_tokens=1000.0), machine())
    assert state.mixed_load.prefill_tokens == 1
    assert state.prefill_s == pytest.approx(40 * state.mixed_step_s)


def test_chunks_follow_one_another_through_a_pipeline():
    """Three chunks through two stages: the first takes both, the others half an iteration more each."""
    staged = replace(DENSE, pp=2)
    state = steady_state(staged, replace(LOAD, concurrency=1.0, input_tokens=20000.0), machine())
    assert state.prefill_s == pytest.approx((1 + 2 / 2) * state.mixed_step_s)


def test_decodes_wait_for_prompts_that_run_apart():
    """A prompt joins 7.5 % of the steps, without decodes of its own, and comes on top of them."""
    state = steady_state(DENSE, replace(LOAD, mixes_prefill=False), machine())
    assert state.mixed_load.sequences == 0
    assert state.mixed_share == pytest.approx(0.075)
    assert state.tpot_s == pytest.approx(state.decode_step_s + 0.075 * state.mixed_step_s)


def test_a_prompt_meets_long_iterations_more_often_than_short_ones():
    """It arrives at any moment of 92.5 % decode and 7.5 % mixed iterations: `E[t²] / 2 E[t]` are left."""
    for mixes in (True, False):
        state = steady_state(DENSE, replace(LOAD, mixes_prefill=mixes), machine())
        short = state.decode_step_s
        long = state.mixed_step_s + (0 if mixes else short)
        left = (0.925 * short**2 + 0.075 * long**2) / (2 * (0.925 * short + 0.075 * long))
        assert state.queue_s == pytest.approx(left)
    one_and_a_half = steady_state(DENSE, replace(LOAD, concurrency=1.5), machine())
    assert one_and_a_half.mixed_share == pytest.approx(0.0025)
    short, long = one_and_a_half.decode_step_s, one_and_a_half.mixed_step_s
    left = (0.9975 * short**2 + 0.0025 * long**2) / (2 * (0.9975 * short + 0.0025 * long))
    assert one_and_a_half.queue_s == pytest.approx(left / 2)  # half of the time it is alone


@pytest.mark.parametrize("stages", [1, 4])
def test_where_prefill_is_the_bottleneck_prompts_leave_as_fast_as_stages_take_them(stages):
    """64 sequences of 20,000 in and 2 out: each iteration is full of prompts, and all wait for their turn."""
    full = replace(LOAD, concurrency=64.0, input_tokens=20000.0, output_tokens=2.0)
    state = steady_state(replace(DENSE, pp=stages), full, machine())
    assert state.mixed_share == 1
    assert state.mixed_load.prefill_tokens == 8192 - 64
    assert state.tpot_s == state.mixed_step_s
    assert 1 / state.requests_per_s == pytest.approx(20000 / 8128 * state.mixed_step_s / stages)


@given(LOADS)
def test_prompts_never_leave_faster_than_iterations_take_them(load):
    state = steady_state(DENSE, replace(load, mixes_prefill=True, benchmark_requests=None), machine())
    iterations = load.input_tokens / state.mixed_load.prefill_tokens
    assert state.requests_per_s * iterations * state.mixed_step_s <= 1 + 1e-9


def test_equal_lengths_make_waves_where_prefill_comes_first():
    """8,176 / 1,000 prompts fit an iteration: all 16 wait for half of (16 + 8.176 − 2) prompts, a decode for (16 − 8.176) / 2."""
    state = steady_state(DENSE, replace(LOAD, mixes_prefill=False, equal_lengths=True), machine())
    usual = steady_state(DENSE, replace(LOAD, mixes_prefill=False), machine())
    assert state.queue_s - usual.queue_s == pytest.approx(state.mixed_step_s * (16 + 8.176 - 2) / 2)
    assert state.tpot_s == pytest.approx(state.decode_step_s + state.mixed_step_s * (16 - 8.176) / 2 / 199)
    one_token = replace(LOAD, mixes_prefill=False, equal_lengths=True, output_tokens=1.0)
    assert steady_state(DENSE, one_token, machine()).tpot_s > 0  # no gap between tokens, and no division by it


def test_equal_lengths_keep_a_group_together_where_prompts_mix():
    """A request waits for 0.8 of the 7.176 others of its group; long prompts and single requests have none."""
    for load, others in ((LOAD, 7.176), (replace(LOAD, input_tokens=20000.0), 0), (replace(LOAD, concurrency=1.0), 0)):
        usual = steady_state(DENSE, load, machine())
        state = steady_state(DENSE, replace(load, equal_lengths=True), machine())
        added = load.input_tokens / usual.mixed_load.prefill_tokens * (usual.mixed_step_s - usual.decode_step_s)
        assert state.queue_s - usual.queue_s == pytest.approx(0.8 * others * added, abs=1e-12)
        assert state.tpot_s == usual.tpot_s


@pytest.mark.parametrize(("requests", "first"), [(32, 0.5), (160, 0.1), (16, 1), (4, 1)])
def test_a_benchmark_starts_with_all_prompts_at_once(requests, first):
    """Of its first 16 requests one waits for 7.5 others on average, the later ones for none."""
    usual = steady_state(DENSE, LOAD, machine())
    state = steady_state(DENSE, replace(LOAD, benchmark_requests=requests), machine())
    added = usual.mixed_step_s - usual.decode_step_s
    assert state.queue_s - usual.queue_s == pytest.approx(first * 7.5 * added)


def test_a_request_takes_time_outside_iterations():
    slow = steady_state(DENSE, LOAD, machine(replace(REAL, request_s=0.02)))
    assert slow.engine_s == 0.02
    assert slow.ttft_s == pytest.approx(steady_state(DENSE, LOAD, machine()).ttft_s + 0.02)


def test_half_of_the_sequences_wait_as_long_as_the_others_run():
    """Two waves: a request waits for one whole service, and answers come no faster."""
    usual = steady_state(DENSE, LOAD, machine())
    for limit in ({"max_num_seqs": 16.0}, {"capacity": 16.0}):
        twice = steady_state(DENSE, replace(LOAD, concurrency=32.0, **limit), machine())
        assert twice.running == 16
        assert twice.e2e_s == pytest.approx(2 * usual.e2e_s)
        assert twice.ttft_s == pytest.approx(usual.ttft_s + usual.e2e_s)
        assert twice.queue_s == pytest.approx(usual.queue_s + usual.e2e_s)
        assert twice.requests_per_s == pytest.approx(usual.requests_per_s)


@pytest.mark.parametrize(
    ("limits", "queued"),
    [
        ({}, False),
        ({"capacity": 16.0}, False),
        ({"capacity": 15.9}, True),
        ({"capacity": 20.0, "full_capacity": 16.0}, False),
        ({"capacity": 20.0, "full_capacity": 10.0}, True),  # all run, until they have grown
        ({"max_num_seqs": 16.0}, False),
        ({"max_num_seqs": 15.0}, True),
        ({"concurrency": 1.0, "capacity": 0.5}, False),  # one always runs
    ],
)
def test_sequences_queue_where_not_all_run_at_their_full_length(limits, queued):
    assert steady_state(DENSE, replace(LOAD, **limits), machine()).queued is queued


@given(LOADS)
def test_littles_law_ties_what_runs_to_what_leaves(load):
    state = steady_state(DENSE, load, machine())
    service = state.e2e_s - (state.e2e_s * (1 - state.running / load.concurrency))
    assert state.requests_per_s * service == pytest.approx(state.running, rel=1e-6)
    assert state.e2e_s == pytest.approx(state.ttft_s + (load.output_tokens - 1) * state.tpot_s)
    assert state.ttft_s == pytest.approx(state.queue_s + state.prefill_s + state.engine_s)


@given(LOADS)
def test_what_does_not_fit_waits(load):
    state = steady_state(DENSE, load, machine())
    assert state.running <= min(load.concurrency, max(load.capacity, 1), 256) * (1 + 1e-12)
    assert state.decoding == pytest.approx(state.requests_per_s * (load.output_tokens - 1) * state.tpot_s)


@given(LOADS)
def test_the_floor_is_below_the_estimate(load):
    for work in (DENSE, ROUTED):
        floor, real = steady_state(work, load, machine(IDEAL)), steady_state(work, load, machine())
        assert floor.tpot_s <= real.tpot_s * (1 + 1e-9)
        assert floor.prefill_s <= real.prefill_s * (1 + 1e-9)


@given(st.floats(1, 400), st.floats(1.01, 2))
def test_more_sequences_never_shorten_the_step(concurrency, factor):
    few = steady_state(DENSE, replace(LOAD, concurrency=concurrency), machine())
    many = steady_state(DENSE, replace(LOAD, concurrency=concurrency * factor), machine())
    assert few.tpot_s <= many.tpot_s * (1 + 1e-9)


def test_a_cached_prefix_saves_prefill():
    whole = steady_state(DENSE, LOAD, machine())
    saved = steady_state(DENSE, replace(LOAD, input_tokens=200.0, cached_tokens=800.0), machine())
    assert saved.prefill_s < whole.prefill_s
    assert saved.decode_step_s == pytest.approx(whole.decode_step_s)


def test_benchmark_servers_hold_back_the_first_chunk():
    slow = replace(REAL, stream_tokens=5.0, stream_tokens_busy=20.0)
    few = replace(LOAD, concurrency=15.0, benchmark_requests=150.0)
    for load, tokens in (
        (few, 5),
        *((replace(few, concurrency=n, benchmark_requests=10 * n), 20) for n in (16.0, 40.0)),
    ):
        with_interval, without = steady_state(DENSE, load, machine(slow)), steady_state(DENSE, load, machine())
        assert with_interval.ttft_s - without.ttft_s == pytest.approx(tokens * without.tpot_s)


def test_grids_give_what_single_scenarios_give():
    inputs, concurrency = np.array([100.0, 3000.0, 12000.0]), np.array([[1.0], [16.0], [400.0]])
    grid = steady_state(ROUTED, replace(LOAD, input_tokens=inputs, concurrency=concurrency), machine())
    for row in range(3):
        for column in range(3):
            one = replace(LOAD, input_tokens=float(inputs[column]), concurrency=float(concurrency[row, 0]))
            alone = steady_state(ROUTED, one, machine())
            for name in ("ttft_s", "tpot_s", "requests_per_s"):
                assert getattr(grid, name)[row, column] == pytest.approx(getattr(alone, name), rel=1e-12)


@given(st.sampled_from([2, 4, 8]), st.floats(1, 30000), st.sampled_from([1.0, 50.0]))
def test_one_request_alone_waits_for_nobody_in_a_pipeline(stages, prompt, answer):
    alone = replace(LOAD, concurrency=1.0, input_tokens=prompt, output_tokens=answer)
    state = steady_state(replace(DENSE, pp=stages), alone, machine())
    assert state.queue_s == pytest.approx(0, abs=1e-12)
