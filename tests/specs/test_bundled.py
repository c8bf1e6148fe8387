from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from kvplan.errors import SpecError
from kvplan.specs import bundled, registry
from kvplan.specs.bundled import load_bundled
from kvplan.specs.yaml import load_yaml

ROOT = Path(__file__).parents[2]
FILES = sorted(path for kind in ("model", "gpu", "engine") for path in registry.spec_folder(kind).glob("*.yaml"))


@pytest.fixture(autouse=True)
def keeps(monkeypatch, tmp_path):
    """Copies are kept, in a folder of the test's own."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "kept"))


@pytest.fixture
def spec(tmp_path):
    return Path(shutil.copy(registry.resolve("gpu", "a100-80g"), tmp_path / "card.yaml"))


@pytest.fixture
def parsed(monkeypatch):
    """Files that were parsed so far."""
    paths = []
    parse = bundled._parsed
    monkeypatch.setattr(bundled, "_parsed", lambda path: paths.append(path) or parse(path))
    return paths


def test_a_kept_copy_of_every_bundled_spec_says_what_its_file_says():
    for path in FILES:
        first, again, read = load_bundled(path), load_bundled(path), load_yaml(path)
        assert Path(cache_from_source(path)).is_file()
        assert first == again == read
        assert repr(again.data) == repr(read.data)  # 1 is not 1.0, nor True
        assert again.lines == read.lines


def test_a_file_is_parsed_once_until_a_byte_of_it_changes(spec, parsed):
    load_bundled(spec)
    assert load_bundled(spec).data["memory"]["bandwidth"] == "2039 GB/s"
    assert len(parsed) == 1
    status = spec.stat()
    spec.write_bytes(spec.read_bytes().replace(b"2039 GB/s", b"2040 GB/s"))
    os.utime(spec, ns=(status.st_atime_ns, status.st_mtime_ns))  # neither size nor time tell
    assert load_bundled(spec).data["memory"]["bandwidth"] == "2040 GB/s"
    assert len(parsed) == 2


def test_answers_share_nothing(spec):
    load_bundled(spec).data["memory"].clear()
    first = load_bundled(spec)
    first.data["memory"].clear()
    assert load_bundled(spec).data["memory"]


@pytest.mark.parametrize("keep", [0, 5, 40, 200, -1], ids=str)
def test_a_torn_copy_is_made_anew(spec, parsed, keep):
    whole = load_bundled(spec)
    kept = Path(cache_from_source(spec))
    kept.write_bytes(kept.read_bytes()[:keep])
    assert load_bundled(spec) == whole
    assert load_bundled(spec) == whole
    assert len(parsed) == 2


def test_a_copy_by_another_reader_does_not_count(spec, parsed, monkeypatch):
    load_bundled(spec)
    monkeypatch.setattr(bundled, "_READER", b"kvplan-yaml-0\n")
    load_bundled(spec)
    assert len(parsed) == 2


def test_where_nothing_can_be_kept_the_file_is_parsed(spec, parsed, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    load_bundled(spec)
    assert not (tmp_path / "kept").exists()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "kept").write_text("a file where the folder would be")
    assert load_bundled(spec) == load_bundled(spec) == load_yaml(spec)
    assert len(parsed) == 3
    monkeypatch.setattr(sys.implementation, "cache_tag", None)
    assert load_bundled(spec) == load_yaml(spec)


def test_nothing_but_the_copy_is_left(spec, tmp_path):
    load_bundled(spec)
    kept = Path(cache_from_source(spec))
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["card.yaml", "kept"]


def test_a_broken_or_missing_file_is_told_as_ever(spec):
    with pytest.raises(SpecError, match="can't be read"):
        load_bundled(spec.with_name("none.yaml"))
    spec.write_text("id: x\nid: y\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(SpecError, match=r"card\.yaml:2: id: duplicate key"):
            load_bundled(spec)


def test_the_second_estimate_loads_no_yaml(tmp_path):
    code = (
        "import sys, kvplan; kvplan.estimate('llama-3-8b', 'a100-80g');"
        "print(*sorted({name.split('.')[0] for name in sys.modules} & {'yaml', 'pydantic', 'numpy', 'huggingface_hub'}))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONPATH": str(ROOT)}
    runs = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs == ["yaml\n", "\n"]
