"""A grid of loads on one deployment, answered with arrays by the same functions that answer one scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kvplan.core.deployment import Deployment
from kvplan.core.estimate import latency_of, rank_load, throughput_of
from kvplan.core.memory import MemoryPlan, plan_memory, pool_follows_load
from kvplan.core.results import Range
from kvplan.core.serving import steady_state
from kvplan.core.units import ceil_div
from kvplan.core.workload import Workload
from kvplan.planning.sweep_result import STATUS, Array

_OK, _QUEUED, _NO_FIT, _ABOVE, _BELOW, ERROR = range(len(STATUS))

#: Quantities of a sweep with their units.
MEMORY: Final[dict[str, str]] = {
    "weights_bytes": "byte",
    "activation_bytes": "byte",
    "kv_pool_bytes": "byte",
    "kv_bytes_per_token": "byte",
    "sequence_bytes": "byte",
    "max_concurrency": "sequences",
}
RANGES: Final[dict[str, str]] = {
    "ttft_ms": "ms",
    "tpot_ms": "ms",
    "e2e_ms": "ms",
    "output_tokens_per_second": "tokens/s",
    "per_gpu_output_tokens_per_second": "tokens/s",
    "requests_per_second": "requests/s",
}
BANDS: Final = ("low", "high", "floor")

#: Points that are answered at once: their arrays stay in the processor's cache.
_CHUNK: Final = 16_384


def quantities(*, ranges: bool) -> dict[str, str]:
    """Names and units of what a grid answers."""
    found = {**MEMORY, "running": "sequences", **RANGES}
    if ranges:
        found.update({f"{name}_{band}": unit for name, unit in RANGES.items() for band in BANDS})
    return found


def answer_grid(
    deployment: Deployment,
    axes: Mapping[str, Sequence[float]],
    fixed: Mapping[str, Any],
    *,
    ranges: bool,
    allow_context_overflow: bool = False,
) -> dict[str, Array]:
    """Answer every combination of the axes' values.

    Args:
        deployment: What serves.
        axes: Load field → values; one dimension each, in this order.
        fixed: Load fields that do not vary.
        ranges: True to add the band and the floor of times and rates, which takes twice as long.
        allow_context_overflow: True to plan beyond the model's own limit.

    Returns:
        Quantity → array of the shape of the axes, NaN where there is no answer, and `status` (numbers of `STATUS`).
    """
    shape = tuple(len(values) for values in axes.values())
    arrays = {name: np.empty(shape) for name in quantities(ranges=ranges)}
    arrays["status"] = np.empty(shape, dtype=np.uint8)
    spread = {
        name: np.asarray(values, dtype=float).reshape([-1 if other == index else 1 for other in range(len(axes))])
        for index, (name, values) in enumerate(axes.items())
    }
    plans = _Plans(deployment)
    for block in _blocks(shape):
        part = {
            name: values[tuple(block[d] if d == index else slice(None) for d in range(len(shape)))]
            for index, (name, values) in enumerate(spread.items())
        }
        load = {**fixed, **part}
        context = load.pop("context", None)
        found = _answer(plans, load, context, ranges=ranges, overflow=allow_context_overflow)
        for name, values in found.items():
            arrays[name][block] = values
    return arrays


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Parts of the grid of at most `_CHUNK` points (or one row of the last axis's part), which cover it."""
    room = _CHUNK
    steps: list[int] = []
    for size in reversed(shape):
        steps.insert(0, max(1, min(size, room)))
        room = max(1, room // max(1, size))
    counts = [ceil_div(size, step) for size, step in zip(shape, steps, strict=True)]
    for index in np.ndindex(*counts):
        yield tuple(slice(i * step, (i + 1) * step) for i, step in zip(index, steps, strict=True))


class _Plans:
    """Memory plans of a deployment: one, or one for each load where the pool follows it."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.vary = pool_follows_load(deployment.engine, deployment.settings)
        self._kept: dict[tuple[int, int, int | None], MemoryPlan] = {}

    def plan(self, context: float, concurrency: float, source: float | None = None) -> MemoryPlan:
        pair = (int(context), int(concurrency)) if self.vary else (1, 1)
        key = (*pair, None if source is None else int(source))
        if key not in self._kept:
            asked = self.deployment.question(context=key[0], concurrency=key[1], source_tokens=key[2])
            self._kept[key] = plan_memory(asked, advise=False)
        return self._kept[key]


def _answer(
    plans: _Plans,
    load: Mapping[str, Any],
    context: Array | float | None,
    *,
    ranges: bool,
    overflow: bool,
) -> dict[str, Array]:
    needed = load["input_tokens"] + load["output_tokens"]
    planned = np.asarray(needed if context is None else context, dtype=float)
    source = load.get("source_tokens")
    if not plans.vary and (source is None or np.ndim(source) == 0):
        under = plans.plan(1, 1, source)
        return _answer_under(under, plans.deployment, load, planned, ranges=ranges, overflow=overflow)
    every = {**load, "_planned": planned}
    flat = dict(zip(every, np.broadcast_arrays(*every.values()), strict=True))
    shape = flat["_planned"].shape
    flat = {name: values.reshape(-1) for name, values in flat.items()}
    follows = [*(("_planned", "concurrency") if plans.vary else ()), *(() if source is None else ("source_tokens",))]
    found: dict[str, Array] = {}
    for values_here in np.unique(np.stack([flat[name] for name in follows]), axis=1).T:
        here = dict(zip(follows, values_here, strict=True))
        chosen = np.logical_and.reduce([flat[name] == value for name, value in here.items()])
        part = {name: values[chosen] for name, values in flat.items()}
        under = plans.plan(here.get("_planned", 1), here.get("concurrency", 1), here.get("source_tokens"))
        planned_here = part.pop("_planned")
        answers = _answer_under(under, plans.deployment, part, planned_here, ranges=ranges, overflow=overflow)
        for name, values in answers.items():
            found.setdefault(name, np.empty(chosen.size, dtype=np.asarray(values).dtype))[chosen] = values
    return {name: values.reshape(shape) for name, values in found.items()}


def _answer_under(
    plan: MemoryPlan, deployment: Deployment, load: Mapping[str, Any], planned: Array, *, ranges: bool, overflow: bool
) -> dict[str, Array]:
    """Loads that share one memory plan, through the very functions of `core.estimate.estimate`."""
    workload = Workload(**load)
    rank = rank_load(deployment, workload, plan, concurrency=workload.concurrency)
    state = steady_state(deployment.work, rank, deployment.machine)
    floor = steady_state(deployment.work, rank, deployment.ideal) if ranges else state
    latency = latency_of(deployment, workload, state, floor=floor, bounds=("", ""))
    throughput = throughput_of(deployment, workload, state, floor=floor)
    room = plan.pool.room_bytes > 0
    holds = plan.pool.sequences(planned) if room else 0.0 * planned
    status = _status(deployment, planned, load, holds=holds, queued=latency.queued, overflow=overflow)
    answered = status <= _QUEUED
    memory = plan.memory
    found: dict[str, Array] = {
        "status": status,
        "weights_bytes": np.asarray(memory.weights_bytes),
        "activation_bytes": np.asarray(memory.activation_bytes),
        "kv_pool_bytes": np.asarray(memory.kv_pool_bytes),
        "kv_bytes_per_token": np.asarray(memory.kv_bytes_per_token),
        "sequence_bytes": plan.pool.sequence_bytes(planned),
        "max_concurrency": holds,
        "running": np.where(answered, state.running, np.nan),
    }
    whole = bool(answered.all())
    for name in RANGES:
        value: Range = getattr(latency, name) if hasattr(latency, name) else getattr(throughput, name)
        for band in ("mid", *BANDS) if ranges else ("mid",):
            label = name if band == "mid" else f"{name}_{band}"
            figures = getattr(value, band)
            found[label] = figures if whole else np.where(answered, figures, np.nan)
    return found


def _status(
    deployment: Deployment,
    planned: Array,
    load: Mapping[str, Any],
    *,
    holds: Array,
    queued: Any,  # noqa: ANN401 - one truth or an array of them
    overflow: bool,
) -> Array:
    needed = load["input_tokens"] + load["output_tokens"]
    limit = deployment.model.max_context
    above = (planned > limit) if limit is not None and not overflow else np.False_
    conditions = np.broadcast_arrays(planned < needed, above, holds < 1.0, queued)
    codes = [np.uint8(_BELOW), np.uint8(_ABOVE), np.uint8(_NO_FIT), np.uint8(_QUEUED)]
    return np.select(conditions, codes, default=np.uint8(_OK))
