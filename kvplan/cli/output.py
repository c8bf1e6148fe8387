"""Where a result goes: a terminal, a pipe, or a file that is written whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from kvplan.cli.boundary import silence_stdout
from kvplan.errors import UsageError
from kvplan.report.blocks import Report
from kvplan.report.render import SUFFIXES, Form, render, show

#: Signs that a stream without UTF-8 gets instead.
_ASCII = str.maketrans(
    {
        "×": "x",
        "÷": "/",
        "–": "-",
        "−": "-",
        "…": "...",
        "█": "W",
        "▓": "A",
        "▒": "K",
        "░": ".",
        "·": "u",
        "⌈": "ceil(",
        "⌉": ")",
        "⌊": "floor(",
        "⌋": ")",
        "≈": "~",
        "µ": "u",
        "→": "->",
        "≥": ">=",
        "≤": "<=",
    }
)


def emit(report: Report, *, json: bool, form: Form | None, output: Path | None) -> None:
    """Write a report in the form that was asked for.

    Raises:
        UsageError: Two forms at once, or a file that can't be written.
    """
    chosen = choose_form(json=json, form=form, output=output)
    if output is not None and str(output) != "-":
        write_file(output, render(report, chosen))
        return
    try:
        if chosen is Form.TABLE and sys.stdout.isatty():
            show(report, file=sys.stdout)
        else:
            sys.stdout.write(encodable(render(report, chosen), sys.stdout.encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()


def choose_form(*, json: bool, form: Form | None, output: Path | None) -> Form:
    """The form that was asked for; a file's suffix asks too, where nothing else does."""
    if json:
        if form not in {None, Form.JSON}:
            message = f"--json and --format {form} ask for two forms"
            raise UsageError(message, hint="leave one out")
        return Form.JSON
    if form is not None:
        return form
    return SUFFIXES.get(output.suffix.lower(), Form.TABLE) if output is not None else Form.TABLE


def encodable(text: str, encoding: str | None) -> str:
    """Text that a stream can take: as it is, or in plain signs where the stream knows no better ones."""
    name = encoding or "utf-8"
    try:
        text.encode(name)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(name, "replace").decode(name)
    return text


def write_file(path: Path, text: str) -> None:
    """Write a file through a temporary one beside it, so that no reader ever sees a part of it.

    Raises:
        UsageError: A folder, or a place that can't be written.
    """
    import tempfile

    target = Path(os.path.realpath(path))
    if target.is_dir():
        message = f"--output: {path} is a folder"
        raise UsageError(message, hint="give the name of a file in it")
    if target.exists() and not target.is_file():  # a device such as /dev/null, a pipe
        _try(path, lambda: target.write_text(text, encoding="utf-8"))
        return

    def replace() -> None:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            Path(name).chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    _try(path, replace)


def _try(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        message = f"--output: cannot write {path}: {error.strerror or error}"
        raise UsageError(message) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
