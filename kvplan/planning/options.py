"""A kind with a number of replicas: what it costs, how it behaves, what happens as the load grows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from kvplan.core.dataclass import dataclass
from kvplan.core.deployment import moved_to
from kvplan.core.estimate import estimate
from kvplan.core.workload import Workload
from kvplan.planning.cost import cost
from kvplan.planning.kinds import EVEN, WORDS, Kind, Space, load_of
from kvplan.planning.operating import behaviour, users_at
from kvplan.planning.plan_result import STATISTICS, TIMES, Demand, Growth, Option, Target

_FASTER: Final = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0)
_GROWTH: Final = (2.0, 10.0)
#: Share of the end-to-end time that a doubling of the cost must gain to count as faster.
LEAST_GAIN: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A kind with a number of replicas."""

    kind: Kind
    replicas: int
    gpu_count: int
    price: float
    e2e_ms: float

    @property
    def order(self) -> tuple[float, float, str, str, tuple[int, ...], int]:
        """Cheapest first, then fastest, then by name."""
        layout = self.kind.deployment.layout
        ranks = (layout.tp, layout.pp, layout.dp, layout.ep or 0)
        return (self.price, self.e2e_ms, self.kind.deployment.gpu.id, self.kind.dtype, ranks, self.replicas)


def points(space: Space, demand: Demand, kind: Kind) -> Iterator[Point]:
    """The smallest number of replicas, and larger ones that would be faster."""
    per_replica = kind.deployment.layout.gpu_count
    counts = sorted({math.ceil(kind.replicas * more) for more in _FASTER})
    if space.max_gpus is not None:
        counts = [one for one in counts if (one + space.spare_replicas) * per_replica <= space.max_gpus]
    load = load_of(demand) / np.array(counts, dtype=float)
    seen = behaviour(kind.curve, demand, limit=np.array(kind.best.limit), load=load, statistics=("mean",))
    for count, e2e in zip(counts, seen.times["e2e_ms", "mean"], strict=True):
        gpus = (count + space.spare_replicas) * per_replica
        price = gpus * space.prices.get(kind.deployment.gpu.id, 1.0)
        yield Point(kind=kind, replicas=count, gpu_count=gpus, price=price, e2e_ms=float(e2e))


def front(ordered: Sequence[Point]) -> list[Point]:
    """Points that no cheaper or equally dear one beats in time, each faster than the one before in proportion to its cost.

    With equal cost any gain counts; otherwise `LEAST_GAIN` for each doubling, so that a plan is not called fastest for
    eight times the GPUs and a millisecond.
    """
    found: list[Point] = []
    for point in ordered:
        if found:
            last = found[-1]
            asked = (1 - LEAST_GAIN) ** math.log2(point.price / last.price)
            if not point.e2e_ms < last.e2e_ms * min(asked, 1 - EVEN):
                continue
        found.append(point)
    return found


def option(space: Space, demand: Demand, point: Point) -> Option:
    """A point in full, with the estimate of one of its replicas at its mean load."""
    kind = point.kind
    deployment, layout = moved_to(kind.deployment, kind.deployment.gpu), kind.deployment.layout
    every = tuple(STATISTICS)
    load = np.array([load_of(demand) / point.replicas])
    seen = behaviour(kind.curve, demand, limit=np.array(kind.best.limit), load=load, statistics=every)
    rate, inside, full = float(seen.rate_per_s[0]), float(seen.sequences[0]), float(seen.full_rate_per_s)
    gpus = (point.replicas + space.spare_replicas) * layout.gpu_count
    limit = max(1, int(kind.best.limit) // layout.dp)
    share = float(kind.curve.at(kind.curve.prefill_share, np.array(max(inside, 1.0))))
    return Option(
        gpu=deployment.gpu.id,
        engine=deployment.engine.name,
        dtype=deployment.dtype,
        kv_dtype=deployment.kv_dtype,
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        ep=layout.ep,
        replicas=point.replicas,
        spare_replicas=space.spare_replicas,
        gpu_count=gpus,
        max_num_seqs=limit,
        engine_limit=kind.room.max_num_seqs,
        context=demand.context,
        concurrency=inside,
        utilization=rate / full,
        rate_per_s=rate * point.replicas,
        full_rate_per_s=full * point.replicas,
        room=kind.best.load * point.replicas / load_of(demand),
        first_to_break=WORDS[kind.best.breaks],
        times={name: {one: float(seen.times[name, one][0]) for one in every} for name in TIMES},
        cost=cost(
            demand,
            gpus=gpus,
            price_per_gpu_hour=space.prices.get(deployment.gpu.id),
            rate_per_s=rate * point.replicas,
            full_rate_per_s=full * point.replicas,
            prefill_share=share,
            tdp_w=deployment.gpu.tdp_w,
        ),
        estimate=estimate(
            replace(deployment, settings=replace(deployment.settings, max_num_seqs=min(limit, kind.room.max_num_seqs))),
            Workload(
                input_tokens=round(demand.input_tokens),
                output_tokens=round(demand.output_tokens),
                concurrency=max(layout.dp, math.ceil(inside)),
                shared_prefix_tokens=min(demand.shared_prefix_tokens, round(demand.input_tokens)),
                prefix_hit_rate=demand.prefix_hit_rate,
            ),
            context=max(demand.context, round(demand.input_tokens) + round(demand.output_tokens)),
            allow_context_overflow=True,
        ),
    )


def growth(space: Space, demand: Demand, targets: tuple[Target, ...], point: Point) -> Iterator[Growth]:
    """A plan under twice and ten times the load, as it is and as it would have to be."""
    kind = point.kind
    statistics = tuple(dict.fromkeys(one.at for one in targets)) or ("mean",)
    for factor in _GROWTH:
        per_replica = load_of(demand) * factor / point.replicas
        seen = behaviour(
            kind.curve, demand, limit=np.array(kind.best.limit), load=np.array([per_replica]), statistics=statistics
        )
        replicas = max(1, math.ceil(load_of(demand) * factor / kind.best.load - EVEN))
        gpus: int | None = (replicas + space.spare_replicas) * kind.deployment.layout.gpu_count
        if space.max_gpus is not None and gpus is not None and gpus > space.max_gpus:
            gpus = None
        breaks, value, most, unit, at = None, None, None, "", ""
        if per_replica > kind.best.load * (1 + EVEN):
            breaks = WORDS[kind.best.breaks]
            missed = [one for one in targets if not seen.times[one.time, one.at][0] <= one.limit_ms]
            if float(seen.rate_per_s[0]) >= float(seen.full_rate_per_s) or not missed:
                value, most = load_of(demand) * factor, _full(demand, kind) * point.replicas
                unit = "requests/s" if demand.users is None else "users"
            else:
                worst = max(missed, key=lambda one: float(seen.times[one.time, one.at][0]) / one.limit_ms)
                value, most = float(seen.times[worst.time, worst.at][0]), worst.limit_ms
                unit, at = f"ms of {WORDS[worst.time]}", worst.at
        yield Growth(factor=factor, breaks=breaks, value=value, limit=most, unit=unit, at=at, gpu_count=gpus)


def _full(demand: Demand, kind: Kind) -> float:
    """Load at which a replica is at its limit."""
    limit = np.array(kind.best.limit)
    if demand.users is not None:
        return float(users_at(kind.curve, demand, limit))
    return float(kind.curve.at(kind.curve.rate_per_s, limit))
