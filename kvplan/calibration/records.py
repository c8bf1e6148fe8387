"""Measurement records from a file: CSV or JSONL rows, single requests, or a benchmark's result file.

Reading is strict and bounded. All problems of a file are told in one run as `file:line: column: rule`; columns that
kvplan doesn't know are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kvplan.calibration.benchmarks import benchmark_cells
from kvplan.calibration.columns import KNOWN, MEASURED, SCENARIO, cell_text, read_cells
from kvplan.calibration.record import Record
from kvplan.calibration.requests import gather, is_request
from kvplan.calibration.sources import Problems, Source, csv_rows, is_json, json_objects, read_source
from kvplan.core.dataclass import dataclass

__all__ = ["Record", "Records", "read_records", "records_from_rows"]

_HINT: Final = "columns: id, model, gpu, engine, …; docs/specs.md lists them"
_FILE_SUFFIXES: Final = (".json", ".yaml", ".yml", ".gguf")
_NAMED: Final = ("model", "gpu", "engine")
_INSIDE: Final = "must be a name, or a path inside the folder of this file"
#: No server answers faster; what is below was measured in seconds.
_LEAST_MS: Final = {"ttft_ms": 1.0, "tpot_ms": 0.05}
#: How alike an unknown column and a known one must be, and how much of its name is looked at.
_ALIKE: Final = 0.85
_SHORTEST: Final = 5
_LONGEST: Final = 40

Row = tuple[int, Mapping[str, str], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What a file holds.

    Attributes:
        path: The file as the user named it.
        records: Its measurements.
        requests: Single requests that were answered and gathered, 0 where the file has none.
        failed_requests: Single requests that failed, which no figure counts.
        notes: What a reader should doubt about the file as a whole.
    """

    path: str
    records: tuple[Record, ...]
    requests: int = 0
    failed_requests: int = 0
    notes: tuple[str, ...] = ()


def read_records(path: str | Path, *, defaults: Mapping[str, object] | None = None) -> Records:
    """Read a file of measurement records.

    Args:
        path: CSV, JSONL or JSON; `-` is standard input.
        defaults: Column → value for cells that are missing or empty (`gpu` of a benchmark file). A `Path` is a file of
            the user's own, wherever it is.

    Returns:
        Its records.

    Raises:
        UsageError: It can't be opened.
        SpecError: Something in it breaks a rule; the message names every line.
    """
    source = read_source(path)
    problems = Problems(path=source.path)
    given = {name: value for name, value in (defaults or {}).items() if value is not None}
    requests = failed = 0
    if is_json(source):
        rows, requests, failed = _json_rows(source, problems)
    else:
        found = list(csv_rows(source, problems))
        singles = [row for row in found if is_request(row[1])]
        if singles and len(singles) == len(found):
            rows, requests, failed = _request_rows(singles, problems)
        else:
            rows = [(line, cells, ()) for line, cells in found]
    records = tuple(_records(rows, given, source.folder, problems))
    if not records and not problems.lines:
        problems.add(1, "", f"no row was answered; {failed:,} requests failed" if failed else "no rows")
    problems.raise_if_any(hint=_HINT)
    notes = tuple(_doubts(rows, records))
    return Records(path=source.path, records=records, requests=requests, failed_requests=failed, notes=notes)


def records_from_rows(rows: Iterable[Mapping[str, object]], *, folder: str | Path = ".") -> Records:
    """Records from mappings in memory (a data frame's `to_dict("records")`), under the same rules.

    >>> records_from_rows([{"model": "llama-3-8b", "gpu": "l4", "tpot_ms": 60.0}]).records[0].measured
    {'tpot_ms': 60.0}
    """
    problems = Problems(path="rows")
    read: list[Row] = []
    for number, row in enumerate(rows, start=1):
        cells = {str(name).casefold(): cell_text(_missing(value)) for name, value in row.items()}
        read.append((number, cells, ()))
    records = tuple(_records(read, {}, Path(folder), problems))
    problems.raise_if_any(hint=_HINT)
    return Records(path="rows", records=records, notes=tuple(_doubts(read, records)))


def _doubts(rows: Sequence[Row], records: Sequence[Record]) -> Iterator[str]:
    """Columns that are ignored and look like ones that are missing, and times that look like seconds."""
    given = {name for _, cells, _ in rows for name, cell in cells.items() if cell}
    meant = {name: known for name in sorted(given - KNOWN.keys()) if (known := _like(name)) is not None}
    words = [f"{name} (is it {known}?)" for name, known in meant.items() if known not in given]
    if words:
        yield f"columns that are not read: {', '.join(words)}"
    for name, least in _LEAST_MS.items():
        count = sum(record.measured.get(name, least) < least for record in records)
        if count:
            yield f"{name} is below {least:g} ms in {count:,} of {len(records):,} rows: is it in seconds?"


def _like(name: str) -> str | None:
    """The column that an unknown one may mean: `ttft` is `ttft_ms`, `tokens_per_second` ends another one."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed for unknown columns only

    word = "_".join(re.findall(r"[a-z0-9]+", name))[:_LONGEST]
    for column in KNOWN:
        if column.startswith(f"{word}_") or (len(word) >= _SHORTEST and column.endswith(f"_{word}")):
            return column
    return next(iter(get_close_matches(word, KNOWN, n=1, cutoff=_ALIKE)), None)


def _missing(value: object) -> object:
    """None for NaN, which data frames write into empty cells."""
    return None if isinstance(value, float) and value != value else value  # noqa: PLR0124 - NaN differs from itself


def _json_rows(source: Source, problems: Problems) -> tuple[list[Row], int, int]:
    rows: list[Row] = []
    singles: list[tuple[int, Mapping[str, Any]]] = []
    for line, fields in json_objects(source, problems):
        benchmark = benchmark_cells(fields)
        if benchmark is not None:
            cells, notes = benchmark
            rows.append((line, cells, notes))
        elif is_request(fields):
            singles.append((line, {name: fields.get(name) for name in fields}))
        else:
            rows.append((line, {name.casefold(): cell_text(value) for name, value in fields.items()}, ()))
    gathered, requests, failed = _request_rows(singles, problems)
    return [*rows, *gathered], requests, failed


def _request_rows(singles: list[tuple[int, Any]], problems: Problems) -> tuple[list[Row], int, int]:
    rows: list[Row] = []
    requests = failed = 0
    for group in gather(singles, problems):
        requests += group.requests
        failed += group.failed
        if group.requests:
            rows.append((group.line, group.cells, group.notes))
    return rows, requests, failed


def _records(rows: Iterable[Row], defaults: Mapping[str, object], folder: Path, problems: Problems) -> Iterator[Record]:
    seen: dict[str, tuple[Path | None, str | None]] = {}
    words = {name: cell_text(str(value) if isinstance(value, Path) else value) for name, value in defaults.items()}
    for line, cells, notes in rows:
        broken: list[tuple[str, str]] = []
        empty = [name for name in words if not cells.get(name)]
        filled = {**cells, **{name: words[name] for name in empty}}
        values = read_cells(filled, broken)
        for name in ("model", "gpu"):
            if name not in values and all(column != name for column, _ in broken):
                broken.append((name, "is missing; give the column or the option of that name"))
        files = {name: path for name in empty if name in _NAMED and isinstance(path := defaults[name], Path)}
        for name in values.keys() & set(_NAMED) - set(empty):
            word = values[name]
            if word not in seen:
                seen[word] = file_beside(word, folder)
            path, rule = seen[word]
            if rule:
                broken.append((name, rule))
            elif path is not None:
                files[name] = path
        if broken:
            for column, rule in broken:
                problems.add(line, column, rule)
            continue
        yield Record(
            line=line,
            files=files,
            measured={name: float(values[name]) for name in MEASURED if name in values},
            notes=notes,
            **{"id": f"row-{line}", **{name: value for name, value in values.items() if name in SCENARIO}},
        )


def file_beside(word: str, folder: Path) -> tuple[Path | None, str | None]:
    """The file that a row's model, GPU or engine means, None for a name; and the rule that it breaks, or None.

    A path is relative to the file that names it and stays below that file's folder: a table of measurements from a
    stranger reads nothing else.
    """
    if _leaves(word):
        return None, _INSIDE
    path = folder / word
    try:
        exists = path.exists()
    except (OSError, ValueError):
        return None, "is no name and no path"
    if exists and ("/" in word or path.is_file()):
        return path, None
    return (path, None) if word.endswith(_FILE_SUFFIXES) else (None, None)


def _leaves(reference: str) -> bool:
    """True for a path that is absolute, climbs, or uses another system's separators."""
    return (
        reference.startswith(("/", "~"))
        or "\\" in reference
        or ".." in reference.split("/")
        or (len(reference) > 1 and reference[1] == ":")
    )
