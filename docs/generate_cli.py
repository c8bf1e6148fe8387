"""Write docs/cli.md from the `--help` of every command: `python docs/generate_cli.py` (docs/refresh.py calls it too)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cli.md"

_COLUMNS = 100
_HEAD = """\
# Command line

<!-- Written by docs/generate_cli.py from the commands' own help. Don't edit it here. -->

Results go to stdout, everything else to stderr. `--json` prints one JSON document and nothing else; `-o FILE` writes a
file whole or not at all, in the form that its suffix says. Long options have the names of the
[Python arguments](python.md), with dashes; the engines' own spellings (`--max-model-len`) are accepted too.

| Exit code | Meaning |
| --- | --- |
| 0 | Answered. |
| 1 | A bug in kvplan. |
| 2 | Wrong usage: an option, a value, an unknown name (the nearest names are told). |
| 3 | Infeasible: it does not fit, or a target can't be reached. The result is printed all the same. |
| 4 | A spec or file is broken or not understood. |
| 5 | The network failed, or a repository is missing or gated. |
| 130 | Interrupted. |

Shell completion of commands, options, models and GPUs: `kvplan --install-completion`.
"""


def commands() -> Iterator[tuple[str, ...]]:
    """Words of every command, groups before what they hold; empty for `kvplan` itself."""
    sys.path.insert(0, str(ROOT))
    from kvplan.cli.main import COMMANDS  # noqa: PLC0415 - from this repository, whatever is installed

    yield ()
    for name, lazy in COMMANDS.items():
        yield (name,)
        for inner in getattr(lazy.load(name), "commands", {}):
            yield (name, inner)


def help_of(words: tuple[str, ...]) -> str:
    """What `--help` prints at 100 columns."""
    done = subprocess.run(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", "kvplan", *words, "--help"],
        check=True,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": str(_COLUMNS), "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "NO_COLOR": "1"},
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def page() -> str:
    """The page as it should be."""
    parts = [_HEAD]
    for words in commands():
        title = " ".join(("kvplan", *words))
        parts.append(f"{'#' * min(3, 2 + max(0, len(words) - 1))} {title}\n\n```text\n{help_of(words)}\n```\n")
    return "\n".join(parts)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
