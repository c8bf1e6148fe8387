"""Calibration: what was put in comes out, priors hold where rows are few, and the profile reads back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import kvplan
from kvplan import api
from kvplan.calibration.cases import cases_of
from kvplan.calibration.fit import scaled
from kvplan.calibration.records import records_from_rows
from kvplan.core.efficiency import Efficiency
from kvplan.core.serving import steady_state
from kvplan.errors import UsageError

MODEL, GPU = "llama-3.1-8b", "h100-sxm"
LOADS = [(inputs, 200, concurrency) for inputs in (200, 1000, 4000) for concurrency in (1, 4, 16, 64)]


def rows(engine, *, tps=(1, 2, 4)):
    """Rows that an engine would measure."""
    found = []
    for tp in tps:
        for inputs, outputs, concurrency in LOADS:
            load = {"input_tokens": inputs, "output_tokens": outputs, "concurrency": concurrency}
            latency = kvplan.estimate(MODEL, GPU, engine=engine, tp=tp, equal_lengths=True, **load).latency
            measured = {"ttft_ms": latency.ttft_ms.mid, "tpot_ms": latency.tpot_ms.mid}
            found.append({"model": MODEL, "gpu": GPU, "engine": "vllm", "tp": tp, **load, **measured})
    return found


@pytest.fixture(scope="module")
def slower():
    """vLLM on a card whose memory is a fifth slower and whose host takes twice as long."""
    engine = api.load_engine("vllm")
    family = api.load_gpu(GPU).family
    efficiency = scaled(engine.efficiencies[family], {"bandwidth": 0.8, "host": 2.0})
    return replace(engine, efficiencies={**engine.efficiencies, family: efficiency})


def test_a_slower_card_is_found(slower):
    found = kvplan.calibrate(rows(slower))
    (fit,) = found.families
    assert fit.factors["bandwidth"] == pytest.approx(0.8, abs=0.06)
    assert fit.factors["host"] > 1.2
    assert fit.before["tpot_ms"].median_ape > 0.1
    assert fit.in_sample["tpot_ms"].median_ape < 0.04  # priors hold 36 exact rows back a little
    assert fit.out_of_sample["tpot_ms"].median_ape < 0.08
    assert fit.configurations == 3


def test_the_profile_reads_back_and_predicts_the_same(slower, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(api.profile_text(slower, comment="mine"), encoding="utf-8")
    one, two = (kvplan.estimate(MODEL, GPU, engine=engine, concurrency=8) for engine in (slower, str(path)))
    assert two.latency.tpot_ms.mid == pytest.approx(one.latency.tpot_ms.mid, rel=1e-4)
    assert two.memory.kv_pool_bytes == one.memory.kv_pool_bytes


def test_one_row_moves_little():
    (row, *_) = rows(api.load_engine("vllm"), tps=(1,))
    row["tpot_ms"] *= 1.5
    found = kvplan.calibrate([row])
    assert json.loads(found.model_dump_json())["engine"] == found.engine.name
    (fit,) = found.families
    assert all(0.6 < factor < 1.7 for factor in fit.factors.values())
    assert not fit.out_of_sample


def test_shares_stay_shares():
    assert scaled(
        Efficiency(gemm_bandwidth=0.8, gemm_mfu={"bf16": 0.7}), {"bandwidth": 2, "arithmetic": 2}
    ) == Efficiency(gemm_bandwidth=1.0, gemm_mfu={"bf16": 1.0})


def test_nothing_to_fit_and_two_engines_are_refused():
    with pytest.raises(UsageError, match="no rows"):
        kvplan.calibrate([{"model": MODEL, "gpu": GPU, "kv_pool_gib": 1.0}])
    two = [{"model": MODEL, "gpu": GPU, "engine": name, "tpot_ms": 5.0} for name in ("vllm", "sglang")]
    with pytest.raises(UsageError, match="several engines"):
        kvplan.calibrate(two)


def test_rows_of_another_engine_move_nothing(slower):
    mine = rows(api.load_engine("vllm"), tps=(1,))
    others = [{**row, "id": f"other-{number}", "engine": "sglang"} for number, row in enumerate(rows(slower, tps=(1,)))]
    found = kvplan.calibrate([*mine, *others], engine="vllm")
    assert found.skipped["other-0"] == "measured on sglang, not vllm"
    assert found.families == kvplan.calibrate(mine).families
    with pytest.raises(UsageError, match="no row can be used") as refused:
        kvplan.calibrate(others, engine="llama.cpp")
    assert refused.value.hint == "measured on sglang, not llama.cpp"


def test_rows_are_one_case_only_where_a_step_of_theirs_is_the_same(planner):
    # As `validate` predicts each row, so the fit does: cache formats and graphs apart, with the memory that the card had.
    given = [
        {
            "model": MODEL,
            "gpu": GPU,
            "input_tokens": 4000,
            "output_tokens": 200,
            "concurrency": n,
            "tpot_ms": 10.0,
            **more,
        }
        for n in (1, 16)
        for more in ({}, {"kv_dtype": "fp8"}, {"enforce_eager": "true"})
    ]
    records = records_from_rows(given).records
    engine = api.load_engine("vllm")
    cases, skipped = cases_of(records, engine, planner=planner)
    assert not skipped
    assert [len(case.tpot_s) for case in cases] == [2, 2, 2]
    assert len({case.configuration for case in cases}) == 1
    for case, row in zip(cases, records[:3], strict=True):
        arguments, _ = row.scenario()
        predicted = kvplan.estimate(MODEL, GPU, **{**arguments, "concurrency": 16, "equal_lengths": True}).latency
        state = steady_state(case.work, case.load, case.machine)
        assert state.tpot_s[1] * 1e3 == pytest.approx(predicted.tpot_ms.mid, rel=1e-9)
    cases, skipped = cases_of(records_from_rows([{**given[3], "total_gpu_gib": 20}]).records, engine, planner=planner)
    assert not cases
    assert list(skipped.values()) == ["requests would queue"]


def test_means_of_mixed_lengths_keep_no_step_beside_rows_of_one_length(planner):
    given = [
        {"model": MODEL, "gpu": GPU, "input_tokens": inputs, "output_tokens": 200, "concurrency": n, "ttft_ms": 90.0}
        for inputs, n in ((4000, 1), (4000, 16), (4001, 16), (4001, 1))
    ]
    cases, _ = cases_of(records_from_rows(given).records, api.load_engine("vllm"), planner=planner)
    assert [(case.load.equal_lengths, list(case.load.input_tokens)) for case in cases] == [
        (True, [4000, 4000]),
        (False, [4001, 4001]),
    ]
