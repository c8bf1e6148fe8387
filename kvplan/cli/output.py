"""Where a result goes: a terminal, a pipe, or a file that is written whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a result goes and in which form; made before the work starts, so that mistakes cost nothing.

    Attributes:
        form: The form.
        file: The file, or None for stdout.
    """

    form: Form
    file: Path | None

    def emit(self, report: Report) -> None:
        """Write a report.

        Raises:
            UsageError: The file can't be written.
        """
        if self.file is not None:
            write_file(self.file, render(report, self.form))
            return
        try:
            if self.form is Form.TABLE and sys.stdout.isatty():
                show(report, file=sys.stdout)
            else:
                sys.stdout.write(encodable(render(report, self.form), sys.stdout.encoding))
            sys.stdout.flush()
        except BrokenPipeError:
            silence_stdout()
        except OSError as error:
            silence_stdout()
            message = f"cannot write to stdout: {error.strerror or error}"
            raise UsageError(message) from error


def destination(*, json: bool, form: Form | None, output: Path | None) -> Destination:
    """The form and place that were asked for; a file's suffix names its form where nothing else does.

    Raises:
        UsageError: Two forms at once, a folder, or a number where a length was meant.
    """
    file = None if output is None or str(output) == "-" else output
    if json and form not in {None, Form.JSON}:
        message = f"--json and --format {form} ask for two forms"
        raise UsageError(message, hint="leave one out")
    if file is not None and file.is_dir():
        message = f"--output: {file} is a folder"
        raise UsageError(message, hint="give the name of a file in it")
    if file is not None and str(file).isdecimal():
        message = f"--output: {file} would be a file of that name"
        raise UsageError(message, hint=f"--output-tokens {file} sets the length of the answers; {file}.txt is a file")
    if json:
        return Destination(form=Form.JSON, file=file)
    by_suffix = SUFFIXES.get(file.suffix.lower(), Form.TABLE) if file is not None else Form.TABLE
    return Destination(form=form or by_suffix, file=file)


def encodable(text: str, encoding: str | None) -> str:
    """Text that a stream can take: as it is, or in plain signs where the stream knows no better ones."""
    name = encoding or "utf-8"
    try:
        text.encode(name)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(name, "replace").decode(name)
    return text


def write_file(path: Path, text: str, *, option: str = "--output") -> None:
    """Write a file through a temporary one beside it, so that no reader ever sees a part of it.

    Args:
        path: The file.
        text: What it will hold.
        option: The option that named it.

    Raises:
        UsageError: A place that can't be written.
    """
    import tempfile

    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a device such as /dev/null, a pipe
        _try(path, lambda: target.write_text(text, encoding="utf-8"), option=option)
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

    _try(path, replace, option=option)


def _try(path: Path, write: Callable[[], object], *, option: str) -> None:
    try:
        write()
    except OSError as error:
        message = f"{option}: cannot write {path}: {error.strerror or error}"
        raise UsageError(message) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
