"""A plan for people: the load in its first line, and what the band of 90 % means for a target."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.report.blocks import Bullets
from kvplan.report.plan import PlanReport
from kvplan.report.render import Form, render

ASKED = {"max_gpus": 1, "input_tokens": 4096, "output_tokens": 500}
BAND = "At the upper end of the 90 % band a target is missed"


def shown(**asked):
    return PlanReport(plan=kvplan.plan("llama-3.1-8b", ["h100-sxm"], **{**ASKED, **asked}))


def band_items(report):
    return [item for one in report.blocks() if isinstance(one, Bullets) and one.title == BAND for item in one.items]


def test_the_most_is_told_in_users_where_they_are_asked_for():
    report = shown(think_s=0.0, slo_tpot_ms=30)
    first = render(report, Form.TABLE).splitlines()[0]
    assert first == f"llama-3.1-8b: the most carried is {report.plan.demand.users:.0f} users who never pause"


def test_the_most_in_requests_says_how_many_users_that_is_at_once():
    report = shown(slo_tpot_ms=30)
    best = report.plan.cheapest
    first = render(report, Form.TABLE).splitlines()[0]
    assert first.endswith(f"requests/s, {best.concurrency * best.replicas:.1f} users at once")


@pytest.mark.parametrize("target", ["30@p95", "30@mean"])
def test_a_target_that_only_the_middle_of_the_band_meets_is_told_with_one_that_is_sure(target):
    """With the target divided by high ÷ mid, the upper end of the band meets the first one."""
    report = shown(think_s=0.0, slo_tpot_ms=target)
    (item,) = band_items(report)
    assert item.startswith("TPOT at ")
    band = report.plan.cheapest.estimate.latency.tpot_ms
    sure = float(item.rsplit("ask for ", 1)[1].removesuffix(" ms"))
    assert sure == pytest.approx(30 * band.mid / band.high, rel=0.005)
    safe = shown(think_s=0.0, slo_tpot_ms=f"{sure}@{target.split('@')[1]}").plan.cheapest
    assert safe.times["tpot_ms"]["p95"] * band.high / band.mid <= 30


def test_nothing_is_told_of_the_band_where_it_ends_within_the_targets():
    assert band_items(shown(rate=1.0, slo_tpot_ms=100)) == []
    assert band_items(shown(rate=1.0)) == []
