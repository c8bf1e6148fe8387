"""Readers of what was measured: records, benchmark results, single requests, start-up logs."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.reader import ROOT, SHARE, shown


def _validated(path: Path, data: bytes) -> None:
    """Validate a file, for one input in `SHARE` as standard input."""
    from kvplan import api
    from kvplan.report.validation import ValidationReport

    with _given(path, data) as source:
        found = api.validate(source, group_by=["model", "gpu"], defaults={"gpu": "l4"})
    shown(ValidationReport(validation=found, worst=5))


@contextlib.contextmanager
def _given(path: Path, data: bytes) -> Iterator[str]:
    """A file by its path, for one input in `SHARE` by `-`."""
    if sum(data) % SHARE:
        yield str(path)
        return
    stdin = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(data))
    try:
        yield "-"
    finally:
        sys.stdin = stdin


def csv_records() -> list[bytes]:
    lines = (ROOT / "tests" / "data" / "measurements.csv").read_bytes().splitlines(keepends=True)
    single = b"total_time_ms,prompt_tokens,completion_tokens,time_to_first_token_ms,timestamp\n900,10,20,50,1\n800,9,9,40,2\n"
    return [lines[0] + line for line in lines[1:5]] + [b"model,gpu,tp,ttft_ms\nllama-3-8b,l4,1,10\n", single]


def read_csv(data: bytes, folder: Path) -> None:
    path = folder / "rows.csv"
    path.write_bytes(data)
    _validated(path, data)


def json_records() -> list[bytes]:
    row = {
        "id": "a", "model": "llama-3-8b", "gpu": "a100-80g", "tp": 1, "engine": "vllm", "engine_version": "0.6.3", "dtype": "bf16",
        "max_model_len": 8192, "gpu_memory_utilization": 0.9, "input_tokens": 512, "output_tokens": 128, "concurrency": 8,
        "length_distribution": "uniform 0.8-1.0 of nominal", "ttft_ms": 100.0, "tpot_ms": 12.5, "kv_pool_gib": 55.1,
    }  # fmt: skip
    bench = {
        "completed": 100, "total_input_tokens": 51200, "total_output_tokens": 12800, "mean_ttft_ms": 90, "mean_tpot_ms": 11,
        "model_id": "llama-3-8b", "max_concurrency": 8, "duration": 30.0, "request_rate": "inf", "output_throughput": 400.0,
    }  # fmt: skip
    statistic = {"unit": "ms", "avg": 90.0, "p99": 120.0}
    genai = {
        "time_to_first_token": statistic, "inter_token_latency": statistic, "request_latency": statistic,
        "output_sequence_length": {"avg": 128}, "input_sequence_length": {"avg": 512},
        "input_config": {"model": ["llama-3-8b"], "concurrency": 8},
    }  # fmt: skip
    single = {
        "total_time_ms": 900,
        "prompt_tokens": 10,
        "completion_tokens": 20,
        "time_to_first_token_ms": 50,
        "timestamp": 1,
    }
    return [
        json.dumps(one).encode()
        for one in (row, [row, {**row, "id": "b", "tp": 2}], bench, genai, single, [single, single])
    ]


def read_json(data: bytes, folder: Path) -> None:
    path = folder / "rows.json"
    path.write_bytes(data)
    _validated(path, data)


def logs() -> list[bytes]:
    found = []
    for path in sorted((ROOT / "tests" / "data" / "logs").glob("*.log")):
        lines = path.read_bytes().splitlines(keepends=True)
        found.append(b"".join(line for line in lines if len(line) < 1500)[:8_000])
    return found


def read_log(data: bytes, folder: Path) -> None:
    from kvplan import api
    from kvplan.report.log_report import LogReport

    path = folder / "server.log"
    path.write_bytes(data)
    with _given(path, data) as source:
        shown(LogReport(explanation=api.explain_log(source)))
