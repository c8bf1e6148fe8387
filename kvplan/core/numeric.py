"""Minimum, maximum and smooth maximum that work alike on plain numbers and on arrays, without importing an array library.

The core is written once with `+ - * /`, powers and these; a scenario is plain numbers, a grid is arrays.
"""

from __future__ import annotations

from typing import Any, Final

from kvplan.errors import UsageError

#: A plain number, or an array of numbers of any library that speaks the array API standard.
Num = Any
#: More tokens, sequences or ranks than anyone will count, in a number whose products floats can hold.
MOST: Final = 10**12


def minimum(a: Num, b: Num) -> Num:
    """The smaller of two numbers, element by element for arrays.

    >>> minimum(3, 5)
    3
    """
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a if a < b else b  # noqa: FURB136 - half the time of a call of min
    return _namespace(a, b).minimum(a, b)


def maximum(a: Num, b: Num) -> Num:
    """The larger of two numbers, element by element for arrays.

    >>> maximum(3, 5)
    5
    """
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a if a > b else b  # noqa: FURB136 - half the time of a call of max
    return _namespace(a, b).maximum(a, b)


def select(condition: Num, when_true: Num, when_false: Num) -> Num:
    """`when_true` where the condition holds, else `when_false`."""
    if isinstance(condition, bool):
        return when_true if condition else when_false
    return condition.__array_namespace__().where(condition, when_true, when_false)


def everywhere(condition: Num) -> bool:
    """True where a condition holds, for arrays in every place.

    >>> everywhere(3 > 2)
    True
    """
    return condition if isinstance(condition, bool) else bool(condition.all())


def check_count(name: str, value: Num, *, least: int = 1) -> None:
    """Refuse a count, or an array of them, that is too small, too large or not a number.

    Raises:
        UsageError: It is.

    >>> check_count("tp", 0)
    Traceback (most recent call last):
    kvplan.errors.UsageError: tp: must be at least 1, not 0
    """
    enough = value >= least
    if not everywhere(enough):
        msg = f"{name}: must be at least {least}, not {value[~enough][0] if getattr(value, 'ndim', 0) else value}"
        raise UsageError(msg)
    if not everywhere(value <= MOST):
        msg = f"{name}: must be at most {MOST:,}"
        raise UsageError(msg)


def floor(value: Num) -> Num:
    """Rounded down, as a float for arrays and an int for plain numbers."""
    if isinstance(value, int | float):
        return int(value // 1)
    return value.__array_namespace__().floor(value)


def ceil(value: Num) -> Num:
    """Rounded up, as a float for arrays and an int for plain numbers."""
    if isinstance(value, int | float):
        return int(-(-value // 1))
    return value.__array_namespace__().ceil(value)


def smooth_maximum(a: Num, b: Num) -> Num:
    """A soft maximum of two times, `(a⁴ + b⁴)^(1/4)`: two resources that overlap well but not wholly.

    At equal times it costs 19 % more than either; far from balance it is the maximum.

    >>> round(smooth_maximum(1.0, 1.0), 4)
    1.1892
    """
    a = a * a
    b = b * b
    return ((a * a + b * b) ** 0.5) ** 0.5  # two square roots, several times faster on arrays than one fourth root


def _namespace(a: Num, b: Num) -> Any:  # noqa: ANN401 - whichever library the array came from
    array = b if isinstance(a, int | float) else a
    return array.__array_namespace__()
