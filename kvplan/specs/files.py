"""Files that users name, read within bounds: what a path means, how much of it is read, how large JSON may be."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

from kvplan.errors import SpecError, UsageError

#: Values and containers of one JSON document; the largest of real checkpoints have a quarter of a million.
MOST_JSON_ITEMS: Final = 400_000


def named(kind: str, given: object) -> str:
    """What a model, GPU or engine was given as, as text.

    Raises:
        UsageError: It is neither a name nor a path.
    """
    if isinstance(given, str | os.PathLike) and (name := os.fsdecode(given)):
        return name
    msg = f"{kind}: must be a name, a path or fields, not {str(given)[:80]!r}"
    raise UsageError(msg)


def located(name: str | os.PathLike[str]) -> Path | None:
    """The file or folder that a name means, None where there is none or no system could have it."""
    try:
        path = Path(name).expanduser()
        return path if "\0" not in str(path) and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, not searchable, `~` of a user that isn't, a zero byte
        return None


def read_bytes(path: Path, *, most_bytes: int, what: str = "a config") -> bytes:
    """The whole of a small file; no more than the bound is ever read, whatever the file says of its size.

    Raises:
        SpecError: It can't be read, or is larger.
    """
    try:
        size = path.stat().st_size
        if size <= most_bytes:
            with path.open("rb") as file:
                raw = file.read(most_bytes + 1)
            if len(raw) <= most_bytes:
                return raw
    except (OSError, ValueError) as error:
        msg = f"{path}: can't be read: {getattr(error, 'strerror', None) or error}"
        raise SpecError(msg) from None
    told = f"{size:,} bytes are too many" if size > most_bytes else "it is too large"
    msg = f"{path}: {told} for {what} ({most_bytes:,} at most)"
    raise SpecError(msg)


def parse_json(raw: bytes, *, source: str, most_items: int = MOST_JSON_ITEMS) -> Any:  # noqa: ANN401 - any JSON
    """The value of a JSON document of sane size and depth.

    Its items are counted before anything is built: a million empty lists take two megabytes as text and seventy as
    objects.

    Raises:
        SpecError: It is no JSON, nested too deeply, or has too many values.
    """
    if sum(raw.count(sign) for sign in (b",", b"[", b"{")) > most_items:
        msg = f"{source}: more than {most_items:,} values are refused"
        raise SpecError(msg)
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        msg = f"{source}:{error.lineno}: not JSON: {error.msg}"
        raise SpecError(msg) from None
    except RecursionError:
        msg = f"{source}: nested too deeply"
        raise SpecError(msg) from None
    except UnicodeDecodeError:
        msg = f"{source}: not JSON: not UTF-8 text"
        raise SpecError(msg) from None
    except ValueError:  # Python converts no integer of more than 4300 digits
        msg = f"{source}: not JSON: a number with too many digits"
        raise SpecError(msg) from None


def is_regular(path: Path) -> bool:
    """False for pipes, sockets and devices, which have no end to look at."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False
