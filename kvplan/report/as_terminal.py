"""Tables on a terminal through rich: as wide as it is, coloured where it may be, wrapped between words."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final, TextIO, assert_never

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from kvplan.report.blocks import Bar, Block, Bullets, Line, Listing, Segment, Table, Tone, bar_cells, joined
from kvplan.report.text import neutral

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
            console.print(Padding(_table(block), (0, 0, 0, 2 if block.title else 0)))
        case Bar():
            _heading(block.title, console=console)
            columns = min(console.width - 5, _MAX_BAR)
            console.print(_bar(block.segments, columns))
        case Bullets():
            _heading(block.title, console=console)
            for item in block.items:
                console.print(_hanging("- ", item, style=_STYLES[block.tone], console=console))
        case Listing():
            _heading(block.title, console=console)
            for line in block.lines:
                body = line.lstrip(" ")
                console.print(_hanging(" " * (len(line) - len(body)), body, style="", console=console))
        case _:
            assert_never(block)


def _heading(title: str, *, console: Console) -> None:
    if title:
        console.print(Text(neutral(title), style="bold"))


def _hanging(lead: str, text: str, *, style: str, console: Console) -> Text:
    """Text that wraps between words, its later lines set in under its first."""
    lines = textwrap.wrap(
        neutral(text),
        width=max(console.width - 1, _MIN_WRAP),
        initial_indent=f"  {lead}",
        subsequent_indent=" " * (len(lead) + (2 if lead.strip() else 6)),
        break_on_hyphens=False,
    )
    return Text("\n".join(lines), style=style)


def _table(table: Table) -> RichTable:
    rich = RichTable(box=None, show_header=any(table.columns), pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, column in enumerate(table.columns):
        word = table.is_word(index)
        rich.add_column(
            Text(neutral(column)),
            justify="left" if word else "right",
            overflow="fold",
            no_wrap=not word,
        )
    for row in table.rows:
        rich.add_row(*(_sign_or_text(neutral(cell)) for cell in row))
    return rich


def _sign_or_text(cell: str) -> Text:
    return Text(cell, style=_SIGNS.get(cell, ""))


def _bar(segments: Sequence[Segment], columns: int) -> Text:
    text = Text("  [")
    for segment, count in zip(segments, bar_cells(segments, columns), strict=True):
        text.append(segment.sign * count, style=_SIGNS.get(segment.sign, ""))
    text.append("]")
    return text
