import csv

import pytest

from kvplan import api
from kvplan.calibration.figures import quantities
from kvplan.calibration.scoring import score
from kvplan.calibration.validate import validate
from kvplan.core.results import Range
from kvplan.errors import UsageError

#: Memory figures of a start-up log are printed to 0.01 GiB; the rules were fitted to the first row's laboratory.
MEMORY_TOLERANCE = 0.03


def test_measured_memory_is_met(data, planner):
    rows = {row.id: row for row in validate(data / "measurements.csv", planner=planner).rows}
    for name in ("memory-h100", "memory-3090"):
        assert rows[name].status == "ok"
        for quantity, ratio in rows[name].ratio.items():
            assert ratio == pytest.approx(1, abs=MEMORY_TOLERANCE), quantity


def test_only_what_was_measured_is_compared(data, planner):
    rows = {row.id: row for row in validate(data / "measurements.csv", planner=planner).rows}
    assert set(rows["prefill-4070ti"].ratio) == {"ttft_ms"}
    assert set(rows["decode-4070ti"].ratio) == {"tpot_ms"}
    assert set(rows["serial-a100"].inside_range) == {"ttft_ms", "tpot_ms"}


def test_keys_of_the_contract(data, planner):
    document = validate(data / "measurements.csv", planner=planner).model_dump()
    assert document["schema"] == "kvplan.validate/1"
    keys = {"id", "status", "reason", "predicted", "measured", "ratio", "inside_range"}
    assert all(keys <= set(row) for row in document["rows"])
    for figures in document["summary"].values():
        assert set(figures) == {"n", "median_ape", "mean_ape", "p90_ape", "bias", "inside_range"}
    assert document["summary"]["ttft_ms"]["n"] == 3


SCENARIOS = [
    {"model": "llama-3.1-8b", "gpu": "h100-sxm", "input_tokens": 2000, "output_tokens": 100, "concurrency": 16},
    {"model": "llama-3-8b", "gpu": "a100-80g-sxm", "engine": "sglang", "concurrency": 4},
    {"model": "qwen3-32b", "gpu": "h100-sxm", "tp": 2, "dtype": "fp8", "kv_dtype": "fp8", "concurrency": 64},
    {"model": "llama-3-8b", "gpu": "rtx-4090", "engine": "llama.cpp", "dtype": "q4_k_m"},
]


def test_records_of_our_own_estimates_give_a_ratio_of_one(tmp_path, planner):
    rows = []
    for scenario in SCENARIOS:
        context = scenario.get("input_tokens", 1024) + scenario.get("output_tokens", 256)
        figures = quantities(
            api.estimate(**scenario, context=context, equal_lengths=scenario.get("concurrency", 1) > 1)
        )
        values = {name: figure.mid if isinstance(figure, Range) else figure for name, figure in figures.items()}
        rows.append({**scenario, "max_model_len": context, **{name: value for name, value in values.items() if value}})
    found = validate(rows, planner=planner)
    path = tmp_path / "own.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, sorted({name for row in rows for name in row}))
        writer.writeheader()
        writer.writerows(rows)
    for result in (found, validate(path, planner=planner)):
        assert result.answered == len(SCENARIOS)
        for row in result.rows:
            assert set(row.ratio) >= {"weights_gib", "kv_pool_gib", "max_concurrency", "ttft_ms", "tpot_ms"}
            assert all(ratio == pytest.approx(1, rel=1e-9) for ratio in row.ratio.values()), row.ratio
            assert all(row.inside_range.values())
        assert all(one.bias == pytest.approx(1) for one in result.summary.values())


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"model": "llama-3-8", "gpu": "l4"}, "unknown model"),
        ({"model": "llama-3-8b", "gpu": "l44"}, "unknown GPU"),
        ({"model": "llama-3-8b", "gpu": "l4", "gpu_count": 3}, "gpu_count"),
        ({"model": "llama-3-8b", "gpu": "l4", "tp": 7}, "tp"),
        ({"model": "llama-3-70b", "gpu": "l4"}, "the weights do not fit"),
        ({"model": "missing.json", "gpu": "l4"}, "no file"),
    ],
)
def test_a_row_that_cannot_be_predicted_is_an_error_with_a_reason(planner, row, reason):
    good = {"model": "llama-3-8b", "gpu": "h100-sxm", "tpot_ms": 10}
    found = validate([{**row, "tpot_ms": 10}, good], planner=planner)
    assert [one.status for one in found.rows] == ["error", "ok"]
    assert reason in found.rows[0].reason
    assert found.answered == 1
    assert found.summary["tpot_ms"].n == 1


def test_memory_of_a_model_that_does_not_fit_is_still_predicted(planner):
    (row,) = validate([{"model": "llama-3-70b", "gpu": "l4", "weights_gib": 131.4, "tpot_ms": 9}], planner=planner).rows
    assert row.status == "ok"
    assert row.ratio["weights_gib"] == pytest.approx(1, abs=0.01)
    assert row.reason.startswith("tpot_ms: the weights do not fit")


def test_memory_of_a_short_context_needs_no_other_lengths(planner):
    """The default question, 1,024 + 256 tokens, is longer than the limit; a log of memory knows only the limit."""
    given = {"model": "llama-3-8b", "gpu": "h100-sxm", "max_model_len": 1024, "weights_gib": 14.96}
    (row,) = validate([given], planner=planner).rows
    assert row.status == "ok"
    (timed,) = validate([{**given, "tpot_ms": 9}], planner=planner).rows
    assert timed.status == "error"


def test_a_row_without_measurements_is_predicted_and_says_so(planner):
    (row,) = validate([{"model": "llama-3-8b", "gpu": "l4"}], planner=planner).rows
    assert row.status == "ok"
    assert "nothing was measured" in row.reason
    assert row.predicted["ttft_ms"] > 0


def test_queued_rows_are_told_apart(planner):
    calm = {"model": "llama-3-8b", "gpu": "h100-sxm", "concurrency": 4, "queued": 0, "ttft_ms": 50}
    crowd = {**calm, "gpu": "rtx-3090", "concurrency": 512, "input_tokens": 4096, "queued": 1, "ttft_ms": 60000}
    found = validate([calm, crowd], planner=planner).queueing
    assert (found.labelled, found.found, found.others, found.false_alarms) == (1, 1, 1, 0)
    assert (found.summary_queued["ttft_ms"].n, found.summary_others["ttft_ms"].n) == (1, 1)


def test_groups_come_worst_first(data, planner):
    found = validate(data / "measurements.csv", planner=planner, group_by=["gpu"])
    medians = [group.score.median_ape for group in found.groups if group.quantity == "tpot_ms"]
    assert medians == sorted(medians, reverse=True)
    assert all(set(group.key) == {"gpu"} for group in found.groups)


def test_groups_by_what_rows_do_not_have(planner):
    with pytest.raises(UsageError, match="'colour'"):
        validate([{"model": "m", "gpu": "g"}], planner=planner, group_by=["colour"])


def test_a_value_beyond_the_models_context_was_measured_all_the_same(planner):
    row = {"model": "llama-3-8b", "gpu": "a100-80g-sxm", "input_tokens": 8192, "output_tokens": 8192, "tpot_ms": 20}
    assert validate([row], planner=planner).answered == 1


def test_bias_and_ape_by_hand():
    found = score([2.0, 0.5], [True, False])
    assert (found.median_ape, found.bias, found.inside_range) == (0.75, pytest.approx(1), 0.5)
    assert score([1.0], []).inside_range is None
