"""One iteration: parts add up, laws of batches and machines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.efficiency import IDEAL, Efficiency
from kvplan.core.layout import Layout
from kvplan.core.model import CrossAttention, LayerGroup
from kvplan.core.roofline import Cost, Machine
from kvplan.core.step import OPS, StepLoad, breakdown, step_s, step_terms
from kvplan.core.work import compile_work
from tests.core import builders

REAL = Efficiency(
    gemm_bandwidth=0.8, gemm_mfu={"default": 0.6}, kernel_s=2e-6, attention_s=8e-6, layer_s=1e-5, step_s=3e-4,
    allreduce_s=4e-6, link_bandwidth=0.7, expert_bandwidth=0.8, expert_mfu={"default": 0.4}, moe_layer_s=2e-5,
    expert_skew=1.25, attention_bandwidth=0.8, attention_mfu_prefill=0.6, attention_mfu_decode=0.5,
)  # fmt: skip
EXPERTS = builders.layer(feed_forward=builders.experts())


def work_of(*layers, **ranks):
    """Work of the small model, of four plain layers by default."""
    return compile_work(builders.model(*layers), Layout(**ranks), kv_dtype="bf16")


DENSE, ROUTED, TWO_RANKS = work_of(), work_of(*[EXPERTS] * 4), work_of(tp=2)
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


def terms_of(work, load, efficiency=IDEAL, **card):
    """Terms by operation, of those that occur once."""
    return {term.op: term for term in step_terms(work, load, machine(efficiency, **card))}


def flops_of(work, load, op):
    return sum(term.cost.flops for term in step_terms(work, load, machine(IDEAL)) if term.op == op)


#: Three sequences decode at contexts around 200 beside 100 tokens of two prompts.
MIXED = StepLoad(sequences=3, context_start=100, context_end=300, prefill_tokens=100, prefill_sequences=2)


def test_all_tokens_pass_the_layers_and_one_of_each_sequence_the_head():
    assert flops_of(DENSE, MIXED, "attention_gemm") == 2 * 103 * 4 * 20480
    assert flops_of(DENSE, MIXED, "feed_forward_gemm") == 2 * 103 * 4 * 49152
    assert flops_of(DENSE, MIXED, "head") == 2 * 5 * 64000
    assert flops_of(ROUTED, MIXED, "experts") == 2 * 103 * 4 * 2 * 49152


def test_decodes_see_their_contexts_and_prompts_what_is_before_them():
    """512 FLOPs a pair and layer: 3 · 200 pairs; 100 tokens that see 40 cached ones and half of 50 of their own."""
    assert flops_of(DENSE, MIXED, "attention_decode") == 4 * 512 * 3 * 200
    assert flops_of(DENSE, replace(MIXED, prefill_prior=40), "attention_prefill") == 4 * 512 * 100 * (40 + 25)
    assert flops_of(DENSE, replace(MIXED, prefill_tokens=0), "attention_prefill") == 0


def test_recurrences_update_the_state_of_each_token():
    """6 FLOPs for each of 1,000 state elements; 4,600 bytes cross memory twice for 3 + 2 states and 100 / 64 chunks."""
    work = work_of(*[builders.layer(builders.recurrent())] * 2)
    recurrence = terms_of(work, MIXED)["recurrence"].cost
    assert recurrence.flops == 2 * 103 * 6000
    assert recurrence.bytes == pytest.approx(2 * 2 * 4600 * (5 + 100 / 64))


def test_what_no_kernel_sees_goes_by_layers_tokens_and_sequences():
    """103 tokens of 128 bytes, ten times in each of 4 layers; 300 µs a step, 10 a sequence, 1 a prompt token."""
    efficiency = Efficiency(layer_s=1e-5, elementwise_traffic=10, step_s=3e-4, sequence_s=1e-5, prefill_token_s=1e-6)
    terms = terms_of(DENSE, MIXED, efficiency)
    assert terms["layer_overhead"].seconds == pytest.approx(4e-5)
    assert terms["elementwise"].seconds == pytest.approx(103 * 128 * 10 * 4 / 2e12)
    assert terms["elementwise"].cost.bytes == 103 * 128 * 10 * 4
    assert terms["host"].seconds == pytest.approx(3e-4 + 3e-5 + 1e-4)


def test_one_gpu_sends_no_messages_and_two_do():
    assert not any(term.communication for term in step_terms(DENSE, MIXED, machine()))
    assert [term.op for term in step_terms(TWO_RANKS, MIXED, machine()) if term.communication] == ["allreduce"]


def test_each_layer_sums_its_residual_stream_twice():
    """8 sums of 103 · 128 bytes: two ranks send each once at 400 GB/s, after 4 µs."""
    sums = terms_of(TWO_RANKS, MIXED, Efficiency(allreduce_s=4e-6))["allreduce"]
    assert sums.seconds == pytest.approx(8 * (4e-6 + 103 * 128 / 4e11))
    assert sums.cost.bytes == 8 * 103 * 128


def test_data_parallel_ranks_meet_in_the_experts():
    """4 ranks of 103 tokens, each with 2 of 8 experts: a quarter of 412 · 2 rows; 8 dispatches and combines."""
    shared = work_of(*[EXPERTS] * 4, dp=4, ep=4)
    assert flops_of(shared, MIXED, "experts") == 4 * 2 * (4 * 103 * 2 / 4) * 49152
    sent = terms_of(shared, MIXED, Efficiency(alltoall_s=1e-5))["alltoall"]
    visited = 4 * (1 - 0.75**2)
    assert sent.seconds == pytest.approx(8 * (1e-5 + 103 * 128 * visited * 0.75 / 4e11))
    assert sent.cost.bytes == 8 * 103 * 128 * 2
    alone = work_of(*[EXPERTS] * 4, tp=4, ep=4)
    assert flops_of(alone, MIXED, "experts") == 4 * 2 * (103 * 2 / 4) * 49152
    assert "alltoall" not in terms_of(alone, MIXED)


def test_stages_pass_micro_batches_on():
    """32 sequences on 4 stages are 8 at a time: 3 hops of 8 · 128 bytes at half of 400 GB/s, 4 µs each."""
    staged = work_of(pp=4, tp=2)
    load = StepLoad(sequences=32, context_start=100, context_end=300)
    hops = terms_of(staged, load, Efficiency(allreduce_s=4e-6, link_bandwidth=0.5))["pipeline"]
    assert hops.seconds == pytest.approx(3 * (4e-6 + 8 * 128 / 2e11))
    assert hops.cost.bytes == 3 * 8 * 128
    assert flops_of(staged, load, "attention_decode") == 4 * 256 * 8 * 200
    assert flops_of(staged, replace(load, sequences=2), "attention_decode") == 4 * 256 * 200  # none is cut in two
    assert flops_of(staged, replace(load, sequences=0.5), "attention_decode") == 4 * 256 * 0.5 * 200


def test_stages_of_several_nodes_are_joined_by_the_network():
    staged = work_of(pp=4, tp=4)
    hops = terms_of(staged, MIXED, network_bytes_per_s=2e10)["pipeline"]
    assert hops.seconds == pytest.approx(3 * (1 + 100) * 128 / 2e10)


def test_messages_ask_nothing_of_memory_and_arithmetic_and_the_host_nothing_of_the_device():
    everywhere = terms_of(work_of(*[EXPERTS] * 4, tp=2, pp=2, dp=2, ep=4), MIXED, replace(REAL, elementwise_traffic=1))
    sent = {op for op, term in everywhere.items() if term.communication}
    assert sent == {"allreduce", "alltoall", "pipeline"}
    for op in sent:
        assert everywhere[op].cost == Cost(0, everywhere[op].cost.bytes, 0, 0, 0)
    for op in ("layer_overhead", "host"):
        assert everywhere[op].cost == Cost(0, 0, 0, 0, everywhere[op].seconds)
    moved = everywhere["elementwise"]
    assert moved.cost == Cost(0, moved.cost.bytes, moved.seconds, 0, 0)


def test_sources_of_prompts_pass_the_encoder_beside_each_other():
    """Two sources of 30 tokens: twice the arithmetic of one, while decodes alone never run the encoder."""
    pair = builders.model(encoder_groups=(LayerGroup(count=3, layer=builders.layer(builders.attention(causal=False))),))
    work = compile_work(pair, Layout(), kv_dtype="bf16")
    plain = replace(work, encoder=None)

    def of_encoder(prompts):
        load = replace(MIXED, prefill_sequences=prompts, source_tokens=30)
        ops = ("attention_gemm", "feed_forward_gemm", "attention_decode", "attention_prefill")
        return [flops_of(work, load, op) - flops_of(plain, load, op) for op in ops]

    assert of_encoder(1) == [2 * 30 * 3 * 20480, 2 * 30 * 3 * 49152, 0, 512 * 3 * 30 * 30]
    assert of_encoder(2) == [2 * one for one in of_encoder(1)]
    decodes = replace(MIXED, prefill_tokens=0, source_tokens=30)
    assert step_s(work, decodes, machine()) == step_s(plain, decodes, machine())
    slow_host = machine(Efficiency(step_s=1.0, prefill_token_s=0.5))
    mixed = replace(MIXED, prefill_sequences=2, source_tokens=30)
    assert [term.seconds for term in step_terms(work, mixed, slow_host) if term.op == "host"] == [
        1.0 + 0.5 * MIXED.prefill_tokens  # one schedule for prompts and sources, none for each source token
    ]


def test_cross_attention_sees_the_source_whatever_was_decoded():
    """512 FLOPs for each of 3 sequences and 30 tokens of its source."""
    cross = builders.layer(CrossAttention(num_attention_heads=8, num_key_value_heads=2, head_dim=16))
    load = replace(MIXED, source_tokens=30, prefill_tokens=0)
    assert flops_of(work_of(cross), load, "attention_decode") == 512 * 3 * 30
    assert flops_of(work_of(cross), replace(load, source_tokens=0), "attention_decode") == 0
    assert (
        flops_of(work_of(cross), replace(load, source_tokens=30, prefill_tokens=100), "attention_prefill") == 512 * 3000
    )


def test_memory_and_arithmetic_overlap_but_not_wholly():
    """One head of 64,000 elements: 128 kB at 2 TB/s take as long as 400 TFLOP/s on 200 tokens, and both 2^¼ as long.

    Five microseconds of its kernel come on top.
    """
    load = StepLoad(sequences=200, context_start=0, context_end=0)
    term = terms_of(DENSE, load, Efficiency(kernel_s=5e-6))["head"]
    assert term.cost.memory_s == pytest.approx(term.cost.compute_s) == pytest.approx(6.4e-8)
    assert term.seconds == pytest.approx(5e-6 + 6.4e-8 * 2**0.25)


def test_at_the_floor_the_slowest_resource_counts():
    load = StepLoad(sequences=0, context_start=0, context_end=0, prefill_tokens=4000, prefill_sequences=1)
    flops = 2 * 4000 * 4 * (20480 + 49152) + 2 * 64000 + 4 * 512 * 4000 * 2000
    assert step_s(DENSE, load, machine(IDEAL)) == pytest.approx(flops / 4e14)
    staged = work_of(pp=2, tp=2)
    slow = machine(IDEAL, link_bytes_per_s=1e9)
    messages = 8 * 4000 * 128 / 1e9 + 4000 * 128 / 1e9
    assert step_s(staged, load, slow) == pytest.approx(messages)


def rows_of(work, load, efficiency=REAL, **card):
    rows, bound = breakdown(work, load, machine(efficiency, **card), phase="decode")
    return {row.op: row for row in rows}, bound


def test_a_breakdown_tells_counts_and_times_in_the_order_of_operations():
    work = work_of(*[EXPERTS] * 4, tp=2, pp=2)
    rows, _ = rows_of(work, MIXED)
    assert list(rows) == [op for op in OPS if op in rows]
    assert {"attention_gemm", "experts", "head", "allreduce", "pipeline", "host"} <= set(rows)
    for op in rows:
        terms = [term for term in step_terms(work, MIXED, machine()) if term.op == op]
        assert rows[op].flops == sum(term.cost.flops for term in terms)
        assert rows[op].bytes == sum(term.cost.bytes for term in terms)
        assert rows[op].ms == pytest.approx(1e3 * sum(term.seconds for term in terms))
        assert rows[op].phase == "decode"


def test_rows_are_scaled_to_a_step_that_the_host_holds_up():
    rows, _ = rows_of(DENSE, MIXED, replace(REAL, host_floor_s=0.25))
    usual, _ = rows_of(DENSE, MIXED)
    assert sum(row.ms for row in rows.values()) == pytest.approx(250)
    assert rows["head"].ms / usual["head"].ms == pytest.approx(250 / sum(row.ms for row in usual.values()))


def test_operations_that_take_no_time_are_left_out():
    rows, _ = rows_of(DENSE, replace(MIXED, prefill_tokens=0), Efficiency())
    assert set(rows) == {"attention_gemm", "feed_forward_gemm", "attention_decode", "head"}


DECODES = StepLoad(sequences=1, context_start=1000, context_end=1000)
PROMPT = StepLoad(sequences=0, context_start=0, context_end=0, prefill_tokens=8000, prefill_sequences=1)


@pytest.mark.parametrize(
    ("work", "load", "given", "op", "bound"),
    [
        (DENSE, DECODES, {}, "attention_decode", "memory"),
        (DENSE, PROMPT, {}, "attention_prefill", "compute"),
        (DENSE, DECODES, {"kernel_s": 1e-3}, "feed_forward_gemm", "overhead"),
        (DENSE, DECODES, {"step_s": 1e-3}, "host", "overhead"),
        (DENSE, DECODES, {"elementwise_traffic": 1e6}, "elementwise", "memory"),
        (TWO_RANKS, PROMPT, {"link_bandwidth": 1e-6}, "allreduce", "communication"),
    ],
)
def test_the_largest_share_binds(work, load, given, op, bound):
    rows, whole = rows_of(work, load, Efficiency(**given))
    assert (rows[op].bound, whole) == (bound, bound)


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
