"""Units: GB is 10^9 bytes and GiB is 2^30, and nothing in kvplan mixes them."""

from __future__ import annotations

from typing import Final

KB: Final = 10**3
MB: Final = 10**6
GB: Final = 10**9
TB: Final = 10**12
KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
TIB: Final = 2**40
TERA: Final = 10**12
MS_PER_S: Final = 1000.0
#: Endings of numbers of tokens, as vLLM reads `--max-model-len`.
ENDINGS: Final = {"k": 1000, "m": 1000**2, "K": 1024, "M": 1024**2}


def ceil_div(dividend: int, divisor: int) -> int:
    """Integer division rounded up.

    >>> ceil_div(129, 16)
    9
    """
    return -(-dividend // divisor)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `value`.

    >>> round_up(100, 16)
    112
    """
    return ceil_div(value, multiple) * multiple


def gib(value_bytes: float) -> float:
    """Bytes as GiB (2^30) [GiB].

    >>> gib(2_147_483_648)
    2.0
    """
    return value_bytes / GIB
