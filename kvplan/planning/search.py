"""The search for a plan: every kind of deployment, how much one replica of it carries, how many that takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from kvplan.planning.kinds import Kind, Miss, Space, kinds
from kvplan.planning.options import LEAST_GAIN, Point, front, growth, option, points
from kvplan.planning.plan_result import Demand, Plan, Rejected, Target

#: GPUs that a faster plan may take without being asked: a node, or this many times the cheapest plan's.
_NODE: Final = 8
_MORE: Final = 4


def run_plan(space: Space, demand: Demand, targets: tuple[Target, ...]) -> Plan:
    """Find the cheapest and the fastest way to serve a demand within targets, and why other kinds are none.

    For each kind the largest load within all targets is found first (`best_limit`); the number of replicas is the demand
    divided by it, rounded up. It does not depend on the demand otherwise, so that a higher load never takes fewer GPUs and
    a looser target never more.
    """
    found = list(kinds(space, demand, targets))
    misses = [one for one in found if isinstance(one, Miss)]
    answers = [one for one in found if isinstance(one, Kind)]
    warnings: dict[str, None] = {}
    looked = space
    if demand.most and answers:
        demand, answers = _filled(space, demand, answers)
        only = answers[0]
        looked = replace(space, max_gpus=(only.replicas + space.spare_replicas) * only.gpus_per_replica)
    every = [point for kind in answers for point in points(looked, demand, kind)]
    ordered = sorted(every, key=lambda one: one.order)
    bound = _bound(looked, ordered)
    best = front([one for one in ordered if one.gpu_count <= bound])
    shown = {id(one): option(space, demand, one) for one in best}
    cheapest = best[0] if best else None
    fastest = min(best, key=lambda one: one.e2e_ms, default=None)
    for one in shown.values():
        warnings.update(dict.fromkeys(one.estimate.warnings if one.estimate else ()))
    return Plan(
        model=next(iter(space.models.values())).id,
        demand=demand,
        targets=targets,
        searched=len(found),
        cheapest=shown[id(cheapest)] if cheapest else None,
        fastest=shown[id(fastest)] if fastest else None,
        front=tuple(shown.values()),
        priced=bool(space.prices),
        rejected=tuple(_rejected(misses, found)),
        growth=tuple(growth(space, demand, targets, cheapest)) if cheapest else (),
        assumptions=tuple(_assumptions(space, demand, bound=bound)),
        warnings=tuple(warnings),
    )


def _bound(space: Space, ordered: Sequence[Point]) -> int:
    """GPUs of the largest plan that is looked at for speed: those allowed, or a few times the cheapest plan's."""
    if space.max_gpus is not None:
        return space.max_gpus
    return max(_NODE, _MORE * ordered[0].gpu_count) if ordered else _NODE


def _filled(space: Space, demand: Demand, answers: Sequence[Kind]) -> tuple[Demand, list[Kind]]:
    """The most that can be carried, and what carries it: all GPUs allowed, or one replica where none are counted.

    Within a number of GPUs the largest load wins; of single replicas the one with most for its cost.
    """

    def copies(kind: Kind) -> int:
        return 1 if space.max_gpus is None else space.max_gpus // kind.gpus_per_replica - space.spare_replicas

    def merit(kind: Kind) -> float:
        load = kind.best.load * copies(kind)
        price = kind.gpus_per_replica * space.prices.get(kind.deployment.gpu.id, 1.0)
        return load if space.max_gpus is not None else load / price

    chosen = max(answers, key=merit)
    load = chosen.best.load * copies(chosen)
    load = math.floor(load) if demand.users is not None and load >= 1 else load
    counted = replace(demand, users=load) if demand.users is not None else replace(demand, rate_per_s=load)
    return counted, [replace(chosen, replicas=copies(chosen))]


def _rejected(misses: Sequence[Miss], found: Sequence[Kind | Miss]) -> Iterator[Rejected]:
    """Misses by GPU, engine, format and reason, with the nearest of each."""
    looked = Counter(one.place for one in found)
    groups: dict[tuple[str, str, str, str], list[Miss]] = {}
    for one in misses:
        groups.setdefault((one.gpu, one.engine, one.dtype, one.reason), []).append(one)
    for (gpu, engine, dtype, reason), here in groups.items():
        nearest = min(here, key=lambda one: one.by)
        yield Rejected(
            gpu=gpu,
            engine=engine,
            dtype=dtype,
            reason=reason,
            layouts=len(here),
            of=looked[gpu, engine, dtype],
            nearest=nearest.layout,
            value=nearest.value,
            limit=nearest.limit,
            unit=nearest.unit,
            at=nearest.at,
            note=nearest.note,
        )


def _assumptions(space: Space, demand: Demand, *, bound: int) -> Iterator[str]:
    yield f"replicas are planned to at most {space.max_busy * 100:.0f} % of their full rate"
    if demand.users is None:
        burst = (
            "independent" if demand.burstiness == 1 else f"{demand.burstiness:.3g} times as bursty as independent ones"
        )
        if demand.peak_rate_per_s is not None and demand.rate_per_s is not None:
            yield (
                f"the load is the trace's mean of {demand.rate_per_s:.3g} requests a second; its busiest minute has "
                f"{demand.peak_rate_per_s:.3g} (--rate plans for that)"
            )
        yield f"arrivals are {burst}; percentiles come from the spread of sequences in service and from waiting for a place"
    else:
        yield "users wait for an answer, think, and ask again; percentiles come from the spread of sequences in service"
        if not demand.think_s and not demand.service_variation and len(set(demand.input_quantiles.values())) == 1:
            yield "users who never pause and ask for the same keep the number in service level: percentiles are the mean"
    if not demand.most:
        whose = "--max-gpus" if space.max_gpus is not None else "--max-gpus sets another bound"
        yield (
            f"faster plans are looked at up to {bound} GPUs ({whose}), and count where each doubling of the cost gains "
            f"{LEAST_GAIN * 100:.0f} % of the end-to-end time"
        )
    yield "the load is divided evenly over replicas"
    if demand.input_quantiles["p99"] + demand.output_quantiles["p99"] > demand.context:
        yield f"the longest requests exceed the context of {demand.context} tokens: engines refuse or cut them"
    if demand.service_variation or len(set(demand.input_quantiles.values())) > 1:
        yield "the step sees mean lengths; percentiles take the request's own prompt and answer at the same percentile"
