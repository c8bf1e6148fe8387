"""Mutation score of the core: change a module in one place, run its tests, count the changes that they notice.

    pip install cosmic-ray
    python benchmarks/mutation.py                      # every module, 60 mutants each
    python benchmarks/mutation.py cache paging -n 200  # two modules, more of them

Mutants are cosmic-ray's (operators, comparisons, numbers, conditions, loops, decorators), drawn with a fixed seed, two at
most from one place, without those that only touch annotations or the `*` of a signature. They live in a copy of the repository. A mutant meets the
doctests and the tests of its own module alone (`tests/core/test_<module>.py`, and `test_records.py` for what all records
promise), not what the rest of the suite would notice besides. Each runs in a fork of one process that has the third-party
libraries loaded. What a mutant makes hang counts as noticed.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = Path("kvplan/core")
COPIED = ("kvplan", "model_specs", "hardware_specs", "tests/core", "tests/data", "pyproject.toml")
PER_PLACE = 2
#: Identity for equality and the reverse: the same on None, enums and the small strings that are compared here.
SAME = {f"core/ReplaceComparisonOperator_{name}" for name in ("Is_Eq", "IsNot_NotEq", "Eq_Is", "NotEq_IsNot")}
SURVIVED, KILLED, HUNG = "survived", "killed", "hung"


class Mutant:
    """One change of a module."""

    def __init__(self, source: str, *, operator: str, line: int) -> None:
        self.source = source
        self.operator = operator
        self.line = line


def sample(path: Path, *, count: int, seed: int) -> list[Mutant]:
    """At most `count` mutants of a module that do more than touch an annotation, in the order of its lines.

    Few are taken from one place: eleven ways to replace one `+` are nearly the same mutant.
    """
    from cosmic_ray.ast import ast_nodes, get_ast  # noqa: PLC0415 - wanted by this script alone
    from cosmic_ray.mutating import mutate_code  # noqa: PLC0415 - as above
    from cosmic_ray.plugins import get_operator, operator_names  # noqa: PLC0415 - as above

    original = path.read_text(encoding="utf-8")
    meaning, nodes = _meaning(original), list(ast_nodes(get_ast(original)))
    wanting_arguments = {"core/VariableReplacer", "core/VariableInserter"}
    names = sorted({*operator_names()} - wanting_arguments - SAME)
    operators = {name.removeprefix("core/"): get_operator(name)() for name in names}
    changes = [
        (name, occurrence, start)
        for name, operator in operators.items()
        for occurrence, (start, _) in enumerate(place for node in nodes for place in operator.mutation_positions(node))
    ]
    random.Random(seed).shuffle(changes)  # noqa: S311 - a sample, not a secret
    drawn: list[Mutant] = []
    taken = dict[tuple[str, tuple[int, int]], int]()
    for name, occurrence, start in changes:
        place = (name.partition("_")[0], start)
        if len(drawn) == count or taken.get(place, 0) == PER_PLACE:
            continue
        changed = mutate_code(original, operators[name], occurrence)
        if changed is not None and _meaning(changed) != meaning:
            taken[place] = taken.get(place, 0) + 1
            drawn.append(Mutant(changed, operator=name, line=start[0]))
    return sorted(drawn, key=lambda one: one.line)


def _meaning(source: str) -> str:
    """The syntax tree without annotations and the `*` of signatures, or the source itself where a mutant is no Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                setattr(node, name, ast.Constant(None))
        if isinstance(node, ast.arguments):
            node.args, node.posonlyargs, node.kwonlyargs = [*node.posonlyargs, *node.args, *node.kwonlyargs], [], []
            node.defaults, node.kw_defaults = (
                [*node.defaults, *(one for one in node.kw_defaults if one is not None)],
                [],
            )
    return ast.dump(tree)


def outcome(arguments: list[str], *, seconds: float) -> str:
    """What pytest says in a fork of this process."""
    child = os.fork()
    if child == 0:
        os.setsid()
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
        os._exit(_run(arguments))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return SURVIVED if status == 0 else KILLED
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return HUNG


def _run(arguments: list[str]) -> int:
    import pytest  # noqa: PLC0415
    from hypothesis import Phase, settings  # noqa: PLC0415

    phases = (Phase.explicit, Phase.generate)  # whoever counts mutants does not read the smallest counterexample
    settings.register_profile(
        "mutation", phases=phases, max_examples=25, derandomize=True, database=None, deadline=None
    )
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = [
        "-x",
        "-q",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:unraisableexception",
        "-p",
        "_hypothesis_pytestplugin",
    ]
    return int(pytest.main([*options, "--hypothesis-profile=mutation", *arguments]))


def outcomes(module: str, drawn: list[Mutant], *, copy: Path, seconds: float) -> list[str] | None:
    """What becomes of each mutant of a module; None where the tests fail without one."""
    own = [f"{CORE}/{module}.py", f"tests/core/test_{module}.py", "tests/core/test_records.py"]
    own = [name for name in own if (copy / name).exists()]
    sys.dont_write_bytecode = False
    if outcome(own, seconds=10 * seconds) != SURVIVED:
        return None
    sys.dont_write_bytecode = True  # what that run compiled stays; what comes from a mutant must not
    path = copy / CORE / f"{module}.py"
    original = path.read_text(encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{module}.*"):
        compiled.unlink()
    found = []
    for one in drawn:
        path.write_text(one.source, encoding="utf-8")
        found.append(outcome(own, seconds=seconds))
    path.write_text(original, encoding="utf-8")
    return found


def main() -> None:
    """Sample, run, and print a table with the survivors below it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="modules of kvplan/core; all by default")
    parser.add_argument("-n", "--count", type=int, default=60, help="mutants of one module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="after which a mutant counts as hung")
    asked = parser.parse_args()
    modules = asked.modules or sorted({path.stem for path in (ROOT / CORE).glob("*.py")} - {"__init__"})
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source, target = ROOT / name, copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        os.chdir(copy)
        for heavy in ("hypothesis", "numpy", "pydantic", "yaml", "gguf", "cosmic_ray.plugins", "_pytest.doctest"):
            __import__(heavy)
        gc.freeze()  # a fork need not look through what was loaded before it
        print(f"{'module':16} {'mutants':>8} {'noticed':>8} {'by hang':>8} {'score':>6}", flush=True)
        total = noticed = 0
        for module in modules:
            drawn = sample(ROOT / CORE / f"{module}.py", count=asked.count, seed=asked.seed)
            found = outcomes(module, drawn, copy=copy, seconds=asked.seconds)
            if found is None:
                print(f"{module:16} its tests fail without a mutant", flush=True)
                continue
            kept = [one for one, what in zip(drawn, found, strict=True) if what == SURVIVED]
            total, noticed = total + len(drawn), noticed + len(drawn) - len(kept)
            score = 1 - len(kept) / len(drawn) if drawn else 1.0
            row = f"{module:16} {len(drawn):8} {len(drawn) - len(kept):8} {found.count(HUNG):8} {score:6.0%}"
            print(row, flush=True)
            original = (ROOT / CORE / f"{module}.py").read_text(encoding="utf-8").splitlines()
            for one in kept:
                changed = one.source.splitlines()
                print(f"    {module}.py:{one.line} {one.operator}: {original[one.line - 1].strip()}")
                print(
                    f"        → {changed[one.line - 1].strip() if len(changed) >= one.line else '(removed)'}",
                    flush=True,
                )
        print(f"{'all':16} {total:8} {noticed:8} {'':8} {noticed / max(1, total):6.0%}")


if __name__ == "__main__":
    main()
