"""Regexes out of configs, held to forms that can't run for ages: Python's engine backtracks and knows no time limit.

What a pattern costs is read off its parse tree. Refused are variable parts inside a repetition (`(a+)+`, `(a|b)*`), more
than two repetitions in a row with no fixed letter between them (`.*.*.*x`), back references, and too many ways through
choices (`(a|.)(a|.)…`). What is left takes a polynomial of low degree in the length of a module's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _parser  # type: ignore[attr-defined] # the parser of `re` itself, in every Python from 3.11
from typing import Any, Final

from kvplan.errors import SpecError

_LONGEST: Final = 4000
_MOST_REPETITIONS: Final = 12
_MOST_IN_ROW: Final = 2
_MOST_COPIES: Final = 100
_MOST_WAYS: Final = 20_000


def compile_regex(text: str, *, where: str) -> re.Pattern[str]:
    r"""A regex of a config.

    >>> compile_regex(r".*\.layers\.\d+\.(mlp|self_attn)\..*", where="ignore").pattern
    '.*\\.layers\\.\\d+\\.(mlp|self_attn)\\..*'

    Raises:
        SpecError: It is broken, or could run for ages.
    """
    try:
        safe = len(text) <= _LONGEST and _Walk().passes(_parser.parse(text), repeated=False)
        if safe:
            return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        msg = f"{where}: {text[:60]!r} is not a valid regex: {error}"
        raise SpecError(msg) from None
    msg = f"{where}: regex {text[:60]!r} is not accepted: it may take for ages"
    raise SpecError(msg)


class _Walk:
    """One pass over a parse tree: repetitions in all and in a row, ways through its choices."""

    def __init__(self) -> None:
        self.repetitions = 0
        self.in_row = 0
        self.ways = 1

    def passes(self, tokens: Iterable[tuple[Any, Any]], *, repeated: bool) -> bool:
        """False where these tokens could run for ages; `repeated` inside a repetition."""
        return all(self._passes(str(kind), value, repeated=repeated) for kind, value in tokens)

    def _passes(self, kind: str, value: Any, *, repeated: bool) -> bool:  # noqa: ANN401 - the parser's own tuples
        match kind:
            case "LITERAL":
                self.in_row = 0
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self._repetition(*value, repeated=repeated)
            case "SUBPATTERN" | "ATOMIC_GROUP":
                return self.passes(value[-1] if kind == "SUBPATTERN" else value, repeated=repeated)
            case "BRANCH":
                return not repeated and self._choice(value[1])
            case "ASSERT" | "ASSERT_NOT":
                before = self.in_row
                fine = self.passes(value[1], repeated=repeated)
                self.in_row = before
                return fine
            case "ANY" | "IN" | "NOT_LITERAL" | "AT" | "CATEGORY" | "RANGE":
                pass
            case _:  # back references, conditions
                return False
        return True

    def _repetition(self, low: int, high: Any, body: Iterable[tuple[Any, Any]], *, repeated: bool) -> bool:  # noqa: ANN401
        before = self.in_row
        if low == high:
            return low <= _MOST_COPIES and self.passes(body, repeated=True)
        if repeated:
            return False
        if high == 1:
            self.ways *= 2
            fine = self.passes(body, repeated=False)
            self.in_row = max(before, self.in_row)
            return fine and self.ways <= _MOST_WAYS
        self.repetitions += 1
        fine = self.passes(body, repeated=True)
        self.in_row = before + 1
        return fine and self.in_row <= _MOST_IN_ROW and self.repetitions <= _MOST_REPETITIONS

    def _choice(self, alternatives: list[Any]) -> bool:
        self.ways *= len(alternatives)
        if self.ways > _MOST_WAYS:
            return False
        before, after = self.in_row, []
        for alternative in alternatives:
            self.in_row = before
            if not self.passes(alternative, repeated=False):
                return False
            after.append(self.in_row)
        self.in_row = max(after)
        return True
