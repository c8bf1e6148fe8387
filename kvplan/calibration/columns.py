"""The columns of a measurement record: names, kinds, bounds, and how one cell becomes a value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kvplan.core.dataclass import dataclass

MAX_TEXT: Final = 512
MAX_COUNT: Final = 10**12
MAX_NUMBER: Final = 1e15
#: Below it a ratio to anything that is predicted is no number any more.
MIN_NUMBER: Final = 1e-12

_TRUE: Final = frozenset({"1", "true", "yes", "1.0"})
_FALSE: Final = frozenset({"0", "false", "no", "0.0"})
_INTEGER: Final = re.compile(r"[+]?[0-9]{1,15}(?:\.0{1,15})?\Z")
_NUMBER: Final = re.compile(r"[+]?(?:[0-9]{1,20}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,3})?\Z")
_SHOWN: Final = 40


class CellError(ValueError):
    """A cell that breaks its column's rule; the message is the rule."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: how a cell is read, and what the cell must be, in words."""

    read: Callable[[str], Any]
    rule: str


def _text(cell: str) -> str:
    if len(cell) > MAX_TEXT:
        raise CellError
    return cell


def _count(cell: str) -> int:
    if not _INTEGER.match(cell) or not 1 <= (value := int(cell.split(".", maxsplit=1)[0])) <= MAX_COUNT:
        raise CellError
    return value


def _positive(cell: str) -> float:
    if not _NUMBER.match(cell) or not MIN_NUMBER <= (value := float(cell)) <= MAX_NUMBER:
        raise CellError
    return value


def _fraction(cell: str) -> float:
    value = _positive(cell)
    if value > 1:
        raise CellError
    return value


def _flag(cell: str) -> bool:
    folded = cell.casefold()
    if folded in _TRUE:
        return True
    if folded in _FALSE:
        return False
    raise CellError


TEXT: Final = Column(_text, f"must be text of at most {MAX_TEXT} characters")
COUNT: Final = Column(_count, "must be a whole number from 1 to 10^12")
POSITIVE: Final = Column(_positive, "must be a number from 1e-12 to 1e15")
FRACTION: Final = Column(_fraction, "must be a number above 0 and at most 1")
FLAG: Final = Column(_flag, "must be true or false")

#: What a row says about its deployment and load.
SCENARIO: Final[Mapping[str, Column]] = {
    "id": TEXT,
    "model": TEXT,
    "gpu": TEXT,
    "gpu_count": COUNT,
    "tp": COUNT,
    "pp": COUNT,
    "dp": COUNT,
    "ep": COUNT,
    "engine": TEXT,
    "engine_version": TEXT,
    "dtype": TEXT,
    "kv_dtype": TEXT,
    "gpu_memory_utilization": FRACTION,
    "max_model_len": COUNT,
    "max_num_seqs": COUNT,
    "max_num_batched_tokens": COUNT,
    "enforce_eager": FLAG,
    "total_gpu_gib": POSITIVE,
    "input_tokens": COUNT,
    "output_tokens": COUNT,
    "concurrency": COUNT,
    "length_distribution": TEXT,
    "benchmark_requests": COUNT,
    "queued": FLAG,
}

#: What was measured, in the order of reports.
MEASURED: Final[Mapping[str, Column]] = dict.fromkeys(
    (
        "weights_gib",
        "activation_gib",
        "kv_pool_gib",
        "kv_pool_tokens",
        "max_concurrency",
        "ttft_ms",
        "tpot_ms",
        "e2e_ms",
        "output_tokens_per_second",
    ),
    POSITIVE,
)
QUANTITIES: Final = tuple(MEASURED)
KNOWN: Final[Mapping[str, Column]] = {**SCENARIO, **MEASURED}


def cell_text(value: object) -> str:
    """A JSON value as the text of a CSV cell, so that both go through one set of rules.

    >>> cell_text(None), cell_text(True), cell_text(1024), cell_text(0.9), cell_text(" x ")
    ('', 'true', '1024', '0.9', 'x')
    """
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if abs(value) <= MAX_NUMBER else "not a number of this world"
        case float():
            return repr(value) if math.isfinite(value) else "not finite"
        case str():
            return value.strip()
        case _:
            return f"\x00{type(value).__name__}"


def read_cells(cells: Mapping[str, str], problems: list[tuple[str, str]]) -> dict[str, Any]:
    """Values of the known columns that are not empty; what breaks a rule is appended as (column, rule).

    >>> problems = []
    >>> read_cells({"tp": "2", "gpu": "", "ttft_ms": "-1", "whatever": "x"}, problems)
    {'tp': 2}
    >>> problems
    [('ttft_ms', "must be a number from 1e-12 to 1e15, not '-1'")]
    """
    values: dict[str, Any] = {}
    for name, cell in cells.items():
        column = KNOWN.get(name)
        if column is None or not cell:
            continue
        if "\x00" in cell:
            problems.append((name, f"must be one plain value, not {cell.strip(chr(0))[:_SHOWN] or 'a NUL character'}"))
            continue
        try:
            values[name] = column.read(cell)
        except CellError:
            shown = cell if len(cell) <= _SHOWN else f"{cell[:_SHOWN]}…"
            problems.append((name, f"{column.rule}, not {shown!r}"))
    return values
