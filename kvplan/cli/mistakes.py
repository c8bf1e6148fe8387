"""What to try after a command line that was not understood."""

from __future__ import annotations

import re
from typing import Any, Final

from kvplan.planning.words import PARAMETERS

_LIST: Final = re.compile(r"'--(?P<option>[a-z-]+)'.*?: '(?P<values>[^']*,[^']*)'")
_MANY: Final = {"compare": "--vary", "sweep": "--sweep"}
_LISTED: Final = frozenset({"model", "gpu", "engine"})


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
    if context is not None and wrong is not None:
        option = _option_for(context, wrong.lstrip("-"))
        if option is not None:
            return f"No such option: {wrong}", f"did you mean {option}?"
    several = _LIST.search(message)
    many = _MANY.get(getattr(context, "info_name", ""))
    if several is not None and many is not None:
        return message, f"for several values {many} {several['option']}={several['values']};"
    missing = getattr(getattr(error, "param", None), "name", None)
    if message.startswith("Missing") and missing in _LISTED:
        return message, f"`kvplan {missing}s list` shows the names,"
    return message, None


def _option_for(context: Any, word: str) -> str | None:
    parameter = PARAMETERS.get(word.lower().replace("_", "-"))
    found = (one for one in context.command.get_params(context) if one.name == parameter)
    return next((one.opts[0] for one in found), None)
