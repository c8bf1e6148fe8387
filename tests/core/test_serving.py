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
    state = steady_state(DENSE, replace(LOAD, concurrency=1.0, input_tokens=20000.0), machine())
    assert state.mixed_load.prefill_tokens == pytest.approx(20000 / 3)
    assert state.prefill_s == pytest.approx(3 * state.mixed_step_s)


def test_equal_lengths_make_waves_where_prefill_comes_first():
    """Eight prompts of 1,000 fit one iteration of 8,192: all 16 wait for two of them, half of the decodes for one."""
    state = steady_state(DENSE, replace(LOAD, mixes_prefill=False, equal_lengths=True), machine())
    steady = steady_state(DENSE, replace(LOAD, mixes_prefill=False, benchmark_requests=1e9), machine())
    assert state.decode_step_s < state.tpot_s < steady.tpot_s
    assert state.ttft_s > steady.ttft_s


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
    assert state.decoding <= state.running * (1 + 1e-12)


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
    few = replace(LOAD, concurrency=8.0, benchmark_requests=80.0)
    for load, tokens in ((few, 5), (replace(few, concurrency=16.0, benchmark_requests=160.0), 20)):
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
