"""What a reader under attack is, and what is made of the inputs that it accepts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

import kvplan
from kvplan.errors import KvplanError
from tests.fuzz.guard import broken, check_shown
from tests.fuzz.mutations import Mutator

ROOT = Path(__file__).resolve().parents[2]
TEXT_MOST = 6_000
SHARE = 16
ASKED = {"concurrency": 4, "input_tokens": 100, "output_tokens": 10}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One way in.

    Attributes:
        run: Reads bytes, with a folder of its own to write in.
        seeds: Known inputs.
        is_tree: True where inputs are JSON (or a recipe in JSON) and change by structure.
    """

    run: Callable[[bytes, Path], None]
    seeds: Callable[[], list[bytes]]
    is_tree: bool = True

    def mutator(self) -> Mutator:
        """What makes new inputs."""
        return Mutator(self.seeds(), is_tree=self.is_tree)


def spec_files(kind: str, most: int) -> Callable[[], list[bytes]]:
    """Bundled specs of a folder as seeds, as text and as JSON, at most about `most`."""

    @cache
    def seeds() -> list[bytes]:
        paths = sorted((ROOT / kind).glob("*.yaml"))
        texts = [path.read_bytes() for path in paths if path.stat().st_size < TEXT_MOST][:: max(1, len(paths) // most)]
        return [part for text in texts for part in (json.dumps(yaml.safe_load(text), default=str).encode(), text)]

    return seeds


def shown(report: Any) -> None:
    """All forms of a report can be made, and act on no terminal."""
    from kvplan.report.render import Form, render

    for form in Form:
        check_shown(render(report, form))


def model_is_sound(model: kvplan.Model, data: bytes) -> None:
    """Count its parameters, and for one input in `SHARE` answer with it and show that in all forms."""
    from kvplan.core.summary import model_summary
    from kvplan.report.estimate import EstimateReport
    from kvplan.report.specs import ModelReport

    json.dumps(model_summary(model), allow_nan=False)
    if sum(data) % SHARE:
        return
    shown(ModelReport(model=model))
    for gpu, engine, layout in (("h200", "vllm", {}), ("l4", "llama.cpp", {}), ("b200", "sglang", {"tp": 2, "pp": 2})):
        with contextlib.suppress(KvplanError):
            answer = kvplan.estimate(model, gpu, engine=engine, allow_context_overflow=True, **ASKED, **layout)
            estimate_is_sound(answer)
            if engine == "vllm":
                shown(EstimateReport(estimate=answer, explain=True, model=model))


def estimate_is_sound(answer: kvplan.Estimate) -> None:
    """The laws of one estimate: the ledger sums, ranges are ordered, the JSON is finite.

    Raises:
        LawBrokenError: One is broken.
    """
    data = json.loads(answer.model_dump_json())
    json.dumps(data, allow_nan=False)
    memory = data["memory"]
    parts = ("weights_bytes", "activation_bytes", "runtime_bytes", "kv_pool_bytes", "unused_bytes")
    inside = sum(memory.get(name) or 0 for name in parts)
    graph = memory["graph_bytes"] or 0
    if memory["usable_bytes"] not in {inside, inside + graph}:
        broken("the ledger does not sum", str(memory))
    for part in ("latency", "throughput"):
        for name, value in (data[part] or {}).items():
            if isinstance(value, dict) and "low" in value:
                low, mid, high, floor = (value[key] for key in ("low", "mid", "high", "floor"))
                best_first = (floor, low, mid, high) if part == "latency" else (low, mid, high, floor)
                slack = 1 + 1e-9
                if not all(a <= b * slack for a, b in pairwise(best_first)):
                    broken(f"{name} is not ordered", str(value))
