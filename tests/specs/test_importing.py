"""`models import`: the spec that is written reads back as the same model, whole or not at all."""

from __future__ import annotations

import json

import pytest

from kvplan.core.parameters import parameters_total, weights_bytes_model
from kvplan.errors import SpecError, UsageError
from kvplan.specs.importing import import_model
from kvplan.specs.models import load_model
from kvplan.specs.yaml import load_yaml
from tests.specs.safetensors_writing import CONFIG
from tests.specs.test_quantization import MIXTURE


def config_in(folder, config, sidecar=None):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if sidecar is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(sidecar))
    return folder


def test_a_written_spec_reads_back_as_the_same_model(tmp_path):
    config = {
        **CONFIG,
        "_name_or_path": "acme/Meta-Tiny-Instruct",
        "id2label": {"0": "A"},
        "time_step_limit": [0, float("inf")],
    }
    folder = config_in(tmp_path / "model", config)
    done = import_model(str(folder), tmp_path / "out" / "tiny.yaml")
    model, again = load_model(folder), load_model(done.path)
    assert again.id == "tiny"
    assert (again.groups, again.tensors) == (model.groups, model.tensors)
    fields = load_yaml(done.path).data
    assert fields["aliases"] == ["acme/Meta-Tiny-Instruct"]
    assert fields["expected"]["parameters"] == done.parameters == parameters_total(model)
    assert "id2label" not in fields["config"]
    assert done.path.read_text().startswith("# Imported from ")


def test_sidecars_travel_and_thousands_of_experts_fold(tmp_path):
    listed = {
        f"model.layers.{layer}.mlp.experts.{i}.{part}": {"quant_algo": "NVFP4", "group_size": 16}
        for layer in range(2)
        for i in range(4)
        for part in ("gate_proj", "up_proj", "down_proj")
    }
    sidecar = {
        "quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8", "quantized_layers": listed}
    }
    folder = config_in(tmp_path / "model", MIXTURE, sidecar)
    done = import_model(str(folder), tmp_path / "x.yaml")
    again = load_model(done.path)
    assert again.kv_dtype == "fp8"
    assert weights_bytes_model(again) == weights_bytes_model(load_model(folder))
    assert done.path.read_text().count(".experts.") == 6


def test_files_are_not_replaced_by_accident(tmp_path):
    folder = config_in(tmp_path / "model", CONFIG)
    target = tmp_path / "x.yaml"
    target.write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        import_model(str(folder), target)
    assert target.read_text() == "mine"
    import_model(str(folder), target, overwrite=True)
    assert load_model(target).num_hidden_layers == 2


def test_nothing_is_left_behind_when_the_model_is_refused(tmp_path):
    folder = config_in(tmp_path / "model", {**CONFIG, "kv_cache_rank": 3})
    with pytest.raises(SpecError, match="kv_cache_rank"):
        import_model(str(folder), tmp_path / "x.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_sources_that_can_not_be_imported(tmp_path):
    for source in ("x.gguf", "x.yaml"):
        with pytest.raises(UsageError, match="imported"):
            import_model(source, tmp_path / "out.yaml")
    with pytest.raises(SpecError, match="no such file"):
        import_model("nothing", tmp_path / "out.yaml")


@pytest.mark.parametrize("place", ["owner--Meta-Acorn-8B-Instruct/config.json", "owner--Meta-Acorn-8B-Instruct.json"])
def test_a_config_has_one_name_whether_it_is_planned_with_or_imported(tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(CONFIG))
    assert load_model(path).id == import_model(str(path), tmp_path / "x.yaml").model.id == "acorn-8b"
