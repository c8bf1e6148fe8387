from __future__ import annotations

import io
import time

import pytest

from kvplan.cli import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "patience_s", "shown"), [(Terminal, 0.0, True), (Terminal, 60.0, False), (io.StringIO, 0.0, False)]
)
def test_only_a_terminal_is_told_and_only_what_takes_long(stream, patience_s, shown, monkeypatch):
    stderr = stream()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(progress, "_PATIENCE_S", patience_s)
    with progress.working("counting sheep [s]"):
        until = time.monotonic() + 10
        while shown and "counting sheep [s]" not in stderr.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
    assert ("counting sheep [s]" in stderr.getvalue()) == shown


def test_errors_come_through(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    with pytest.raises(ZeroDivisionError), progress.working("dividing"):
        _ = 1 / 0
