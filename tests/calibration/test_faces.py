"""The two commands, run as users run them, and their reports."""

import json
import os
import re
import subprocess
import sys

import pytest

from kvplan.calibration.explain_log import explain_log
from kvplan.calibration.validate import validate
from kvplan.report.as_markdown import render_markdown
from kvplan.report.as_plain import render_plain
from kvplan.report.log_report import LogReport
from kvplan.report.validation import ValidationReport

TIMEOUT_S = 60


def kvplan(*arguments, stdin=None):
    return subprocess.run(
        [sys.executable, "-m", "kvplan", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
        input=stdin,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )


def test_validate_prints_one_document(data):
    done = kvplan("validate", data / "measurements.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"] == "kvplan.validate/1"


def test_validate_leaves_with_3_when_no_row_was_answered(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("model,gpu,tpot_ms\nllama-3-8b,l44,9\n")
    done = kvplan("validate", path)
    assert done.returncode == 3
    assert "0 of 1 row predicted" in done.stdout


def test_validate_leaves_with_4_for_a_broken_file(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("model,gpu,tp\nllama-3-8b,l4,zero\n")
    done = kvplan("validate", path)
    assert done.returncode == 4
    assert f"{path}:2: tp: must be a whole number" in done.stderr
    assert done.stdout == ""


def test_explain_log_reads_a_pipe(data):
    text = (data / "logs" / "vllm_0.19.log").read_text(encoding="utf-8")
    done = kvplan("explain-log", "-", "--gpu", "h100-sxm", "--json", stdin=text)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scenario"]["gpu"] == "h100-80g-sxm"


def test_plot(data, tmp_path):
    pytest.importorskip("matplotlib")
    target = tmp_path / "scatter.svg"
    assert kvplan("validate", data / "measurements.csv", "--plot", target, "--json").returncode == 0
    drawn = target.read_text(encoding="utf-8")
    assert all(f"<!-- {words} -->" in drawn for words in ("TTFT [ms]", "weights [GiB]", "÷ × 1.25", "100"))
    assert kvplan("validate", data / "measurements.csv", "--plot", tmp_path / "x.exe").returncode == 2


@pytest.mark.parametrize("render", [render_plain, render_markdown])
def test_tables_show_the_worst_first(data, planner, render):
    found = validate(data / "measurements.csv", planner=planner)
    text = render(ValidationReport(validation=found, worst=1).blocks())
    assert "6 of 6 rows predicted" in text
    assert "--worst 0 shows all" in text
    everything = render(ValidationReport(validation=found, worst=0).blocks())
    assert all(row.id in everything for row in found.rows)
    assert len(ValidationReport(validation=found).records()) == 6


def test_a_log_report_says_why(data, planner, known_model):
    found = explain_log(
        data / "logs" / "vllm_0.19.log", planner=planner, known_model=known_model, options={"gpu": "h100-sxm"}
    )
    text = render_plain(LogReport(explanation=found).blocks())
    assert re.search(r"[678] of 8 figures agree within 2 %\.", text)
    assert "58.11x" in text
    assert "outside the memory fraction before 0.20" in text
    assert len(LogReport(explanation=found).records()) == len(found.figures)
