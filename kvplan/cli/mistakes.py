"""What to try after a command line that was not understood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kvplan.planning.words import PARAMETERS

_LIST: Final = re.compile(r"'--(?P<option>[a-z-]+)'.*?: '(?P<values>[^']*,[^']*)'")
_PER_CENT: Final = re.compile(r"'(\d{1,3}(?:\.\d{1,3})?) ?%' is not")
_MANY: Final = {"compare": "--vary", "sweep": "--sweep"}
_LISTED: Final = frozenset({"model", "gpu", "engine"})
#: A weight format that is tried as an option of its own.
_FORMAT: Final = re.compile(r"(?:bf|fp|int|nf|mxfp|nvfp)\d{1,2}|awq|gptq|w8a8|q\d_[k01]\w{0,4}")
#: How alike a misspelt option must be; what is less alike is another option.
_ALIKE: Final = 0.8


def next_step(error: Any) -> tuple[str, str | None]:
    """The message of a command-line error, and what to try next where that is more than its `--help`.

    Args:
        error: The error.

    Returns:
        Message and hint.
    """
    message = " ".join(error.format_message().split()) if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    wrong = getattr(error, "option_name", None)
    if context is not None and wrong is not None and message.startswith("No such option"):
        return f"No such option: {wrong}", _instead(context, wrong.lstrip("-").lower())
    return message, _hint(message, context, missing=getattr(getattr(error, "param", None), "name", None))


def _hint(message: str, context: Any, *, missing: str | None) -> str | None:
    """What to try where an option has a value that it does not take, or where a word is missing or too much."""
    several = _LIST.search(message)
    many = _MANY.get(getattr(context, "info_name", ""))
    if several is not None and many is not None:
        return f"for several values {many} {several['option']}={several['values']};"
    if (share := _PER_CENT.search(message)) is not None:
        return f"{share[1]} % is {float(share[1]) / 100:g};"
    if message.startswith("Missing") and missing in _LISTED:
        return f"`kvplan {missing}s list` shows the names,"
    if message.startswith("Missing") and missing == "output":
        return "for example -o my-model.yaml;"
    if message.startswith("Got unexpected extra argument") and context is not None:
        named = [one for one in ("--model", "--gpu") if one in _options(context.command, context)]
        return f"names follow their options: {' NAME '.join(named)} NAME;" if named else None
    return None


def _instead(context: Any, written: str) -> str | None:
    """What stands for a word that is no option here: another word for one, a misspelt one, or one of other commands."""
    from difflib import get_close_matches

    word = written.replace("_", "-")
    here = _options(context.command, context)
    names = {one.name: option for option, one in here.items()}
    parameter = PARAMETERS.get(word, "")
    meant = names.get(parameter) or names.get(PARAMETERS.get(parameter.replace("_", "-"), ""))
    if meant is None and not parameter and (near := get_close_matches(f"--{word}", here, n=1, cutoff=_ALIKE)):
        meant = near[0]
    if meant is None and _FORMAT.fullmatch(written) and "--dtype" in here:
        meant = f"--dtype {written}"
    if meant is not None:
        return f"did you mean {meant}?"
    others = list(_takers(context, word))
    return f"commands that have it: {', '.join(others)};" if others else None


def _takers(context: Any, word: str) -> Iterator[str]:
    """Commands that have an option of this name, or of the name that kvplan has for it."""
    root = context.find_root().command
    for name, lazy in getattr(root, "lazy", {}).items():
        command = lazy.load(name)
        options = _options(command, context)
        if f"--{word}" in options or PARAMETERS.get(word, "") in {one.name for one in options.values()}:
            yield name


def _options(command: Any, context: Any) -> dict[str, Any]:
    """Long options of a command, in its order, their own names before those of engines."""
    return {opt: one for one in command.get_params(context) for opt in reversed(one.opts) if opt.startswith("--")}
