"""CSV for spreadsheets: one header, flat rows, full precision, RFC 4180 quoting."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.report.text import neutral


def render_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Rows under the union of their columns, in the order of first appearance; None is an empty cell."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for record in records:
        writer.writerow([_cell(record.get(column)) for column in columns])
    return text.getvalue()


def _cell(value: Any) -> Any:  # noqa: ANN401 - any JSON scalar
    if isinstance(value, bool):
        return "true" if value else "false"
    return neutral(value) if isinstance(value, str) else value
