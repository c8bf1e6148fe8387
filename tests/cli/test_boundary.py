from __future__ import annotations

import pytest
import typer

from kvplan.cli.boundary import guarded
from kvplan.errors import HubError, InfeasibleError, KvplanError, SpecError, UnknownNameError, UsageError


def failing(error):
    def run():
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("bad"), 2),
        (UnknownNameError("who"), 2),
        (InfeasibleError("no room"), 3),
        (SpecError("broken"), 4),
        (HubError("gated"), 5),
        (KvplanError("odd"), 1),
        (typer.BadParameter("worse"), 2),
        (typer.Exit(3), 3),
        (typer.Exit(), 0),
        (SystemExit(5), 5),
        (SystemExit(), 0),
        (KeyboardInterrupt(), 130),
        (typer.Abort(), 130),
        (ZeroDivisionError("oops"), 1),
    ],
)
def test_each_error_has_its_exit_code(error, code, capsys):
    assert guarded(failing(error)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) <= 3


def test_what_why_and_hint_are_three_lines(capsys):
    guarded(failing(UsageError("tp: 3 does not divide\nthe 32 heads\nof llama", hint="use 1, 2\nor 4")))
    assert capsys.readouterr().err.splitlines() == [
        "error: tp: 3 does not divide",
        "the 32 heads; of llama",
        "hint: use 1, 2; or 4",
    ]


def test_a_spec_file_tells_all_its_errors(capsys):
    guarded(failing(SpecError("a.yaml:1: one\na.yaml:2: two\na.yaml:3: three\na.yaml:4: four")))
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_names_cannot_drive_the_terminal(capsys):
    guarded(failing(UnknownNameError("unknown model \x1b]0;evil\x07\x9b2J", hint="\x1b[31m")))
    err = capsys.readouterr().err
    assert not any(char in err for char in "\x1b\x07\x9b")


def test_a_bug_is_one_line_unless_debugging(monkeypatch, capsys):
    monkeypatch.delenv("KVPLAN_DEBUG", raising=False)
    assert guarded(failing(RuntimeError("two\nlines"))) == 1
    err = capsys.readouterr().err
    assert err == "bug in kvplan: RuntimeError: two\\x0alines (KVPLAN_DEBUG=1 shows the traceback)\n"
    monkeypatch.setenv("KVPLAN_DEBUG", "1")
    with pytest.raises(RuntimeError):
        guarded(failing(RuntimeError("two")))


def test_an_answer_without_code_is_success():
    assert guarded(lambda: None) == 0
    assert guarded(lambda: 3) == 3
