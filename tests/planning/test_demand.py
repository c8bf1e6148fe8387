"""Lengths and traces as they are found in the wild."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.errors import SpecError, UsageError
from kvplan.planning.lengths import from_samples, read_lengths
from kvplan.planning.operating import _above
from kvplan.planning.requests import plan_arguments, prices
from kvplan.planning.trace import read_trace

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:52.2224780,879,55\r
2023-11-16 18:15:53.3937340,0,16
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:10.009930+00:00,2399,6
"""
BURST = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,1,3.2,ChatGPT,472,18,490,Conversation log
45,,2.0,ChatGPT,1087,230,1317,API log
118,,0,GPT-4,0,0,0,API log
"""
MOONCAKE = [
    {"timestamp": 0, "input_length": 1024, "output_length": 52, "hash_ids": [7, 8]},
    {"timestamp": 2000, "input_length": 1300, "output_length": 40, "hash_ids": [7, 8, 21]},
]


@pytest.mark.parametrize(
    ("text", "inputs", "rate", "dropped"),
    [
        (AZURE_2023, (374, 396, 879), 2 / 5.541888, 1),
        (AZURE_2024, (2162, 2399), 0.1, 0),
        (BURST, (472, 1087), 1 / 40, 1),
        ("\n".join(json.dumps(one) for one in MOONCAKE), (1024, 1300), 0.5, 0),
    ],
    ids=["azure 2023", "azure 2024", "burstgpt", "mooncake"],
)
def test_traces_by_their_headers(tmp_path, text, inputs, rate, dropped):
    path = tmp_path / "trace.txt"
    path.write_text(text, encoding="utf-8", newline="")
    trace = read_trace(path)
    assert trace.inputs == inputs
    assert trace.rate_per_s == pytest.approx(rate, rel=1e-4)
    assert trace.dropped == dropped


def test_leading_blocks_that_were_seen_before_are_a_shared_prefix(tmp_path):
    path = tmp_path / "mooncake.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in MOONCAKE), encoding="utf-8")
    assert read_trace(path).prefix_share == pytest.approx(1024 / 2324)
    found = kvplan.plan("llama-3-8b", ["l40s"], trace=path)
    assert found.demand.rate_per_s == 0.5
    assert found.demand.input_tokens == 1162
    assert found.demand.prefix_hit_rate == pytest.approx(1024 / 2324)


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n", "{broken", "{}\n[1]\n"]
)
def test_traces_that_are_none(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError):
        read_trace(path)


def test_bursty_arrivals_are_seen(tmp_path):
    path = tmp_path / "burst.csv"
    rows = [f"{100 * wave},ChatGPT,10,10,20,x" for wave in range(20) for _ in range(30)]
    path.write_text("\n".join(["Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type", *rows]))
    assert read_trace(path).burstiness > 10


def test_the_busiest_minute_is_told_where_the_mean_of_a_trace_is_planned_for(tmp_path):
    path = tmp_path / "waves.csv"
    rows = [f"{600 * wave},ChatGPT,10,10,20,x" for wave in range(5) for _ in range(30)]  # 30 requests each ten minutes
    path.write_text("\n".join(["Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type", *rows]))
    found = kvplan.plan("llama-3-8b", ["l40s"], trace=path)
    assert (found.demand.rate_per_s, found.demand.peak_rate_per_s) == (pytest.approx(149 / 2400), 0.5)
    assert any("its busiest minute has 0.5 " in text for text in found.assumptions)
    given = kvplan.plan("llama-3-8b", ["l40s"], trace=path, rate=0.5)
    assert given.demand.peak_rate_per_s is None
    assert not any("busiest" in text for text in given.assumptions)


@pytest.mark.parametrize(
    ("text", "mean", "longest"),
    [
        ("1024", 1024, 1024),
        ("uniform:100:300", 200, 300),
        ("lognormal:500:1", 500 * math.exp(0.5), 10992),
        ("p50=500,p95=4000,p99=8000", None, 8000),
    ],
)
def test_lengths_as_people_write_them(text, mean, longest):
    found = read_lengths(text)
    assert mean is None or found.mean == pytest.approx(mean, rel=0.01)
    assert found.longest == pytest.approx(longest, abs=1)


def test_percentiles_are_met():
    found = read_lengths("p50=500,p95=4000,p99=8000")
    for probability, value in ((0.5, 500), (0.95, 4000), (0.99, 8000)):
        assert found.quantile(probability) == pytest.approx(value, rel=0.02)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=3000))
def test_samples_keep_their_mean_and_order(samples):
    found = from_samples("trace", samples)
    assert found.mean == pytest.approx(sum(samples) / len(samples), rel=0.05 if len(samples) > 1000 else 1e-9)
    assert list(found.quantiles) == sorted(found.quantiles)
    assert found.longest == max(samples)


@pytest.mark.parametrize(
    "text", ["0", "-5", "nan", "uniform:5", "uniform:9:3", "lognormal:a:b", "p50=9,p90=3", "many", "inf"]
)
def test_lengths_that_are_none(text):
    with pytest.raises(UsageError):
        read_lengths(text)


@given(mean=st.floats(0.1, 500), spread=st.floats(0.01, 50), limit=st.floats(1, 500))
def test_the_number_above_a_limit_is_that_of_a_normal_number(mean, spread, limit):
    found = float(_above(np.array([mean]), np.array([spread]), np.array(limit))[0])
    assert found >= max(mean - limit, 0.0)
    assert found <= max(mean - limit, 0.0) + 0.4 * spread + 1e-9  # 1/√(2π) at the limit itself


def test_prices_from_texts_and_mappings():
    assert prices(["l4=0.7", "h100-sxm=3"]) == {"l4": 0.7, "h100-sxm": 3.0}
    for wrong in (["l4"], ["l4=free"], ["l4=-1"], {"l4": 0}):
        with pytest.raises(UsageError):
            prices(wrong)


def test_unknown_arguments_name_the_nearest():
    with pytest.raises(UsageError) as error:
        plan_arguments({"slo-tft-ms": 5})
    assert "slo_ttft_ms" in error.value.hint


@pytest.mark.parametrize(
    ("load", "told"),
    [
        ({"rate": 1e308}, "rate: must be above 0"),
        ({"rate": 10**400}, "rate: must be above 0"),
        ({"users": 1e-300}, "users: must be above 0"),
        ({"users": 5, "think_s": 1e300}, "think_s"),
        ({"rate": 5, "context": 10**400}, "context: must be at most"),
        ({"rate": 5, "input_tokens": "uniform:1:1e308"}, "lengths must be from 1 to"),
        ({"rate": 5, "spare_replicas": 10**400}, "spare_replicas: must be at most"),
        ({"rate": 5, "prices": {"l4": 1e308}}, "price: l4"),
    ],
)
def test_loads_beyond_all_measure_are_refused(load, told):
    """Their times, GPUs and costs would be infinite, or integers that no float can hold."""
    with pytest.raises(UsageError, match=told):
        kvplan.plan("llama-3-8b", ["l4"], **{"input_tokens": 1000, "output_tokens": 100, **load})
