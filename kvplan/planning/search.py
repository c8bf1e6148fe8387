"""The search for a plan: every kind of deployment, how much one replica of it carries, how many that takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvplan.planning.kinds import Kind, Miss, Space, kinds
from kvplan.planning.options import front, growth, option, points
from kvplan.planning.plan_result import Demand, Plan, Rejected, Target


def run_plan(space: Space, demand: Demand, targets: tuple[Target, ...]) -> Plan:
    """Find the cheapest and the fastest way to serve a demand within targets, and why other kinds are none.

    For each kind the largest load within all targets is found first (`best_limit`); the number of replicas is the demand
    divided by it, rounded up. It does not depend on the demand otherwise, so that a higher load never takes fewer GPUs and
    a looser target never more.
    """
    answers: list[Kind] = []
    misses: list[Miss] = []
    searched = 0
    warnings: dict[str, None] = {}
    for answer in kinds(space, demand, targets):
        searched += 1
        if isinstance(answer, Miss):
            misses.append(answer)
        else:
            answers.append(answer)
    every = [point for kind in answers for point in points(space, demand, kind)]
    ordered = sorted(every, key=lambda one: one.order)
    best = front(ordered)
    shown = {id(one): option(space, demand, one) for one in best}
    cheapest = best[0] if best else None
    fastest = min(best, key=lambda one: one.e2e_ms, default=None)
    for one in shown.values():
        warnings.update(dict.fromkeys(one.estimate.warnings if one.estimate else ()))
    return Plan(
        model=next(iter(space.models.values())).id,
        demand=demand,
        targets=targets,
        searched=searched,
        cheapest=shown[id(cheapest)] if cheapest else None,
        fastest=shown[id(fastest)] if fastest else None,
        front=tuple(shown.values()),
        priced=bool(space.prices),
        rejected=tuple(_rejected(misses)),
        growth=tuple(growth(space, demand, targets, cheapest)) if cheapest else (),
        assumptions=tuple(_assumptions(space, demand)),
        warnings=tuple(warnings),
    )


def _rejected(misses: Sequence[Miss]) -> Iterator[Rejected]:
    """Misses by GPU, engine, format and reason, with the nearest of each."""
    groups: dict[tuple[str, str, str, str], list[Miss]] = {}
    for one in misses:
        groups.setdefault((one.gpu, one.engine, one.dtype, one.reason), []).append(one)
    for (gpu, engine, dtype, reason), found in groups.items():
        nearest = min(found, key=lambda one: one.by)
        yield Rejected(
            gpu=gpu,
            engine=engine,
            dtype=dtype,
            reason=reason,
            layouts=len(found),
            nearest=nearest.layout,
            value=nearest.value,
            limit=nearest.limit,
            unit=nearest.unit,
            at=nearest.at,
            note=nearest.note,
        )


def _assumptions(space: Space, demand: Demand) -> Iterator[str]:
    yield f"replicas are planned to at most {space.max_busy:.0%} of their full rate"
    if demand.users is None:
        burst = (
            "independent" if demand.burstiness == 1 else f"{demand.burstiness:.3g} times as bursty as independent ones"
        )
        yield f"arrivals are {burst}; percentiles come from the spread of sequences in service and from waiting for a place"
    else:
        yield "users wait for an answer, think, and ask again; percentiles come from the spread of sequences in service"
    yield "the load is divided evenly over replicas"
    if demand.input_quantiles["p99"] + demand.output_quantiles["p99"] > demand.context:
        yield f"the longest requests exceed the context of {demand.context} tokens: engines refuse or cut them"
    if demand.service_variation or len(set(demand.input_quantiles.values())) > 1:
        yield "the step sees mean lengths; percentiles take the request's own prompt and answer at the same percentile"
