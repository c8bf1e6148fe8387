"""The hub through its real client against a server on 127.0.0.1: only metadata is fetched, errors say what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvplan.errors import UsageError
from kvplan.specs.hub import parse_name
from tests.specs.hub_server import COMMIT, FakeHub, FakeRepository, serving
from tests.specs.safetensors_writing import CONFIG, header, llama_weights

#: Runs in its own process: the client reads its environment when it is imported.
SCRIPT = """
import json, sys
from kvplan.core.parameters import parameters_total
from kvplan.errors import KvplanError
from kvplan.specs.models import load_model
answers = []
for name in sys.argv[1:]:
    try:
        model = load_model(name)
    except KvplanError as error:
        answers.append({"error": type(error).__name__, "exit": error.exit_code, "message": str(error), "hint": error.hint})
    else:
        answers.append({"id": model.id, "parameters": parameters_total(model), "exact": model.exact_weight_bytes,
                        "kv_dtype": model.kv_dtype, "quantization": model.quantization, "warnings": model.warnings})
print(json.dumps(answers))
"""
ROOT = Path(__file__).resolve().parents[2]
PARAMETERS = 2 * 100 * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128)


def weights(extra: int = 0) -> bytes:
    """A whole file with a large hole, to see that nobody fetches it."""
    tensors = llama_weights() | ({"model.layers.2.extra.weight": ("BF16", (extra, 1))} if extra else {})
    head, size = header(tensors)
    return head + bytes(size)


def sharded() -> dict[str, bytes]:
    tensors = llama_weights()
    names = sorted(tensors)
    files = {}
    weight_map = {}
    for number, own in enumerate((names[:7], names[7:14], names[14:]), 1):
        file = f"model-{number:05}-of-00003.safetensors"
        head, size = header({name: tensors[name] for name in own})
        files[file] = head + bytes(size)
        weight_map |= dict.fromkeys(own, file)
    files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    return files


@pytest.fixture(scope="module")
def hub():
    config = {"config.json": json.dumps(CONFIG).encode()}
    sidecar = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    repositories = {
        "acme/Meta-Tiny-7B-Instruct": FakeRepository({**config, "model.safetensors": weights(20_000_000)}),
        "acme/sharded": FakeRepository({**config, **sharded()}),
        "acme/bare": FakeRepository(config),
        "acme/sidecar": FakeRepository({**config, "hf_quant_config.json": json.dumps(sidecar).encode()}),
        "acme/gated": FakeRepository(config, gated=True),
        "acme/empty": FakeRepository({"README.md": b"#"}),
        "acme/broken": FakeRepository({"config.json": b"{"}),
        "acme/list": FakeRepository({"config.json": b"[]"}),
        "acme/liar": FakeRepository({**config, "model.safetensors": (2**60).to_bytes(8, "little") + bytes(50)}),
    }
    with serving(FakeHub(repositories=repositories)) as server:
        yield server


@pytest.fixture
def ask(hub, tmp_path):
    def question(*names, **environment):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        env = {
            **clean,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "home"),
            "PYTHONPATH": str(ROOT),
            **environment,
        }
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *names], env=env, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        return json.loads(done.stdout)

    return question


def test_a_repository_is_read_without_its_weights(hub, ask):
    before = hub.sent_bytes
    (model,) = ask("acme/Meta-Tiny-7B-Instruct")
    assert model["id"] == "tiny-7b"
    assert model["parameters"] == PARAMETERS
    assert model["exact"] == 2 * PARAMETERS
    assert hub.sent_bytes - before < 200_000
    wanted = [entry for entry in hub.requests if entry[0] == "GET" and entry[1].endswith(".safetensors")]
    assert all(byte_range for _, _, byte_range in wanted)


def test_shards_sidecars_and_revisions(ask):
    shards, sidecar, main, commit = ask("acme/sharded", "acme/sidecar", "acme/bare@main", f"acme/bare@{COMMIT}")
    assert shards["exact"] == 2 * PARAMETERS
    assert shards["warnings"] == []
    assert (sidecar["quantization"], sidecar["kv_dtype"]) == ("modelopt", "fp8")
    assert main["exact"] is None
    assert commit["parameters"] == PARAMETERS


def test_errors_say_what_is_wrong_and_what_to_do(ask):
    gated, missing, revision, empty, broken, listed = ask(
        "acme/gated", "acme/nothing", "acme/bare@nope", "acme/empty", "acme/broken", "acme/list"
    )
    for answer, word, hint in (
        (gated, "gated", "HF_TOKEN"),
        (missing, "no such repository", "private"),
        (revision, "'nope'", "tree/main"),
    ):
        assert (answer["error"], answer["exit"]) == ("HubError", 5)
        assert word in answer["message"]
        assert hint in answer["hint"]
    for answer in (empty, broken, listed):
        assert (answer["error"], answer["exit"]) == ("SpecError", 4)
        assert "config.json" in answer["message"]


def test_a_token_opens_a_gate(ask):
    (model,) = ask("acme/gated", HF_TOKEN="hf_secret")  # noqa: S106 - of a server that lives for a test
    assert model["parameters"] == PARAMETERS


def test_a_lying_header_leaves_the_config(ask):
    (model,) = ask("acme/liar")
    assert model["exact"] is None
    assert "headers could not be read" in model["warnings"][0]


def test_the_cache_answers_offline(hub, ask):
    ask("acme/sidecar")
    before = len(hub.requests)
    known, unknown = ask("acme/sidecar", "acme/bare", HF_HUB_OFFLINE="1")
    assert len(hub.requests) == before
    assert known["kv_dtype"] == "fp8"
    assert unknown["error"] == "HubError"
    assert "HF_HUB_OFFLINE" in unknown["message"]


def test_a_hub_that_is_not_there(ask):
    ask("acme/sidecar")
    known, unknown = ask("acme/sidecar", "acme/bare", HF_ENDPOINT="http://127.0.0.1:9")
    assert known["kv_dtype"] == "fp8"
    assert "can't be reached" in known["warnings"][0]
    assert (unknown["error"], unknown["exit"]) == ("HubError", 5)
    assert "127.0.0.1:9" in unknown["message"]


@pytest.mark.parametrize("name", ["", "x", "a/b/c", "a/../b", "a b/c", "a/b@", "a/b@../c", "https://x.y/a/b"])
def test_names_that_are_no_repository(name):
    with pytest.raises(UsageError, match="repository"):
        parse_name(name)
