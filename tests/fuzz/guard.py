"""The laws that every reader keeps for any input, and a watch over what it opens, runs and connects to."""

from __future__ import annotations

import os
import resource
import sys
import sysconfig
import time
import traceback
import unicodedata
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from kvplan.errors import KvplanError

#: Seconds of the process's own time, and bytes more than before, that one input may take.
MOST_S = 1.0
MOST_BYTES = 500 * 2**20
CODES = frozenset({2, 4, 5})
#: Unicode's categories of what acts on a terminal, hides or turns text around, and of what has no meaning there.
_NOT_SHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
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
_DEVICES = frozenset({"/dev/full", "/dev/null"})
_ROOT = Path(__file__).resolve().parents[2]
#: Where bundled specs are kept as they were parsed, like compiled modules.
_KEPT = tuple(
    f"{_ROOT}{os.sep}{name}{os.sep}__pycache__{os.sep}"
    for name in ("model_specs", "hardware_specs", "kvplan/specs/profiles")
)
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
    """An answer that no input may get.

    Args:
        kind: The law, and where it was broken: one find is kept of each.
        details: More about this case.
    """

    def __init__(self, kind: str, details: str = "") -> None:
        super().__init__(f"{kind}: {details}" if details else kind)
        self.kind = kind


def broken(kind: str, details: str = "") -> NoReturn:
    """Say that a law was broken.

    Raises:
        LawBrokenError: Always.
    """
    raise LawBrokenError(kind, details)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an input: taken or refused, in how much of the process's time, and how much memory it added."""

    accepted: bool
    spent_s: float
    grown_bytes: int


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
        if event == "shutil.rmtree" and os.path.realpath(os.fsdecode(arguments[0])).startswith(self.folder):
            return
        if event.startswith(_FORBIDDEN):
            self.broken.append(f"{event}{arguments!r}"[:200])
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, flags = os.path.realpath(os.fsdecode(arguments[0])), arguments[2] or 0
            inside = path.startswith(self.folder) or path.endswith("/token")  # the hub's client looks for one
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            inside = inside or path in _DEVICES or path.startswith(_KEPT)
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


def keeps_the_laws(run: Callable[[bytes, Path], None], data: bytes, folder: Path, *, most_s: float = MOST_S) -> Answer:
    """Read an input that is accepted, or refused as it should be.

    Args:
        run: The reader.
        data: The input.
        folder: Its folder: nothing else is opened.
        most_s: The process's own time that it may take [s].

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
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a find
            frames = [f for f in traceback.extract_tb(error.__traceback__) if "kvplan" in f.filename]
            place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
            broken(f"{type(error).__name__} at {place}", str(error)[:150])
    spent = time.process_time() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if watch.broken:
        broken("opened what was not given", watch.broken[0])
    if spent > most_s:
        broken("took too long", f"{spent:.1f} s")
    if grown > MOST_BYTES:
        broken("took too much memory", f"{grown / 2**20:.0f} MiB")
    return Answer(accepted=accepted, spent_s=spent, grown_bytes=grown)


def _check_error(error: KvplanError) -> None:
    lines = str(error).splitlines()
    if error.exit_code not in CODES or not lines or len(lines) > 110 or len(str(error)) > 40_000:
        told = f"exit code {error.exit_code}, {len(lines)} lines, {len(str(error))} characters: {str(error)[:80]!r}"
        broken("an error that says too much, nothing or the wrong code", told)


def check_shown(text: str) -> None:
    """Text that goes to a terminal holds nothing that acts on it.

    Raises:
        LawBrokenError: It does.
    """
    if text.replace("\n", "").isprintable():
        return
    for at, char in enumerate(text):
        if char != "\n" and unicodedata.category(char) in _NOT_SHOWN:
            broken("a character that is not shown", repr(text[max(0, at - 40) : at + 20]))
