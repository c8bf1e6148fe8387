"""The contract of `kvplan estimate`: keys, sums, forms and exit codes that scripts rely on."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys

import pytest

import kvplan as package

BASE = ("estimate", "--model", "llama-3-8b", "--gpu", "a100-80g")
RANGE = {"floor", "low", "mid", "high"}
#: Keys of DESIGN's contract; more may be there, none may be missing.
CONTRACT = {
    "scenario": {
        *("model", "gpu", "gpu_count", "engine", "dtype", "kv_dtype", "tp", "pp", "dp", "ep"),
        *("input_tokens", "output_tokens", "concurrency", "context"),
    },
    "model": {
        *("id", "architecture", "params_total", "params_active", "layers"),
        *("kv_bytes_per_token_model", "state_bytes_per_sequence_model", "max_context"),
    },
    "memory": {
        *("gpu_bytes", "usable_bytes", "weights_bytes", "activation_bytes", "graph_bytes", "runtime_bytes"),
        *("kv_pool_bytes", "kv_bytes_per_token", "kv_pool_tokens", "kv_block_tokens"),
    },
    "capacity": {"fits", "max_concurrency", "max_context", "max_context_at_concurrency", "limited_by"},
    "latency": {"ttft_ms", "tpot_ms", "e2e_ms", "prefill_ms", "decode_step_ms", "bound_prefill", "bound_decode"},
    "throughput": {
        *("output_tokens_per_second", "total_tokens_per_second", "requests_per_second"),
        "per_gpu_output_tokens_per_second",
    },
}
LIMITS = {"weights", "kv_pool", "max_num_seqs", "model_max_context", "state_blocks"}
BOUNDS = {"memory", "compute", "communication", "overhead"}


@pytest.fixture
def answer(invoke):
    def ask(*args, code=0):
        result = invoke(*BASE, *args, "--json")
        assert result.exit_code == code, result.output
        assert result.stderr == ""
        return json.loads(result.stdout)

    return ask


def test_keys_are_the_contract(answer):
    data = answer()
    assert data["schema"] == "kvplan.estimate/1"
    assert set(data) >= {"schema", *CONTRACT, "breakdown", "assumptions", "warnings"}
    for section, keys in CONTRACT.items():
        assert keys <= set(data[section]), section
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "prefill_ms", "decode_step_ms"):
        value = data["latency"][name]
        assert set(value) == RANGE
        assert 0 < value["floor"] <= value["low"] <= value["mid"] <= value["high"]
    for value in data["throughput"].values():
        assert set(value) == RANGE
        assert 0 < value["low"] <= value["mid"] <= value["high"] <= value["floor"]
    for row in data["breakdown"]:
        assert set(row) >= {"phase", "op", "flops", "bytes", "ms", "bound"}
        assert row["phase"] in {"prefill", "decode"}
        assert row["bound"] in BOUNDS
    assert data["capacity"]["limited_by"] in LIMITS
    assert data["latency"]["bound_prefill"] in BOUNDS


def test_the_first_readme_figures(answer):
    data = answer()
    assert data["model"]["params_total"] == 8_030_261_248
    assert data["memory"]["weights_bytes"] == 16_060_522_496
    assert data["memory"]["kv_bytes_per_token"] == 131_072
    assert data["scenario"]["gpu"] == "a100-80g-sxm"
    assert data["scenario"]["context"] == 1280
    assert data["capacity"]["fits"] is True


def test_the_ledger_sums_exactly(answer):
    memory = answer()["memory"]
    parts = ("weights", "activation", "runtime", "graph", "kv_pool", "unused")
    assert sum(memory[f"{part}_bytes"] for part in parts) == memory["usable_bytes"]
    for name, value in memory.items():
        if name.endswith(("_bytes", "_tokens")) and value is not None:
            assert isinstance(value, int), name


def test_decode_rows_sum_to_the_decode_step(answer):
    data = answer("--concurrency", 8)
    total = sum(row["ms"] for row in data["breakdown"] if row["phase"] == "decode")
    assert total == pytest.approx(data["latency"]["decode_step_ms"]["mid"], rel=1e-9)


def test_command_line_and_python_agree(answer):
    options = {"tp": 2, "concurrency": 16, "input_tokens": 2000, "output_tokens": 100, "context": 4096, "dtype": "fp8"}
    args = [str(part) for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    data = answer(*args)
    assert data == json.loads(package.estimate("llama-3-8b", "a100-80g", **options).model_dump_json())


def test_engine_spellings_are_aliases(answer):
    short = answer("--context", 4096, "--kv-dtype", "fp8", "--tp", 2, "--gpu-count", 2)
    long = answer(*("--max-model-len", 4096, "--kv-cache-dtype", "fp8", "--tensor-parallel-size", 2, "--num-gpus", 2))
    assert short == long


def test_what_does_not_fit_is_answered_with_exit_code_3(answer, invoke):
    data = answer("--gpu", "l4", "--model", "llama-3.1-70b", code=3)
    assert data["capacity"]["fits"] is False
    assert data["capacity"]["limited_by"] == "weights"
    assert data["latency"] is None
    assert data["throughput"] is None
    table = invoke("estimate", "--model", "llama-3.1-70b", "--gpu", "l4")
    assert table.exit_code == 3
    assert "DOES NOT FIT" in table.stdout
    assert "Smallest change that fits" in table.stdout


def test_table_off_a_terminal_is_plain(invoke):
    result = invoke(*BASE)
    assert result.exit_code == 0
    assert "FITS" in result.stdout
    assert "\x1b" not in result.stdout
    assert "Prefill is bound by" in result.stdout


def test_csv_and_markdown(invoke, answer):
    rows = list(csv.DictReader(io.StringIO(invoke(*BASE, "--format", "csv").stdout)))
    assert rows[0]["memory.weights_bytes"] == str(answer()["memory"]["weights_bytes"])
    assert invoke(*BASE, "--format", "MARKDOWN").stdout.startswith("## llama-3-8b on 1 × a100-80g-sxm")


def test_explain_writes_the_numbers(invoke):
    text = invoke(*BASE, "--explain").stdout
    assert "32 layers × 8 KV heads × (K 128 + V 128) × 16 bits ÷ 8 = 131,072 bytes per token" in text
    assert "parameters, all together = 8,030,261,248" in text
    assert "One decode step, by operation" in text


def test_explain_follows_a_dtype_override(invoke):
    data = json.loads(invoke(*BASE, "--dtype", "int4", "--explain", "--json").stdout)
    assert any(line.startswith("int4 with its scales: ") for line in data["explain"]["weights"])
    stored = int(data["explain"]["weights"][-1].split()[2].replace(",", ""))
    assert stored == pytest.approx(data["memory"]["weights_bytes"], rel=0.01)


def test_output_file(invoke, tmp_path):
    result = invoke(*BASE, "-o", tmp_path / "answer.json")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))["schema"] == "kvplan.estimate/1"


def test_width_locale_and_folder_change_nothing(kvplan):
    usual = kvplan(*BASE).stdout
    assert usual
    assert kvplan(*BASE, env={"COLUMNS": "40"}).stdout == usual
    assert kvplan(*BASE, env={"COLUMNS": "400", "NO_COLOR": "1", "TERM": "dumb"}).stdout == usual
    ascii_only = kvplan(*BASE, env={"PYTHONIOENCODING": "ascii"})
    assert ascii_only.returncode == 0
    assert ascii_only.stdout.isascii()


def test_a_closed_pipe_is_quiet(tmp_path):
    command = [sys.executable, "-m", "kvplan", *BASE, "--explain"]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")  # noqa: PTH110
def test_a_full_disk_is_told(tmp_path, kvplan):
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123
        done = kvplan(*BASE, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert "cannot write to stdout" in done.stderr
