"""The search for a plan: every kind of deployment, how much one replica of it carries, how many that takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

import numpy as np

from kvplan.core.cached_layers import CachedLayer
from kvplan.core.engine import Engine, Settings
from kvplan.core.estimate import Deployment, deploy, estimate, moved_to
from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.ledger import Account, Question, account, layers_of
from kvplan.core.model import Model
from kvplan.core.parameters import weights_bytes_per_rank
from kvplan.core.workload import Workload
from kvplan.errors import KvplanError
from kvplan.planning.candidates import layouts
from kvplan.planning.cost import cost
from kvplan.planning.operating import Best, Curve, behaviour, best_limit, curve, users_at
from kvplan.planning.plan_result import STATISTICS, TIMES, Demand, Growth, Option, Plan, Rejected, Target

_OVERFULL: Final = 1.25
_FASTER: Final = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0)
_GROWTH: Final = (2.0, 10.0)
_WORDS: Final = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "end to end", "full rate": "full rate"}
_EVEN: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Where to look.

    Attributes:
        gpus: Accelerators.
        engines: Engine profiles.
        models: Weight format → the model in it; the key is what the user calls it (`as published`).
        kv_dtypes: Cache formats; None is the engine's rule.
        tp, pp, dp, ep: Values to try, or None for the usual ones.
        max_gpus: GPUs of the whole plan at most, or None.
        spare_replicas: Replicas on top of those that carry the load.
        prices: GPU id → price of an hour; empty ranks by the number of GPUs.
        settings: The engine's knobs.
        max_busy: Share of a replica's full rate that is planned with at most.
    """

    gpus: Sequence[Gpu]
    engines: Sequence[Engine]
    models: Mapping[str, Model]
    kv_dtypes: Sequence[str | None] = (None,)
    tp: Sequence[int] | None = None
    pp: Sequence[int] | None = None
    dp: Sequence[int] | None = None
    ep: Sequence[int | None] | None = None
    max_gpus: int | None = None
    spare_replicas: int = 0
    prices: Mapping[str, float] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    max_busy: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One deployment that serves, with what its replica carries."""

    deployment: Deployment
    dtype: str
    room: Account
    curve: Curve
    best: Best
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A kind with a number of replicas."""

    kind: _Kind
    replicas: int
    price: float
    e2e_ms: float

    @property
    def order(self) -> tuple[float, float, str, str, tuple[int, ...], int]:
        """Cheapest first, then fastest, then by name."""
        layout = self.kind.deployment.layout
        ranks = (layout.tp, layout.pp, layout.dp, layout.ep or 0)
        return (self.price, self.e2e_ms, self.kind.deployment.gpu.id, self.kind.dtype, ranks, self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Miss:
    gpu: str
    engine: str
    dtype: str
    reason: str
    by: float
    layout: str
    value: float | None = None
    limit: float | None = None
    unit: str = ""
    at: str = ""
    note: str = ""


def run_plan(space: Space, demand: Demand, targets: tuple[Target, ...]) -> Plan:
    """Find the cheapest and the fastest way to serve a demand within targets, and why other kinds are none.

    For each kind the largest load within all targets is found first (`best_limit`); the number of replicas is the demand
    divided by it, rounded up. It does not depend on the demand otherwise, so that a higher load never takes fewer GPUs and
    a looser target never more.
    """
    kinds: list[_Kind] = []
    misses: list[_Miss] = []
    searched = 0
    warnings: dict[str, None] = {}
    for answer in _kinds(space, demand, targets):
        searched += 1
        if isinstance(answer, _Miss):
            misses.append(answer)
        else:
            kinds.append(answer)
    points = [point for kind in kinds for point in _points(space, demand, kind)]
    ordered = sorted(points, key=lambda one: one.order)
    front = _front(ordered)
    shown = {id(one): _option(space, demand, one) for one in front}
    cheapest = front[0] if front else None
    fastest = min(front, key=lambda one: one.e2e_ms, default=None)
    for option in shown.values():
        warnings.update(dict.fromkeys(option.estimate.warnings if option.estimate else ()))
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
        growth=tuple(_growth(space, demand, targets, cheapest)) if cheapest else (),
        assumptions=tuple(_assumptions(space, demand)),
        warnings=tuple(warnings),
    )


@dataclass(slots=True, kw_only=True)
class _Compiled:
    """What a model in one format shares on all cards, by layout."""

    engine: Engine
    model: Model
    kv_dtype: str | None
    name: str
    weights: dict[Layout, int] = field(default_factory=dict)
    deployments: dict[Layout, tuple[Deployment, tuple[CachedLayer, ...]]] = field(default_factory=dict)

    def miss(self, gpu: Gpu, reason: str, layout: Layout | None = None, *, by: float = 0.0) -> _Miss:
        """A kind that is no answer."""
        text = "" if layout is None else layout_text(layout)
        return _Miss(gpu=gpu.id, engine=self.engine.name, dtype=self.name, reason=reason, by=by, layout=text)

    def too_heavy(self, gpu: Gpu, layout: Layout) -> _Miss | None:
        """Weights far above the card's memory: no need to lay out a pool (engines may leave a table on the CPU)."""
        if layout not in self.weights:
            self.weights[layout] = weights_bytes_per_rank(self.model, layout)
        weights = self.weights[layout]
        if weights <= _OVERFULL * gpu.framework_memory_bytes:
            return None
        short = float(weights - gpu.framework_memory_bytes)
        return replace(self.miss(gpu, "does not fit", layout, by=short), value=short, unit="byte")

    def on(
        self, gpu: Gpu, layout: Layout, demand: Demand, settings: Settings
    ) -> tuple[Deployment, tuple[CachedLayer, ...]]:
        """The deployment on a card, and its caching layers."""
        if layout not in self.deployments:
            made = deploy(self.model, gpu, self.engine, layout=layout, settings=settings, kv_dtype=self.kv_dtype)
            self.deployments[layout] = made, layers_of(_question(made, demand))
        base, layers = self.deployments[layout]
        machine = replace(base.machine, gpu=gpu, efficiency=self.engine.efficiency_for(gpu)[0])
        return replace(base, gpu=gpu, machine=machine), layers


def _kinds(space: Space, demand: Demand, targets: tuple[Target, ...]) -> Iterator[_Kind | _Miss]:
    for engine, (dtype, model), kv_dtype in product(space.engines, space.models.items(), space.kv_dtypes):
        name = dtype if kv_dtype is None else f"{dtype}, KV {kv_dtype}"
        compiled = _Compiled(engine=engine, model=model, kv_dtype=kv_dtype, name=name)
        for gpu in space.gpus:
            yield from _on_gpu(space, demand, targets, compiled, gpu=gpu)


def _on_gpu(
    space: Space, demand: Demand, targets: tuple[Target, ...], compiled: _Compiled, *, gpu: Gpu
) -> Iterator[_Kind | _Miss]:
    if space.prices and gpu.id not in space.prices:
        yield compiled.miss(gpu, "no price")
        return
    lists = {"tp": space.tp, "pp": space.pp, "dp": space.dp}
    found = list(layouts(compiled.model, gpu, ep=space.ep, max_gpus=space.max_gpus, **lists))
    if not found:
        yield replace(compiled.miss(gpu, "layout"), note="none that the model can have within the GPUs allowed")
    for layout in found:
        heavy = compiled.too_heavy(gpu, layout)
        if heavy is not None:
            yield heavy
            continue
        try:
            deployment, layers = compiled.on(gpu, layout, demand, space.settings)
        except KvplanError as error:
            yield replace(compiled.miss(gpu, "layout", layout), note=str(error))
            continue
        yield _judge(space, demand, targets, deployment, compiled=compiled, layers=layers)


def _question(deployment: Deployment, demand: Demand) -> Question:
    return Question(
        model=deployment.model,
        gpu=deployment.gpu,
        engine=deployment.engine,
        layout=deployment.layout,
        settings=deployment.settings,
        kv_dtype=deployment.kv_dtype,
        context=demand.context,
        concurrency=deployment.layout.dp,
    )


def layout_text(layout: Layout) -> str:
    """A layout in a few words.

    >>> layout_text(Layout(tp=8, pp=2))
    'tp 8, pp 2'
    """
    parts = [
        f"{name} {value}" for name, value in (("tp", layout.tp), ("pp", layout.pp), ("dp", layout.dp)) if value > 1
    ]
    if layout.ep is not None:
        parts.append(f"ep {layout.ep}")
    return ", ".join(parts) or "tp 1"


def _judge(
    space: Space,
    demand: Demand,
    targets: tuple[Target, ...],
    deployment: Deployment,
    *,
    compiled: _Compiled,
    layers: tuple[CachedLayer, ...],
) -> _Kind | _Miss:
    layout, gpu = deployment.layout, deployment.gpu
    unified = gpu.unified_memory and space.settings.n_gpu_layers is not None
    room = account(_question(deployment, demand), layers=None if unified else layers)
    if room.room_bytes <= 0 or not room.pool.holds(demand.context):
        short = float(max(1, int(room.pool.sequence_bytes(demand.context)) - room.room_bytes))
        return replace(compiled.miss(gpu, "does not fit", layout, by=short), value=short, unit="byte")
    line = curve(deployment, room, demand)
    best = best_limit(line, demand, targets, most_busy=space.max_busy, limit=deployment.settings.max_num_seqs)
    if best.load <= 0:
        worst = max(targets, key=lambda one: best.least[one.time, one.at] / one.limit_ms)
        value = best.least[worst.time, worst.at]
        missed = compiled.miss(gpu, _WORDS[worst.time], layout, by=value / worst.limit_ms)
        return replace(missed, value=value, limit=worst.limit_ms, unit="ms", at=worst.at)
    replicas = max(1, math.ceil(_load(demand) / best.load - _EVEN))
    gpus = (replicas + space.spare_replicas) * layout.gpu_count
    if space.max_gpus is not None and gpus > space.max_gpus:
        missed = compiled.miss(gpu, "capacity", layout, by=float(gpus))
        return replace(missed, value=float(gpus), limit=float(space.max_gpus), unit="GPUs")
    return _Kind(deployment=deployment, dtype=compiled.name, room=room, curve=line, best=best, replicas=replicas)


def _load(demand: Demand) -> float:
    return demand.users if demand.users is not None else demand.rate_per_s or 0.0


def _points(space: Space, demand: Demand, kind: _Kind) -> Iterator[_Point]:
    """The smallest number of replicas, and larger ones that would be faster."""
    per_replica = kind.deployment.layout.gpu_count
    counts = sorted({math.ceil(kind.replicas * more) for more in _FASTER})
    if space.max_gpus is not None:
        counts = [one for one in counts if (one + space.spare_replicas) * per_replica <= space.max_gpus]
    load = _load(demand) / np.array(counts, dtype=float)
    seen = behaviour(kind.curve, demand, limit=np.array(kind.best.limit), load=load, statistics=("mean",))
    for count, e2e in zip(counts, seen.times["e2e_ms", "mean"], strict=True):
        gpus = (count + space.spare_replicas) * per_replica
        price = gpus * space.prices.get(kind.deployment.gpu.id, 1.0)
        yield _Point(kind=kind, replicas=count, price=price, e2e_ms=float(e2e))


def _front(ordered: Sequence[_Point]) -> list[_Point]:
    """Points that no cheaper or equally dear one beats in time."""
    found: list[_Point] = []
    for point in ordered:
        if not found or point.e2e_ms < found[-1].e2e_ms * (1 - _EVEN):
            found.append(point)
    return found


def _option(space: Space, demand: Demand, point: _Point) -> Option:
    kind = point.kind
    deployment, layout = moved_to(kind.deployment, kind.deployment.gpu), kind.deployment.layout
    every = tuple(STATISTICS)
    load = np.array([_load(demand) / point.replicas])
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
        room=kind.best.load * point.replicas / _load(demand),
        first_to_break=_WORDS[kind.best.breaks],
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


def _growth(space: Space, demand: Demand, targets: tuple[Target, ...], point: _Point) -> Iterator[Growth]:
    kind = point.kind
    statistics = tuple(dict.fromkeys(one.at for one in targets)) or ("mean",)
    for factor in _GROWTH:
        per_replica = _load(demand) * factor / point.replicas
        seen = behaviour(
            kind.curve, demand, limit=np.array(kind.best.limit), load=np.array([per_replica]), statistics=statistics
        )
        replicas = max(1, math.ceil(_load(demand) * factor / kind.best.load - _EVEN))
        gpus: int | None = (replicas + space.spare_replicas) * kind.deployment.layout.gpu_count
        if space.max_gpus is not None and gpus is not None and gpus > space.max_gpus:
            gpus = None
        breaks, value, most, unit, at = None, None, None, "", ""
        if per_replica > kind.best.load * (1 + _EVEN):
            breaks = _WORDS[kind.best.breaks]
            missed = [one for one in targets if not seen.times[one.time, one.at][0] <= one.limit_ms]
            if float(seen.rate_per_s[0]) >= float(seen.full_rate_per_s) or not missed:
                value, most = _load(demand) * factor, _full(demand, kind) * point.replicas
                unit = "requests/s" if demand.users is None else "users"
            else:
                worst = max(missed, key=lambda one: float(seen.times[one.time, one.at][0]) / one.limit_ms)
                value, most = float(seen.times[worst.time, worst.at][0]), worst.limit_ms
                unit, at = f"ms of {_WORDS[worst.time]}", worst.at
        yield Growth(factor=factor, breaks=breaks, value=value, limit=most, unit=unit, at=at, gpu_count=gpus)


def _full(demand: Demand, kind: _Kind) -> float:
    """Load at which a replica is at its limit."""
    limit = np.array(kind.best.limit)
    if demand.users is not None:
        return float(users_at(kind.curve, demand, limit))
    return float(kind.curve.at(kind.curve.rate_per_s, limit))


def _rejected(misses: Sequence[_Miss]) -> Iterator[Rejected]:
    """Misses by GPU, engine, format and reason, with the nearest of each."""
    groups: dict[tuple[str, str, str, str], list[_Miss]] = {}
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
    if demand.service_variation or len(set(demand.input_quantiles.values())) > 1:
        yield "the step sees mean lengths; percentiles take the request's own prompt and answer at the same percentile"
