"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kvplan.errors import UsageError


def write_file(path: Path, content: str | bytes, *, option: str = "--output") -> None:
    """Write a file through a temporary one beside it, so that no reader ever sees a part of it.

    A link is followed and stays, a file keeps its mode, a device or pipe is written to as it is.

    Args:
        path: Where to.
        content: Text (as UTF-8) or bytes.
        option: What the user gave the path with, for the message.

    Raises:
        UsageError: A place that can't be written.
    """
    data = content if isinstance(content, bytes) else content.encode()

    def replace(target: Path) -> None:
        import tempfile  # noqa: PLC0415 - only where a file is written

        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".kvplan-", suffix=".tmp")
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            part.chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask())
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def write() -> None:
        if path.exists() and not path.is_file():  # /dev/stdout is a link to what has no path, a pipe perhaps
            path.write_bytes(data)
        else:
            replace(Path(os.path.realpath(path)))

    _tried(write, path, option)


def make_folder(path: Path, *, option: str) -> None:
    """Make a folder with those above it, where it is not there.

    Raises:
        UsageError: It can't be made.
    """
    _tried(lambda: path.mkdir(parents=True, exist_ok=True), path, option)


def is_folder(path: Path) -> bool:
    """True for a folder; False also for a name that no system could have."""
    return os.path.isdir(path)  # noqa: PTH112 - pathlib raises for names that are too long


def is_there(path: Path) -> bool:
    """True where something has that name; False also for a name that no system could have."""
    return os.path.exists(path)  # noqa: PTH110 - as above


def _tried(act: Callable[[], None], path: Path, option: str) -> None:
    try:
        act()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        message = f"{option}: cannot write {path}: {getattr(error, 'strerror', None) or error}"
        raise UsageError(message) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
