"""The examples run as their first lines say, in a fresh interpreter, and say what they promise."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def run(tmp_path):
    def example(name, *args):
        return subprocess.run(
            [sys.executable, EXAMPLES / name, *map(str, args)],
            check=False,
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    return example


def test_the_nightly_table_has_a_row_for_each_deployment(run):
    done = run("nightly_table.py")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert len(rows) == 3 * 4 * 3
    assert {row["status"] for row in rows} >= {"ok", "does not fit"}
    for row in rows:
        assert bool(row["tpot_ms"]) == (row["status"] in {"ok", "requests queue"})


def test_the_guard_passes_fails_and_refuses(run, tmp_path):
    assert run("ci_guard.py", "--users", 8, EXAMPLES / "chat.yaml").returncode == 0
    crowded = run("ci_guard.py", "--users", 5000, EXAMPLES / "chat.yaml")
    assert crowded.returncode == 1
    assert "FAILS" in crowded.stdout
    asked = ("ci_guard.py", "--users", 8, EXAMPLES / "chat.yaml", "--tpot-ms")
    assert [run(*asked, limit).returncode for limit in (200, 5)] == [0, 1]
    assert "5 allowed" in run(*asked, 5).stdout
    broken = tmp_path / "broken.yaml"
    broken.write_text("model: llama-3.1-8b\ngpu: l4000\n", encoding="utf-8")
    assert run("ci_guard.py", broken).returncode == 2


def test_the_autoscaler_never_scales_down_as_load_grows(run):
    done = run("autoscaler.py", 0.5, 5, 50, 500)
    assert done.returncode == 0, done.stderr
    counts = [int(line) for line in done.stdout.split()]
    assert counts == sorted(counts)
    assert counts[0] == 2
    assert counts[-1] > 10


@pytest.mark.parametrize("load", ["nan", "inf", "-1", "many"])
def test_the_autoscaler_scales_nothing_on_what_is_no_load(load, run):
    done = run("autoscaler.py", "--", load)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 70
