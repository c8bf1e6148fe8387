"""Small random models of the latent, sparse, hybrid and recurrent families equal what transformers builds.

`tests/oracle/small_models.jsonl` was recorded by `tests/oracle/check_transformers.py --record`: fields of a random config,
and the counts of the real model on the meta device. `kv` and `state` come from a forward pass there, where that worked.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from kvplan.core.cache import kv_elements_per_token, state_elements_per_sequence
from kvplan.core.parameters import parameters_active, parameters_embedding, parameters_total
from kvplan.specs.huggingface import from_config

FILE = Path(__file__).parent.parent / "oracle" / "small_models.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def test_every_family_has_rows():
    families = Counter(row["config"]["model_type"] for row in ROWS)
    assert len(families) >= 36
    assert min(families.values()) >= 3
    assert all(row["source"].startswith("transformers 5.") for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['config']['model_type']}-{index}" for index, row in enumerate(ROWS)])
def test_counts_are_those_of_the_real_model(row):
    model = from_config(row["config"])
    counted = {
        "parameters": parameters_total(model),
        "embedding": parameters_embedding(model),
        "buffers": model.buffer_elements,
        "kv": kv_elements_per_token(model),
        "state": state_elements_per_sequence(model),
    }
    assert {name: counted[name] for name in row["expected"]} == row["expected"]
    assert 0 < parameters_active(model) <= parameters_total(model)
    assert model.num_hidden_layers == sum(group.count for group in model.groups)
