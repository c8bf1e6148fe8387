"""README and docs say what the code does today: their commands, examples, links and set-up lines are run or checked."""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_spec = importlib.util.spec_from_file_location("docs_refresh", ROOT / "docs" / "refresh.py")
refresh = importlib.util.module_from_spec(_spec)
sys.modules["docs_refresh"] = refresh
_spec.loader.exec_module(refresh)

PAGES = pytest.mark.parametrize("page", refresh.PAGES, ids=lambda page: page.name)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([\w.-]+))?\)")


def words(text):
    """Text without regard to how it is spaced."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@PAGES
def test_commands_print_what_the_page_shows(page):
    shown = page.read_text(encoding="utf-8")
    now = refresh.refreshed(shown)
    assert words(now) == words(shown), "run `python docs/refresh.py` and read what changed"


@PAGES
def test_python_examples_hold(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    examples = [
        fence
        for fence in refresh.fences(page.read_text(encoding="utf-8"))
        if fence.kind == "python" and fence.why is None
    ]
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    names = {}
    for fence in examples:
        assert ">>>" in fence.body, f"an example that shows no prompt and gives no reason: {fence.body[:60]}"
        test = parser.get_doctest(fence.body, names, page.name, str(page), 0)
        runner.run(test, clear_globs=False)
        names = test.globs
    assert runner.summarize(verbose=False).failed == 0


@PAGES
def test_blocks_that_are_not_run_say_why(page):
    for fence in refresh.fences(page.read_text(encoding="utf-8")):
        run = fence.kind in {"console", "python"} and not fence.indented
        shown = fence.kind in {"yaml", "json", "text"}
        assert run or shown or fence.why, fence.body


@PAGES
def test_links_lead_somewhere(page):
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        place = page.parent / target if target else page
        assert place.exists(), f"{page.name} links {target}, which is not there"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, anchor


def test_readme_is_short_and_its_two_commands_are_those_of_ci():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    setup, tests = (fence.body for fence in refresh.fences(text) if fence.kind == "sh")
    assert "pip install -e . && .venv/bin/kvplan estimate --model llama-3-8b --gpu a100-80g" in setup
    assert "pip install -e '.[test]' && .venv/bin/pytest\n" in tests
    assert '-e "$root[test]"\n' in ci
    assert '"$bin/pytest"\n' in ci
    assert 'kvplan" estimate --model llama-3-8b --gpu a100-80g' in ci
