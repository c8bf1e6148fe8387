"""Where a result goes: a terminal, a pipe or a file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from kvplan.cli.boundary import silence_stdout
from kvplan.errors import UsageError
from kvplan.report.blocks import Report
from kvplan.report.render import SUFFIXES, Form, render, show
from kvplan.writing import is_folder, write_file

#: Signs that a stream without UTF-8 gets instead.
_ASCII = str.maketrans(
    {
        "×": "x",
        "±": "+-",
        "÷": "/",
        "–": "-",
        "—": "-",
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
        **dict(zip("▁▂▃▄▅▆▇", "_.:-=+*", strict=True)),
    }
)


_PICTURE = "--plot FILE draws it"
_SHEET = "a spreadsheet opens .csv"
_SCENARIO = "--save-scenario FILE writes a scenario"
#: Suffixes that promise a form which a result does not have, and what is meant perhaps.
_OTHER_FORMS = {
    ".png": _PICTURE,
    ".svg": _PICTURE,
    ".pdf": _PICTURE,
    ".xls": _SHEET,
    ".xlsx": _SHEET,
    ".parquet": _SHEET,
    ".yaml": _SCENARIO,
    ".yml": _SCENARIO,
    ".jsonl": "one document is .json",
    ".html": "a browser shows .md or --plot",
}


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
        UsageError: Two forms at once, a folder, a number where a length was meant, or a suffix that promises another form.
    """
    file = None if output is None or str(output) == "-" else output
    if json and form not in {None, Form.JSON}:
        message = f"--json and --format {form} ask for two forms"
        raise UsageError(message, hint="leave one out")
    if file is not None and is_folder(file):
        message = f"--output: {file} is a folder"
        raise UsageError(message, hint="give the name of a file in it")
    if file is not None and str(file).isdecimal():
        message = f"--output: {file} would be a file of that name"
        raise UsageError(message, hint=f"--output-tokens {file} sets the length of the answers; {file}.txt is a file")
    if json:
        return Destination(form=Form.JSON, file=file)
    suffix = file.suffix.lower() if file is not None else ""
    if form is None and suffix in _OTHER_FORMS:
        message = f"--output: kvplan writes no {suffix} file of a result"
        raise UsageError(message, hint=f"{_OTHER_FORMS[suffix]}; .csv, .json and .md name a form, any other a table")
    return Destination(form=form or SUFFIXES.get(suffix, Form.TABLE), file=file)


def encodable(text: str, encoding: str | None) -> str:
    """Text that a stream can take: as it is, or in plain signs where the stream knows no better ones."""
    name = encoding or "utf-8"
    try:
        text.encode(name)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(name, "replace").decode(name)
    return text
