"""What a program that uses kvplan says to `mypy --strict` (`.ci/run` asks, with the built wheel); nothing here is run.

Each `type: ignore` is a mistake that must be seen: one that no longer is makes mypy report an unused comment.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import kvplan
from kvplan import api


def answers() -> None:
    """Results are typed down to their leaves."""
    answer = kvplan.estimate("llama-3-8b", Path("card.yaml"), tp=2, kv_dtype="fp8")
    assert_type(answer.capacity.fits, bool)
    assert_type(answer.memory.kv_pool_tokens, int)
    assert_type(answer.model_dump_json(), str)
    assert_type(kvplan.needs("llama-3-8b", "l40s", context=8192).tp_needed, int | None)
    assert_type(kvplan.load_model("llama-3-8b").max_context, int | None)
    assert_type(kvplan.compare(["a:tp=1", "b:tp=2"], model="llama-3-8b", gpu="l40s").reference, int)
    assert_type(kvplan.sweep("llama-3-8b", "l40s", concurrency=[1, 2, 4]).shape, tuple[int, ...])
    assert_type(kvplan.plan("llama-3-8b", ["l40s"], rate=2.0, input_tokens=500, output_tokens=50).searched, int)
    assert_type(kvplan.validate("measurements.csv").answered, int)
    assert_type(kvplan.explain_log("server.log", gpu="l40s").missing, tuple[str, ...])
    assert_type(kvplan.estimate(**kvplan.load_scenario("chat.yaml")), kvplan.Estimate)
    assert_type(answer.latency.tpot_ms if answer.latency else None, kvplan.Range | None)
    assert_type(api.repository_of("llama-3-8b"), str)


def mistakes() -> None:
    """Wrong names and kinds are told before anything runs."""
    kvplan.estimate("llama-3-8b")  # type: ignore[call-arg]
    kvplan.estimate("llama-3-8b", "l40s", tpp=2)  # type: ignore[call-arg]
    kvplan.estimate("llama-3-8b", "l40s", tp="2")  # type: ignore[arg-type]
    kvplan.compare(model="llama-3-8b", gpu="l40s", tpp=2)  # type: ignore[call-arg]
    kvplan.sweep("llama-3-8b", "l40s", concurency=[1, 2])  # type: ignore[call-arg]
    kvplan.sweep("llama-3-8b", "l40s", concurrency="1,2")  # type: ignore[arg-type]
    kvplan.explain_log("server.log", gpus="l40s")  # type: ignore[call-arg]
    kvplan.explain_log("server.log", tp="2")  # type: ignore[arg-type]
    kvplan.estimat("llama-3-8b", "l40s")  # type: ignore[attr-defined]
    api.estimat_of({})  # type: ignore[attr-defined]
