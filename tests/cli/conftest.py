"""Command lines as a user types them: in this process where that is enough, in a fresh one where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvplan.cli.main import app

ROOT = Path(__file__).parents[2]


@pytest.fixture
def invoke():
    """Run a command line in this process; stdout and stderr apart."""

    def run(*args):
        return CliRunner().invoke(app, [str(arg) for arg in args])

    return run


@pytest.fixture
def kvplan(tmp_path):
    """Run a command line in a fresh interpreter, from a folder that is not the repository."""

    def run(*args, env=None, **options):
        inherited = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **(env or {})}
        return subprocess.run(
            [sys.executable, "-m", "kvplan", *map(str, args)],
            check=False,
            cwd=tmp_path,
            env=inherited,
            **{"capture_output": True, "text": True, "encoding": "utf-8", **options},
        )

    return run
