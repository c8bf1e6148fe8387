"""The laws that every reader keeps for any input, and a watch over what it opens, runs and connects to."""

from __future__ import annotations

import os
import re
import resource
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError

#: Seconds of the process's own time, and bytes more than before, that one input may take.
MOST_S = 1.0
MOST_BYTES = 500 * 2**20
CODES = frozenset({2, 4, 5})
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_FORBIDDEN = (
    "subprocess.",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "socket.connect",
    "pty.",
    "shutil.rmtree",
)
_ROOT = Path(__file__).resolve().parents[2]
_READABLE = tuple(
    {os.path.realpath(path) + os.sep for path in (_ROOT, sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())}
    | {
        "/proc/",
        "/dev/zero",
        "/etc/localtime",
        "/usr/share/zoneinfo",
        "/sys/",
    }
)


class LawBrokenError(AssertionError):
    """An answer that no input may get."""


@dataclass(slots=True)
class Watch:
    """What may be opened while an input is read."""

    active: bool = False
    folder: str = ""
    broken: list[str] = field(default_factory=list)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what a reader has no business to do; see `sys.addaudithook`."""
        if not self.active:
            return
        if event.startswith(_FORBIDDEN):
            self.broken.append(f"{event}{arguments!r}"[:200])
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, flags = os.path.realpath(os.fsdecode(arguments[0])), arguments[2] or 0
            inside = path.startswith(self.folder) or path.endswith("/token")  # the hub's client looks for one
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if not inside and (writes or not path.startswith(_READABLE)):
                self.broken.append(f"open {path} ({flags})")


_watch = Watch()
sys.addaudithook(_watch.hook)


@contextmanager
def watched(folder: Path):
    """Note every file outside a folder, process and connection that is opened meanwhile."""
    _watch.folder, _watch.active, _watch.broken = os.path.realpath(folder), True, []
    try:
        yield _watch
    finally:
        _watch.active = False


def keeps_the_laws(run: Callable[[bytes, Path], None], data: bytes, folder: Path) -> bool:
    """Read an input; True where it was accepted, False where it was refused as it should be.

    Raises:
        LawBrokenError: A traceback, a wrong exit code, too much time or memory, something opened that was not given.
    """
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    accepted = True
    with watched(folder) as watch:
        try:
            run(data, folder)
        except KvplanError as error:
            accepted = False
            _check_error(error)
        except LawBrokenError:
            raise
        except BaseException as error:
            frames = [f for f in traceback.extract_tb(error.__traceback__) if "kvplan" in f.filename]
            place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
            message = f"{type(error).__name__} at {place}: {str(error)[:150]}"
            raise LawBrokenError(message) from error
    spent = time.process_time() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if watch.broken:
        message = f"opened what was not given: {watch.broken[0]}"
        raise LawBrokenError(message)
    if spent > MOST_S:
        message = f"took {spent:.1f} s"
        raise LawBrokenError(message)
    if grown > MOST_BYTES:
        message = f"took {grown / 2**20:.0f} MiB"
        raise LawBrokenError(message)
    return accepted


def _check_error(error: KvplanError) -> None:
    lines = str(error).splitlines()
    if error.exit_code not in CODES or not lines or len(lines) > 110 or len(str(error)) > 40_000:
        message = f"exit code {error.exit_code}, {len(lines)} lines, {len(str(error))} characters: {str(error)[:80]!r}"
        raise LawBrokenError(message)


def check_shown(text: str) -> None:
    """Text that goes to a terminal holds nothing that acts on it.

    Raises:
        LawBrokenError: It does.
    """
    found = _CONTROL.search(text)
    if found:
        message = f"control character {found[0]!r} in {text[max(0, found.start() - 40) : found.end() + 20]!r}"
        raise LawBrokenError(message)
