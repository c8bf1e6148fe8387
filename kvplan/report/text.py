"""Numbers as people read them, and text that can't act on a terminal."""

from __future__ import annotations

import math
import unicodedata
from typing import TYPE_CHECKING

from kvplan.core.units import GIB, KIB, MIB, MS_PER_S

if TYPE_CHECKING:  # the command line writes its errors through here and needs no results for that
    from kvplan.core.results import Range

_BYTE_LIMIT = 0x100
_PLANE = 0x10000
_ROUNDS_UP = 0.9995
#: Times of a request in words.
TIMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "end to end"}


def neutral(text: str) -> str:
    r"""Text with every character that is not printed written out, so that a terminal shows it and does nothing.

    Those are the Unicode categories of control and format characters (escape sequences, bidirectional overrides and
    isolates, zero-width joiners, tags), line and paragraph separators, surrogates, private use and what this Python's
    Unicode has not assigned. Letters, signs and spaces of any script stay as they are.

    >>> neutral("a\x1b[31mb"), neutral("\u2066模型\U000e0041")
    ('a\\x1b[31mb', '\\u2066模型\\U000e0041')
    """
    return text if text.isprintable() else "".join(char if _is_shown(char) else _escape(ord(char)) for char in text)


def neutral_json(document: str) -> str:
    r"""A JSON document with the same characters as `\uXXXX`: the newlines of its layout and all of its values are kept."""
    if document.replace("\n", "").isprintable():
        return document
    import json  # noqa: PLC0415 - errors are written through this module, and need none

    return "".join(char if char == "\n" or _is_shown(char) else json.dumps(char)[1:-1] for char in document)


def _is_shown(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def _escape(code: int) -> str:
    if code < _BYTE_LIMIT:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _PLANE else f"\\U{code:08x}"


def width(text: str) -> int:
    """Columns that a text takes: two for wide characters, none for combining ones.

    >>> width("模型")
    4
    """
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF") for char in text)


def significant(value: float, digits: int = 3) -> str:
    """A number to some significant digits, with thousands separators and no exponent.

    >>> significant(0.012345), significant(9.876), significant(42.06), significant(1234567.0)
    ('0.0123', '9.88', '42.1', '1,234,567')
    """
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def whole(value: float) -> str:
    """A count with thousands separators.

    >>> whole(8030261248)
    '8,030,261,248'
    """
    return f"{value:,.0f}"


def exact(value: float) -> str:
    """A count in full: no fraction where there is none, else at most six places.

    >>> exact(131072.0), exact(0.5625)
    ('131,072', '0.5625')
    """
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.6f}".rstrip("0")


def gib(value_bytes: float) -> str:
    """Bytes as GiB (2^30) to two places.

    >>> gib(16_060_522_496)
    '14.96 GiB'
    """
    return f"{value_bytes / GIB:,.2f} GiB"


def size(value_bytes: float) -> str:
    """Bytes in the binary unit that fits them.

    >>> size(131_072), size(2_147_483_648), size(576)
    ('128 KiB', '2.00 GiB', '576 bytes')
    """
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value_bytes) >= unit:
            number = value_bytes / unit
            return f"{number:,.0f} {name}" if number == int(number) and unit != GIB else f"{number:,.2f} {name}"
    return f"{value_bytes:,.0f} bytes"


def duration(value_ms: float) -> str:
    """Milliseconds as ms, or as s from ten seconds on.

    >>> duration(9.8765), duration(12_345)
    ('9.88 ms', '12.3 s')
    """
    if abs(value_ms) >= 10 * MS_PER_S:
        return f"{significant(value_ms / MS_PER_S)} s"
    return f"{significant(value_ms)} ms"


def percent(share: float) -> str:
    """A share of one as percent.

    >>> percent(0.2034)
    '20.3 %'
    """
    return f"{share * 100:.1f} %"


def billions(count: float) -> str:
    """A parameter count as people say it.

    >>> billions(8_030_261_248), billions(124_439_808), billions(1_026_470_731_056), billions(999_885_952)
    ('8.03 B', '124 M', '1.03 T', '1.00 B')
    """
    for unit, name in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= unit * _ROUNDS_UP:
            return f"{count / unit:.2f} {name}" if count < unit else f"{significant(count / unit)} {name}"
    return whole(count)


def band(value: Range, *, times: bool) -> tuple[str, str, str]:
    """Mid, low to high, and floor of a range, as three cells."""
    if not times:
        return significant(value.mid), f"{significant(value.low)} – {significant(value.high)}", significant(value.floor)
    low, high = duration(value.low), duration(value.high)
    if low.split()[1] == high.split()[1]:
        low = low.split()[0]
    return duration(value.mid), f"{low} – {high}", duration(value.floor)


def plural(count: float, noun: str) -> str:
    """A count and its noun.

    >>> plural(1, "sequence"), plural(2048, "token")
    ('1 sequence', '2,048 tokens')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
