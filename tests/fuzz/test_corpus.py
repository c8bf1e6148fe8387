"""Every reader keeps its laws on the inputs that once broke one, and on a few new mutations of known inputs.

`benchmarks/fuzz.py` runs hundreds of thousands; its finds come here as `corpus/READER/WHAT`.
"""

from __future__ import annotations

import random
from pathlib import Path

import huggingface_hub  # noqa: F401 - its half second of import is no reader's
import pytest

from tests.fuzz.guard import keeps_the_laws
from tests.fuzz.readers import READERS

CORPUS = sorted(path for path in (Path(__file__).parent / "corpus").glob("*/*") if path.is_file())
#: Slower than the reader itself by what is made of accepted inputs.
MUTATIONS = 10


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_inputs_that_broke_a_law_are_answered(path, tmp_path):
    keeps_the_laws(READERS[path.parent.name].run, path.read_bytes(), tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_mutations_of_known_inputs_are_answered(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    mutator, numbers = READERS[name].mutator(), random.Random(20261129)  # noqa: S311 - inputs, not secrets
    for _ in range(MUTATIONS):
        keeps_the_laws(READERS[name].run, mutator.fresh(numbers), tmp_path)
