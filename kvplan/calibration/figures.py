"""What an estimate says about the figures that engines print and clients measure, under their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplan.core.results import Estimate, Memory, Range
from kvplan.core.units import GIB

#: Figures of a log that records hold as well.
_RECORDED: Final = ("weights_gib", "activation_gib", "kv_pool_gib", "kv_pool_tokens", "max_concurrency")
#: What SGLang does not budget, so that kvplan has no figure for it.
_NOT_BUDGETED: Final = frozenset({"graph_gib", "activation_gib"})


def quantities(estimate: Estimate) -> dict[str, float | Range]:
    """Predictions of everything that can be measured: figures of a log, times and rates as ranges."""
    figures = _figures(estimate)
    found: dict[str, float | Range] = {name: figures[name] for name in _RECORDED}
    if estimate.latency is not None and estimate.throughput is not None:
        found["ttft_ms"] = estimate.latency.ttft_ms
        found["tpot_ms"] = estimate.latency.tpot_ms
        found["e2e_ms"] = estimate.latency.e2e_ms
        found["output_tokens_per_second"] = estimate.throughput.output_tokens_per_second
    return found


def logged_figures(estimate: Estimate) -> dict[str, float]:
    """Predictions of each figure that a start-up log may have."""
    found = _figures(estimate)
    if estimate.scenario.engine.startswith("sglang"):
        return {name: value for name, value in found.items() if value or name not in _NOT_BUDGETED}
    return dict(found)


def table_bytes(memory: Memory) -> int:
    """Tables that an engine's weights line counts and the ledger has under runtime [byte]."""
    return memory.weights_logged_bytes - memory.weights_bytes


def _figures(estimate: Estimate) -> Mapping[str, float]:
    memory, capacity = estimate.memory, estimate.capacity
    tokens = memory.kv_pool_tokens if memory.kv_logged_tokens is None else memory.kv_logged_tokens
    graph = memory.graph_bytes + memory.graph_outside_bytes
    return {
        "weights_gib": memory.weights_logged_bytes / GIB,
        "consumed_gib": (memory.weights_bytes + memory.runtime_bytes) / GIB,
        "activation_gib": memory.peak_logged_bytes / GIB,
        "runtime_gib": (memory.runtime_bytes - table_bytes(memory)) / GIB,
        "graph_gib": graph / GIB,
        "graph_estimate_gib": graph / GIB,
        "budget_gib": memory.usable_bytes / GIB,
        "kv_pool_gib": memory.kv_pool_bytes / GIB,
        "kv_pool_tokens": float(tokens),
        "kv_blocks": float(tokens // memory.kv_block_tokens) if memory.kv_block_tokens else 0.0,
        "block_tokens": float(memory.kv_block_tokens),
        "max_concurrency": capacity.max_concurrency,
        "kv_needed_gib": memory.sequence_bytes / GIB,
        "longest_context": float(capacity.max_context),
    }
