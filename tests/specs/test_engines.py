import subprocess
import sys
from dataclasses import fields

import pytest

from kvplan.core.efficiency import Efficiency
from kvplan.core.memory_rules import Budget, MemoryRules, Paging, StateMode
from kvplan.errors import SpecError, UnknownNameError
from kvplan.specs import registry
from kvplan.specs.engines import engine_versions, load_engine
from kvplan.specs.yaml import load_yaml

OWN = {
    "id": "mine",
    "memory": {
        "budget": "total",
        "utilization": 0.5,
        "versions": {"1.0": {"utilization": 0.6}, "1.10": {"utilization": 0.7}},
    },
    "efficiency": {
        "inherits": False,
        "shared": {"kernel_s": 1.0, "gemm_mfu": {"bf16": 0.5, "fp8": 0.4}},
        "families": {"hopper": {"gemm_mfu": {"fp8": 0.6}}},
        "fallback": {"spread_tpot": 0.9},
        "versions": {"1.10": {"shared": {"kernel_s": 2.0}}},
    },
}


def test_the_contract_names_five_engines():
    assert registry.ids("engine") == ("ideal", "llama.cpp", "sglang", "tensorrt-llm", "vllm")


@pytest.mark.parametrize("version", ["0.6", "0.11", "0.15", "0.17", "0.19", "0.21"])
def test_the_contract_names_vllm_versions(version):
    assert load_engine(f"vllm@{version}").name == f"vllm@{version}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vllm 0.11.2", "vllm@0.11"),
        ("vLLM v0.19.1rc2", "vllm@0.19"),
        ("vllm==0.18.0", "vllm@0.18"),
        ("vllm:v0.19.1", "vllm@0.19"),
        ("vllm@0.2.5", "vllm@0.6"),
        ("vllm", load_engine("vllm").name),
        ("trtllm", "tensorrt-llm@1.0"),
        ("llama-cpp", "llama.cpp"),
        ("llama.cpp", "llama.cpp"),
        ("floor", "ideal"),
    ],
)
def test_names(name, expected):
    assert load_engine(name).name == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.11.2+cu128", "vllm@0.11"),
        ("V0 0.7.3", "vllm@0.7"),
        ("v0.20.1", "vllm@0.20"),
        ("latest", None),
        ("", None),
        (None, None),
    ],
)
def test_free_text_versions(text, expected):
    assert load_engine("vllm", version=text).name == (expected or load_engine("vllm").name)


def test_an_engine_is_itself():
    engine = load_engine("sglang")
    assert load_engine(engine) is engine


def test_unknown_names_tell_the_nearest():
    with pytest.raises(UnknownNameError) as caught:
        load_engine("vlmm")
    assert "vllm" in caught.value.hint
    with pytest.raises(UnknownNameError):
        load_engine("vllm@main-branch")


def test_versions_add_up():
    old, new = load_engine("vllm@0.6").memory, load_engine("vllm").memory
    assert (old.utilization, new.utilization) == (0.90, 0.92)
    assert (old.paging, new.paging) == (Paging.ONE_GROUP, Paging.GROUPS)
    assert (old.graph_inside, new.graph_inside) == (False, True)
    assert new.state_mode is StateMode.ALIGN
    assert new.tiers[-1].max_num_batched_tokens == 16384


@pytest.mark.parametrize(
    ("version", "graph_inside", "prints_concurrency", "utilization"),
    [
        ("0.19.1", False, False, 0.90),
        ("0.20.0", True, False, 0.90),
        ("0.20.2", True, True, 0.90),
        ("0.21.0", True, True, 0.92),
    ],
)
def test_what_logs_of_vllm_from_0_19_to_0_21_say(version, graph_inside, prints_concurrency, utilization):
    """0.19 logs that profiling of graphs will be the default, 0.20.0 that it is; 0.20.0 still prints blocks."""
    rules = load_engine("vllm", version=version).memory
    found = (rules.graph_inside, rules.prints_concurrency, rules.utilization)
    assert found == (graph_inside, prints_concurrency, utilization)


def test_versions_order_as_numbers():
    assert engine_versions("vllm")[0] == "0.6"
    assert load_engine(OWN, version="1.9").memory.utilization == 0.6
    assert load_engine(OWN, version="1.11").memory.utilization == 0.7


def test_efficiencies_merge_from_general_to_particular():
    engine = load_engine(OWN)
    hopper = engine.efficiencies["hopper"]
    assert hopper.kernel_s == 2.0
    assert dict(hopper.gemm_mfu) == {"bf16": 0.5, "fp8": 0.6}
    assert engine.fallback.spread_tpot == 0.9
    assert engine.fallback.gemm_mfu["fp8"] == 0.4
    assert load_engine(OWN, version="1.0").efficiencies["hopper"].kernel_s == 1.0


def test_the_floor_is_ideal():
    engine = load_engine("ideal")
    assert engine.memory == MemoryRules()
    assert engine.memory.budget is Budget.EVERYTHING
    assert engine.fallback == Efficiency(overlap=True, half_accumulate=True)
    assert engine.efficiencies == {}


def test_a_profile_file_is_read(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("id: mine\nmemory:\n  budget: total\n  utilization: 0.5\n", encoding="utf-8")
    assert load_engine(path).memory.utilization == 0.5
    assert load_engine(str(path)).id == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "id: x\nmemory:\n  utilisation: 1\n",
            r":3: memory\.utilisation: unknown field \(did you mean utilization\?\)",
        ),
        ("id: x\nmemory:\n  budget: half\n", r":3: memory\.budget: must be one of total,"),
        (
            "id: x\nmemory:\n  expert_width_multiples: {hopper: 0}\n",
            r":3: memory\.expert_width_multiples\.hopper: must be above 0",
        ),
        ("memory: {}\n", "id: must be a word"),
        ("id: x\nmemory: 3\n", "must hold fields"),
        ("id: x\nspeed: 1\n", "speed: unknown field"),
        ("id: x\nefficiency:\n  shared: {kernel: 1}\n", "unknown field"),
        (
            "id: x\nefficiency:\n  shared:\n    gemm_mfu: {fp9: 0.5}\n",
            r":4: efficiency\.shared\.gemm_mfu\.fp9: is no compute format \(did you mean fp8\?\)",
        ),
    ],
)
def test_broken_profiles_tell_the_line(tmp_path, text, message):
    path = tmp_path / "broken.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=message):
        load_engine(path)


@pytest.mark.parametrize("name", registry.ids("engine"))
def test_every_constant_of_mechanism_has_provenance(name):
    data = load_yaml(registry.resolve("engine", name)).data
    memory = data["memory"]
    stated = set(memory) | {key for block in memory.get("versions", {}).values() for key in block}
    known = stated | {field.name for kind in (MemoryRules, Efficiency) for field in fields(kind)} | {"vendors"}
    assert set(data["provenance"]) <= known
    assert data["provenance"]
    assert ("vendors" in data) == ("vendors" in data["provenance"])


def test_loading_needs_neither_pydantic_nor_numpy():
    code = "import sys; from kvplan.specs.engines import load_engine; load_engine('vllm'); print('pydantic' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("version", ["0.5.4", "0.42", "1.0", "9.9.post1"])
def test_a_version_without_rules_takes_the_nearest_and_is_kept(version):
    engine = load_engine("vllm", version=version)
    known = engine_versions("vllm")
    assert engine.version == (known[0] if version == "0.5.4" else known[-1])
    assert engine.asked_version is not None
    assert version.startswith(engine.asked_version)


@pytest.mark.parametrize("version", [None, "", "nightly", "0.6.0", "0.13", "v0.19.1rc2"])
def test_a_version_within_those_that_have_rules_needs_no_word(version):
    assert load_engine("vllm", version=version).asked_version is None
