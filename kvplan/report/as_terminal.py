"""Tables on a terminal through rich: as wide as it is, coloured where it may be, wrapped between words.

A table that does not fit even so is written as wide as it needs, and the terminal breaks its lines: a number or a name
that is cut would be read as another one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final, TextIO, assert_never

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from kvplan.report.blocks import Bar, Block, Bullets, Line, Listing, Segment, Table, Tone, bar_cells, joined
from kvplan.report.text import neutral, width

_STYLES: Final[dict[Tone, str]] = {
    "plain": "",
    "title": "bold",
    "good": "bold green",
    "bad": "bold red",
    "warning": "yellow",
    "quiet": "dim",
}
#: Colours of the bar by sign; the signs alone tell the parts apart without colour.
_SIGNS: Final = {"█": "blue", "▓": "magenta", "▒": "green", "░": "dim", "#": "yellow", "+": "cyan", "!": "red"}
_MAX_BAR: Final = 100
_MIN_WRAP: Final = 20
_GAP: Final = 2
_NAME: Final = 24
"""Columns from which on a name may be broken."""


def print_terminal(blocks: Sequence[Block], *, file: TextIO) -> None:
    """Print blocks on a terminal."""
    console = Console(file=file, markup=False, highlight=False, emoji=False)
    previous: Block | None = None
    for block in blocks:
        if not joined(previous, block):
            console.print()
        _print(block, console=console)
        previous = block


def _print(block: Block, *, console: Console) -> None:
    match block:
        case Line():
            console.print(Text(neutral(block.text), style=_STYLES[block.tone]))
        case Table():
            _heading(block.title, console=console)
            _print_table(block, indent=2 if block.title else 0, console=console)
        case Bar():
            _heading(block.title, console=console)
            columns = min(console.width - 5, _MAX_BAR)
            console.print(_bar(block.segments, columns))
        case Bullets():
            _heading(block.title, console=console)
            for item in block.items:
                console.print(_hanging("- ", item, again="  ", style=_STYLES[block.tone], console=console))
        case Listing():
            _heading(block.title, console=console)
            for line in block.lines:
                body = line.lstrip(" #")
                lead = line[: len(line) - len(body)]
                again = lead if lead.startswith("#") else f"{lead}    "  # a comment for a shell stays one
                console.print(_hanging(lead, body, again=again, style="", console=console))
        case _:
            assert_never(block)


def _heading(title: str, *, console: Console) -> None:
    if title:
        console.print(Text(neutral(title), style="bold"))


def _hanging(lead: str, text: str, *, again: str, style: str, console: Console) -> Text:
    """Text that wraps between words, its later lines with a lead of their own."""
    lines = textwrap.wrap(
        neutral(text),
        width=max(console.width - 1, _MIN_WRAP),
        initial_indent=f"  {lead}",
        subsequent_indent=f"  {again}",
        break_on_hyphens=False,
    )
    return Text("\n".join(lines), style=style)


def _print_table(table: Table, *, indent: int, console: Console) -> None:
    """A table in the room that there is; a bar in its last column is left out where there is none for it."""
    room = console.width - indent
    if _drawn(table) and _across(_least_widths(table)) > room:
        rows = tuple(row[:-1] for row in table.rows)
        table = Table(title=table.title, columns=table.columns[:-1], rows=rows, left=table.left)
    widths = _fitted(table, room)
    needed = indent + _across(widths)
    wide = console if needed <= console.width else Console(file=console.file, width=needed, markup=False)
    wide.print(Padding(_table(table, widths), (0, 0, 0, indent)))


def _drawn(table: Table) -> bool:
    """True where the last column is a bar."""
    last = [row[-1] for row in table.rows]
    return table.open_end and any(last) and all(set(cell) <= {"█"} for cell in last)


def _across(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _least_widths(table: Table) -> list[int]:
    """What each column takes at least: numbers stay whole, words break between them, long names at a dash."""
    return [
        max(
            width(cell) if not table.is_word(index) else max((min(width(w), _NAME) for w in cell.split()), default=0)
            for cell in (neutral(row[index]) for row in (table.columns, *table.rows))
        )
        for index in range(len(table.columns))
    ]


def _fitted(table: Table, room: int) -> list[int]:
    """Widths of the columns: as long as the cells, or words narrowed, the widest first, until they fit."""
    widths = [
        max(width(neutral(row[index])) for row in (table.columns, *table.rows)) for index in range(len(table.columns))
    ]
    least = _least_widths(table)
    while _across(widths) > room and widths != least:
        widest = max((index for index, one in enumerate(widths) if one > least[index]), key=lambda index: widths[index])
        widths[widest] -= 1
    return widths


def _table(table: Table, widths: Sequence[int]) -> RichTable:
    rich = RichTable(
        box=None, show_header=any(table.columns), pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim"
    )
    words = [table.is_word(index) for index in range(len(table.columns))]
    for column, columns, word in zip(table.columns, widths, words, strict=True):
        head = Text(_wrapped(neutral(column), columns))
        rich.add_column(head, justify="left" if word else "right", overflow="fold", width=columns)
    for row in table.rows:
        cells = (_wrapped(neutral(cell), columns) for cell, columns in zip(row, widths, strict=True))
        rich.add_row(*(_sign_or_text(cell) for cell in cells))
    return rich


def _wrapped(cell: str, columns: int) -> str:
    """A cell in lines of so many columns; a name of one word breaks after a dash."""
    if width(cell) <= columns:
        return cell
    indent = cell[: len(cell) - len(cell.lstrip(" "))]
    lines = textwrap.wrap(cell, width=columns, subsequent_indent=indent, break_on_hyphens=" " not in cell.strip())
    return "\n".join(lines)


def _sign_or_text(cell: str) -> Text:
    return Text(cell, style=_SIGNS.get(cell, ""))


def _bar(segments: Sequence[Segment], columns: int) -> Text:
    text = Text("  [")
    for segment, count in zip(segments, bar_cells(segments, columns), strict=True):
        text.append(segment.sign * count, style=_SIGNS.get(segment.sign, ""))
    text.append("]")
    return text
