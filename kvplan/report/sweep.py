"""A sweep for people and spreadsheets: its rows, and how each quantity bends along one axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kvplan.core.dataclass import dataclass
from kvplan.report.blocks import Block, Bullets, Line, Table
from kvplan.report.text import TIMES, duration, gib, significant

if TYPE_CHECKING:
    from kvplan.planning.sweep_result import Sweep

_ROWS: Final = 64
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_NONE: Final = "–"
_MARKS: Final = {
    "ok": "",
    "requests queue": "queues",
    "does not fit": "no fit",
    "above the model's context": "longer than the model allows",
    "context below input + output": "too short",
    "error": "error",
}

#: Head, quantity and how its values are written.
_SHOWN: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("KV pool", "kv_pool_bytes", gib),
    ("sequences", "max_concurrency", significant),
    ("TTFT", "ttft_ms", duration),
    ("TPOT", "tpot_ms", duration),
    ("tokens/s", "output_tokens_per_second", significant),
    ("per GPU", "per_gpu_output_tokens_per_second", significant),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """A sweep, ready for every form.

    Attributes:
        sweep: The answer.
        targets: Time → limit that tables mark the misses of [ms].
    """

    sweep: Sweep
    targets: Mapping[str, float] = field(default_factory=dict)

    def blocks(self) -> Sequence[Block]:
        """For people: the first rows, and a line for each quantity that shows how it bends."""
        return list(_blocks(self.sweep, self.targets))

    def data(self) -> dict[str, Any]:
        """The `kvplan.sweep/1` document."""
        return self.sweep.model_dump()

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One flat row per scenario."""
        return list(self.sweep.rows())


def _blocks(sweep: Sweep, targets: Mapping[str, float]) -> Iterator[Block]:
    total = sweep.status.size
    yield Line(text=f"{total:,} scenarios, {sweep.answered:,} fit", tone="title")
    base = ", ".join(f"{name.replace('_', '-')} {_cell(value)}" for name, value in sweep.base.items())
    if base:
        yield Line(text=base, tone="quiet")
    rows = list(islice(sweep.rows(), _ROWS))
    yield _table(sweep, rows, targets)
    if total > _ROWS:
        yield Line(text=f"… {total - _ROWS:,} more rows: --format csv, json or markdown shows all", tone="quiet")
    held = tuple(_held(sweep, targets))
    if held:
        yield Bullets(title="Targets (times are the middle of their band)", items=held)
    sparks = _sparks(sweep)
    if sparks is not None:
        yield sparks
    if sweep.errors:
        yield Bullets(title="No deployment", items=sweep.errors, tone="warning")
    if sweep.warnings:
        yield Bullets(title="Warnings", items=sweep.warnings, tone="warning")


def _table(sweep: Sweep, rows: Sequence[Mapping[str, Any]], targets: Mapping[str, float]) -> Table:
    shown = [item for item in _SHOWN if not (item[1].startswith("per_gpu") and _all_one(sweep))]
    shown = [item for item in shown if item[1] != "kv_pool_bytes" or len({row["kv_pool_bytes"] for row in rows}) > 1]
    words = [name for name, values in sweep.axes.items() if any(isinstance(value, str) for value in values)]
    numbers = [name for name in sweep.axes if name not in words]
    marks = [_mark(row, targets) for row in rows]
    status = any(marks)
    heads = [name.replace("_", "-") for name in (*words, *numbers)] + [head for head, _, _ in shown]
    cells = []
    for row, mark in zip(rows, marks, strict=True):
        values = [_NONE if row[name] is None else write(row[name]) for _, name, write in shown]
        cells.append((*(_cell(row[name]) for name in (*words, *numbers)), *values, *([mark] if status else [])))
    return Table(
        title="",
        columns=(*heads, *([""] if status else [])),
        rows=tuple(cells),
        left=len(words),
        open_end=status,
    )


def _mark(row: Mapping[str, Any], targets: Mapping[str, float]) -> str:
    """What is to be said of a row: its status, and the targets that it misses."""
    missed = [TIMES[name] for name, limit in targets.items() if (row[name] or 0.0) > limit]
    return ", ".join([*filter(None, [_MARKS[row["status"]]]), *([f"misses {' and '.join(missed)}"] if missed else [])])


def _held(sweep: Sweep, targets: Mapping[str, float]) -> Iterator[str]:
    """From where or up to where each target is met along the one axis of rising numbers, where there is no other axis."""
    (axis, values), *others = sweep.axes.items()
    if others or any(isinstance(one, str | bool) or one is None for one in values) or list(values) != sorted(values):
        return
    rows = [row for row in sweep.rows() if row["ttft_ms"] is not None]
    word = axis.replace("_", "-")
    for name, limit in targets.items():
        met = [row[name] <= limit for row in rows]
        within = f"{TIMES[name]} within {duration(limit)}"
        if all(met) or not any(met):
            yield f"{within}: {'wherever it fits' if rows and met[0] else 'nowhere'}"
        elif met == sorted(met, reverse=True):
            last = sum(met) - 1
            beyond = f"{_cell(rows[last + 1][axis])} takes {duration(rows[last + 1][name])}"
            yield f"{within}: up to {word} {_cell(rows[last][axis])}; {beyond}"
        elif met == sorted(met):
            first = met.index(True)
            before = f"{_cell(rows[first - 1][axis])} takes {duration(rows[first - 1][name])}"
            yield f"{within}: from {word} {_cell(rows[first][axis])} on; {before}"


def _all_one(sweep: Sweep) -> bool:
    return bool((sweep.arrays["gpu_count"][sweep.status <= 1] == 1).all())


def _cell(value: Any) -> str:  # noqa: ANN401 - any field
    if value is None:
        return "default"
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else significant(value) if isinstance(value, float) else str(value)


def spark(values: Sequence[float | None]) -> str:
    """Values as a line of blocks from the smallest to the largest; a gap where there is none.

    >>> spark([1, 2, 4, 8, None])
    '▁▂▄█ '
    """
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    span = high - low
    steps = len(_SPARKS) - 1
    return "".join(
        " " if value is None else _SPARKS[round((value - low) / span * steps) if span else 0] for value in values
    )


def _sparks(sweep: Sweep) -> Table | None:
    """How quantities bend, where there is one axis of three numbers or more and no other."""
    if len(sweep.axes) != 1:
        return None
    (axis, values), *_ = sweep.axes.items()
    if len(values) < 3 or len(values) > _ROWS or not all(isinstance(value, int | float) for value in values):  # noqa: PLR2004 - less is no line
        return None
    rows = list(sweep.rows())
    lines = []
    for head, name, write in _SHOWN:
        line = [row[name] for row in rows]
        known = [value for value in line if value is not None]
        if known and max(known) > min(known) and not (name.startswith("per_gpu") and _all_one(sweep)):
            lines.append((head, spark(line), f"{write(min(known))} to {write(max(known))}"))
    if not lines:
        return None
    title = f"Along {axis.replace('_', '-')} {_cell(values[0])} to {_cell(values[-1])}"
    return Table(title=title, columns=("", "", ""), rows=tuple(lines), left=3)
