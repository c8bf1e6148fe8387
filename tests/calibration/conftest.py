from pathlib import Path

import pytest

from kvplan import api
from kvplan.calibration.planner import Planner
from kvplan.specs import registry

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture
def data():
    return DATA


@pytest.fixture(scope="session")
def planner():
    return Planner(load_model=api.load_model, load_gpu=api.load_gpu, load_engine=api.load_engine, estimate=api.estimate)


@pytest.fixture(scope="session")
def known_model():
    def find(name):
        path = registry.find("model", name)
        return None if path is None else path.stem

    return find
