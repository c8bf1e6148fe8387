"""Small random multimodal, encoder and encoder–decoder models equal what transformers builds.

`tests/oracle/small_towers.jsonl` was recorded by `tests/oracle/check_towers.py --trials 3 --record …`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from kvplan.core.parameters import parameters_active, parameters_total
from kvplan.specs.huggingface import from_config

FILE = Path(__file__).parent.parent / "oracle" / "small_towers.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def test_every_family_has_rows():
    families = Counter(row["config"]["model_type"] for row in ROWS)
    assert len(families) >= 61
    assert all(row["source"].startswith("transformers 5.") for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['config']['model_type']}-{index}" for index, row in enumerate(ROWS)])
def test_counts_are_those_of_the_real_model(row):
    model = from_config(row["config"])
    assert {"parameters": parameters_total(model), "buffers": model.buffer_elements} == row["expected"]
    assert 0 < parameters_active(model) <= parameters_total(model)
    names = [tensor.name for tower in model.towers for tensor in tower.tensors]
    assert len(names) == len(set(names))
