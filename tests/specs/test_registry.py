"""Names: file stems, the alias scan against a full parse, nearest names, and no heavy imports."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from kvplan.errors import UnknownNameError
from kvplan.specs import registry
from kvplan.specs.yaml import load_yaml

KINDS = [kind for kind in get_args(registry.Kind) if registry.ids(kind)]


@pytest.mark.parametrize("kind", KINDS)
def test_alias_scan_finds_what_a_full_parse_finds(kind: registry.Kind) -> None:
    parsed = {
        alias: spec_id
        for spec_id in registry.ids(kind)
        for alias in load_yaml(registry.resolve(kind, spec_id)).data.get("aliases") or ()
    }
    assert registry.aliases(kind) == parsed


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_unique_whatever_the_case(kind: registry.Kind) -> None:
    names = [*registry.ids(kind)]
    for spec_id in registry.ids(kind):
        names += load_yaml(registry.resolve(kind, spec_id)).data.get("aliases") or ()
    folded = [name.casefold() for name in names]
    assert sorted(folded) == sorted(set(folded))


@pytest.mark.parametrize("kind", KINDS)
def test_stem_is_the_id(kind: registry.Kind) -> None:
    for spec_id in registry.ids(kind):
        assert load_yaml(registry.resolve(kind, spec_id)).data["id"] == spec_id


@pytest.mark.parametrize("name", ["h100-80g-sxm", "H100-80G-SXM", "h100", "H100", "nvidia-h100-80gb-hbm3"])
def test_resolve_by_id_or_alias_in_any_case(name: str) -> None:
    assert registry.resolve("gpu", name).stem == "h100-80g-sxm"


def test_unknown_names_suggest_and_never_choose() -> None:
    with pytest.raises(UnknownNameError) as caught:
        registry.resolve("gpu", "h100-80gb-sxn")
    assert str(caught.value) == "unknown GPU 'h100-80gb-sxn'"
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("did you mean h100-")
    assert caught.value.hint.endswith("`kvplan gpus list` shows all, or give the path of a spec file")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        ("gpu", "8xh100", "did you mean h100-80g-sxm --tp 8? "),
        ("gpu", "l40s:2", "did you mean l40s --tp 2? "),
        ("model", "Qwen3-32B-FP8", "did you mean qwen3-32b --dtype fp8? "),
        ("model", "llama-3.1-8b:q4_K_M", "did you mean llama-3.1-8b --dtype q4_k_m? "),
        ("model", "mixtral", "`kvplan models list mixtral` shows all"),
        ("model", "Qwen3-32B-FP8", "`kvplan models list qwen3-32b` shows all"),
        ("model", "no-such-fp8", "`kvplan models list` shows all"),
        ("model", "mistral-7b", "did you mean mistral-7b-"),
        ("gpu", "l40s, a6000", "for several: kvplan compare --vary gpu=l40s,a6000"),
        ("gpu", "48gb", "`kvplan gpus list 48gb` shows all"),
        ("engine", "tgi", "engines: ideal, llama.cpp, sglang, tensorrt-llm, vllm"),
    ],
)
def test_a_name_that_holds_an_option_is_taken_apart(kind: registry.Kind, name: str, hint: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        registry.resolve(kind, name)
    assert hint in str(caught.value.hint)


def test_nearest_names_are_of_different_specs() -> None:
    for name in ("h100", "llama-3-8", "qwen3", "mi300"):
        for kind in ("model", "gpu"):
            near = registry.nearest(kind, name)
            assert len({registry.resolve(kind, one) for one in near}) == len(near) <= 3


def test_lists_are_searched_by_what_describes_a_card() -> None:
    """Every card of a maker, and every card of 48 GB by its spec, whatever they are called."""
    cards = {one: load_yaml(registry.resolve("gpu", one)).data for one in registry.ids("gpu")}
    assert set(registry.holding("gpu", "nvidia")) >= {one for one, card in cards.items() if card["vendor"] == "NVIDIA"}
    of_48 = {one for one, card in cards.items() if card["memory"]["capacity"] == "48 GB"}
    for text in ("48gb", "48 GB", "48g", "48"):
        assert set(registry.holding("gpu", text)) >= of_48 > set()
    assert not {one for one in registry.holding("gpu", "48") if one.startswith(("a100", "cpu"))}
    assert registry.holding("gpu", "") == registry.ids("gpu")
    assert registry.holding("gpu", "x" * 10_000) == ()


def test_spaces_are_dashes() -> None:
    assert registry.resolve("gpu", "NVIDIA H100 80GB HBM3").stem == "h100-80g-sxm"
    assert registry.resolve("model", "Llama 3.1 8B").stem == "llama-3.1-8b"


@pytest.mark.parametrize("name", ["", ".", "..", "../hardware_specs/h100-80g-sxm", "zzzzzz", "_aliases"])
def test_strange_names_are_unknown(name: str) -> None:
    with pytest.raises(UnknownNameError):
        registry.resolve("gpu", name)


def test_the_installed_folder_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("root")
    installed, checkout = root / "installed", root / "checkout"
    for folder, name in ((installed, "a"), (checkout, "b")):
        folder.mkdir()
        (folder / f"{name}.yaml").write_text(f"id: {name}\naliases:\n  - Own/{name.upper()}\n  - 'q-{name}'\nx: 1\n")
        (folder / "_private.yaml").write_text("id: private\n")
        (folder / "README.md").write_text("no spec\n")
    monkeypatch.setitem(registry._FOLDERS, "model", (root / "nowhere", installed, checkout))
    assert registry.ids("model") == ("a",)
    assert registry.aliases("model") == {"Own/A": "a", "q-a": "a"}
    assert registry.resolve("model", "own/a") == installed / "a.yaml"


def test_listing_ids_loads_neither_yaml_nor_pydantic() -> None:
    code = (
        "import sys; from kvplan.specs import registry; assert registry.ids('gpu'); registry.aliases('gpu');"
        "print([m for m in ('yaml', 'pydantic', 'difflib') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "[]"
