from __future__ import annotations

import csv
import io
import json

import pytest

from kvplan.specs.registry import ids

MODEL_KEYS = {
    *("schema", "id", "architecture", "params_total", "params_active", "params_embedding", "weights_bytes", "layers"),
    *("kv_elements_per_token", "kv_elements_per_token_full", "kv_window_layers", "state_elements_per_sequence"),
    *("cross_kv_elements_per_source_token", "dtype", "kv_dtype_default", "max_context", "warnings"),
}


def ask(invoke, *args):
    result = invoke(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_models_show_is_the_contract(invoke):
    data = json.loads(ask(invoke, "models", "show", "llama-3-8b", "--json"))
    assert set(data) >= MODEL_KEYS
    assert data["schema"] == "kvplan.model/1"
    assert data["params_total"] == 8_030_261_248
    assert data["kv_elements_per_token"] == 65_536


def test_models_show_names_layers(invoke):
    text = ask(invoke, "models", "show", "llama-3-8b")
    assert "8,030,261,248" in text
    assert "0–31" in text
    assert "32 query heads on 8 KV heads of 128" in text


@pytest.mark.parametrize(("group", "kind"), [("models", "model"), ("gpus", "gpu"), ("engines", "engine")])
def test_lists_name_every_bundled_spec(group, kind, invoke):
    data = json.loads(ask(invoke, group, "list", "--json"))
    assert len(data) == len(ids(kind)) > 0
    text = ask(invoke, group, "list")
    assert [line.split()[0].split("@")[0] for line in text.splitlines()[1 : len(data) + 1]] == [
        item["id"] for item in data
    ]
    rows = list(csv.DictReader(io.StringIO(ask(invoke, group, "list", "--format", "csv"))))
    assert [row["id"] for row in rows] == [item["id"] for item in data]


def test_lists_are_filtered(invoke):
    data = json.loads(ask(invoke, "gpus", "list", "h100", "--json"))
    assert data
    assert all("h100" in item["id"] for item in data)
    assert json.loads(ask(invoke, "gpus", "list", "no-such-card", "--json")) == []


def test_gpus_show(invoke):
    text = ask(invoke, "gpus", "show", "a100-80g")
    assert text.startswith("a100-80g-sxm: ")
    assert "2,039 GB/s" in text
    data = json.loads(ask(invoke, "gpus", "show", "a100-80g", "--json"))
    assert data["schema"] == "kvplan.gpu/1"
    assert data["memory_bandwidth_bytes_per_s"] == pytest.approx(2.039e12)


@pytest.mark.parametrize(
    ("group", "text", "name"),
    [("gpus", "h100-sxm", "h100-80g-sxm"), ("gpus", "RTX 4090", "rtx-4090"), ("models", "llama3", "llama-3-8b")],
)
def test_lists_are_searched_by_any_name(group, text, name, invoke):
    assert name in ask(invoke, group, "list", text).split()


def test_a_search_that_finds_nothing_says_so(invoke):
    for group in ("models", "gpus", "engines"):
        assert ask(invoke, group, "list", "zzz") == "None has this text; without one, all are listed.\n"


def test_engines_list_names_the_versions_to_ask_for(invoke):
    assert "0.19, " in ask(invoke, "engines", "list", "vllm")


def test_engines_show(invoke):
    assert ask(invoke, "engines", "show", "vllm").startswith("vllm")
    assert json.loads(ask(invoke, "engines", "show", "ideal", "--json"))["id"] == "ideal"


@pytest.mark.parametrize("name", ["vllm@0.19", "llama.cpp", "sglang"])
def test_a_bundled_engine_written_as_a_profile_answers_as_it_does(name, tmp_path, invoke):
    path = tmp_path / "my-engine.yaml"
    assert ask(invoke, "engines", "show", name, "-o", path) == ""
    asked = ("estimate", "--model", "llama-3-8b", "--gpu", "rtx-4090", "--dtype", "int8", "--json")
    mine, bundled = (json.loads(ask(invoke, *asked, "--engine", engine)) for engine in (path, name))
    for part in ("memory", "capacity", "latency", "throughput"):
        assert mine[part] == bundled[part]


@pytest.mark.parametrize(("group", "name"), [("models", "lama-3-8b"), ("gpus", "a100-80"), ("engines", "vlm")])
def test_unknown_names_get_the_nearest(group, name, invoke):
    result = invoke(group, "show", name)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "did you mean" in result.stderr


def test_models_import_writes_a_spec_that_reads_back(invoke, tmp_path):
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 256,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    spec = tmp_path / "tiny.yaml"
    data = json.loads(ask(invoke, "models", "import", folder, "-o", spec, "--json"))
    assert data["parameters"] == json.loads(ask(invoke, "models", "show", spec, "--json"))["params_total"]
    again = invoke("models", "import", folder, "-o", spec)
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    assert "wrote" in ask(invoke, "models", "import", folder, "-o", spec, "--overwrite")
