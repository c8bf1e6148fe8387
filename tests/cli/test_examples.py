"""The examples of every `--help` are typed as they stand there."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvplan.cli.main import COMMANDS, app

ROOT = Path(__file__).parents[2]
GROUPS = ("models", "gpus", "engines")
PAGES = [(), *((name,) for name in COMMANDS), *((group, name) for group in GROUPS for name in ("list", "show"))]
#: What the examples read that is no file of the folder `examples`, and what stands in for it.
FILES = {"server.log": "vllm_0.19.log"}
#: Examples that read what nobody has: a server's logs through a pipe, a result of another tool, rows of one engine.
NOT_RUN = re.compile(r"explain-log - |bench\.json|calibrate |my-vllm\.yaml")


def examples():
    """Command lines under `Examples:` in the help of every command."""
    found = {}
    for page in PAGES:
        text = CliRunner().invoke(app, [*page, "--help"]).stdout
        for line in text.partition("Examples:")[2].split("\n\n")[0].splitlines():
            command = re.search(r"kvplan .*", line)
            if command and not NOT_RUN.search(line):
                found[command[0].strip()] = None
    return list(found)


@pytest.mark.parametrize("command", examples())
def test_examples_of_help_run(command, tmp_path, monkeypatch, invoke):
    monkeypatch.chdir(tmp_path)
    for path in (ROOT / "examples").iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    for name, source in FILES.items():
        shutil.copy(tmp_path / source, tmp_path / name)
    done = invoke(*shlex.split(command)[1:])
    assert done.exit_code in {0, 3}, done.stderr  # 3: the answer is that it does not fit
