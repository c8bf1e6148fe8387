"""The one place where errors become words and exit codes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any, Final

import typer

from kvplan.errors import KvplanError, SpecError
from kvplan.report.text import neutral

EXIT_BUG: Final = 1
EXIT_USAGE: Final = 2
EXIT_INFEASIBLE: Final = 3
EXIT_INTERRUPTED: Final = 130

#: What typer versions call the numbers that they expected.
_NOT_WHOLE: Final = re.compile(r"a valid int(eger)?( range)?\.")
_NOT_NUMBER: Final = re.compile(r"a valid float( range)?\.")
#: The base of all errors that typer raises about a command line, wherever this typer version keeps it.
_COMMAND_LINE_ERROR: Final = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def guarded(run: Callable[[], Any]) -> int:
    """Run a command line and answer its exit code; whatever goes wrong is told on stderr in at most three lines."""
    try:
        code = run()
    except BrokenPipeError:
        silence_stdout()
        code = 0
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except (typer.Exit, SystemExit) as done:
        code = done.exit_code if isinstance(done, typer.Exit) else done.code
    except Exception as error:
        code = _told(error)
        if code == EXIT_BUG and os.environ.get("KVPLAN_DEBUG") == "1":
            raise
    return code if isinstance(code, int) else 0


def _told(error: Exception) -> int:
    """Tell an error on stderr and answer its exit code."""
    if isinstance(error, KvplanError):
        _tell(*_kvplan_lines(error))
        return error.exit_code
    if isinstance(error, _COMMAND_LINE_ERROR):
        _tell(*_command_line_lines(error))
        return EXIT_USAGE
    words = neutral(f"{type(error).__name__}: {error}")
    _tell(f"bug in kvplan: {words} (KVPLAN_DEBUG=1 shows the traceback)", label="")
    return EXIT_BUG


def silence_stdout() -> None:
    """Let the interpreter's last flush go nowhere after a reader has closed the pipe."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _kvplan_lines(error: KvplanError) -> list[str]:
    """What, why, hint; only a spec file tells more, since it reports all its errors in one run."""
    words = [neutral(line) for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if not isinstance(error, SpecError):
        words = [words[0], "; ".join(words[1:])] if len(words) > 1 else words
    hint = [f"hint: {neutral('; '.join(error.hint.splitlines()))}"] if error.hint else []
    return [*words, *hint]


def _command_line_lines(error: Exception) -> list[str]:
    from kvplan.cli.mistakes import next_step

    message, step = next_step(error)
    message = _NOT_WHOLE.sub("a whole number.", _NOT_NUMBER.sub("a number.", message))
    path = getattr(getattr(error, "ctx", None), "command_path", None)
    hints = [hint for hint in (step, f"{path} --help" if path else None) if hint]
    return [neutral(message), *([f"hint: {neutral(' '.join(hints))}"] if hints else [])]


def _tell(first: str, *rest: str, label: str = "error: ") -> None:
    text = "\n".join([f"{label}{first}", *rest])
    encoding = sys.stderr.encoding or "utf-8"
    sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
