"""Arguments that are not understood are told by name: those that do not exist, and those of another kind."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from kvplan.errors import UnknownNameError, UsageError

P = ParamSpec("P")
R = TypeVar("R")

#: Rows of measurements: a file, or mappings in memory.
Rows = str | Path | Iterable[Mapping[str, object]]
#: Values by field, texts `key=values`, or both.
Axes = Mapping[str, Iterable[Any]] | Iterable[str | Mapping[str, Iterable[Any]]]

#: Annotation → what an argument must be, in words. Names of specs and texts with a grammar are told by their readers.
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "str | Path": "a path",
    "int | Sequence[int]": "a whole number or a list of them",
    "int | Sequence[int | None]": "a whole number or a list of them",
    "str | Sequence[str]": "a name or a list of them",
    "str | Sequence[str | None]": "a name or a list of them",
    "Mapping[str, Any]": "names with values",
    "Mapping[str, float]": "names with values",
    "Axes": "names with values, or key=values",
    "Rows": "a path, or rows that are mappings",
}
_REQUIRED: Final = inspect.Parameter.empty
_PLAIN: Final = frozenset({"int", "float", "bool", "str"})


def by_name(function: Callable[P, R]) -> Callable[P, R]:
    """The function itself, but arguments are checked against its signature, the one list of names and kinds."""
    parameters = inspect.signature(function).parameters
    any_name = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    order = tuple(parameters)

    @wraps(function)
    def run(*args: P.args, **keywords: P.kwargs) -> R:
        places = [_argument(function, name, value) for name, value in zip(order, args, strict=False)]
        names = keywords_of(function, keywords, asked=function.__name__, any_name=any_name)
        return function(*places, *args[len(places) :], **names)  # type: ignore[arg-type]

    return run


def keywords_of(
    function: Callable[..., Any], given: Mapping[str, Any], *, asked: str, any_name: bool = False
) -> dict[str, Any]:
    """Keywords of a function by its signature; None leaves one out, so that the default holds, whatever that is.

    An unknown one is answered with the one that is meant: engines and benchmarks have their own words
    (`max_model_len`), which the command line takes as options; in Python there is one name for each thing.

    Raises:
        UnknownNameError: No such keyword.
        UsageError: A value of another kind.
    """
    known = defaults_of(function)
    if not any_name and not given.keys() <= known.keys():
        word = min(given.keys() - known.keys())
        msg = f"{asked}: no argument {word!r}"
        raise UnknownNameError(msg, hint=_meant(word, known))
    return {
        name: _argument(function, name, value)
        for name, value in given.items()
        if value is not None or known.get(name) is _REQUIRED
    }


def _argument(function: Callable[..., Any], name: str, value: Any) -> Any:  # noqa: ANN401 - any argument
    kind, default = kinds_of(function).get(name), defaults_of(function).get(name)
    if value is not None:
        return of_kind(name, value, kind)
    if default is not _REQUIRED:
        return default
    if kind is not None:
        msg = f"{name}: must be {_WORDS[kind]}"
        raise UsageError(msg)
    return None


@cache
def defaults_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Arguments and their defaults."""
    return {name: one.default for name, one in inspect.signature(function).parameters.items()}


@cache
def kinds_of(function: Callable[..., Any]) -> Mapping[str, str]:
    """Arguments of a kind that is checked, by its annotation; None is allowed for all of them and is their default."""
    found = {
        name: str(parameter.annotation).removesuffix(" | None")
        for name, parameter in inspect.signature(function).parameters.items()
    }
    return {name: kind for name, kind in found.items() if kind in _WORDS}


def of_kind(name: str, value: Any, kind: str | None) -> Any:  # noqa: ANN401 - anything in, the kind or None out
    """A value of its kind: numbers of NumPy and whole floats become plain ones, so that equal questions are the same.

    >>> of_kind("tp", 2.0, "int"), of_kind("enforce_eager", 1, "bool"), of_kind("dtype", None, "str")
    (2, True, None)
    >>> of_kind("tp", (1, 2.0), "int | Sequence[int]")
    [1, 2]

    Raises:
        UsageError: It is of another kind.
    """
    if value is None or kind is None or (type(value).__name__ == kind and value != ""):
        return value
    if kind == "float" and type(value) is int:
        return value
    found = _read(value, kind)
    if found is None:
        several = isinstance(value, list | tuple | set | dict) or bool(getattr(value, "ndim", None))
        hint = "kvplan.sweep takes several values" if several and kind in _PLAIN else None
        if kind == "Rows" and hasattr(value, "to_dict"):
            hint = "a data frame gives them with .to_dict('records')"
        msg = f"{name}: {str(value)[:80]!r} is not {_WORDS[kind]}"
        raise UsageError(msg, hint=hint)
    return found


def _names_values(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


#: Annotation → what is taken as it is.
_TAKES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "str": lambda value: isinstance(value, str) and bool(value),
    "str | Path": lambda value: isinstance(value, Path) or (isinstance(value, str) and bool(value)),
    "Mapping[str, Any]": _names_values,
    "Mapping[str, float]": _names_values,
    "Axes": lambda value: hasattr(value, "__iter__") and not isinstance(value, bytes),
}


def _read(value: Any, kind: str) -> Any:  # noqa: ANN401 - anything in, the kind or None out
    """A value as one of its kind, or None where it is none."""
    if kind in {"int", "float", "bool"}:
        return _number(value, kind)
    if kind in _TAKES:
        return value if _TAKES[kind](value) else None
    if kind == "Rows" and not isinstance(value, str | Path):
        rows = list(value) if hasattr(value, "__iter__") else [None]
        return rows if all(isinstance(row, Mapping) for row in rows) else None
    if kind == "Rows":
        return value
    several = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    listed = list(value) if several or getattr(value, "ndim", None) else [value]
    element = kind.partition(" |")[0]
    found = [None if one is None else _read(one, element) for one in listed]
    same = all((new is None) == (old is None) for new, old in zip(found, listed, strict=True))
    return found if same else None


def _number(value: Any, kind: str) -> float | None:  # noqa: ANN401 - anything that may be a number
    """A number (or flag) of plain Python that equals the value, or None where there is none."""
    if isinstance(value, str | bytes | list | tuple | set | dict) or getattr(value, "ndim", None):
        return None
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        return None
    if kind == "bool":
        return bool(number) if number in {0.0, 1.0} else None
    if isinstance(value, bool):
        return None
    if kind == "float" or math.isinf(number):  # infinite counts are told as what they are: too large
        return number
    return int(number) if number.is_integer() else None


def _meant(word: str, known: Collection[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - needed on a mistake only

    from kvplan.planning.scenarios import field_name  # noqa: PLC0415 - as above

    try:
        near = [field_name(word)]
    except UnknownNameError:
        near = []
    near = [name for name in near if name in known] or get_close_matches(word, sorted(known), n=3)
    return f"did you mean {', '.join(near)}?" if near else f"arguments: {', '.join(sorted(known))}"
