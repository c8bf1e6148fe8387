"""One report in the form that was asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import TextIO, assert_never

from kvplan.report.blocks import Report


class Form(StrEnum):
    """The forms that every result takes."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


#: Form that a file name asks for, where none was named.
SUFFIXES = {".json": Form.JSON, ".csv": Form.CSV, ".md": Form.MARKDOWN, ".markdown": Form.MARKDOWN}


def render(report: Report, form: Form) -> str:
    """A report as text that ends in one newline."""
    match form:
        case Form.TABLE:
            from kvplan.report.as_plain import render_plain  # noqa: PLC0415 - one form is loaded, not four

            return render_plain(report.blocks())
        case Form.JSON:
            from kvplan.report.as_json import render_json  # noqa: PLC0415

            return render_json(report.data())
        case Form.CSV:
            from kvplan.report.as_csv import render_csv  # noqa: PLC0415

            return render_csv(report.records())
        case Form.MARKDOWN:
            from kvplan.report.as_markdown import render_markdown  # noqa: PLC0415

            return render_markdown(report.blocks())
        case _:
            assert_never(form)


def show(report: Report, *, file: TextIO) -> None:
    """Print a report on a terminal (rich is loaded here and nowhere else)."""
    from kvplan.report.as_terminal import print_terminal  # noqa: PLC0415

    print_terminal(report.blocks(), file=file)
