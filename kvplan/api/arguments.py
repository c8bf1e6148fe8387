"""Arguments that are not understood are told by name: those that do not exist, and those of another kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from kvplan.errors import UnknownNameError, UsageError

P = ParamSpec("P")
R = TypeVar("R")

#: Keywords of `estimate` that are names or specs, of formats and of things that may be specs themselves.
_FORMATS: Final = frozenset({"dtype", "kv_dtype"})
_SPECS: Final = frozenset({"model", "gpu", "engine", "draft_model", "overrides"})


def by_name(function: Callable[P, R]) -> Callable[P, R]:
    """The function itself, but an unknown keyword is answered with the one that is meant.

    Engines and benchmarks have their own words (`max_model_len`), which the command line takes as options; in Python
    there is one name for each thing.
    """
    known = frozenset(inspect.signature(function).parameters)

    @wraps(function)
    def run(*args: P.args, **keywords: P.kwargs) -> R:
        if not keywords.keys() <= known:
            word = min(keywords.keys() - known)
            msg = f"{function.__name__}: no argument {word!r}"
            raise UnknownNameError(msg, hint=_meant(word, known))
        return function(*args, **keywords)

    return run


def _meant(word: str, known: Collection[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - needed on a mistake only

    from kvplan.planning.scenarios import field_name  # noqa: PLC0415 - as above

    try:
        near = [field_name(word)]
    except UnknownNameError:
        near = []
    near = [name for name in near if name in known] or get_close_matches(word, sorted(known), n=3)
    return f"did you mean {', '.join(near)}?" if near else f"arguments: {', '.join(sorted(known))}"


def check_kinds(fields: Mapping[str, Any]) -> None:
    """Refuse texts and lists where a number belongs, and numbers where a name does.

    Raises:
        UsageError: A keyword of `estimate` of another kind.
    """
    for name, value in fields.items():
        if value is None or name in _SPECS:
            continue
        if name in _FORMATS:
            if not isinstance(value, str):
                msg = f"{name}: {value!r} is not the name of a format"
                raise UsageError(msg)
        elif isinstance(value, str | list | tuple | set | dict):
            msg = (
                f"{name}: {str(value)[:80]!r} is {'text' if isinstance(value, str) else 'several values'}, not a number"
            )
            raise UsageError(msg, hint=None if isinstance(value, str) else "kvplan.sweep takes several values")
