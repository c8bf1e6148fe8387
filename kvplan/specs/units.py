"""Quantities as a data sheet prints them (`2039 GB/s`, `80 GB`, `700 W`) to base units and back, exactly."""

from __future__ import annotations

import re
from typing import Final

from kvplan.core.units import GB, GIB, KB, KIB, MB, MIB, TB, TIB

_BIT = 8
UNITS: Final[dict[str, dict[str, tuple[int, int]]]] = {
    "size": {
        "B": (1, 1),
        "kB": (KB, 1),
        "MB": (MB, 1),
        "GB": (GB, 1),
        "TB": (TB, 1),
        "KiB": (KIB, 1),
        "MiB": (MIB, 1),
        "GiB": (GIB, 1),
        "TiB": (TIB, 1),
    },
    "rate": {
        "B/s": (1, 1),
        "MB/s": (MB, 1),
        "GB/s": (GB, 1),
        "TB/s": (TB, 1),
        "MiB/s": (MIB, 1),
        "GiB/s": (GIB, 1),
        "TiB/s": (TIB, 1),
        "Gbit/s": (GB, _BIT),
        "Tbit/s": (TB, _BIT),
    },
    "compute": {
        "GFLOPS": (10**9, 1),
        "TFLOPS": (10**12, 1),
        "PFLOPS": (10**15, 1),
        "GOPS": (10**9, 1),
        "TOPS": (10**12, 1),
        "POPS": (10**15, 1),
    },
    "power": {"W": (1, 1), "kW": (1000, 1)},
    "frequency": {"MHz": (10**6, 1), "GHz": (10**9, 1)},
}
"""Kind of quantity → unit → (factor, divisor) to byte, byte/s, FLOP/s, watt, hertz."""

EXAMPLES: Final = {
    "size": "80 GB",
    "rate": "2039 GB/s",
    "compute": "989.4 TFLOPS",
    "power": "700 W",
    "frequency": "1980 MHz",
}
_QUANTITY = re.compile(r"(\d{1,40})(?:\.(\d{1,80}))? ([A-Za-z/]+)\Z", re.ASCII)


def parse_quantity(text: object, kind: str) -> int | float:
    """Read a number with its unit; whole results are integers, and no float is used on the way.

    `value = digits × factor ÷ (divisor × 10^decimals)`, in integers; only a remainder makes the one, correctly
    rounded float. Units are case-sensitive, and GB (10^9) is never read as GiB (2^30).

    Args:
        text: What the file says, like `2039 GB/s`.
        kind: `size`, `rate`, `compute`, `power` or `frequency`.

    Returns:
        The value in the base unit [byte, byte/s, FLOP/s, W or Hz].

    Raises:
        ValueError: The text is no such quantity; the message says what one looks like.

    >>> parse_quantity("80 GB", "size"), parse_quantity("79.25 GiB", "size")
    (80000000000, 85094039552)
    >>> parse_quantity("989.4 TFLOPS", "compute")
    989400000000000
    >>> parse_quantity("400 Gbit/s", "rate")
    50000000000
    """
    example = EXAMPLES[kind]
    if not isinstance(text, str):
        rule = f"{text!r} has no unit; write it like '{example}'"
        raise ValueError(rule)  # noqa: TRY004 - a file's mistake, and pydantic turns ValueError into its own error
    match = _QUANTITY.match(text)
    if match is None:
        rule = f"{text!r} is not a {kind}; write it like '{example}'"
        raise ValueError(rule)
    whole, decimals, unit = match[1], match[2] or "", match[3]
    if unit not in UNITS[kind]:
        rule = f"{unit!r} is not a unit of {kind}; use one of {', '.join(UNITS[kind])}"
        raise ValueError(rule)
    factor, divisor = UNITS[kind][unit]
    numerator = int(whole + decimals) * factor
    denominator: int = divisor * 10 ** len(decimals)
    quotient, remainder = divmod(numerator, denominator)
    return quotient if remainder == 0 else numerator / denominator


def format_quantity(value: int, unit: str) -> str:
    """Write a whole number of base units in a unit, with as many decimals as it takes to be exact.

    Args:
        value: Value in the base unit, not negative.
        unit: Any unit of `UNITS`.

    Returns:
        Text that `parse_quantity` reads back as the same integer.

    >>> format_quantity(85_094_039_552, "GiB"), format_quantity(2_039_000_000_000, "GB/s")
    ('79.25 GiB', '2039 GB/s')
    """
    factor, divisor = next(units[unit] for units in UNITS.values() if unit in units)
    whole, remainder = divmod(value * divisor, factor)
    decimals = ""
    while remainder:  # ends: every factor is 2^a × 10^b
        digit, remainder = divmod(remainder * 10, factor)
        decimals += str(digit)
    return f"{whole}.{decimals} {unit}" if decimals else f"{whole} {unit}"
