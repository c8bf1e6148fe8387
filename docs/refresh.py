"""Rewrite the outputs that README and docs show, from the code as it is: `python docs/refresh.py`.

A fence marked `console` holds commands after `$ ` and, below each, what it prints (stdout and stderr as a terminal
shows them). Blocks of a page run in order in one scratch folder that holds a copy of `examples/`; a fence whose first
line is `# file: NAME` is written there first. A comment `<!-- not run: why -->` before a fence leaves it alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Pages whose fences are run, README first. docs/cli.md is written by generate_cli.py.
PAGES = (ROOT / "README.md", *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "cli.md"))

_FENCE = re.compile(
    r"(?:<!-- not run: (?P<why>[^\n]+?) -->\n+)?^(?P<indent> *)```(?P<kind>[a-z]+)\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"# file: (?P<name>[\w.-]+)\n")

#: `kvplan` is the code of this repository, run by the Python that runs this script.
_SHELL = 'kvplan() { "$PYTHON" -m kvplan "$@"; }\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A fenced block of a page.

    Attributes:
        kind: Its language (`console`, `python`, `yaml`, `sh`, …).
        body: Its text.
        why: Why it is not run; None for one that is.
        indented: True inside a list, where a fence is never run.
        start, end: Where the body stands in the page.
    """

    kind: str
    body: str
    why: str | None
    indented: bool
    start: int
    end: int


def fences(text: str) -> Iterator[Fence]:
    """Fenced blocks of a page, in order."""
    for match in _FENCE.finditer(text):
        yield Fence(
            kind=match["kind"],
            body=match["body"],
            why=match["why"],
            indented=bool(match["indent"]),
            start=match.start("body"),
            end=match.end("body"),
        )


def refreshed(text: str) -> str:
    """The page with what its commands print today."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "examples", folder / "examples")
        parts, done = [], 0
        for fence in fences(text):
            if fence.why is not None or fence.indented:
                continue
            if (file := _FILE.match(fence.body)) is not None:
                (folder / file["name"]).write_text(fence.body[file.end() :], encoding="utf-8")
            if fence.kind == "console":
                parts += [text[done : fence.start], _run(fence.body, folder)]
                done = fence.end
        return "".join([*parts, text[done:]])


def _run(body: str, folder: Path) -> str:
    """The commands of a block, each with what it prints."""
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "PYTHONUTF8": "1",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    shown = []
    for line in body.splitlines():
        if not line.startswith("$ "):
            continue
        done = subprocess.run(  # noqa: S603 - the commands are those of our own pages
            ["bash", "-c", _SHELL + line[2:]],  # noqa: S607 - bash as the shell finds it
            check=False,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        shown += [line, *(printed.rstrip() for printed in done.stdout.strip("\n").splitlines())]
    return "\n".join([*shown, ""])


def main() -> None:
    """Rewrite every page in place, name those that changed, and write docs/cli.md anew."""
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = refreshed(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"changed: {page.relative_to(ROOT)}")
    subprocess.run([sys.executable, str(ROOT / "docs" / "generate_cli.py")], check=True)  # noqa: S603 - our own script


if __name__ == "__main__":
    main()
