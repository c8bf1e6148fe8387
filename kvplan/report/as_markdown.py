"""Markdown for tickets and wikis: tables as pipes, titles as headings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from kvplan.report.blocks import Bar, Block, Bullets, Line, Listing, Table
from kvplan.report.text import neutral

_SPECIAL = str.maketrans({"\\": "\\\\", "[": "\\[", "|": "\\|", "<": "&lt;", "*": "\\*", "`": "\\`", "_": "\\_"})


def render_markdown(blocks: Sequence[Block]) -> str:
    """Blocks as Markdown; bars keep their title only, since the table below says the same in numbers."""
    parts: list[str] = []
    for block in blocks:
        lines = list(_lines(block))
        if lines:
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Line(text=""):
            return
        case Line():
            text = _cell(block.text)
            yield f"## {text}" if block.tone == "title" else f"**{text}**" if block.tone in {"good", "bad"} else text
        case Table():
            yield from _title(block.title)
            yield from _table(block)
        case Bar():
            yield f"### {_cell(block.title)}"
        case Bullets():
            yield from _title(block.title)
            yield from (f"- {_cell(item)}" for item in block.items)
        case Listing():
            yield from _title(block.title)
            yield "```text"
            yield from (neutral(line).replace("```", "'''") for line in block.lines)
            yield "```"
        case _:
            assert_never(block)


def _title(title: str) -> Iterator[str]:
    if title:
        yield f"### {_cell(title)}"
        yield ""


def _table(table: Table) -> Iterator[str]:
    yield _row(table.columns)
    yield _row([":---" if table.is_word(index) else "---:" for index in range(len(table.columns))], escape=False)
    yield from (_row(row) for row in table.rows)


def _row(cells: Sequence[str], *, escape: bool = True) -> str:
    return "| " + " | ".join(_cell(cell) if escape else cell for cell in cells) + " |"


def _cell(text: str) -> str:
    return neutral(text).translate(_SPECIAL)
