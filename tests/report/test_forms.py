from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import load_gpu, load_model
from kvplan.report.as_csv import render_csv
from kvplan.report.as_markdown import render_markdown
from kvplan.report.as_plain import render_plain
from kvplan.report.as_terminal import print_terminal
from kvplan.report.blocks import Bar, Bullets, Line, Listing, Segment, Table, bar_cells, flat
from kvplan.report.estimate import EstimateReport
from kvplan.report.render import Form, render
from kvplan.report.specs import GpuListReport, ModelListReport
from kvplan.specs import registry

TABLE = Table(title="T", columns=("name", "bytes"), rows=(("weights", "12"), ("pool", "3,456")))


def test_plain_table_is_aligned():
    assert render_plain([TABLE]) == "T\n  name     bytes\n  weights     12\n  pool     3,456\n"


def test_plain_never_cuts_or_wraps():
    long = "x" * 500
    assert long in render_plain([Line(text=long)])
    assert long in render_plain([Table(title="", columns=("a",), rows=((long,),))])


def test_plain_has_no_escape_sequences():
    blocks = [
        Line(text="\x1b[31m"),
        Bullets(title="\x1b]0;t\x07", items=("\x1b[2J",)),
        Listing(title="", lines=("\x9b",)),
    ]
    shown = render_plain(blocks)
    assert not any(char in shown for char in "\x1b\x07\x9b")


def test_bracketed_units_survive_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    file = io.StringIO()
    print_terminal([Line(text="time [s]"), Bullets(title="[bold]", items=("[bytes/token]",)), TABLE], file=file)
    for words in ("time [s]", "[bold]", "[bytes/token]"):
        assert words in file.getvalue()


def on_a_terminal(blocks, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    file = io.StringIO()
    print_terminal(blocks, file=file)
    return file.getvalue()


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_terminal_lines_fit_the_terminal(columns, monkeypatch, estimate, model):
    shown = on_a_terminal(EstimateReport(estimate=estimate, explain=True, model=model).blocks(), columns, monkeypatch)
    assert max(len(line) for line in shown.splitlines()) <= columns


def test_lists_of_all_that_is_bundled_fit_eighty_columns(monkeypatch):
    models = ModelListReport(models=tuple(load_model(name) for name in registry.ids("model")))
    gpus = GpuListReport(gpus=tuple(load_gpu(name) for name in registry.ids("gpu")))
    for report in (models, gpus):
        shown = on_a_terminal(report.blocks(), 80, monkeypatch)
        assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize("columns", [20, 40, 60, 80])
def test_terminal_never_cuts_a_number(columns, monkeypatch, estimate):
    """A number that lost its end would be read as another one; the terminal breaks the line instead."""
    blocks = EstimateReport(estimate=estimate).blocks()
    shown = on_a_terminal(blocks, columns, monkeypatch)
    tables = [block for block in blocks if isinstance(block, Table)]
    cells = [row[index] for one in tables for row in one.rows for index in range(len(row)) if not one.is_word(index)]
    assert [cell for cell in cells if cell not in shown] == []


def test_narrow_terminal_leaves_a_bar_out_and_breaks_long_names_at_dashes(monkeypatch):
    bar = Table(title="", columns=("", "tokens/s", ""), rows=(("a-model", "12,345", "████████"),), open_end=True)
    assert "██" in on_a_terminal([bar], 80, monkeypatch)
    assert "██" not in on_a_terminal([bar], 20, monkeypatch)
    name = "qwen3-32b-fp8-static-pertensor"
    models = Table(title="", columns=("model", "params"), rows=((name, "32.8 B"),))
    assert name in on_a_terminal([models], 80, monkeypatch)
    assert "qwen3-32b-fp8-static-" in on_a_terminal([models], 32, monkeypatch).split()


def test_terminal_without_colour_has_no_escape_sequences(monkeypatch, estimate):
    monkeypatch.setenv("COLUMNS", "80")
    file = io.StringIO()
    print_terminal(EstimateReport(estimate=estimate).blocks(), file=file)
    assert "\x1b" not in file.getvalue()


@pytest.mark.parametrize(
    "name", ["a|b", "a`b", "a\nb", "a\u2028| b |\r\n", "![x](http://x/y)", "<img src=x>", "\\|", "```"]
)
def test_markdown_keeps_names_in_their_cell(name):
    table = Table(title=name, columns=(name, name), rows=((name, name),))
    shown = render_markdown(
        [table, Bullets(title="", items=(name,)), Listing(title="", lines=(name,)), Line(text="end")]
    )
    title, rows, bullet, listing, end = shown.split("\n\n")
    assert title.startswith("### ")
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows.splitlines()] == [3, 3, 3]
    assert bullet.startswith("- ")
    for part in (title, rows, bullet):
        assert part.isascii()
        assert not re.search(r"(?<!\\)(?:\\\\)*[`\[<]", part)
    assert re.fullmatch(r"```text\n.*\n```", listing)
    assert end == "end\n"


def test_markdown_rows_have_equal_cells(estimate, model):
    shown = render_markdown(EstimateReport(estimate=estimate, explain=True, model=model).blocks())
    tables = [block for block in shown.split("\n\n") if block.startswith("|")]
    assert len(tables) >= 5
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_csv_has_the_union_of_columns_and_full_precision():
    text = render_csv([{"a": 1 / 3, "b": None}, {"a": 2, "c": 'x,"y"'}])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert float(rows[0]["a"]) == 1 / 3
    assert rows[1] == {"a": "2", "b": "", "c": 'x,"y"'}


@pytest.mark.parametrize("sign", list("=+-@＝＋－＠"))
def test_no_text_of_a_csv_is_a_formula_and_numbers_stay_numbers(sign):
    formula = f'{sign}HYPERLINK("http://x/?"&A1)'
    [names, cells] = list(csv.reader(io.StringIO(render_csv([{"n": -1.5, formula: formula, "tab": f"\t{formula}"}]))))
    assert names == ["n", f"'{formula}", "tab"]
    assert cells == ["-1.5", f"'{formula}", f"\\x09{formula}"]


def test_csv_of_an_estimate_is_one_row(estimate, too_big):
    rows = list(csv.DictReader(io.StringIO(render(EstimateReport(estimate=estimate), Form.CSV))))
    assert len(rows) == 1
    assert rows[0]["latency.tpot_ms.mid"] == "10.0"
    assert rows[0]["capacity.fits"] == "true"
    rows = list(csv.DictReader(io.StringIO(render(EstimateReport(estimate=too_big), Form.CSV))))
    assert rows[0]["capacity.fits"] == "false"


def test_json_is_the_estimate_unrounded(estimate):
    data = json.loads(render(EstimateReport(estimate=estimate), Form.JSON))
    assert data == json.loads(estimate.model_dump_json())


def test_json_escapes_names(estimate):
    evil = replace(estimate, scenario=replace(estimate.scenario, model="a\x1b[31m\x9b"))
    document = render(EstimateReport(estimate=evil), Form.JSON)
    assert json.loads(document)["scenario"]["model"] == "a\x1b[31m\x9b"
    assert "\x1b" not in document
    assert "\x9b" not in document


@pytest.mark.parametrize("form", list(Form))
def test_every_form_ends_in_one_newline(form, estimate, model):
    text = render(EstimateReport(estimate=estimate, explain=True, model=model), form)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@given(st.lists(st.just(0.0) | st.floats(1e-6, 1e12), min_size=1, max_size=8), st.integers(20, 200))
def test_bar_fills_its_width_and_hides_nothing(shares, columns):
    segments = [Segment(sign="x", share=share) for share in shares]
    cells = bar_cells(segments, columns)
    if sum(shares) > 0:
        assert sum(cells) == columns
        assert all(count >= 1 for count, share in zip(cells, shares, strict=True) if share > 0)
    assert all(count == 0 for count, share in zip(cells, shares, strict=True) if share == 0)


def test_a_comment_for_a_shell_stays_one_where_a_terminal_is_narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    file = io.StringIO()
    print_terminal(
        [Listing(title="", lines=("# planned " + "word " * 20, "serve \\", "    --" + "x " * 40))], file=file
    )
    lines = file.getvalue().splitlines()
    command = lines.index("  serve \\")
    assert command > 1
    assert all(line.startswith("  # ") for line in lines[:command])
    assert all(line.startswith("      ") for line in lines[command + 1 :])


def test_bar_without_content_is_empty():
    assert render_plain([Bar(title="", segments=(Segment(sign="x", share=0),))]) == "  []\n"


def test_flat_joins_words_and_drops_tables():
    assert flat({"a": [1, 2], "b": [{"c": 1}]}) == {"a": "1; 2"}
