from __future__ import annotations

import ast
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kvplan.cli.output import destination, encodable
from kvplan.errors import UsageError
from kvplan.report.blocks import Line
from kvplan.report.render import Form
from kvplan.writing import write_file

ROOT = Path(__file__).parents[2]


class Tiny:
    def blocks(self):
        return [Line(text="a × b")]

    def data(self):
        return {"a": 1}

    def records(self):
        return [{"a": 1}]


@pytest.mark.parametrize(
    ("json", "form", "output", "expected"),
    [
        (False, None, None, Form.TABLE),
        (True, None, None, Form.JSON),
        (True, Form.JSON, None, Form.JSON),
        (True, None, Path("x.csv"), Form.JSON),
        (False, Form.CSV, Path("x.json"), Form.CSV),
        (False, None, Path("x.json"), Form.JSON),
        (False, None, Path("x.MD"), Form.MARKDOWN),
        (False, None, Path("x.txt"), Form.TABLE),
    ],
)
def test_form(json, form, output, expected):
    assert destination(json=json, form=form, output=output).form is expected


def test_two_forms_at_once_are_refused():
    with pytest.raises(UsageError, match="two forms"):
        destination(json=True, form=Form.CSV, output=None)


def test_a_file_is_written_whole(tmp_path, capsys):
    destination(json=True, form=None, output=tmp_path / "x").emit(Tiny())
    assert (tmp_path / "x").read_text(encoding="utf-8") == '{\n  "a": 1\n}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert capsys.readouterr().out == ""


def test_dash_is_stdout(capsys):
    destination(json=False, form=Form.CSV, output=Path("-")).emit(Tiny())
    assert capsys.readouterr().out == "a\n1\n"


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        destination(json=False, form=None, output=tmp_path)


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        write_file(tmp_path / "none" / "x", "x")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("estimate -m llama-3-8b -g l40s -o none/x.json", "--output"),
        ("estimate -m llama-3-8b -g l40s --save-scenario none/x.yaml", "--save-scenario"),
        ("estimate -m llama-3-8b -g l40s --deploy none/serve.sh", "--deploy"),
        ("calibrate {one_engine} -o none/x.yaml", "--output"),
    ],
)
def test_each_option_is_told_by_its_own_name(words, option, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = (ROOT / "examples" / "measurements.csv").read_text(encoding="utf-8").splitlines()
    one_engine = tmp_path / "sglang.csv"
    one_engine.write_text("\n".join(row for row in table if "sglang" in row or row is table[0]), encoding="utf-8")
    done = invoke(*words.format(one_engine=one_engine).split())
    assert done.exit_code == 2
    assert f"{option}: cannot write none/" in done.stderr


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    target = tmp_path / "x"
    target.write_text("old", encoding="utf-8")

    def full(self, other):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match="No space left"):
        write_file(target, "new")
    assert target.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_modes_and_links_are_kept(tmp_path):
    target = tmp_path / "x"
    target.write_text("old", encoding="utf-8")
    target.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(target)
    write_file(link, "new")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_device_is_written_to_directly():
    write_file(Path(os.devnull), "x")
    assert not Path(os.devnull).is_file()


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell closes the streams")
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("estimate -m llama-3-8b -g a100-80g >&-", 0, ""),
        ("validate - <&-", 4, "no rows"),
        ("estimate -m nonesuch -g l4 2>&-", 2, ""),
        ("estimate -m llama-3-8b -g a100-80g -o /dev/stdout | grep -q FITS", 0, ""),
    ],
)
def test_closed_streams_and_pipes(words, code, told, tmp_path):
    command = f"{shlex.quote(sys.executable)} -m kvplan {words}"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_streams_without_utf8_get_plain_signs():
    assert encodable("2 × 3 – é", "ascii") == "2 x 3 - ?"
    assert encodable("2 × 3", "utf-8") == "2 × 3"
    assert encodable("2 × 3", None) == "2 × 3"


def signs():
    """Signs beyond ASCII in the texts of the core and the reports; docstrings are not written to anyone."""
    for path in [*(ROOT / "kvplan" / "core").glob("*.py"), *(ROOT / "kvplan" / "report").glob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        told = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in told:
                yield from (char for char in node.value if not char.isascii() and char.isprintable())


def test_every_sign_has_a_plain_one():
    guards = set("＝＋－＠")  # in front of what a spreadsheet would take for a formula; a question mark guards as well
    assert {char for char in set(signs()) - guards if "?" in encodable(char, "ascii")} == set()
