"""CSV for spreadsheets: one header, flat rows, full precision, RFC 4180 quoting, no cell that acts.

A spreadsheet takes text that begins with `=`, `+`, `-` or `@` for a formula, and a formula can send a sheet's contents away.
Names come from strangers' files, so such text gets an apostrophe in front, which spreadsheets read as "this is text"
(OWASP, CSV injection: https://owasp.org/www-community/attacks/CSV_Injection). Numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvplan.report.text import neutral

#: The last four are the wide forms that some spreadsheets take for the first; tabs and line ends are written out before.
_BEGINS_A_FORMULA: Final = tuple("=+-@＝＋－＠")


def render_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Rows under the union of their columns, in the order of first appearance; None is an empty cell."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_text(column) for column in columns])
    for record in records:
        writer.writerow([_cell(record.get(column)) for column in columns])
    return text.getvalue()


def _cell(value: Any) -> Any:  # noqa: ANN401 - any JSON scalar
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> str:
    shown = neutral(value)
    return f"'{shown}" if shown.startswith(_BEGINS_A_FORMULA) else shown
