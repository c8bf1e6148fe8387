"""Bundled specs, parsed once: what YAML said is kept beside the file as Python keeps its compiled modules.

Reading the four files behind one estimate with PyYAML takes 20 ms, most of it the library's own import; what it said takes
a quarter of one. The copy stands in the folder's `__pycache__`, is found by Python's rules (`PYTHONPYCACHEPREFIX`,
`PYTHONDONTWRITEBYTECODE`) and counts only for the very bytes it was made from, so it never says anything else than the
file. Where it can't be written, the file is parsed each time.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
from importlib.util import cache_from_source, source_hash
from pathlib import Path
from typing import Final

from kvplan.specs.document import YamlDocument

#: Changes whenever `specs.yaml` would read the same bytes otherwise.
_READER: Final = b"kvplan-yaml-1\n"


def load_bundled(path: Path) -> YamlDocument:
    """Read a bundled spec, from its kept copy where that was made from the same bytes.

    Raises:
        SpecError: The file can't be read, or breaks the rules.
    """
    try:
        head = _READER + source_hash(path.read_bytes())
        kept = cache_from_source(path)
    except (OSError, NotImplementedError):  # unreadable, which the parser tells; an interpreter that keeps nothing
        return _parsed(path)
    try:
        with open(kept, "rb") as file:  # noqa: PTH123 - a name, as importlib gives it
            content = file.read()
        if content.startswith(head):
            data, lines = marshal.loads(content[len(head) :])  # noqa: S302 - trusted as its neighbours, the .pyc files
            return YamlDocument(path=str(path), data=data, lines=lines)
    except (OSError, EOFError, TypeError, ValueError):  # not there, or torn
        pass
    document = _parsed(path)
    if not sys.dont_write_bytecode:
        _keep(kept, head + marshal.dumps((document.data, dict(document.lines))))
    return document


def _parsed(path: Path) -> YamlDocument:
    from kvplan.specs.yaml import load_yaml  # noqa: PLC0415 - what a kept copy saves

    return load_yaml(path)


def _keep(kept: str, content: bytes) -> None:
    """Write a copy whole or not at all; a place that can't be written is no error."""
    part = f"{kept}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(kept), exist_ok=True)  # noqa: PTH103, PTH120 - as above
        with open(part, "wb") as file:  # noqa: PTH123 - as above
            file.write(content)
        os.replace(part, kept)  # noqa: PTH105 - as above
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part)  # noqa: PTH108 - as above
