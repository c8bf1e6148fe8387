"""What a report is made of, before it has a form: lines, tables, bars and lists, their cells already rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Literal, Protocol

from kvplan.core.dataclass import dataclass

Tone = Literal["plain", "title", "good", "bad", "warning", "quiet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of text."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under a title.

    Attributes:
        title: What the table shows.
        columns: Heads of the columns; a head that is empty has none.
        rows: Cells, as many as columns.
        left: How many columns from the left hold words; the others hold numbers and align to the right.
        open_end: True where the last column holds words too.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    open_end: bool = False

    def is_word(self, column: int) -> bool:
        """True where a column holds words."""
        return column < self.left or (self.open_end and column == len(self.columns) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One part of a bar: its sign and its share of the whole."""

    sign: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A whole divided into parts, drawn as wide as there is room."""

    title: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """A list under a title."""

    title: str
    items: tuple[str, ...]
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Lines under a title that are laid out already and wrap under their own indent."""

    title: str
    lines: tuple[str, ...]


Block = Line | Table | Bar | Bullets | Listing


def joined(previous: Block | None, block: Block) -> bool:
    """True where no blank line stands between two blocks: lines in a row, a bar and its table."""
    match previous, block:
        case (None, _) | (Line(), Line()) | (Bar(), Table(title="")):
            return True
        case _:
            return False


class Report(Protocol):
    """A result that can take every form."""

    def blocks(self) -> Sequence[Block]:
        """For people: rounded, in reading order."""

    def data(self) -> Any:  # noqa: ANN401 - any JSON document
        """For programs: the JSON document, nothing rounded."""

    def records(self) -> Sequence[Mapping[str, Any]]:
        """For spreadsheets: flat rows, nothing rounded."""


def plain_data(value: Any) -> Any:  # noqa: ANN401 - any result or spec
    """Dataclasses, mappings and sequences as plain dicts and lists; other values as they are."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [plain_data(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def flat(data: Mapping[str, Any], *, prefix: str = "") -> dict[str, Any]:
    """A nested document as one row with dotted names; lists of words are joined, other lists left out.

    >>> flat({"a": {"b": 1, "c": {"d": 2}}, "w": ["x", "y"], "rows": [{"k": 1}]})
    {'a.b': 1, 'a.c.d': 2, 'w': 'x; y'}
    """
    row: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            row.update(flat(value, prefix=f"{name}."))
        elif isinstance(value, list | tuple):
            if all(not isinstance(item, Mapping | list | tuple) for item in value):
                row[name] = "; ".join(str(item) for item in value)
        else:
            row[name] = value
    return row


def bar_cells(segments: Sequence[Segment], columns: int) -> list[int]:
    """Columns of each segment of a bar, summing to `columns`; what is not zero is seen.

    Largest remainders get what rounding left over.

    >>> bar_cells([Segment(sign="a", share=0.5), Segment(sign="b", share=0.001), Segment(sign="c", share=0.499)], 10)
    [5, 1, 4]
    """
    total = sum(segment.share for segment in segments)
    if total <= 0:
        return [0 for _ in segments]
    ideal = [segment.share / total * columns for segment in segments]
    cells = [max(int(part), 1) if part > 0 else 0 for part in ideal]
    by_remainder = sorted(range(len(ideal)), key=lambda index: ideal[index] - cells[index], reverse=True)
    for index in by_remainder * 2:
        left = columns - sum(cells)
        if left <= 0:
            break
        if ideal[index] > 0:
            cells[index] += 1
    while sum(cells) > columns:
        widest = max(range(len(cells)), key=lambda index: cells[index])
        cells[widest] -= 1
    return cells
