"""Single-request records of a client or gateway, gathered into one measurement record per model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import Any, Final

from kvplan.calibration.columns import cell_text
from kvplan.calibration.sources import Problems
from kvplan.core.dataclass import dataclass
from kvplan.core.units import MS_PER_S

FIELDS: Final = (
    "model",
    "prompt_tokens",
    "completion_tokens",
    "queue_time_ms",
    "time_to_first_token_ms",
    "total_time_ms",
    "tokens_per_second",
    "finish_reason",
    "http_status",
    "timestamp",
)

_NUMBERS: Final = ("prompt_tokens", "completion_tokens", "queue_time_ms", "time_to_first_token_ms", "total_time_ms")
_FAILED: Final = frozenset({"error", "abort", "aborted", "cancelled", "canceled", "timeout", "content_filter"})
_HTTP_OK: Final = range(200, 300)
_MILLISECONDS_SINCE_1970: Final = 1e11  # seconds would be the year 5138
_LARGEST: Final = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that was answered.

    Attributes:
        start_s: When it was sent [s since 1970], or None.
    """

    line: int
    prompt_tokens: int
    completion_tokens: int
    ttft_ms: float | None
    total_ms: float
    start_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Requests of one model as the cells of one record."""

    line: int
    cells: Mapping[str, str]
    requests: int
    failed: int
    notes: tuple[str, ...]


def is_request(fields: Mapping[str, Any]) -> bool:
    """True for a single-request record, by its own field names."""
    return "total_time_ms" in fields and ("prompt_tokens" in fields or "completion_tokens" in fields)


def gather(rows: Sequence[tuple[int, Mapping[str, Any]]], problems: Problems) -> Iterator[Gathered]:
    """One record per model: means over the requests that were answered; failed ones are only counted.

    TTFT is the mean of `time_to_first_token_ms`, which has the queue in it. TPOT is the mean of
    `(total − TTFT) / (completion − 1)` over requests of at least two tokens. Where every request has a timestamp,
    the mean number in flight is `Σ total / span` (Little's law) and the output rate is tokens over the span.
    """
    by_model: dict[str, list[Request]] = {}
    failed: dict[str, int] = {}
    first_line: dict[str, int] = {}
    for line, fields in rows:
        model = cell_text(fields.get("model"))
        first_line.setdefault(model, line)
        numbers = {name: _number(fields.get(name), line=line, name=name, problems=problems) for name in _NUMBERS}
        answered = _answered(fields, numbers, line=line)
        if answered is None:
            failed[model] = failed.get(model, 0) + 1
        else:
            by_model.setdefault(model, []).append(answered)
    for model, line in first_line.items():
        yield _gathered(model, line, by_model.get(model, []), failed.get(model, 0))


def _answered(fields: Mapping[str, Any], numbers: Mapping[str, float | None], *, line: int) -> Request | None:
    status = cell_text(fields.get("http_status"))
    if status and not (status.split(".")[0].isascii() and status.split(".")[0].isdigit() and _ok(status)):
        return None
    if cell_text(fields.get("finish_reason")).casefold() in _FAILED:
        return None
    prompt, completion, total = (numbers[name] for name in ("prompt_tokens", "completion_tokens", "total_time_ms"))
    if not prompt or not completion or not total:
        return None
    return Request(
        line=line,
        prompt_tokens=round(prompt),
        completion_tokens=round(completion),
        ttft_ms=numbers["time_to_first_token_ms"] or None,
        total_ms=total,
        start_s=_seconds(fields.get("timestamp")),
    )


def _ok(status: str) -> bool:
    return len(status) <= len("200.000") and int(status.split(".", maxsplit=1)[0]) in _HTTP_OK


def _number(value: object, *, line: int, name: str, problems: Problems) -> float | None:
    text = cell_text(value)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= _LARGEST:
        problems.add(line, name, f"must be a finite number of at least 0, not {text[:40]!r}")
        return None
    return number


def _seconds(value: object) -> float | None:
    """A timestamp as seconds since 1970: a number of seconds or milliseconds, or ISO 8601 (UTC where it names no zone)."""
    text = cell_text(value)
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if not math.isfinite(number) or number < 0:
            return None
        return number / MS_PER_S if number > _MILLISECONDS_SINCE_1970 else number
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _gathered(model: str, line: int, answered: Sequence[Request], failed: int) -> Gathered:
    if not answered:
        return Gathered(line=line, cells={"id": model, "model": model}, requests=0, failed=failed, notes=())
    cells = {
        "id": f"{model} ({len(answered):,} requests)",
        "model": model,
        "input_tokens": str(max(1, round(fmean(one.prompt_tokens for one in answered)))),
        "output_tokens": str(max(1, round(fmean(one.completion_tokens for one in answered)))),
        "e2e_ms": repr(fmean(one.total_ms for one in answered)),
    }
    with_first = [one for one in answered if one.ttft_ms is not None]
    if with_first:
        cells["ttft_ms"] = repr(fmean(one.ttft_ms for one in with_first if one.ttft_ms))
    gaps = [
        (one.total_ms - one.ttft_ms) / (one.completion_tokens - 1)
        for one in with_first
        if one.ttft_ms is not None and one.completion_tokens > 1 and one.total_ms > one.ttft_ms
    ]
    if gaps:
        cells["tpot_ms"] = repr(fmean(gaps))
    notes = [f"means over {len(answered):,} answered requests"]
    cells.update(_load(answered, notes))
    return Gathered(line=line, cells=cells, requests=len(answered), failed=failed, notes=tuple(notes))


def _load(answered: Sequence[Request], notes: list[str]) -> dict[str, str]:
    """Mean number in flight and output rate, where timestamps tell."""
    starts = [one.start_s for one in answered if one.start_s is not None]
    if len(starts) < len(answered):
        notes.append("no timestamps on every request: concurrency as given, or 1")
        return {}
    ends = [start + one.total_ms / MS_PER_S for start, one in zip(starts, answered, strict=True)]
    span_s = max(ends) - min(starts)
    if span_s <= 0:
        return {}
    in_flight = sum(one.total_ms for one in answered) / MS_PER_S / span_s
    tokens = sum(one.completion_tokens for one in answered)
    notes.append(f"concurrency is the mean number in flight, {in_flight:.3g} (total time ÷ span)")
    return {"concurrency": str(max(1, round(in_flight))), "output_tokens_per_second": repr(tokens / span_s)}
