"""A sign of life on a terminal while an answer takes more than a second."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

_PATIENCE_S: Final = 1.0


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show what goes on, on stderr and only on a terminal; the line is gone when the answer comes."""
    if not sys.stderr.isatty():
        yield
        return
    done = Event()
    shown = Thread(target=_show, args=(what, done), daemon=True)
    shown.start()
    try:
        yield
    finally:
        done.set()
        shown.join()


def _show(what: str, done: Event) -> None:
    if done.wait(_PATIENCE_S):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        bar.add_task(what, total=None)
        done.wait()
