"""Lists in the pages are complete: operations, columns, arguments, functions, formats, commands that stand in a line."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import kvplan
from kvplan import api
from kvplan.calibration.columns import MEASURED, SCENARIO
from kvplan.core.dtypes import FORMATS
from kvplan.core.step import OPS
from kvplan.specs.hardware_schema import HardwareSpec
from kvplan.specs.models import SPEC_FIELDS

ROOT = Path(__file__).parents[2]

_spec = importlib.util.spec_from_file_location("docs_facts_refresh", ROOT / "docs" / "refresh.py")
refresh = importlib.util.module_from_spec(_spec)
sys.modules["docs_facts_refresh"] = refresh
_spec.loader.exec_module(refresh)

#: What stands for something of the reader's own, so that the line can't be run as it is.
PLACEHOLDER = re.compile(r"[A-Z]{2,}|…|my-|measurements\.csv -o|server\.log|path/to|@")
COMMANDS = sorted(
    {
        command
        for page in refresh.PAGES
        for command in re.findall(r"`(kvplan [\w-]+ [^`]+)`", page.read_text(encoding="utf-8"))
        if not PLACEHOLDER.search(command.removeprefix("kvplan"))
    }
)


def page(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_in_a_line_can_be_typed(command):
    words = shlex.split(command)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "kvplan", *words],
        check=False,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode in {0, 3}, done.stderr  # 3: the answer is that it does not fit


def test_names_stand_in_the_modules_that_the_pages_give_for_them():
    """`NAME` and `OTHER` in [`module`](path): a module that was split takes its names along."""
    named = re.compile(r"((?:`\w+`(?:,\s+|\s+and\s+)?)+)\s+(?:in|of)\s+\[`[^`]+`\]\(\.\./(kvplan/[^)]+\.py)\)")
    found = [
        (name, module)
        for one in refresh.PAGES
        for names, module in named.findall(one.read_text(encoding="utf-8"))
        for name in re.findall(r"\w+", names)
        if name != "and"
    ]
    assert len(found) > 15
    made = r"\b{}(?:\(|:| =)"  # defined there, or one of them
    assert [one for one in found if not re.search(made.format(one[0]), page(one[1]))] == []


def test_formulas_list_every_operation_of_a_breakdown():
    listed = re.findall(r"^\| `(\w+)` \|", page("docs/formulas.md"), re.MULTILINE)
    assert tuple(name for name in listed if name in OPS) == OPS


def test_formulas_name_only_formats_that_exist():
    table = page("docs/formulas.md").partition("| Format |")[2].partition("\n\n")[0]
    names = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert len(names) > 12
    assert set(names) <= set(FORMATS)


def test_specs_list_every_column_of_a_record():
    table = page("docs/specs.md").partition("## Measurement records")[2].partition("## Start-up logs")[0]
    assert {*SCENARIO, *MEASURED} <= set(re.findall(r"\w+", table))


def test_specs_list_every_field_of_a_card_and_of_a_model():
    text = page("docs/specs.md")
    cards = text.partition("## Accelerators")[2].partition("## Engine profiles")[0]
    rare = {"target", "form_factor", "released", "measured", "peak_fp16_accumulate", "last_level_cache"}
    assert set(HardwareSpec.model_fields) - rare <= set(re.findall(r"\w+", cards))
    models = text.partition("## Models")[2].partition("## Accelerators")[0]
    assert set(SPEC_FIELDS) <= set(re.findall(r"\w+", models))


def test_python_page_names_every_argument_of_an_estimate_and_every_function():
    words = set(re.findall(r"\w+", page("docs/python.md")))
    assert set(inspect.signature(api.estimate).parameters) <= words
    public = [name for name in kvplan.__all__ if hasattr(api, name) or name.endswith("Error")]
    assert set(public) <= words


def test_readme_takes_its_errors_from_the_validation_page():
    table = page("README.md").partition("## How accurate")[2].partition("## More")[0]
    figures = re.findall(r"\d+(?:\.\d+)? %", table)
    assert len(figures) > 8
    assert [one for one in figures if one not in page("docs/validation.md")] == []
