"""docs/cli.md is what the commands' own help says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

_spec = importlib.util.spec_from_file_location("docs_generate_cli", ROOT / "docs" / "generate_cli.py")
generate_cli = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate_cli)


def words(text):
    """Words without regard to wrapping, nor to how a typer version spells the kind of a value."""
    return re.sub(r"[<>{}\[\]]", " ", text).casefold().replace("integer range", "int range").split()


def test_the_page_is_current():
    shown = generate_cli.PAGE.read_text(encoding="utf-8")
    assert words(shown) == words(generate_cli.page()), "run `python docs/refresh.py`"


def test_every_command_stands_in_the_page():
    shown = generate_cli.PAGE.read_text(encoding="utf-8")
    for command in generate_cli.commands():
        assert re.search(rf"^##+ {' '.join(('kvplan', *command))}$", shown, re.MULTILINE)
