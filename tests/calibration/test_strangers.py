"""What a file of measurements that somebody else wrote can make kvplan read, and whom it can make it ask: almost nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kvplan
from tests.specs.hub_server import FakeHub, FakeRepository, serving
from tests.specs.safetensors_writing import CONFIG

ROOT = Path(__file__).resolve().parents[2]
GPU = "id: mine\nvendor: X\nfamily: cpu\npeak: {fp32: 1 TFLOPS}\nmemory: {capacity: 64 GB, bandwidth: 50 GB/s}\n"
PRIVATE = "hunter2"


@pytest.fixture
def hub():
    files = {"config.json": json.dumps(CONFIG).encode()}
    with serving(FakeHub(repositories={"acme/bare": FakeRepository(files)})) as server:
        yield server


@pytest.fixture
def run(hub, tmp_path):
    """The command line with a hub of its own, from a working folder that is not the file's."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    env = {**clean, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    here = tmp_path / "here"
    here.mkdir()

    def kvplan(*words):
        command = [sys.executable, "-m", "kvplan", *map(str, words)]
        return subprocess.run(command, env=env, cwd=here, capture_output=True, text=True, check=False, timeout=60)

    return kvplan


def table(folder: Path, *rows: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "rows.csv"
    path.write_text("model,gpu,engine,tpot_ms\n" + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def test_a_repository_in_a_file_is_taken_from_the_cache_and_never_fetched(hub, run, tmp_path):
    path = table(tmp_path / "theirs", "acme/bare,l4,,9")
    refused = run("validate", path, "--json")
    assert refused.returncode == 3
    [row] = json.loads(refused.stdout)["rows"]
    assert "acme/bare: is neither bundled nor in the hub's cache" in row["reason"]
    assert "`kvplan models show acme/bare`" in row["reason"]
    assert hub.requests == []
    assert run("models", "show", "acme/bare").returncode == 0
    asked = len(hub.requests)
    assert run("validate", path).returncode == 0
    assert len(hub.requests) == asked > 0


def test_a_repository_that_the_user_names_for_the_rows_is_fetched(hub, run, tmp_path):
    assert run("validate", table(tmp_path / "theirs", ",l4,,9"), "--model", "acme/bare").returncode == 0
    assert hub.requests


def test_names_in_a_file_mean_nothing_in_the_working_folder(run, tmp_path):
    here = tmp_path / "here"
    (here / "model").mkdir()
    for name, text in (("model/config.json", json.dumps(CONFIG)), ("gpu.yaml", GPU), ("engine", "id: mine\n")):
        (here / name).write_text(text, encoding="utf-8")
    rows = ("model,l4,,9", "llama-3-8b,gpu.yaml,,9", "llama-3-8b,l4,engine,9", "./model,l4,,9")
    found = run("validate", table(tmp_path / "theirs", *rows), "--json")
    reasons = [row["reason"] for row in json.loads(found.stdout)["rows"]]
    assert reasons == [
        "unknown model 'model'",
        "no file 'gpu.yaml' beside the records",
        "unknown engine 'engine'",
        "model: './model' is not a repository id",
    ]


def test_files_beside_the_table_are_read_and_the_users_own_wherever_they_are(run, tmp_path):
    path = table(tmp_path / "theirs", "cards/config.json,cards/gpu.yaml,,9", ",,,9")
    (tmp_path / "theirs" / "cards").mkdir()
    (tmp_path / "theirs" / "cards" / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "theirs" / "cards" / "gpu.yaml").write_text(GPU, encoding="utf-8")
    own = tmp_path / "own.json"
    own.write_text(json.dumps(CONFIG), encoding="utf-8")
    found = run("validate", path, "--json", "--model", own, "--gpu", "l4")
    rows = json.loads(found.stdout)["rows"]
    assert [(row["status"], row["model"], row["gpu"]) for row in rows] == [("ok", "cards", "mine"), ("ok", "own", "l4")]


@pytest.mark.parametrize("word", ["/etc/passwd", "../secret.json", "a/../../secret.yaml", "~/secret.json"])
@pytest.mark.parametrize("column", ["model", "gpu", "engine"])
def test_paths_that_leave_the_folder_are_refused_unread(tmp_path, word, column):
    for name in ("secret.json", "secret.yaml"):
        (tmp_path / name).write_text(PRIVATE, encoding="utf-8")
    row = {"model": "llama-3-8b", "gpu": "l4", "engine": "vllm", column: word}
    path = table(tmp_path / "theirs", f"{row['model']},{row['gpu']},{row['engine']},9")
    with pytest.raises(kvplan.KvplanError) as caught:
        kvplan.validate(path)
    assert str(caught.value) == f"{path}:2: {column}: must be a name, or a path inside the folder of this file"


@pytest.mark.parametrize("name", ["x.json", "x.yaml", "x.gguf", "x.csv"])
@pytest.mark.parametrize("column", ["model", "gpu", "engine"])
def test_what_a_file_holds_that_is_none_of_ours_is_not_told(tmp_path, name, column):
    path = table(
        tmp_path, ",".join({"model": "llama-3-8b", "gpu": "l4", "engine": "vllm", column: name}.values()) + ",9"
    )
    (tmp_path / name).write_text(f"root:{PRIVATE}:0:0\n{PRIVATE}", encoding="utf-8")
    [row] = kvplan.validate(path).rows
    assert row.status == "error"
    assert PRIVATE not in row.reason
