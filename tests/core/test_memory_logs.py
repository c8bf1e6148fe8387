"""Start-up logs of engines against the ledger: who measured what is in tests/data/memory_logs.jsonl (source per row).

Tolerances, as shares: weights 0.5 % (towers and an unexplained 0.06 GiB of Qwen2.5; 2.5 % below 2 GiB, where logs round),
activation 2.5 % (the rule has six constants for all models), pool 2 % (activation and runtime errors fall on what remains;
Qwen2.5-72B leaves 3 GiB of 79), tokens and concurrency 2.5 % (as the pool, plus block rounding of the log's rounded GiB).
"""

import json
from pathlib import Path

import pytest

from kvplan.core.engine import Settings
from kvplan.core.layout import Layout
from kvplan.core.ledger import Question, account, pool_request
from kvplan.core.memory import plan_memory, resolve_kv_dtype
from kvplan.core.memory_rules import StateMode
from kvplan.core.paging import lay_out
from kvplan.core.precision import apply_dtype
from kvplan.core.units import GIB
from kvplan.specs.engines import load_engine
from kvplan.specs.hardware import load_gpu
from kvplan.specs.models import load_model

DATA = Path(__file__).parent.parent / "data"


def rows(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


LOGS = rows("memory_logs.jsonl")
POOLS = rows("memory_pools.jsonl")
TOLERANCE = {
    "weights_gib": 0.005,
    "activation_gib": 0.025,
    "kv_pool_gib": 0.02,
    "tokens": 0.025,
    "max_concurrency": 0.025,
}
SMALL_GIB = 2


@pytest.fixture(params=LOGS, ids=lambda row: row["id"])
def row(request):
    return request.param


def planned(row):
    model = load_model(row["model"])
    if row.get("dtype") and model.quantization is None:
        model = apply_dtype(model, row["dtype"])
    engine = load_engine(row["engine"], version=row.get("version"))
    total = row.get("total_gib")
    question = Question(
        model=model,
        gpu=load_gpu(row["gpu"]),
        engine=engine,
        layout=Layout(tp=row["tp"]),
        settings=Settings(
            gpu_memory_utilization=row.get("utilization"),
            max_num_seqs=row.get("max_num_seqs"),
            max_num_batched_tokens=row.get("max_num_batched_tokens"),
            gpu_memory_bytes=int(total * GIB) if total else None,
        ),
        kv_dtype=resolve_kv_dtype(model, engine, row.get("kv_dtype")),
        context=row.get("context", 8192),
        concurrency=1,
    )
    return plan_memory(question)


def test_ledger_agrees_with_the_log(row):
    plan = planned(row)
    memory, tokens = plan.memory, plan.memory.kv_logged_tokens
    figures = {
        "weights_gib": memory.weights_logged_bytes / GIB,
        "activation_gib": memory.activation_bytes / GIB,
        "kv_pool_gib": memory.kv_pool_bytes / GIB,
        "tokens": memory.kv_pool_tokens if tokens is None else tokens,
        "max_concurrency": plan.capacity.max_concurrency,
    }
    for name, logged in row["log"].items():
        small = name == "weights_gib" and logged < SMALL_GIB
        assert figures[name] == pytest.approx(logged, rel=0.025 if small else TOLERANCE[name]), name


def test_every_log_has_a_source(row):
    assert row["source"]
    assert row["log"]


def test_one_log_side_by_side():
    # Llama-3.1-8B, vLLM 0.19, one H100, utilisation 0.95: 75.23 = 14.99 + 1.89 + 0.25 + 58.10 [GiB]
    row = next(r for r in LOGS if r["model"] == "llama-3.1-8b" and r.get("context") == 2048)
    memory = planned(row).memory
    lines = {line.name: line for line in memory.ledger}
    assert round(lines["usable"].bytes / GIB, 2) == 75.23
    assert lines["weights"].log_line.startswith("Model loading took")
    assert "1024 sequences × 128256" in lines["activation"].formula
    assert lines["graph_outside"].bytes == memory.graph_outside_bytes > 0
    assert memory.graph_bytes == 0


@pytest.mark.parametrize("row", POOLS, ids=lambda row: row["id"])
def test_block_rules_alone_give_the_logged_concurrency(row):
    # Hybrids, two widths and compressed attention: the pool as logged, laid out by our rules. 1 % is the rounding of the
    # log (three figures) and, for Qwen3-Next, the width of its state; what a row was not told is in `given`.
    settings = dict(row["settings"])
    if "state_mode" in settings:
        settings["state_mode"] = StateMode(settings["state_mode"])
    question = Question(
        model=load_model(row["model"]),
        gpu=load_gpu(row["gpu"]),
        engine=load_engine("vllm", version=row["version"]),
        layout=Layout(tp=row["tp"]),
        settings=Settings(**settings),
        kv_dtype=row["kv_dtype"],
        context=row["context"],
        concurrency=1,
    )
    found = account(question)
    pool = lay_out(pool_request(question, found.limits, found.layers, room=int(row["kv_pool_gib"] * GIB)))
    assert pool.sequences(row["context"]) == pytest.approx(row["max_concurrency"], rel=0.01)
    assert pool.block_tokens == row.get("block_tokens", pool.block_tokens)
