"""Result files of `vllm bench serve`, `sglang.bench_serving` and genai-perf, as cells of measurement records.

They name neither GPU nor layout, so the caller gives those. Keys were read in the tools' sources (vllm/benchmarks/
serve.py, sglang/bench_serving.py, genai-perf's JSON exporter); means are taken where a file has them, else medians.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from kvplan.calibration.columns import cell_text

_E2E: Final = ("e2el", "e2e_latency")
_MOST: Final = 10**15


def benchmark_cells(fields: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]] | None:
    """Cells and notes of one benchmark result, or None where the object is something else."""
    if "completed" in fields and ("total_input_tokens" in fields or "total_output_tokens" in fields):
        return _serving(fields)
    if _statistic(fields, "time_to_first_token", "avg") is not None:
        return _genai_perf(fields)
    return None


def _serving(fields: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """`vllm bench serve` and `sglang.bench_serving`: lengths from totals, since the flags mean different things."""
    is_sglang = cell_text(fields.get("backend")).startswith("sglang") or "total_throughput" in fields
    model = fields.get("model_id")
    if not model and isinstance(server := fields.get("server_info"), Mapping):
        model = server.get("model_path")
    cells = {"model": cell_text(model), "engine": "sglang" if is_sglang else "vllm"}
    notes: list[str] = []
    completed = _number(fields.get("completed"))
    for column, total in (("input_tokens", "total_input_tokens"), ("output_tokens", "total_output_tokens")):
        tokens = _number(fields.get(total))
        if tokens and completed:
            cells[column] = _whole(tokens / completed)
    for column, names in (("ttft_ms", ("ttft",)), ("tpot_ms", ("tpot",)), ("e2e_ms", _E2E)):
        for name in names:
            for statistic in ("mean", "median"):
                value = _number(fields.get(f"{statistic}_{name}_ms"))
                if value and column not in cells:
                    cells[column] = repr(value)
    if rate := _number(fields.get("output_throughput")):
        cells["output_tokens_per_second"] = repr(rate)
    _load(fields, cells, notes, completed)
    failed = _number(fields.get("failed"))
    if failed:
        notes.append(f"{failed:,.0f} requests of the benchmark failed and are not in its figures")
    return cells, tuple(notes)


def _load(fields: Mapping[str, Any], cells: dict[str, str], notes: list[str], completed: float | None) -> None:
    limit = _number(fields.get("max_concurrency"))
    in_flight = _number(fields.get("concurrency"))
    endless = cell_text(fields.get("request_rate")) in {"inf", "not finite", "Infinity", ""}
    if limit and endless:
        cells["concurrency"] = _whole(limit)
        if completed:
            cells["benchmark_requests"] = _whole(completed)
        notes.append("closed loop at max_concurrency, all started at once")
    elif in_flight:
        cells["concurrency"] = _whole(in_flight)
        notes.append("concurrency is the mean number in flight that the benchmark saw")
    elif (rate := _number(fields.get("request_throughput"))) and (e2e := _number(cells.get("e2e_ms"))):
        cells["concurrency"] = _whole(rate * e2e / 1000)
        notes.append("concurrency is request throughput × mean end-to-end time (Little's law)")
    elif endless and completed:
        cells["concurrency"] = cells["benchmark_requests"] = _whole(completed)
        notes.append("all requests started at once: TTFT is waiting, not prefill")


def _genai_perf(fields: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """genai-perf: its `inter_token_latency` is a TPOT, per request."""
    cells: dict[str, str] = {}
    settings = fields.get("input_config")
    settings = settings if isinstance(settings, Mapping) else {}
    model = settings.get("model") or settings.get("model_names")
    cells["model"] = cell_text(
        model[0] if isinstance(model, list) and model else model if isinstance(model, str) else ""
    )
    for column, metric in (
        ("ttft_ms", "time_to_first_token"),
        ("tpot_ms", "inter_token_latency"),
        ("e2e_ms", "request_latency"),
        ("output_tokens_per_second", "output_token_throughput"),
    ):
        value = _statistic(fields, metric, "avg")
        if value:
            cells[column] = repr(value)
    for column, metric in (("input_tokens", "input_sequence_length"), ("output_tokens", "output_sequence_length")):
        value = _statistic(fields, metric, "avg")
        if value:
            cells[column] = _whole(value)
    concurrency = _number(settings.get("concurrency"))
    inner = settings.get("perf_analyzer")
    stimulus = inner.get("stimulus") if isinstance(inner, Mapping) else None
    if not concurrency and isinstance(stimulus, Mapping):
        concurrency = _number(stimulus.get("concurrency"))
    if concurrency:
        cells["concurrency"] = _whole(concurrency)
    return cells, ()


def _statistic(fields: Mapping[str, Any], metric: str, name: str) -> float | None:
    block = fields.get(metric)
    return _number(block.get(name)) if isinstance(block, Mapping) else None


def _whole(value: float) -> str:
    """A count as a cell; one beyond any sense is left for the column's own rule to refuse."""
    return str(max(1, round(min(value, _MOST))))


def _number(value: object) -> float | None:
    """A finite number of at least 0, or None."""
    try:
        number = float(cell_text(value))
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
