from dataclasses import replace

import pytest

from kvplan.core.efficiency import IDEAL, Efficiency
from kvplan.core.engine import Engine, Scheduling, Settings, memory_bytes
from kvplan.core.memory_rules import MemoryRules
from kvplan.errors import UsageError
from tests.core.builders import gpu

FITTED = Efficiency(step_s=1e-3, measured=True)
ENGINE = Engine(id="engine", memory=MemoryRules(), efficiencies={"hopper": FITTED}, fallback=IDEAL)


def test_settings_are_the_engines_own_unless_given():
    plain = Settings()
    assert (plain.enforce_eager, plain.max_loras, plain.max_lora_rank, plain.speculative_tokens) == (False, 0, 16, 0)
    for name in ("gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_bytes", "block_size"):
        assert getattr(plain, name) is None


@pytest.mark.parametrize("fraction", [0, -0.1, 1.01])
def test_a_fraction_is_a_share(fraction):
    told = f"gpu_memory_utilization: must lie above 0 and not above 1, not {fraction}"
    with pytest.raises(UsageError, match=told):
        Settings(gpu_memory_utilization=fraction)
    assert Settings(gpu_memory_utilization=1).gpu_memory_utilization == 1
    assert Settings(gpu_memory_utilization=0.01).gpu_memory_utilization == 0.01


@pytest.mark.parametrize(("given", "hint"), [(90, "90 % is 0.9"), (10, "10 % is 0.1"), (9.9, None), (2, None)])
def test_a_percentage_is_recognised(given, hint):
    with pytest.raises(UsageError) as caught:
        Settings(gpu_memory_utilization=given)
    assert caught.value.hint == hint


@pytest.mark.parametrize("name", ["max_loras", "speculative_tokens", "n_gpu_layers"])
def test_counts_are_not_negative(name):
    with pytest.raises(UsageError, match=f"{name}: must be at least 0, not -1"):
        Settings(**{name: -1})
    assert getattr(Settings(**{name: 3}), name) == 3


@pytest.mark.parametrize(
    "name", ["max_num_seqs", "max_num_batched_tokens", "gpu_memory_bytes", "block_size", "max_lora_rank"]
)
def test_limits_are_at_least_one(name):
    with pytest.raises(UsageError, match=f"{name}: must be at least 1, not 0"):
        Settings(**{name: 0})
    assert getattr(Settings(**{name: 1}), name) == 1


def test_an_engine_carries_its_version_and_the_efficiencies_of_measured_families():
    assert ENGINE.name == "engine"
    assert Engine(id="e", version="0.19", memory=MemoryRules(), efficiencies={}, fallback=IDEAL).name == "e@0.19"
    assert ENGINE.efficiency_for(gpu()) == (FITTED, True)
    assert ENGINE.efficiency_for(gpu(family="apple")) == (IDEAL, False)
    assert ENGINE.scheduling == Scheduling(mixes_prefill=True)
    assert ENGINE.scheduling.reserves_output is False
    assert (ENGINE.notes, ENGINE.vendors) == ((), ())


def test_an_engine_runs_on_the_devices_of_its_makers():
    assert ENGINE.runs_on(gpu())
    assert replace(ENGINE, vendors=("Other", "Maker")).runs_on(gpu())
    assert not replace(ENGINE, vendors=("Other",)).runs_on(gpu())


def test_memory_in_place_of_the_cards_total():
    assert memory_bytes(None) is None
    assert memory_bytes(1.5) == 1.5 * 2**30
    assert memory_bytes(1e6) == 10**6 * 2**30
    for value in (0, -1, 1e6 + 0.5, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="gpu_memory_gib: must be above 0 and at most 1,000,000, not"):
            memory_bytes(value)
    assert Settings().dcp == 1
