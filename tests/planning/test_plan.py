"""Plans: equal to brute force on a small grid, monotone in load and targets, honest about why not."""

from __future__ import annotations

import itertools
import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan import api
from kvplan.errors import UsageError
from kvplan.planning.operating import _SHARES
from kvplan.specs import registry

SMALL = {"gpus": ["l40s", "a100-80g"], "tp": [1, 2], "pp": [1], "dtypes": [None, "fp8"]}
LENGTHS = {"input_tokens": 1000, "output_tokens": 200}
PRICES = {"l40s": 1.0, "a100-80g": 1.9}


def plan(**more):
    return kvplan.plan("llama-3-8b", **{**SMALL, **LENGTHS, **more})


def brute_force(rate, limit_ms, *, max_busy=0.9):
    """The cheapest by asking `estimate` at every concurrency of every layout, without arrays, search or curves.

    Mean TPOT has no queue in it: a replica carries the largest of the planned loads whose sequences in service, by
    Little's law on straight lines between the concurrencies asked, have a TPOT within the limit.
    """
    best = None
    for gpu, tp, dtype in itertools.product(SMALL["gpus"], SMALL["tp"], SMALL["dtypes"]):
        fields = {"tp": tp, "dtype": dtype, **LENGTHS}
        one = kvplan.estimate("llama-3-8b", gpu, **fields)
        if not one.capacity.fits:
            continue
        most = min(int(one.capacity.max_concurrency), 256)
        points = sorted({round(most ** (step / 39)) for step in range(40)})
        answers = [kvplan.estimate("llama-3-8b", gpu, **fields, concurrency=point) for point in points]
        rates = list(itertools.accumulate((a.throughput.requests_per_second.mid for a in answers), max))
        times = list(itertools.accumulate((a.latency.tpot_ms.mid for a in answers), max))
        carried = 0.0
        for top in sorted({most, *(2**n for n in range(9) if 2**n <= most)}):
            full = _between(top, points, rates)
            for share in _SHARES:
                load = max_busy * full * share
                inside = min(_between(load, [0.0, *rates], [0.0, *points]), top)
                if _between(inside, points, times) > limit_ms:
                    break
                carried = max(carried, load)
        if carried:
            price = math.ceil(rate / carried - 1e-9) * tp * PRICES[gpu]
            best = price if best is None else min(best, price)
    return best


def _between(x, xs, ys):
    if x <= xs[0]:
        return ys[0]
    for (a, b), (c, d) in zip(itertools.pairwise(xs), itertools.pairwise(ys), strict=True):
        if x <= b:
            return c + (d - c) * (x - a) / (b - a) if b > a else d
    return ys[-1]


@pytest.mark.parametrize(("rate", "limit"), [(3.0, 25.0), (40.0, 40.0), (150.0, 18.0), (500.0, 60.0)])
def test_the_search_equals_brute_force(rate, limit):
    limits = {"max_num_seqs": 256}
    found = plan(rate=rate, slo_tpot_ms=limit, slo_at="mean", prices=PRICES, **limits)
    assert found.cheapest.cost.per_hour == pytest.approx(brute_force(rate, limit))


RATES = st.floats(0.1, 1e4)
TARGETS = st.fixed_dictionaries(
    {},
    optional={
        "slo_ttft_ms": st.floats(20, 1e4),
        "slo_tpot_ms": st.floats(5, 200),
        "slo_e2e_ms": st.floats(500, 1e5),
    },
)
AT = st.sampled_from(["mean", "p50", "p95", "p99"])


def price(**asked):
    found = plan(dtypes=[None], **asked)
    return found.cheapest.cost.per_hour if found.cheapest else math.inf


@settings(max_examples=15, deadline=None)
@given(rate=RATES, more=st.floats(1.0, 20.0), targets=TARGETS, at=AT)
def test_a_higher_load_never_costs_less(rate, more, targets, at):
    asked = {"slo_at": at, "prices": PRICES, **targets}
    assert price(rate=rate, **asked) <= price(rate=rate * more, **asked)
    assert price(users=rate * 10, think_s=5.0, **asked) <= price(users=rate * 10 * more, think_s=5.0, **asked)


@settings(max_examples=15, deadline=None)
@given(rate=RATES, looser=st.floats(1.0, 5.0), targets=TARGETS, at=AT)
def test_a_looser_target_never_costs_more(rate, looser, targets, at):
    asked = {"rate": rate, "slo_at": at, "prices": PRICES}
    loose = {name: value * looser for name, value in targets.items()}
    assert price(**asked, **loose) <= price(**asked, **targets)


@settings(max_examples=15, deadline=None)
@given(rate=RATES, limit=st.floats(10, 200))
def test_targets_hold_at_every_statistic_asked_and_load_is_carried(rate, limit):
    found = plan(rate=rate, slo_tpot_ms=limit, slo_ttft_ms="2000@p99", prices=PRICES)
    for one in found.front:
        assert one.times["tpot_ms"]["p95"] <= limit * (1 + 1e-9)
        assert one.times["ttft_ms"]["p99"] <= 2000 * (1 + 1e-9)
        assert one.rate_per_s == pytest.approx(rate)
        assert one.utilization <= 0.9 + 1e-9
        assert one.room >= 1 - 1e-9
        assert one.estimate.capacity.max_concurrency >= 1
        assert one.max_num_seqs <= one.estimate.capacity.max_concurrency
        for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
            times = [one.times[name][at] for at in ("p50", "p90", "p95", "p99")]
            assert times == sorted(times)


def test_the_front_is_dearer_and_faster_step_by_step():
    found = plan(rate=60, prices=PRICES)
    assert found.front[0] is found.cheapest
    assert found.front[-1] is found.fastest
    for cheap, dear in itertools.pairwise(found.front):
        assert cheap.cost.per_hour <= dear.cost.per_hour
        assert cheap.times["e2e_ms"]["mean"] > dear.times["e2e_ms"]["mean"]


def test_does_not_fit_and_misses_the_target_are_different_answers():
    found = kvplan.plan("llama-3.1-70b", ["l4", "h100-sxm"], tp=[1, 8], rate=1, slo_tpot_ms=1, **LENGTHS)
    assert found.cheapest is None
    reasons = {(one.gpu, one.reason) for one in found.rejected}
    assert ("h100-80g-sxm", "TPOT") in reasons
    assert ("l4", "does not fit") in reasons
    missed = next(one for one in found.rejected if one.reason == "TPOT")
    assert missed.value > missed.limit == 1
    short = next(one for one in found.rejected if one.reason == "does not fit")
    assert short.unit == "byte"
    assert short.value > 0


def test_faster_plans_stay_within_a_few_times_the_cheapest_and_gain_for_what_they_cost():
    found = plan(users=60, slo_tpot_ms=30, dtypes=[None])
    assert found.fastest.gpu_count <= max(8, 4 * found.cheapest.gpu_count)
    assert any("--max-gpus" in one for one in found.assumptions)
    for cheap, dear in itertools.pairwise(found.front):
        gain = cheap.times["e2e_ms"]["mean"] / dear.times["e2e_ms"]["mean"]
        assert gain >= 0.95 ** -math.log2(dear.gpu_count / cheap.gpu_count) - 1e-9


def test_engines_run_on_what_they_have_a_backend_for():
    found = plan(rate=1, gpus=["mi300x", "l40s", "apple-m4-max"], engines=["tensorrt-llm", "llama.cpp"])
    assert {(one.gpu, one.engine.split("@")[0]) for one in found.rejected if one.reason == "engine"} == {
        ("mi300x", "tensorrt-llm"),
        ("apple-m4-max", "tensorrt-llm"),
    }


def test_vendors_of_engines_are_makers_of_cards():
    makers = {kvplan.load_gpu(name).vendor for name in registry.ids("gpu")}
    for name in registry.ids("engine"):
        engine = kvplan.load_engine(name)
        assert set(engine.vendors) <= makers
        assert kvplan.load_engine(yaml.safe_load(api.profile_text(engine))).vendors == engine.vendors


def test_cards_that_cannot_be_had_are_ranked_only_by_name():
    asked = {**LENGTHS, "rate": 1, "tp": [1], "pp": [1]}
    looked = kvplan.plan("llama-3-8b", **asked)
    assert "rubin-r200" not in {one.gpu for one in (*looked.front, *looked.rejected)}
    assert looked.searched >= 80
    assert kvplan.plan("llama-3-8b", "rubin-r200", **asked).cheapest.gpu == "rubin-r200"


def test_how_many_of_the_layouts_looked_at_are_no_answer():
    found = kvplan.plan("llama-3.1-70b", "h100-sxm", rate=1, **LENGTHS)
    one = next(one for one in found.rejected if one.reason == "does not fit")
    assert 0 < one.layouts < one.of == found.searched


def test_capacity_is_a_third_answer():
    found = plan(rate=1000, max_gpus=2)
    assert found.cheapest is None
    assert {one.reason for one in found.rejected} == {"capacity"}


def test_no_target_filters_nothing_and_no_price_ranks_by_gpus():
    found = plan(rate=1)
    assert not found.targets
    assert not found.priced
    assert not found.rejected
    assert found.cheapest.gpu_count == 1
    assert found.cheapest.cost.per_hour is None


def test_gpus_without_a_price_are_told():
    found = plan(rate=1, prices={"l40s": 1.0})
    assert {one.gpu for one in found.front} == {"l40s"}
    assert {(one.gpu, one.reason) for one in found.rejected} == {("a100-80g-sxm", "no price")}


def test_spare_replicas_come_on_top_and_are_paid():
    bare, spare = plan(rate=100, prices=PRICES), plan(rate=100, prices=PRICES, spare_replicas=1)
    one = spare.cheapest
    per_replica = one.gpu_count // (one.replicas + 1)
    assert one.gpu_count == (one.replicas + 1) * per_replica
    assert one.cost.per_hour > bare.cheapest.cost.per_hour


def test_growth_tells_what_breaks_first_and_how_many_gpus_carry_it():
    found = plan(rate=50, slo_tpot_ms=40)
    twice, tenfold = found.growth
    assert (twice.factor, tenfold.factor) == (2.0, 10.0)
    assert tenfold.breaks == found.cheapest.first_to_break
    assert tenfold.gpu_count > found.cheapest.gpu_count
    again = plan(rate=500, slo_tpot_ms=40, gpus=[found.cheapest.gpu], max_gpus=tenfold.gpu_count)
    assert again.cheapest.gpu_count <= tenfold.gpu_count


def test_prompts_of_a_distribution_stretch_the_tail_of_ttft():
    plain = plan(rate=5).cheapest
    mixed = plan(rate=5, input_tokens="lognormal:700:0.9").cheapest
    assert mixed.times["ttft_ms"]["p99"] > plain.times["ttft_ms"]["p99"]
    assert mixed.context > plain.context


def test_experts_get_expert_parallel_layouts():
    found = kvplan.plan("qwen3-30b-a3b", ["h100-sxm"], rate=200, max_gpus=8, **LENGTHS)
    assert found.searched > 4
    assert any(one.ep for one in found.front) or found.rejected


@pytest.mark.parametrize(
    "asked",
    [
        {"rate": 1, "users": 2},
        {"rate": 0},
        {"rate": 1, "slo_ttft_ms": -1},
        {"rate": 1, "slo_ttft_ms": "5@p42"},
        {"rate": 1, "context": 10},
        {"rate": 1, "max_busy": 1.5},
        {"rate": 1, "max_gpus": 0},
        {"users": 5, "think_s": -1},
    ],
)
def test_questions_that_make_no_sense(asked):
    with pytest.raises(UsageError):
        plan(**asked)


def test_cost_divides_the_hour_over_all_tokens():
    one = plan(rate=20, prices=PRICES).cheapest
    cost = one.cost
    per_hour = 20 * 3600 / 1e6
    spent = cost.per_million_input_tokens * 1000 * per_hour + cost.per_million_output_tokens * 200 * per_hour
    assert spent == pytest.approx(cost.per_hour)
    assert cost.gpu_hours_per_million_output_tokens == pytest.approx(one.gpu_count / (20 * 200 * 3600 / 1e6))
    assert cost.per_million_output_tokens_full < cost.per_million_output_tokens
    watts = kvplan.load_gpu(one.gpu).tdp_w
    kwh = one.gpu_count * watts / 1000 / (20 * 200 * 3600 / 1e6)
    assert cost.energy_kwh_per_million_output_tokens == pytest.approx(kwh)
