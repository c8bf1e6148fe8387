"""Files of records, read within bounds: size, line length, columns, rows, and how many problems are told."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from kvplan.core.dataclass import dataclass
from kvplan.errors import SpecError, UsageError

MAX_BYTES: Final = 64 * 2**20
MAX_DOCUMENT_BYTES: Final = 8 * 2**20
"""One JSON document is parsed at a time, and takes up to sixty times its size in memory."""
MAX_LINE_BYTES: Final = 2**20
MAX_COLUMNS: Final = 512
MAX_ROWS: Final = 100_000
MAX_PROBLEMS: Final = 50

_WORDS: Final = 120


@dataclass(slots=True, kw_only=True)
class Problems:
    """Everything that is wrong with a file, told in one run."""

    path: str
    lines: list[str] = field(default_factory=list)
    untold: int = 0

    def add(self, line: int, column: str, rule: str) -> None:
        """One more problem, as `file:line: column: rule`."""
        if len(self.lines) < MAX_PROBLEMS:
            where = f"{column[:_WORDS]}: " if column else ""
            self.lines.append(f"{self.path}:{line}: {where}{rule}")
        else:
            self.untold += 1

    def raise_if_any(self, *, hint: str | None = None) -> None:
        """Raise what was found.

        Raises:
            SpecError: Something was.
        """
        if self.lines:
            more = [f"… and {self.untold:,} more"] if self.untold else []
            raise SpecError("\n".join([*self.lines, *more]), hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text of a file and where paths in it start.

    Attributes:
        path: The file as the user named it (`-` for standard input).
        folder: Folder that relative paths in it mean.
        text: Its text.
    """

    path: str
    folder: Path
    text: str


def read_source(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Source:
    """Read a text file, or standard input for `-`.

    Raises:
        UsageError: It can't be opened.
        SpecError: It is too large or not UTF-8.
    """
    name = str(path)
    try:
        if name == "-":
            data, folder = sys.stdin.buffer.read(max_bytes + 1), Path.cwd()
        else:
            folder = Path(name).parent
            with Path(name).open("rb") as file:
                data = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        message = f"cannot read {name}: {getattr(error, 'strerror', None) or error}"
        raise UsageError(message) from error
    if len(data) > max_bytes:
        message = f"{name}: larger than {max_bytes // 2**20} MiB"
        raise SpecError(message, hint="split it, or keep the lines that matter")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"{name}:{line}: not UTF-8 text (byte {data[error.start]:#04x})"
        raise SpecError(message, hint="save it as UTF-8") from error
    return Source(path=name, folder=folder, text=text)


def is_json(source: Source) -> bool:
    """True where a file is JSON or JSONL: by what it begins with."""
    return source.text[:4096].lstrip()[:1] in {"{", "["}


def csv_rows(source: Source, problems: Problems) -> Iterator[tuple[int, dict[str, str]]]:
    """Line and cells of every row of a CSV file under its header; blank lines don't count."""
    reader = csv.reader(io.StringIO(source.text, newline=""), strict=True)
    header: list[str] | None = None
    rows, blank, line = 0, 0, 1
    try:
        for cells in reader:
            start, line = line, reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                blank += 1
                if blank > MAX_ROWS:
                    problems.add(start, "", f"more than {MAX_ROWS:,} blank lines")
                    return
                continue
            if header is None:
                header = _header(cells, start, problems)
                if header is None:
                    return
                continue
            rows += 1
            if rows > MAX_ROWS:
                problems.add(start, "", f"more than {MAX_ROWS:,} rows")
                return
            if len(cells) != len(header):
                problems.add(start, "", f"{len(cells)} cells under a header of {len(header)}")
                continue
            yield start, {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
    except csv.Error as error:
        problems.add(reader.line_num or 1, "", f"not CSV: {error}")


def _header(cells: list[str], line: int, problems: Problems) -> list[str] | None:
    if len(cells) > MAX_COLUMNS:
        problems.add(line, "", f"more than {MAX_COLUMNS} columns")
        return None
    if len(cells) == 1 and (sign := next((one for one in ";\t|" if one in cells[0]), None)):
        problems.add(line, "", f"columns are divided by {sign!r}: a comma is needed, with a point in decimals")
        return None
    names = [cell.strip().casefold() for cell in cells]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    for name in twice:
        problems.add(line, name, "column given twice")
    return None if twice else names


def json_objects(source: Source, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line and fields of every object: of one document, of a list, or one per line."""
    whole = source.text.strip()
    first, _, rest = whole.partition("\n")
    if len(whole) <= MAX_DOCUMENT_BYTES and not (rest and isinstance(_parse(first), dict)):
        yield from _document(source, whole, problems)
    else:
        yield from _lines(source, problems)


def _document(source: Source, text: str, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    start = 1 + source.text[: source.text.find(text[:1])].count("\n")
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        problems.add(start + error.lineno - 1, "", f"not JSON: {error.msg}")
    except (ValueError, RecursionError):
        problems.add(start, "", "not JSON: nested too deep, or a number too long")
    else:
        yield from _objects(parsed, start, problems)


def _lines(source: Source, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = 0
    for number, line in enumerate(source.text.split("\n"), start=1):
        if not line.strip():
            continue
        rows += 1
        if rows > MAX_ROWS:
            problems.add(number, "", f"more than {MAX_ROWS:,} rows")
            return
        if len(line) > MAX_LINE_BYTES:
            problems.add(number, "", f"longer than {MAX_LINE_BYTES // 2**20} MiB")
            continue
        parsed = _parse(line)
        if not isinstance(parsed, dict):
            problems.add(number, "", "not a JSON object")
            if len(problems.lines) >= MAX_PROBLEMS:
                return
            continue
        yield number, parsed


def _objects(parsed: object, line: int, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    items = parsed if isinstance(parsed, list) else [parsed]
    for number, item in enumerate(items):
        if number >= MAX_ROWS:
            problems.add(line, "", f"more than {MAX_ROWS:,} rows")
            return
        if not isinstance(item, dict):
            problems.add(line, f"[{number}]", "not a JSON object")
        else:
            yield line + (number if isinstance(parsed, list) else 0), item


def _parse(text: str) -> Any:  # noqa: ANN401 - any JSON
    """A JSON value, or None for text that is none (or nested too deep, or with a number too long)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
