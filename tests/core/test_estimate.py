"""The composition of one answer: what is asked of which part, how figures hang together, what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.engine import Scheduling
from kvplan.core.estimate import estimate, rank_load, rate_range, time_range
from kvplan.core.layout import Layout
from kvplan.core.memory import plan_memory
from kvplan.core.parameters import weights_bytes_model
from kvplan.core.step import StepLoad, breakdown
from kvplan.core.workload import Workload
from kvplan.errors import UsageError
from tests.core.builders import attention, engine, experts, gpu, layer, model
from tests.core.test_deployment import RULES, deployed


def asked(*, input_tokens=100, output_tokens=20, concurrency=4, **more):
    return Workload(input_tokens=input_tokens, output_tokens=output_tokens, concurrency=concurrency, **more)


TIMES = st.floats(1e-6, 1e3)


@given(TIMES, TIMES, st.floats(0, 2))
def test_times_lie_between_floor_and_high(mid, floor, spread):
    found = time_range(mid, floor, spread)
    assert found.floor <= found.low <= found.mid <= found.high
    assert found.mid == mid * 1000
    assert found.high == pytest.approx(mid * 1000 * (1 + spread))
    assert found.floor == min(mid, floor) * 1000


def test_a_band_on_paper():
    assert time_range(0.3, 0.1, 0.5).model_dump() == {"floor": 100, "low": 200, "mid": 300, "high": pytest.approx(450)}
    assert time_range(0.3, 0.25, 0.5).low == 250
    assert time_range(0.31, 0.1, 0.5).low == pytest.approx(206.667, rel=1e-5)
    assert rate_range(300, 400, 0.5).model_dump() == {"floor": 400, "low": 200, "mid": 300, "high": 400}
    assert rate_range(300, 1000, 0.5).high == 450
    assert rate_range(300, 200, 0.5).floor == 300
    grid = time_range(np.array([0.3, 0.2]), np.array([0.1, 0.4]), 0.5)
    assert grid.floor.tolist() == [100, 200]


def plan(deployment, workload):
    return plan_memory(deployment.question(context=workload.input_tokens + workload.output_tokens, concurrency=1))


def test_the_load_of_one_rank():
    workload = asked(shared_prefix_tokens=80, prefix_hit_rate=0.5, benchmark_requests=9)
    deployment = deployed(model(max_source_tokens=1500), layout=Layout(dp=2))
    room = plan(deployment, workload)
    found = rank_load(deployment, workload, room, concurrency=8)
    assert (found.input_tokens, found.cached_tokens, found.output_tokens, found.concurrency) == (60, 40, 20, 4)
    # engines that find room as a sequence grows hold it half grown on average
    assert (found.capacity, found.full_capacity) == (room.pool.sequences(110), room.pool.sequences(120))
    odd = rank_load(deployment, asked(input_tokens=90, output_tokens=21), room, concurrency=8)
    assert odd.capacity == room.pool.sequences(101)
    reserving = replace(engine(), scheduling=Scheduling(reserves_output=True))
    assert rank_load(deployed(served=reserving), asked(), room, concurrency=1).capacity == room.pool.sequences(120)
    assert (found.max_num_seqs, found.budget_tokens, found.source_tokens) == (64, 512, 1500)
    assert (found.mixes_prefill, found.benchmark_requests) == (True, 9)
    whole = asked(shared_prefix_tokens=100, source_tokens=7)
    all_cached = rank_load(deployment, whole, room, concurrency=8)
    assert (all_cached.input_tokens, all_cached.source_tokens) == (1, 7)
    plain = rank_load(deployed(), asked(), room, concurrency=1)
    assert (plain.source_tokens, plain.benchmark_requests) == (0, None)
    apart = replace(engine(), scheduling=Scheduling(mixes_prefill=False))
    assert rank_load(deployed(served=apart), asked(), room, concurrency=1).mixes_prefill is False


@pytest.mark.parametrize(
    ("context", "told", "hint"),
    [
        (0, "context: must be at least 1, not 0", None),
        (119, "context: 119 is below input + output = 120 tokens", "raise context to 120 or shorten the workload"),
        (4097, "context: 4097 is above the 4096 tokens that small is made for", "shorten it, or pass --allow-context-overflow"),
    ],
)  # fmt: skip
def test_contexts_that_make_no_sense(context, told, hint):
    with pytest.raises(UsageError) as caught:
        estimate(deployed(), asked(), context=context)
    assert (str(caught.value), caught.value.hint) == (told, hint)


@pytest.mark.parametrize(
    ("limit", "asked_for", "hint"),
    [
        (4096, (5000, 20), "--input-tokens 4076 --output-tokens 20 would do, or pass --allow-context-overflow"),
        (4096, (10, 5000), "--input-tokens 2048 --output-tokens 2048 would do, or pass --allow-context-overflow"),
    ],
)  # fmt: skip
def test_a_workload_that_would_do(limit, asked_for, hint):
    with pytest.raises(UsageError) as caught:
        estimate(deployed(model(max_context=limit)), asked(input_tokens=asked_for[0], output_tokens=asked_for[1]))
    assert caught.value.hint == hint


def test_the_context_to_plan_for():
    assert estimate(deployed(), asked()).scenario.context == 120
    assert estimate(deployed(), asked(), context=120).scenario.context == 120
    assert estimate(deployed(), asked(), context=4096).scenario.context == 4096
    longer = estimate(deployed(), asked(), context=5000, allow_context_overflow=True)
    assert "context 5,000 is above the model's own limit of 4,096 tokens" in longer.warnings
    assert estimate(deployed(model(max_context=None)), asked(), context=9999).scenario.context == 9999
    with pytest.raises(UsageError, match="context: 5000 is above"):
        estimate(deployed(), asked(input_tokens=4990, output_tokens=10))


def test_what_was_asked_is_told_again():
    deployment = deployed(model(layer(attention(), experts())), layout=Layout(tp=2, dp=4, ep=8), kv_dtype="fp8")
    assert estimate(deployment, asked(concurrency=12), context=200).scenario.model_dump() == {
        "model": "small", "gpu": "card", "gpu_count": 8, "engine": "engine@1", "dtype": "bf16", "kv_dtype": "fp8",
        "tp": 2, "pp": 1, "dp": 4, "ep": 8, "input_tokens": 100, "output_tokens": 20, "concurrency": 12, "context": 200,
    }  # fmt: skip


@pytest.mark.parametrize("concurrency", [1, 4, 100])
@pytest.mark.parametrize("layout", [Layout(), Layout(tp=2), Layout(dp=2), Layout(pp=2)])
def test_figures_hang_together(concurrency, layout):
    found = estimate(deployed(layout=layout), asked(concurrency=concurrency, network_ms=7))
    latency, rates = found.latency, found.throughput
    assert sum(latency.ttft_parts_ms.values()) == pytest.approx(latency.ttft_ms.mid)
    assert latency.ttft_parts_ms["network"] == 7
    assert latency.e2e_ms.mid == pytest.approx(latency.ttft_ms.mid + 19 * latency.tpot_ms.mid)
    for one in (latency.ttft_ms, latency.tpot_ms, latency.e2e_ms, latency.prefill_ms, latency.decode_step_ms):
        assert one.floor <= one.low <= one.mid <= one.high
    assert latency.ttft_ms.high == pytest.approx(1.5 * latency.ttft_ms.mid)
    assert latency.tpot_ms.high == pytest.approx(1.25 * latency.tpot_ms.mid)
    assert latency.decode_step_ms.high == pytest.approx(1.25 * latency.decode_step_ms.mid)
    assert latency.prefill_ms.high == pytest.approx(1.5 * latency.prefill_ms.mid)
    assert latency.e2e_ms.floor == pytest.approx(latency.prefill_ms.floor + 19 * latency.tpot_ms.floor)
    share = (latency.ttft_ms.mid - 7) / (latency.e2e_ms.mid - 7)  # of the first token, the network apart
    assert latency.e2e_ms.high / latency.e2e_ms.mid == pytest.approx(1 + share * 0.5 + (1 - share) * 0.25)
    requests = rates.requests_per_second.mid
    assert rates.output_tokens_per_second.mid == pytest.approx(20 * requests)
    assert rates.total_tokens_per_second.mid == pytest.approx(120 * requests)
    gpus = layout.gpu_count
    assert rates.per_gpu_output_tokens_per_second.mid == pytest.approx(20 * requests / gpus)
    # Little's law over the whole deployment, the network apart
    assert requests * (latency.e2e_ms.mid - 7) / 1000 == pytest.approx(concurrency, rel=1e-6)
    decode = sum(row.ms for row in found.breakdown if row.phase == "decode")
    assert decode == pytest.approx(latency.decode_step_ms.mid)
    assert {row.phase for row in found.breakdown} == {"prefill", "decode"}
    assert (latency.bound_prefill, latency.bound_decode) == ("overhead", "overhead")


def test_what_binds_is_told_of_prefill_and_decode_apart():
    """A prompt of 2,000 tokens in one iteration multiplies, one token of one sequence reads weights."""
    bare = deployed(served=engine(**RULES), max_num_batched_tokens=4096)
    latency = estimate(bare, asked(input_tokens=2000, concurrency=1)).latency
    assert (latency.bound_prefill, latency.bound_decode) == ("compute", "memory")


def test_replicas_serve_their_shares():
    one = estimate(deployed(), asked(concurrency=4))
    two = estimate(deployed(layout=Layout(dp=2)), asked(concurrency=8))
    assert two.latency == one.latency
    for name in ("output_tokens_per_second", "requests_per_second"):
        assert getattr(two.throughput, name).mid == 2 * getattr(one.throughput, name).mid
        assert getattr(two.throughput, name).floor == 2 * getattr(one.throughput, name).floor
    per_gpu = "per_gpu_output_tokens_per_second"
    assert getattr(two.throughput, per_gpu) == getattr(one.throughput, per_gpu)


def test_who_waits_is_told():
    calm = estimate(deployed(max_num_seqs=4), asked(concurrency=4))
    assert (calm.latency.queued, calm.latency.running) == (False, 4)
    assert not any("wait" in text for text in calm.warnings)
    busy = estimate(deployed(max_num_seqs=4, layout=Layout(dp=2)), asked(concurrency=20))
    assert (busy.latency.queued, busy.latency.running) == (True, 4)
    [told] = [text for text in busy.warnings if "wait" in text]
    assert told.startswith("10 sequences were asked for on each replica")
    assert "4 run at once" in told
    assert busy.latency.ttft_ms.mid > calm.latency.ttft_ms.mid


def test_what_does_not_fit_has_no_times():
    found = estimate(deployed(gpu_memory_bytes=500_000), asked())
    assert not found.capacity.fits
    assert (found.latency, found.throughput, found.breakdown) == (None, None, ())
    assert found.model_dump()["latency"] is None


def test_an_answer_is_made_of_its_parts():
    deployment, workload = deployed(model(warnings=("doubt",))), asked()
    found, room = estimate(deployment, workload), plan(deployment, workload)
    assert found.memory == room.memory
    assert found.model == deployment.figures
    assert found.assumptions == (*deployment.assumptions, *room.assumptions)
    assert found.warnings == (*deployment.warnings, *room.warnings)
    assert found.warnings[0] == "doubt"


@pytest.mark.parametrize(
    "better",
    [{"memory_bandwidth_bytes_per_s": 4e12}, {"peak_flops_per_s": {"bf16": 8e14}}, {"framework_memory_bytes": 2 * 80 * 2**30}],
)  # fmt: skip
def test_a_better_card_never_hurts(better):
    before, after = estimate(deployed(), asked()), estimate(deployed(card=gpu(**better)), asked())
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        assert getattr(after.latency, name).mid <= getattr(before.latency, name).mid * (1 + 1e-12)
    assert after.capacity.max_concurrency >= before.capacity.max_concurrency


@given(st.integers(2, 64), st.integers(1, 2000))
def test_equal_sequences_read_weights_once_and_caches_each(sequences, context):
    spec = model(tied=True)
    deployment = deployed(spec)

    def read(count):
        load = StepLoad(sequences=count, context_start=context, context_end=context)
        rows, _ = breakdown(deployment.work, load, deployment.ideal, phase="decode")
        caches = sum(row.bytes for row in rows if row.op == "attention_decode")
        return sum(row.bytes for row in rows) - caches, caches

    (one, cache), (two, _), (many, caches) = read(1), read(2), read(sequences)
    assert caches == pytest.approx(sequences * cache)
    assert cache == pytest.approx(4 * 128 * context, abs=8 * 4 * 128)  # within a block of 8 tokens
    activations = two - one
    assert many == pytest.approx(one + (sequences - 1) * activations)
    norms = 2 * (4 * 128 + 64)
    assert one - activations == weights_bytes_model(spec) - norms
