"""One iteration: parts add up, laws of batches and machines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.efficiency import IDEAL, Efficiency
from kvplan.core.layout import Layout
from kvplan.core.roofline import Machine
from kvplan.core.step import StepLoad, breakdown, step_s, step_terms
from kvplan.core.work import compile_work
from tests.core import builders

REAL = Efficiency(
    gemm_bandwidth=0.8, gemm_mfu={"default": 0.6}, kernel_s=2e-6, attention_s=8e-6, layer_s=1e-5, step_s=3e-4,
    allreduce_s=4e-6, link_bandwidth=0.7, expert_bandwidth=0.8, expert_mfu={"default": 0.4}, moe_layer_s=2e-5,
    expert_skew=1.25, attention_bandwidth=0.8, attention_mfu_prefill=0.6, attention_mfu_decode=0.5,
)  # fmt: skip
DENSE = compile_work(builders.model(), Layout(), kv_dtype="bf16")
ROUTED = compile_work(builders.model(*[builders.layer(feed_forward=builders.experts())] * 4), Layout(), kv_dtype="bf16")
LOADS = st.builds(
    StepLoad,
    sequences=st.integers(1, 500),
    context_start=st.integers(1, 2000),
    context_end=st.integers(2000, 4000),
    prefill_tokens=st.integers(0, 4000),
    prefill_sequences=st.just(1),
)


def machine(efficiency=REAL, **card):
    return Machine(gpu=builders.gpu(**card), efficiency=efficiency)


def test_a_decode_step_at_the_floor_reads_weights_once_and_each_cache():
    """Four layers of 20,480 + 49,152 and a head of 64,000 elements, 2 bytes each; 128 bytes of cache a token and layer."""
    load = StepLoad(sequences=2, context_start=1000, context_end=1000)
    weights = 2 * (4 * (20480 + 49152) + 64000)
    caches = 2 * 1000 * 4 * 2 * 2 * 16 * 2
    assert step_s(DENSE, load, machine(IDEAL)) == pytest.approx((weights + caches) / 2e12)


@pytest.mark.parametrize("work", [DENSE, ROUTED])
@given(load=LOADS)
def test_the_floor_is_never_above_the_estimate(work, load):
    assert step_s(work, load, machine(IDEAL)) <= step_s(work, load, machine())


@given(load=LOADS, more=st.floats(1, 4))
def test_more_bandwidth_or_arithmetic_is_never_slower(load, more):
    card = builders.gpu()
    fast = machine(memory_bandwidth_bytes_per_s=card.memory_bandwidth_bytes_per_s * more)
    strong = machine(peak_flops_per_s={name: rate * more for name, rate in card.peak_flops_per_s.items()})
    for work in (DENSE, ROUTED):
        usual = step_s(work, load, machine())
        assert step_s(work, load, fast) <= usual
        assert step_s(work, load, strong) <= usual


@given(load=LOADS, more=st.integers(0, 500))
def test_a_larger_batch_is_never_faster(load, more):
    for work in (DENSE, ROUTED):
        larger = replace(load, sequences=load.sequences + more)
        assert step_s(work, load, machine()) <= step_s(work, larger, machine()) * (1 + 1e-12)


@given(load=LOADS)
def test_the_breakdown_sums_to_the_step(load):
    rows, bound = breakdown(DENSE, load, machine(), phase="decode")
    assert sum(row.ms for row in rows) == pytest.approx(1e3 * step_s(DENSE, load, machine()))
    assert bound in {"memory", "compute", "communication", "overhead"}


def test_one_gpu_sends_no_messages_and_two_do():
    load = StepLoad(sequences=4, context_start=100, context_end=200)
    two = compile_work(builders.model(), Layout(tp=2), kv_dtype="bf16")
    assert not any(term.communication for term in step_terms(DENSE, load, machine()))
    messages = [term for term in step_terms(two, load, machine()) if term.communication]
    assert [term.op for term in messages] == ["allreduce"]
    assert two.allreduces == 8


def test_the_host_sets_a_floor_and_eager_launches_raise_it():
    load = StepLoad(sequences=1, context_start=10, context_end=20)
    held = Efficiency(host_floor_s=0.01, eager_layer_s=0.001)
    assert step_s(DENSE, load, machine(held)) == pytest.approx(0.01)
    assert step_s(DENSE, load, replace(machine(held), eager=True)) == pytest.approx(0.014)


def test_arrays_give_what_plain_numbers_give():
    sequences = np.array([1.0, 16.0, 200.0])
    load = StepLoad(
        sequences=sequences, context_start=100.0, context_end=300.0, prefill_tokens=512.0, prefill_sequences=1.0
    )
    for work in (DENSE, ROUTED):
        found = step_s(work, load, machine())
        for index, one in enumerate(sequences):
            alone = step_s(work, replace(load, sequences=float(one)), machine())
            assert found[index] == pytest.approx(alone, rel=1e-12)
