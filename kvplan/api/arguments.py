"""Arguments that are not understood are told by name: those that do not exist, and those of another kind."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from functools import cache, wraps
from typing import Any, Final, ParamSpec, TypeVar

from kvplan.errors import UnknownNameError, UsageError

P = ParamSpec("P")
R = TypeVar("R")

#: Annotation → what an argument must be, in words.
_WORDS: Final = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}


def by_name(function: Callable[P, R]) -> Callable[P, R]:
    """The function itself, but keywords are checked against its signature, the one list of names and kinds.

    An unknown keyword is answered with the one that is meant: engines and benchmarks have their own words
    (`max_model_len`), which the command line takes as options; in Python there is one name for each thing.
    """
    known, kinds = frozenset(inspect.signature(function).parameters), kinds_of(function)

    @wraps(function)
    def run(*args: P.args, **keywords: P.kwargs) -> R:
        if not keywords.keys() <= known:
            word = min(keywords.keys() - known)
            msg = f"{function.__name__}: no argument {word!r}"
            raise UnknownNameError(msg, hint=_meant(word, known))
        for name in keywords.keys() & kinds.keys():
            keywords[name] = of_kind(name, keywords[name], kinds[name])
        return function(*args, **keywords)

    return run


@cache
def kinds_of(function: Callable[..., Any]) -> Mapping[str, str]:
    """Arguments of one plain kind, by its annotation; None is allowed for all of them and is their default."""
    found = {
        name: str(parameter.annotation).removesuffix(" | None")
        for name, parameter in inspect.signature(function).parameters.items()
    }
    return {name: kind for name, kind in found.items() if kind in _WORDS}


def of_kind(name: str, value: Any, kind: str) -> Any:  # noqa: ANN401 - anything in, the kind or None out
    """A value of its kind: numbers of NumPy and whole floats become plain ones, so that equal questions are the same.

    >>> of_kind("tp", 2.0, "int"), of_kind("enforce_eager", 1, "bool"), of_kind("dtype", None, "str")
    (2, True, None)

    Raises:
        UsageError: It is of another kind.
    """
    if value is None or type(value).__name__ == kind or (kind == "float" and type(value) is int):
        return value
    several = isinstance(value, list | tuple | set | dict) or bool(getattr(value, "ndim", 0))
    plain = None if several or kind == "str" or isinstance(value, str | bytes) else _plain(value, kind)
    if plain is None:
        msg = f"{name}: {str(value)[:80]!r} is not {_WORDS[kind]}"
        raise UsageError(msg, hint="kvplan.sweep takes several values" if several else None)
    return plain


def _plain(value: Any, kind: str) -> float | None:  # noqa: ANN401 - anything that may be a number
    """A number (or flag) of plain Python that equals the value, or None where there is none."""
    try:
        if kind == "bool":
            return bool(value)
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        return None
    if kind != "int" or math.isinf(number):  # infinite counts are told as what they are: too large
        return None if isinstance(value, bool) else number
    return int(number) if number.is_integer() and not isinstance(value, bool) else None


def _meant(word: str, known: Collection[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - needed on a mistake only

    from kvplan.planning.scenarios import field_name  # noqa: PLC0415 - as above

    try:
        near = [field_name(word)]
    except UnknownNameError:
        near = []
    near = [name for name in near if name in known] or get_close_matches(word, sorted(known), n=3)
    return f"did you mean {', '.join(near)}?" if near else f"arguments: {', '.join(sorted(known))}"
