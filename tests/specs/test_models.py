"""Bundled model specs, and the one door through which models come in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.core.cache import kv_elements_per_token
from kvplan.core.parameters import parameters_total, weights_bytes_model
from kvplan.core.summary import layer_table, model_summary
from kvplan.errors import KvplanError, SpecError, UnknownNameError, UnsupportedModelError, UsageError
from kvplan.specs import registry
from kvplan.specs.models import load_model, load_spec
from kvplan.specs.overrides import override
from kvplan.specs.yaml import load_yaml

SPECS = [registry.resolve("model", name) for name in registry.ids("model")]

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}


def test_there_are_at_least_eighty_specs():
    assert len(SPECS) >= 80


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_spec_has_the_parameters_it_expects(path):
    spec = load_yaml(path).data
    assert spec["id"] == path.stem
    assert set(spec["expected"]) == {"parameters", "source"}
    model = load_spec(path)
    assert parameters_total(model) == spec["expected"]["parameters"]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_words_about_a_bundled_spec_name_it_and_not_where_it_is_installed(path: Path):
    model = load_model(path.stem)
    assert not [line for line in (*model.assumptions, *model.warnings) if str(path.parent) in line]


def test_the_worked_example():
    model = load_model("llama-3-8b")
    assert parameters_total(model) == 8_030_261_248
    assert weights_bytes_model(model) == 16_060_522_496
    assert kv_elements_per_token(model) * 2 == 131_072


@pytest.mark.parametrize(
    "name",
    ["meta-llama/Meta-Llama-3-8B", "META-LLAMA/META-LLAMA-3-8B-INSTRUCT", "llama-3-8b-instruct", "Llama-3-8B"],
)
def test_aliases_in_any_case(name):
    assert load_model(name).id == "llama-3-8b"


def test_unknown_name_suggests():
    with pytest.raises(UnknownNameError) as caught:
        load_model("llama-3-8bb")
    assert "llama-3-8b" in str(caught.value.hint)


def test_file_folder_and_mapping_are_the_same_model(tmp_path: Path):
    folder = tmp_path / "Tiny-Instruct"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    models = [load_model(folder), load_model(folder / "config.json"), load_model(str(folder)), load_model(LLAMA)]
    assert {parameters_total(model) for model in models} == {parameters_total(models[0])}
    assert models[0].id == "tiny"


def test_spec_mapping_and_model_pass_through():
    model = load_model({"id": "mine", "config": LLAMA})
    assert model.id == "mine"
    assert load_model(model) is model
    with pytest.raises(UsageError):
        load_model(model, overrides={"num_hidden_layers": 1})


def test_mappings_have_text_for_keys_and_an_end():
    endless: dict = {"model_type": "llama"}
    endless["text_config"] = [endless]
    for config, told in (
        ({"model_type": "llama", 1: 2}, "key 1 must be text"),
        ({"id": "x", "config": {"model_type": "whisper", "a": [{None: 0}]}}, "key None must be text"),
        (endless, "values are refused"),
    ):
        with pytest.raises(SpecError, match=told):
            load_model(config)


def test_overrides_change_the_config_first():
    wide = load_model(LLAMA, overrides={"num_key_value_heads": 4})
    assert kv_elements_per_token(wide) == 2 * kv_elements_per_token(load_model(LLAMA))
    deeper = load_model("gemma-3-27b-it", overrides={"num_hidden_layers": 12})
    assert deeper.num_hidden_layers == 12
    assert override({"text_config": {"head_dim": 1}}, {"head_dim": 2}) == {"text_config": {"head_dim": 2}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[1, 2]", "must be a JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{}", "model_type: is missing"),
    ],
)
def test_broken_files_are_one_line(tmp_path: Path, content, told):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        load_model(path)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_huge_file_is_not_read(tmp_path: Path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(SpecError, match="too many for a config"):
        load_model(path)


def test_missing_paths_and_folders_without_config(tmp_path: Path):
    with pytest.raises(SpecError, match="no such file"):
        load_model(tmp_path / "absent.json")
    with pytest.raises(SpecError, match=r"no config\.json"):
        load_model(tmp_path)


def test_unknown_family_is_refused_unless_plain_is_assumed():
    config = LLAMA | {"model_type": "lama"}
    with pytest.raises(UnsupportedModelError) as caught:
        load_model(config)
    assert "'lama'" in str(caught.value)
    assert "llama" in str(caught.value.hint)
    model = load_model(config, assume_plain=True)
    assert parameters_total(model) == parameters_total(load_model(LLAMA))
    assert "plain decoder" in model.warnings[0]
    with pytest.raises(UnsupportedModelError, match="kv_lora_rank"):
        load_model(config | {"kv_lora_rank": 512}, assume_plain=True)


def test_spec_with_an_unknown_field_is_refused():
    with pytest.raises(SpecError, match="expexted"):
        load_model({"id": "a", "config": LLAMA, "expexted": {}})


def test_summary_has_the_contract_keys_and_rows_that_sum():
    model = load_model("gemma-3-27b-it")
    summary = model_summary(model)
    assert {
        "schema", "id", "architecture", "params_total", "params_active", "params_embedding", "weights_bytes", "layers",
        "kv_elements_per_token", "kv_elements_per_token_full", "kv_window_layers", "state_elements_per_sequence",
        "cross_kv_elements_per_source_token", "dtype", "kv_dtype_default", "max_context", "warnings",
    } <= set(summary)  # fmt: skip
    rows = layer_table(model)
    assert sum(row["layers"] for row in rows) == summary["layers"]
    assert sum(row["layers"] * row["kv_elements_per_token"] for row in rows) == summary["kv_elements_per_token"]
    json.dumps(summary)


def test_errors_are_ours():
    assert issubclass(UnsupportedModelError, SpecError)
    assert issubclass(SpecError, KvplanError)
