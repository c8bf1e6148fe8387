"""One kind of start-up line, and the pieces that its patterns are written with."""

from __future__ import annotations

import re
from typing import Final, Literal

from kvplan.core.dataclass import dataclass

Unit = Literal["GiB", "tokens", "x", "blocks", "text", "count", "fraction", "tokens/block"]
Keep = Literal["first", "last", "max", "min", "sum"]

NUM: Final = r"(-?[0-9]{1,12}(?:\.[0-9]{1,9})?)"
INT: Final = r"([0-9][0-9,]{0,19})"
#: Blanks between words, and a colon before one, of a pattern; classes and escapes are kept as they are.
_BLANKS: Final = re.compile(r"(?P<kept>\[[^\]]*\]|\\.|\(\?:|\{[^}]*\})|(?P<sign>: | )")
GAP: Final = r"[^\n]{0,160}?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One kind of line.

    Attributes:
        engine: Engine that writes it; empty for all.
        needle: Text that such a line has.
        regex: What to look for in it.
        names: Name of each group: a figure, or a fact of the deployment.
        unit: Unit that the figures are brought to.
        keep: Which of several is kept: ranks repeat their lines, and a retry writes new ones.
        factor: From the log's unit to `unit`.
    """

    engine: str
    needle: str
    regex: re.Pattern[str]
    names: tuple[str, ...]
    unit: Unit
    keep: Keep = "last"
    factor: float = 1.0


def pattern(
    engine: str, needle: str, regex: str, *names: str, unit: Unit, keep: Keep = "last", factor: float = 1.0
) -> Pattern:
    """A kind of line, its groups named in order; blanks may be missing or more, as in what somebody typed or pasted.

    >>> bool(pattern("", "took", rf"took: {NUM} GiB", "x", unit="GiB").regex.search("took : 15.3GiB"))
    True
    """
    return Pattern(
        engine=engine,
        needle=needle,
        regex=re.compile(_BLANKS.sub(_loosened, regex)),
        names=names,
        unit=unit,
        keep=keep,
        factor=factor,
    )


def _loosened(found: re.Match[str]) -> str:
    """A character class as it is; a blank or a colon outside of one with any few blanks around."""
    if found["kept"]:
        return found["kept"]
    return r"\s{0,3}:\s{0,3}" if ":" in found["sign"] else r"\s{0,3}"


def argument(engine: str, key: str, name: str, value: str, unit: Unit) -> Pattern:
    """A setting in a printed configuration: `key=value`, `'key': value` or `--key value`, with dashes or underscores."""
    spelling = key.replace("_", "[-_]")
    found = rf"""(?:^|[\s(,{{'"]|--){spelling}['"]?(?:\s{{0,2}}[=:]\s{{0,2}}|\s)['"]?({value})(?=['",\s)}}\]]|$)"""
    return pattern(engine, key, found, name, unit=unit)


NAME: Final = r"[^'\",\s(){}]{1,200}"
ONE_INT: Final = r"[0-9]{1,12}"
ONE_NUM: Final = r"[0-9]{0,4}\.?[0-9]{1,9}"
