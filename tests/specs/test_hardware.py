"""Hardware specs: every bundled file valid and sourced, a few facts by hand, refusals of a user's own card."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kvplan.core.hardware import Gpu
from kvplan.core.units import GIB, MIB
from kvplan.errors import SpecError, UnknownNameError, UsageError
from kvplan.specs import registry
from kvplan.specs.families import FAMILIES, FRAMEWORK_RULES
from kvplan.specs.hardware import load_gpu
from kvplan.specs.hardware_schema import HardwareSpec
from kvplan.specs.yaml import load_yaml, validate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IDS = registry.ids("gpu")
QUANTITY = re.compile(r"\d[\d.]* [A-Za-z/]+")
OWN_CARD: dict[str, Any] = {
    "id": "own",
    "vendor": "NVIDIA",
    "family": "ada-rtx",
    "memory": {"capacity": "48 GB", "bandwidth": "1008 GB/s"},
    "peak": {"bf16": "165.2 TFLOPS"},
}


def numeric_leaves(value: object, path: str = "") -> Iterator[str]:
    """Dotted paths of numbers and of quantities with units."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numeric_leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            yield from numeric_leaves(inner, path)
    elif (isinstance(value, int | float) and not isinstance(value, bool)) or (
        isinstance(value, str) and QUANTITY.fullmatch(value)
    ):
        yield path


def test_every_accelerator_of_the_brief_is_there() -> None:
    assert len(IDS) >= 108
    for name in ("a100", "a100-80g", "h100", "h200", "b200", "gb200", "mi300x", "rtx-4090", "l40s", "l4", "tpu-v5e"):
        assert load_gpu(name).id in IDS
    assert load_gpu("a100-80g").id == "a100-80g-sxm"
    assert not set(registry.aliases("gpu")) & set(IDS)


@pytest.mark.parametrize("gpu_id", IDS)
def test_bundled_spec_satisfies_the_schema(gpu_id: str) -> None:
    spec = validate(load_yaml(registry.resolve("gpu", gpu_id)), HardwareSpec)
    assert spec.id == gpu_id
    assert spec.sources


@pytest.mark.parametrize("gpu_id", IDS)
def test_every_numeric_leaf_has_exactly_one_source(gpu_id: str) -> None:
    spec = load_yaml(registry.resolve("gpu", gpu_id)).data
    covers = [name for source in spec["sources"] for name in source["covers"]]
    assert sorted(covers) == sorted(set(covers)), "two sources claim the same field"
    for part in ("sources", "notes", "compute_capability"):
        spec.pop(part, None)
    leaves = set(numeric_leaves(spec))
    for leaf in leaves:
        assert any(leaf == name or leaf.startswith(f"{name}.") for name in covers), f"{leaf} has no source"
    for name in covers:
        assert any(leaf == name or leaf.startswith(f"{name}.") for leaf in leaves), f"{name} covers nothing"


@pytest.mark.parametrize("gpu_id", IDS)
def test_a_conflict_is_told_in_the_notes(gpu_id: str) -> None:
    spec = load_yaml(registry.resolve("gpu", gpu_id)).data
    if any(source["confidence"] == "conflicting" for source in spec["sources"]):
        assert spec["notes"]


@pytest.mark.parametrize("gpu_id", IDS)
def test_converted_values_make_sense(gpu_id: str) -> None:
    gpu = load_gpu(gpu_id)
    assert gpu.family in FAMILIES
    assert isinstance(gpu.memory_bytes, int)
    assert isinstance(gpu.framework_memory_bytes, int)
    assert 0.95 * gpu.memory_bytes < gpu.framework_memory_bytes <= gpu.memory_bytes
    assert 10**10 < gpu.memory_bandwidth_bytes_per_s < 10**14
    peaks = gpu.peak_flops_per_s
    assert peaks
    assert all(10**11 < value < 10**17 for value in peaks.values())
    assert peaks.get("bf16", 0) <= peaks.get("fp8", peaks.get("bf16", 0)) <= peaks.get("fp4", 10**18)
    assert (gpu.link_name is None) == (gpu.link_bytes_per_s is None)
    if gpu.link_bytes_per_s is not None:
        assert gpu.link_p2p_bytes_per_s is not None
        assert gpu.link_p2p_bytes_per_s <= gpu.link_bytes_per_s
    assert (gpu.compute_capability is not None) == (gpu.vendor == "NVIDIA" and gpu.family != "rubin")


@pytest.mark.parametrize("gpu_id", IDS)
def test_default_gpu_fraction_gives_the_usable_memory(gpu_id: str) -> None:
    memory = load_yaml(registry.resolve("gpu", gpu_id)).data["memory"]
    if "default_gpu_fraction" in memory:
        capacity_gib = int(memory["capacity"].removesuffix(" GB"))  # Apple's "GB" are GiB
        assert load_gpu(gpu_id).memory_bytes == int(memory["default_gpu_fraction"] * capacity_gib * 1024) * MIB


GOLDEN = [
    # Written down by hand on 2026-11-29 from transcriptions of the vendors' sheets (dense figures) and from public
    # nvidia-smi and rocm-smi output: family, driver total [byte], bandwidth [byte/s], bf16 peak [FLOP/s], link per
    # direction [byte/s] and its domain.
    ("a100-80g-sxm", ("ampere-dc", 81_920 * MIB, 2_039e9, 312e12, 300e9, 8)),
    ("h100-80g-sxm", ("hopper", 81_559 * MIB, 3_350e9, 989.4e12, 450e9, 8)),
    ("l40s", ("ada-rtx", 46_068 * MIB, 864e9, 362.05e12, None, 1)),
    ("rtx-4090", ("ada-rtx", 24_564 * MIB, 1_008e9, 165.2e12, None, 1)),
    ("mi300x", ("cdna3", 206_141_652_992, 5_300e9, 1_307.4e12, 448e9, 8)),
    ("gb200", ("blackwell-dc", 189_471 * MIB, 8_000e9, 2_500e12, 900e9, 72)),
]


@pytest.mark.parametrize(("gpu_id", "facts"), GOLDEN)
def test_golden_facts(gpu_id: str, facts: tuple[object, ...]) -> None:
    gpu = load_gpu(gpu_id)
    bandwidth, bf16 = gpu.memory_bandwidth_bytes_per_s, gpu.peak_flops_per_s["bf16"]
    assert (gpu.family, gpu.memory_bytes, bandwidth, bf16, gpu.link_bytes_per_s, gpu.link_domain) == facts


# Totals that vLLM and SGLang logs print [GiB], to two decimals or fewer.
SEEN = [
    ("t4", 14.56, 0.01),
    ("l4", 22.04, 0.01),
    ("rtx-3090", 23.58, 0.01),
    ("rtx-4090", 23.5, 0.05),
    ("rtx-5090", 31.36, 0.01),
    ("a100-40g-sxm", 39.49, 0.01),
    ("l40s", 44.4, 0.05),
    ("a100-80g-sxm", 79.25, 0.01),
    ("h100-80g-sxm", 79.19, 0.01),
    ("h200-141g-sxm", 139.8, 0.05),
    ("b200-sxm", 178.36, 0.01),
    ("mi300x", 191.7, 0.05),
]


@pytest.mark.parametrize(("gpu_id", "total_gib", "rounding_gib"), SEEN)
def test_framework_total_is_what_logs_print(gpu_id: str, total_gib: float, rounding_gib: float) -> None:
    assert load_gpu(gpu_id).framework_memory_bytes / GIB == pytest.approx(total_gib, abs=rounding_gib)


@pytest.mark.parametrize(("gpu_id", "total_gib", "rounding_gib"), SEEN)
def test_framework_rule_holds_on_the_cards_it_comes_from(gpu_id: str, total_gib: float, rounding_gib: float) -> None:
    rule = FRAMEWORK_RULES["rocm-discrete" if gpu_id == "mi300x" else "nvidia-discrete"]
    assert rule(load_gpu(gpu_id).memory_bytes) / GIB == pytest.approx(total_gib, rel=0.003, abs=rounding_gib)


def test_traps_of_data_sheets() -> None:
    assert load_gpu("l40s").peak_flops_per_s["fp8"] == 733e12, "1466 is sparse"
    assert load_gpu("l40").peak_flops_per_s["bf16"] == 181.05e12, "half rate, not an L40S"
    assert load_gpu("a10").peak_flops_per_s["bf16"] != load_gpu("a10g").peak_flops_per_s["bf16"]
    assert "fp8" not in load_gpu("a100").peak_flops_per_s
    assert "bf16" not in load_gpu("t4").peak_flops_per_s
    assert load_gpu("mi300x").link_p2p_bytes_per_s == 64e9, "a mesh: one pair has one link"
    assert load_gpu("h100").link_p2p_bytes_per_s == 450e9, "a switch: any pair has them all"
    assert load_gpu("h100").network_bytes_per_s == 50e9
    assert load_gpu("gh200").host_bytes_per_s == 450e9
    assert load_gpu("gh200").pcie_bytes_per_s == 63e9


def test_a_package_of_two_dies_is_planned_per_die() -> None:
    gpu = load_gpu("mi250x")
    assert gpu.devices_per_package == 2
    assert gpu.memory_bytes == 65_520 * MIB
    assert gpu.memory_bandwidth_bytes_per_s == 3_277e9 / 2
    assert gpu.peak_flops_per_s["bf16"] == 191.5e12
    assert gpu.link_p2p_bytes_per_s == 50e9
    assert (gpu.link_domain, gpu.gpus_per_node, gpu.sm_count) == (8, 8, 110)


def test_unified_memory_counts_what_the_gpu_may_take() -> None:
    gpu = load_gpu("apple-m4-max")
    assert gpu.unified_memory
    assert gpu.memory_bytes == gpu.framework_memory_bytes == 96 * GIB


def test_accepts_itself_a_mapping_and_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = load_gpu(OWN_CARD)
    assert load_gpu(gpu) is gpu
    assert gpu.memory_bytes == 48 * 10**9
    assert gpu.framework_memory_bytes == FRAMEWORK_RULES["nvidia-discrete"](48 * 10**9)
    assert len(gpu.notes) == 2, "both assumptions are told"
    (tmp_path / "own.yaml").write_text(
        "id: own\nvendor: NVIDIA\nfamily: ada-rtx\nmemory: {capacity: 48 GB, bandwidth: 1008 GB/s}\n"
        "peak: {bf16: 165.2 TFLOPS}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert load_gpu("own.yaml") == load_gpu("./own.yaml") == load_gpu(tmp_path / "own.yaml") == gpu


def test_a_bundled_file_given_as_a_path_is_the_bundled_card() -> None:
    assert load_gpu(registry.resolve("gpu", "h100")) == load_gpu("h100")


def test_a_users_file_tells_all_its_errors_with_lines(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        "id: Own Card\n"
        "vendor: NVIDIA\n"
        "family: ada-rxt\n"
        "memory:\n"
        "  capacity: 48\n"
        "  bandwith: 1008 GB/s\n"
        "  framework:\n"
        "    rule: nvidia\n"
        "peak:\n"
        "  bf16: 165.2 TFLOPs\n"
        "  fp64: 1 TFLOPS\n"
        "links:\n"
        "  scale_up: {name: x, rate: 0 GB/s, domain: -2}\n"
        "tdp: 700\n"
    )
    with pytest.raises(SpecError) as caught:
        load_gpu(path)
    lines = str(caught.value).splitlines()
    assert [line.removeprefix(f"{path}:").split(": ", 2)[:2] for line in lines] == [
        ["1", "id"],
        ["3", "family"],
        ["4", "memory.bandwidth"],
        ["5", "memory.capacity"],
        ["6", "memory.bandwith"],
        ["8", "memory.framework.rule"],
        ["10", "peak.bf16"],
        ["11", "peak.fp64"],
        ["13", "links.scale_up.domain"],
        ["13", "links.scale_up.rate"],
        ["14", "tdp"],
    ]
    text = {line.split(": ", 2)[1]: line.split(": ", 2)[2] for line in lines}
    assert text["family"].endswith("(did you mean ada-rtx?)")
    assert text["memory.bandwidth"] == "missing"
    assert text["memory.bandwith"] == "unknown field (did you mean bandwidth?)"
    assert text["memory.capacity"] == "48 has no unit; write it like '80 GB'"
    assert text["peak.bf16"] == (
        "'TFLOPs' is not a unit of compute; use one of GFLOPS, TFLOPS, PFLOPS, GOPS, TOPS, POPS"
    )
    assert text["links.scale_up.rate"] == "must be more than zero; leave the field out if it is unknown"
    assert caught.value.exit_code == 4


def test_a_mapping_tells_all_its_errors() -> None:
    with pytest.raises(SpecError) as caught:
        load_gpu({**OWN_CARD, "peak": {}, "family": "warp"})
    assert str(caught.value).splitlines()[1] == "gpu: peak: needs at least one format, like `bf16: 989.4 TFLOPS`"
    with pytest.raises(SpecError, match="peak: needs at least one format"):
        load_gpu({**OWN_CARD, "peak": {"bf16": None}})
    with pytest.raises(SpecError, match="peak: needs one of bf16, fp16, fp32, tf32"):
        load_gpu({**OWN_CARD, "peak": {"fp8": "330 TFLOPS"}})


def test_an_unknown_name_is_no_file_and_an_empty_one_no_name() -> None:
    with pytest.raises(UnknownNameError):
        load_gpu("h1000")
    with pytest.raises(UsageError, match="gpu: must be a name"):
        load_gpu("")


def test_a_missing_file_says_so() -> None:
    with pytest.raises(SpecError, match=r"^nowhere/own\.yaml: can't be read: No such file or directory$"):
        load_gpu("nowhere/own.yaml")


def test_a_bundled_card_loads_without_pydantic() -> None:
    code = "import sys; from kvplan.specs.hardware import load_gpu; load_gpu('h100'); print('pydantic' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "False"


def test_loading_gives_a_frozen_core_object() -> None:
    gpu = load_gpu("h100")
    assert isinstance(gpu, Gpu)
    with pytest.raises(AttributeError):
        gpu.id = "x"  # type: ignore[misc]


def test_the_example_in_the_folders_readme_loads(tmp_path: Path) -> None:
    readme = (registry.spec_folder("gpu") / "README.md").read_text(encoding="utf-8")
    example = re.search(r"```yaml\n(.*?)```", readme, re.DOTALL)
    assert example is not None
    (tmp_path / "my-card.yaml").write_text(example[1])
    assert load_gpu(tmp_path / "my-card.yaml").memory_bytes == 49_140 * MIB
