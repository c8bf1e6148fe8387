"""Trace files: request times and lengths from Azure, BurstGPT and Mooncake files, read by their headers."""

from __future__ import annotations

import csv
import json
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TextIO

from kvplan.errors import SpecError

#: Column names by what they hold: time, input and output, and seconds per unit of time.
_COLUMNS: Final = (
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens", 1.0),
    ("Timestamp", "Request tokens", "Response tokens", 1.0),
    ("timestamp", "input_length", "output_length", 1e-3),
    ("arrival_s", "input_tokens", "output_tokens", 1.0),
)
_FRACTION_DIGITS: Final = 6
_BLOCK_TOKENS: Final = 512
_MOST_ROWS: Final = 5_000_000
_MOST_LINE: Final = 2**20
_MOST: Final = 1e15
_WINDOW_S: Final = 10.0
_FEW: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a trace says about the load.

    Attributes:
        name: File name.
        inputs, outputs: Lengths of the requests [token].
        rate_per_s: Requests per second over the whole trace, or None where it has no times.
        peak_rate_per_s: Of the busiest minute, or None.
        burstiness: Variance ÷ mean of arrivals in windows of ten seconds; 1 for independent arrivals.
        prefix_share: Share of prompt tokens whose leading blocks were seen before, or None where it has no blocks.
        dropped: Rows without tokens.
    """

    name: str
    inputs: tuple[float, ...]
    outputs: tuple[float, ...]
    rate_per_s: float | None
    peak_rate_per_s: float | None
    burstiness: float
    prefix_share: float | None
    dropped: int


def read_trace(path: Path) -> Trace:
    """Read a trace: CSV with a header, or JSON lines.

    Raises:
        SpecError: It can't be read, has no known columns, or no request with tokens.
    """
    times, inputs, outputs = array("d"), array("d"), array("d")
    seen: set[int] = set()
    reused = 0.0
    blocks = False
    dropped = 0
    try:
        for number, row in enumerate(_rows(path), start=1):
            if number > _MOST_ROWS:
                message = f"{path}: more than {_MOST_ROWS:,} requests"
                raise SpecError(message, hint="take a part of it")
            time, given, made = _request(path, number, row)
            if given < 1 or made < 1:
                dropped += 1
                continue
            inputs.append(given)
            outputs.append(made)
            if time is not None:
                times.append(time)
            if isinstance(row.get("hash_ids"), list):
                blocks = True
                reused += _reused(row["hash_ids"], seen, given)
    except (OSError, ValueError, csv.Error) as error:
        message = f"{path}: can't be read: {error}"
        raise SpecError(message) from error
    if not inputs:
        message = f"{path}: no request with tokens in it"
        raise SpecError(message)
    rate, peak, burstiness = _arrivals(times)
    return Trace(
        name=path.name,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        rate_per_s=rate,
        peak_rate_per_s=peak,
        burstiness=burstiness,
        prefix_share=reused / math.fsum(inputs) if blocks else None,
        dropped=dropped,
    )


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.read(1)
        file.seek(0)
        if first != "{":
            yield from csv.DictReader(_bounded(file, path))
            return
        for number, line in enumerate(_bounded(file, path), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                message = f"{path}:{number}: not JSON: {error}"
                raise SpecError(message) from error
            if not isinstance(row, dict):
                message = f"{path}:{number}: each line must be an object"
                raise SpecError(message)
            yield row


def _bounded(file: TextIO, path: Path) -> Iterator[str]:
    """The lines of a file, none of which may be longer than a request is."""
    while line := file.readline(_MOST_LINE + 1):
        if len(line) > _MOST_LINE:
            message = f"{path}: a line of more than {_MOST_LINE:,} characters"
            raise SpecError(message)
        yield line


def _request(path: Path, number: int, row: Mapping[str, Any]) -> tuple[float | None, float, float]:
    for time, given, made, unit in _COLUMNS:
        if given in row and made in row:
            try:
                return _time(row.get(time), unit), _count(row[given]), _count(row[made])
            except (TypeError, ValueError, OverflowError) as error:
                message = f"{path}: request {number}: {error}"
                raise SpecError(message) from error
    message = f"{path}: no known columns"
    known = "; ".join(", ".join(names[:3]) for names in _COLUMNS)
    raise SpecError(message, hint=f"one of: {known}")


def _count(value: Any) -> float:  # noqa: ANN401 - a cell
    number = float(value)
    if isinstance(value, bool) or not 0 <= number <= _MOST:
        message = f"{str(value)[:40]!r} is not a number of tokens"
        raise ValueError(message)
    return number


def _time(value: Any, unit: float) -> float | None:  # noqa: ANN401 - a cell
    if value is None or value == "":
        return None
    text = str(value).strip()
    try:
        seconds = float(text) * unit
    except ValueError:
        pass
    else:
        if not abs(seconds) <= _MOST:
            message = f"{text[:40]!r} is not a time"
            raise ValueError(message)
        return seconds
    whole, dot, rest = text.partition(".")
    if dot:  # Azure's 2023 files have seven digits, datetime reads six
        digits = len(rest) - len(rest.lstrip("0123456789"))
        text = f"{whole}.{rest[: min(digits, _FRACTION_DIGITS)]}{rest[digits:]}"
    return datetime.fromisoformat(text).timestamp()


def _reused(ids: list[Any], seen: set[int], tokens: float) -> float:
    """Prompt tokens in leading blocks that an earlier request had."""
    hits = 0
    leading = True
    for one in ids:
        if not isinstance(one, int):
            leading = False
            continue
        leading = leading and one in seen
        hits += leading
        seen.add(one)
    return min(float(hits * _BLOCK_TOKENS), tokens)


def _arrivals(times: Sequence[float]) -> tuple[float | None, float | None, float]:
    if len(times) < _FEW or max(times) <= min(times):
        return None, None, 1.0
    start, end = min(times), max(times)
    rate = (len(times) - 1) / (end - start)
    windows = _counts(times, start, end, _WINDOW_S)
    count = max(1, math.ceil((end - start) / _WINDOW_S))
    mean = len(times) / count
    empty = count - len(windows)
    variance = (math.fsum((one - mean) ** 2 for one in windows.values()) + empty * mean**2) / count
    minutes = _counts(times, start, end, 60.0)
    peak = max(max(minutes.values()) / 60.0, rate)
    return rate, peak, max(variance / mean, 1.0)


def _counts(times: Sequence[float], start: float, end: float, window: float) -> Counter[int]:
    """Arrivals in consecutive windows, those with none left out; the last is whole."""
    last = max(1, math.ceil((end - start) / window)) - 1
    return Counter(min(int((one - start) / window), last) for one in times)
