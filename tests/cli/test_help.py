from __future__ import annotations

import inspect
import re

import pytest

import kvplan
from kvplan.cli import scenario
from kvplan.cli.main import COMMANDS

PAGES = [
    (),
    ("estimate",),
    ("models", "import"),
    *[(group, *command) for group in ("models", "gpus", "engines") for command in ((), ("list",), ("show",))],
]


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_every_page_has_a_line_and_examples(page, invoke):
    result = invoke(*page, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: {' '.join(('kvplan', *page))}") or "Usage:" in result.stdout
    if len(page) != 1 or page == ("estimate",):
        assert "Examples:" in result.stdout


@pytest.mark.parametrize("page", [(), ("models",)], ids=str)
def test_a_bare_group_shows_its_help(page, invoke):
    result = invoke(*page)
    assert result.exit_code == 0
    assert "Commands:" in result.stdout


def test_commands_are_listed_without_being_loaded(invoke):
    result = invoke("--help")
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.help[:20])}", result.stdout, re.MULTILINE)


def test_options_stand_in_panels_with_units_and_defaults(invoke):
    text = " ".join(invoke("estimate", "--help").stdout.split())
    for words in (
        "What is deployed:",
        "Layout over GPUs:",
        "Workload:",
        "Engine settings:",
        "Output:",
        "Prompt length, the tokens of its images and sound among them [tokens]. [default: 1024",
        "--context, --max-model-len",
        "--kv-dtype, --kv-cache-dtype",
        "[default: (input + output)",
        "[0 to 1]",
    ):
        assert words in text


def test_scenario_options_are_the_keywords_of_an_estimate():
    """Names and defaults have one home, the signature; what `--help` shows as a default must be it."""
    keywords = {name: one.default for name, one in inspect.signature(kvplan.estimate).parameters.items()}
    del keywords["overrides"]  # `compare --vary config.KEY=…` and scenario files
    shown = {name: default for name, (_, default) in scenario._FIELDS.items()}
    for name in ("model", "gpu"):  # a scenario file may name them
        assert keywords.pop(name) is inspect.Parameter.empty
        assert shown.pop(name) is None
    assert shown == keywords


def test_version(invoke):
    result = invoke("--version")
    assert re.fullmatch(r"kvplan \d+\.\d+\.\d+\S*\n", result.stdout)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (("explain-log",), "FILE Start-up log; - reads standard input. [required]"),
        (("models", "show"), "a GGUF file, or a Hugging Face repo id. [required]"),
        (("gpus", "list"), "[TEXT] Only those with this text in their name;"),
    ],
)
def test_arguments_explain_themselves(page, words, invoke):
    assert words in " ".join(invoke(*page, "--help").stdout.split())
