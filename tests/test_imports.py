"""The arrows of the house, read from the source, and what start-up really loads."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import kvplan

PACKAGE = Path(kvplan.__file__).parent

#: Part of the package → the parts it may import. `errors` is open to all.
ARROWS = {
    "core": {"core"},
    "specs": {"core", "specs", "writing"},
    "planning": {"core", "planning"},
    "simulation": {"core", "simulation"},
    "calibration": {"core", "calibration"},
    "report": {"core", "report", "writing"},
    "api": {"core", "specs", "planning", "simulation", "calibration", "api"},
    # Faces hand results to reports; file stems for lists and completion come from the registry without the API,
    # and `models import` writes spec files. What a user may type (endings of numbers, names of formats, other tools'
    # words) is data that the faces read where scenarios read it.
    "cli": {
        *("api", "report", "cli", "writing", "specs.registry", "specs.importing"),
        *("core.units", "core.dtypes", "core.precision", "planning.words"),
    },
    "web": {"api", "report", "web", "specs.registry"},
    "__init__": {"api"},
    "__main__": {"cli"},
    "errors": set(),
    "writing": set(),
}
#: Modules of frozen result types beside core's own, which reports read as they read `core.results`.
RESULT_TYPES = {
    "calibration.explanation",
    "calibration.fitted",
    "calibration.scoring",
    "calibration.validation",
    "planning.comparison",
    "planning.plan_result",
    "planning.sweep_result",
}


#: Modules of the Python face, each standing on those before it (`kvplan.api` lists what each is for).
API_FLOORS = (
    "arguments",
    "loading",
    "deployments",
    "answers",
    "measurements",
    "decisions",
    "scenario_files",
    "services",
)


def modules():
    return sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


def part_of(path):
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@cache
def imports(path):
    """Absolute names of everything that a module imports, wherever in it."""
    return tuple(_imports(path))


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            if node.module == "kvplan" or node.module.startswith("kvplan."):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inner_targets(name):
    """`kvplan.core.cache` → the names under which ARROWS could allow it."""
    parts = name.split(".")[1:]
    return {".".join(parts[: depth + 1]) for depth in range(len(parts))}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_arrows(path):
    allowed = ARROWS[part_of(path)] | {"errors"}
    allowed |= RESULT_TYPES if part_of(path) == "report" else set()
    for name in imports(path):
        if not name.startswith("kvplan."):
            continue
        targets = inner_targets(name)
        top = name.split(".")[1]
        if not (PACKAGE / top).is_dir() and not (PACKAGE / f"{top}.py").exists():
            continue  # an attribute of the package itself, such as __version__
        nested_allowed = any(item.startswith(f"{top}.") for item in allowed)
        bare_parent = nested_allowed and name == f"kvplan.{top}"
        assert targets & allowed or bare_parent, f"{path.relative_to(PACKAGE)} imports {name}"


@pytest.mark.parametrize(
    "path", [path for path in modules() if part_of(path) == "core"], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_core_imports_the_standard_library_only(path):
    for name in imports(path):
        top = name.split(".")[0]
        assert top == "kvplan" or top in sys.stdlib_module_names, f"{path.name} imports {name}"


@pytest.mark.parametrize("name", sorted(RESULT_TYPES))
def test_modules_of_result_types_hold_nothing_else(name):
    path = PACKAGE / f"{name.replace('.', '/')}.py"
    inner = {item.split(".")[1] for item in imports(path) if item.startswith("kvplan.")}
    assert inner <= {"core", "errors", "calibration", "planning"}


@pytest.mark.parametrize("name", API_FLOORS)
def test_modules_of_the_python_face_stand_on_those_before(name):
    below = {f"kvplan.api.{other}" for other in API_FLOORS[: API_FLOORS.index(name)]}
    used = {item for item in imports(PACKAGE / "api" / f"{name}.py") if item.startswith("kvplan.api")}
    assert all(any(item == one or item.startswith(f"{one}.") for one in below) for item in used), used


def test_every_module_of_the_python_face_has_a_floor():
    assert {path.stem for path in (PACKAGE / "api").glob("*.py")} == {"__init__", *API_FLOORS}


def test_only_the_hub_module_imports_huggingface_hub():
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if any(name.split(".")[0] == "huggingface_hub" for name in imports(path))
    }
    assert all(Path(user).stem == "hub" for user in users), users


def test_cli_imports_nothing_from_click():
    for path in modules():
        assert not any(name.split(".")[0] == "click" for name in imports(path)), path


def modules_after(*args):
    """Modules in a fresh interpreter after one command line."""
    code = (
        "import sys, json\n"
        "from kvplan.cli.main import app\n"
        "try:\n    app(sys.argv[1:], prog_name='kvplan')\n"
        "except SystemExit as done:\n    code = done.code or 0\n"
        "sys.stderr.write('\\n' + json.dumps([code, list(sys.modules)]))\n"
    )
    done = subprocess.run(  # a fresh interpreter is the only honest witness
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    code, names = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return set(names)


def loaded_after(*args):
    """Top-level modules in a fresh interpreter after one command line."""
    return {name.split(".")[0] for name in modules_after(*args)}


def test_help_loads_neither_rich_nor_yaml_nor_the_hub():
    loaded = loaded_after("--help")
    assert not loaded & {"rich", "yaml", "huggingface_hub", "numpy", "pydantic"}


def test_command_help_loads_nothing_heavy():
    loaded = loaded_after("estimate", "--help")
    assert not loaded & {"rich", "yaml", "huggingface_hub", "numpy", "pydantic"}


@pytest.mark.parametrize("form", [(), ("--json",), ("--explain",)], ids=str)
def test_estimate_on_a_bundled_model_loads_no_numpy_and_no_hub(form):
    loaded = loaded_after("estimate", "--model", "llama-3-8b", "--gpu", "a100-80g", *form)
    assert not loaded & {"numpy", "huggingface_hub", "rich", "pydantic", "requests", "httpx"}


def test_estimate_on_a_bundled_model_loads_only_the_rooms_it_walks_through():
    """What one estimate doesn't ask costs it nothing: other families, other commands, other questions."""
    modules = modules_after("estimate", "--model", "llama-3-8b", "--gpu", "a100-80g")
    ours = {name.removeprefix("kvplan.") for name in modules if name.startswith("kvplan.")}
    rooms = {
        "planning",
        "simulation",
        "calibration",
        "web",
        "specs.gguf",
        "specs.safetensors",
        "specs.hub",
        "report.explain",
    }
    assert not {name for name in ours if any(name == room or name.startswith(f"{room}.") for room in rooms)}
    families = {name.split(".")[2] for name in ours if name.startswith("specs.huggingface.")}
    parts_of_reading = {"blueprint", "blocks", "config", "dimensions", "leftovers", "quantization", "registry"}
    assert families <= parts_of_reading | {"llama"}, families


def test_import_kvplan_is_cheap():
    done = subprocess.run(
        [sys.executable, "-c", "import kvplan, sys; print(*{n.split('.')[0] for n in sys.modules})"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not set(done.stdout.split()) & {"yaml", "typer", "rich", "numpy", "pydantic", "huggingface_hub"}
