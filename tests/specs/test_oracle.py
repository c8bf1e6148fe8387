"""Every model of the oracle (`tests/oracle/models.jsonl`) comes out exact: parameters, caches, state, weight bytes.

The figures were read from the `transformers` library on the meta device; each row names its versions and where its
config comes from. Rows without `expected` are models that the library can't build: they must be read or refused, but
can't be compared.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.core.cache import kv_elements_per_token, window_layers
from kvplan.core.parameters import parameters_total
from kvplan.core.summary import model_summary
from kvplan.errors import UnsupportedModelError
from kvplan.specs.huggingface import from_config
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.registry import FAMILIES, adapt, adapter_of

ORACLE = Path(__file__).parent.parent / "oracle" / "models.jsonl"
ROWS = [json.loads(line) for line in ORACLE.read_text(encoding="utf-8").splitlines()]
SMALL = [
    json.loads(line)
    for line in (ORACLE.parent / "small_configs.jsonl").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
COUNTED = [row for row in ROWS if row["expected"]]
UNCOUNTED = [row for row in ROWS if not row["expected"]]

#: Figures that differ from the library's for a reason, told here and nowhere else.
KNOWN = dict.fromkeys(
    [
        ("deepseek-ai/DeepSeek-V4-Flash", "kv_elements_per_token"),
        ("deepseek-ai/DeepSeek-V4-Pro", "kv_elements_per_token"),
        ("sgl-project/DeepSeek-V4-Flash-FP8", "kv_elements_per_token"),
    ],
    "the row's total is not the sum of its own parts: raw entries of all layers (43 or 61 times 512) and compressed ones",
)


def test_the_oracle_has_all_its_rows():
    assert len(COUNTED) == 124
    assert len(UNCOUNTED) == 3
    assert all(row["source"] for row in ROWS)


@pytest.mark.parametrize("row", COUNTED, ids=lambda row: row["repo"])
def test_exact(row):
    model = from_config(row["config"], source=row["repo"], sidecar=row.get("hf_quant_config"))
    summary = model_summary(model) | {"buffer_elements": model.buffer_elements}
    wrong = {
        name: (summary[name], value)
        for name, value in row["expected"].items()
        if value is not None and name in summary and summary[name] != value and (row["repo"], name) not in KNOWN
    }
    assert wrong == {}


@pytest.mark.parametrize("row", UNCOUNTED, ids=lambda row: row["repo"])
def test_uncounted_models_are_read_or_refused_by_name(row):
    try:
        model = from_config(row["config"], source=row["repo"])
    except UnsupportedModelError as error:
        assert row["repo"] in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert model.num_hidden_layers == row["config"]["num_hidden_layers"]


@pytest.mark.parametrize("row", COUNTED, ids=lambda row: row["repo"])
def test_no_field_that_smells_of_memory_is_dropped(row):
    """A field of the kind that changes memory, put into a real config, is refused by name."""
    changed = row["config"] | {"num_secret_kv_layers": 3}
    with pytest.raises(UnsupportedModelError, match="num_secret_kv_layers"):
        from_config(changed, source=row["repo"], sidecar=row.get("hf_quant_config"))


@pytest.mark.parametrize("row", COUNTED, ids=lambda row: row["repo"])
def test_blueprints_name_each_tensor_once(row):
    """Quantisation rules find tensors by name, so two tensors of one layer never share one."""
    blueprint = adapt(Config(row["config"], source=row["repo"]))
    for layer in {id(layer): layer for layer in (*blueprint.layers, *blueprint.encoder_layers)}.values():
        names = [tensor.name for tensor in layer.all_tensors()]
        assert len(names) == len(set(names))
    names = [tensor.name for tensor in blueprint.tensors]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_every_registered_family_has_its_function(model_type):
    assert callable(adapter_of(model_type))


@pytest.mark.parametrize("row", SMALL, ids=lambda row: row["config"]["model_type"])
def test_small_random_configs_equal_what_transformers_builds(row):
    """Random valid configs of the plain families; built and run by `transformers`, see the file's first line."""
    model = from_config(row["config"])
    assert parameters_total(model) == row["parameters"]
    assert model.buffer_elements == row["buffers"]
    if "kv_elements_per_token" in row:
        assert kv_elements_per_token(model) == row["kv_elements_per_token"]
        assert window_layers(model) == row["window_layers"]
