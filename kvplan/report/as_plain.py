"""Plain text for pipes and files: aligned, never cut, never wrapped, no escape sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from kvplan.report.blocks import Bar, Block, Bullets, Line, Listing, Table, bar_cells, joined
from kvplan.report.text import neutral, width

BAR_COLUMNS = 64


def render_plain(blocks: Sequence[Block]) -> str:
    """Blocks as text, one blank line between them, one newline at the end."""
    parts: list[str] = []
    previous: Block | None = None
    for block in blocks:
        if not joined(previous, block):
            parts.append("")
        parts.extend(_lines(block))
        previous = block
    return "\n".join(parts) + "\n"


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Line():
            yield neutral(block.text)
        case Table():
            yield from table_lines(block)
        case Bar():
            yield from _title(block.title)
            cells = bar_cells(block.segments, BAR_COLUMNS)
            drawn = (segment.sign * count for segment, count in zip(block.segments, cells, strict=True))
            yield f"  [{''.join(drawn)}]"
        case Bullets():
            yield from _title(block.title)
            yield from (f"  - {neutral(item)}" for item in block.items)
        case Listing():
            yield from _title(block.title)
            yield from (f"  {neutral(line)}" for line in block.lines)
        case _:
            assert_never(block)


def _title(title: str) -> Iterator[str]:
    if title:
        yield neutral(title)


def table_lines(table: Table) -> Iterator[str]:
    """A table as aligned lines: words to the left, numbers to the right."""
    yield from _title(table.title)
    head = [neutral(cell) for cell in table.columns]
    rows = [[neutral(cell) for cell in row] for row in table.rows]
    shown = [head, *rows] if any(head) else rows
    if not shown:
        return
    widths = [max(width(row[index]) for row in shown) for index in range(len(table.columns))]
    indent = "  " if table.title else ""
    for row in shown:
        cells = []
        for index, (cell, columns) in enumerate(zip(row, widths, strict=True)):
            space = " " * (columns - width(cell))
            cells.append(cell + space if table.is_word(index) else space + cell)
        yield (indent + "  ".join(cells)).rstrip()
