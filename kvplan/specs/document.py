"""What was read from a spec file: its fields, and the line of each. Needs no YAML library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.core.dataclass import dataclass

Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One read file.

    Attributes:
        path: The file as the user named it.
        data: Its fields.
        lines: Line of every field, counted from 1.
    """

    path: str
    data: dict[str, Any]
    lines: Mapping[Location, int]

    def line_of(self, loc: Location) -> int:
        """Line of a field, or of the nearest thing around it that the file has (a missing field has no line)."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 1)

    def problem(self, loc: Location, rule: str) -> str:
        """One error in the house's form, `file:line: field: rule`."""
        return problem(self.path, self.line_of(loc), loc, rule)


def problem(path: str, line: int, loc: Location, rule: str) -> str:
    """One error in the house's form, `file:line: field: rule`; without a field where the whole file is meant."""
    field = ".".join(map(str, loc))
    return f"{path}:{line}: {field}: {rule}" if field else f"{path}:{line}: {rule}"


def closest(word: str, known: Sequence[str]) -> str:
    """`(did you mean …?)` with a leading space for the nearest known word, or nothing."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed on a mistake only

    near = get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
