import pytest

from kvplan.core.efficiency import IDEAL, Efficiency
from kvplan.core.engine import Engine, Scheduling, Settings
from kvplan.core.memory_rules import MemoryRules
from kvplan.errors import UsageError
from tests.core.builders import gpu

FITTED = Efficiency(step_s=1e-3, measured=True)
ENGINE = Engine(id="engine", memory=MemoryRules(), efficiencies={"hopper": FITTED}, fallback=IDEAL)


def test_settings_are_the_engines_own_unless_given():
    plain = Settings()
    numbers = {name for name in Settings.__slots__ if getattr(plain, name) is not None}
    assert {name: getattr(plain, name) for name in numbers} == {
        "enforce_eager": False, "max_loras": 0, "max_lora_rank": 16, "speculative_tokens": 0, "dcp": 1,
    }  # fmt: skip


@pytest.mark.parametrize("fraction", [0, -0.1, 1.01])
def test_a_fraction_is_a_share(fraction):
    told = f"gpu_memory_utilization: must lie above 0 and not above 1, not {fraction}"
    with pytest.raises(UsageError, match=told):
        Settings(gpu_memory_utilization=fraction)
    assert Settings(gpu_memory_utilization=1).gpu_memory_utilization == 1
    assert Settings(gpu_memory_utilization=0.01).gpu_memory_utilization == 0.01


@pytest.mark.parametrize("name", ["max_num_seqs", "max_num_batched_tokens", "gpu_memory_bytes", "block_size"])
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
    assert ENGINE.notes == ()
