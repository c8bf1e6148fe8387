"""JSON for programs: one document, nothing rounded, nothing but numbers that JSON has."""

from __future__ import annotations

import json
from typing import Any

from kvplan.report.text import neutral_json


def render_json(data: Any) -> str:  # noqa: ANN401 - any JSON document
    """A JSON document with a newline at its end; control characters in names are escaped."""
    return neutral_json(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"
