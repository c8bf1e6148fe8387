"""Kinds of deployment one by one: does it fit, does it meet the targets, how much does one replica carry?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from typing import Final

from kvplan.core.cached_layers import CachedLayer
from kvplan.core.dataclass import dataclass
from kvplan.core.deployment import Deployment, as_loaded, deploy
from kvplan.core.engine import Engine, Settings
from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.ledger import Account, Question, account, layers_of
from kvplan.core.memory_rules import Budget
from kvplan.core.model import Model
from kvplan.core.numeric import check_count
from kvplan.core.parameters import weights_bytes_per_rank
from kvplan.errors import KvplanError
from kvplan.planning.candidates import layouts
from kvplan.planning.operating import Best, Curve, best_limit, curve, too_slow
from kvplan.planning.plan_result import Demand, Target

_OVERFULL: Final = 1.25
#: Slots of engines that allocate them at start (llama.cpp's `LLAMA_MAX_SEQ`, long 64).
_MOST_SLOTS: Final = 64
#: Times and the full rate in the words of reasons.
WORDS: Final = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "end to end", "full rate": "full rate"}
#: What rounding may differ by.
EVEN: Final = 1e-9


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

    def __post_init__(self) -> None:
        if self.max_gpus is not None:
            check_count("max_gpus", self.max_gpus)
        check_count("spare_replicas", self.spare_replicas, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One deployment that serves, with what its replica carries."""

    deployment: Deployment
    dtype: str
    room: Account
    curve: Curve
    best: Best
    replicas: int

    @property
    def place(self) -> tuple[str, str, str]:
        """GPU, engine and format."""
        return self.deployment.gpu.id, self.deployment.engine.name, self.dtype

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one replica."""
        return self.deployment.layout.gpu_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """One deployment that is no answer, with the fields of `Rejected`; `by` orders misses of one reason."""

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

    @property
    def place(self) -> tuple[str, str, str]:
        """GPU, engine and format."""
        return self.gpu, self.engine, self.dtype


def load_of(demand: Demand) -> float:
    """Requests per second, or users."""
    return demand.users if demand.users is not None else demand.rate_per_s or 0.0


@dataclass(slots=True, kw_only=True)
class _Compiled:
    """What a model in one format shares on all cards, by layout; `loaded` is the model as the engine keeps it."""

    engine: Engine
    model: Model
    loaded: Model
    kv_dtype: str | None
    name: str
    weights: dict[Layout, int] = field(default_factory=dict)
    deployments: dict[Layout, tuple[Deployment, tuple[CachedLayer, ...]]] = field(default_factory=dict)

    def miss(self, gpu: Gpu, reason: str, layout: Layout | None = None, *, by: float = 0.0) -> Miss:
        """A kind that is no answer."""
        text = "" if layout is None else layout_text(layout)
        return Miss(gpu=gpu.id, engine=self.engine.name, dtype=self.name, reason=reason, by=by, layout=text)

    def too_heavy(self, gpu: Gpu, layout: Layout) -> Miss | None:
        """Weights far above the card's memory: no need to lay out a pool (engines may leave a table on the CPU)."""
        if layout not in self.weights:
            self.weights[layout] = weights_bytes_per_rank(self.loaded, layout)
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
            self.deployments[layout] = made, layers_of(_asked(made, demand))
        base, layers = self.deployments[layout]
        machine = replace(base.machine, gpu=gpu, efficiency=self.engine.efficiency_for(gpu)[0])
        return replace(base, gpu=gpu, machine=machine), layers


def kinds(space: Space, demand: Demand, targets: tuple[Target, ...]) -> Iterator[Kind | Miss]:
    """Every deployment of the space, judged."""
    for engine, (dtype, model), kv_dtype in product(space.engines, space.models.items(), space.kv_dtypes):
        name = dtype if kv_dtype is None else f"{dtype}, KV {kv_dtype}"
        loaded, _ = as_loaded(model, engine)
        compiled = _Compiled(engine=engine, model=model, loaded=loaded, kv_dtype=kv_dtype, name=name)
        for gpu in space.gpus:
            yield from _on_gpu(space, demand, targets, compiled, gpu=gpu)


def _on_gpu(
    space: Space, demand: Demand, targets: tuple[Target, ...], compiled: _Compiled, *, gpu: Gpu
) -> Iterator[Kind | Miss]:
    if space.prices and gpu.id not in space.prices:
        yield compiled.miss(gpu, "no price")
        return
    if not compiled.engine.runs_on(gpu):
        yield replace(compiled.miss(gpu, "engine"), note=f"it has no backend for {gpu.vendor}")
        return
    found = list(
        layouts(compiled.model, gpu, tp=space.tp, pp=space.pp, dp=space.dp, ep=space.ep, max_gpus=space.max_gpus)
    )
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


def _asked(deployment: Deployment, demand: Demand) -> Question:
    """A replica's memory at the demand's context; engines that allocate slots get one per rank until the load is known."""
    return deployment.question(context=demand.context, concurrency=deployment.layout.dp)


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
) -> Kind | Miss:
    layout, gpu = deployment.layout, deployment.gpu
    unified = gpu.unified_memory and space.settings.n_gpu_layers is not None
    known = None if unified else layers
    room = account(_asked(deployment, demand), layers=known)
    if deployment.engine.memory.budget is Budget.UP_FRONT and deployment.settings.max_num_seqs is None:
        slots = min(max(int(room.pool.sequences(demand.context)), 1), _MOST_SLOTS)
        deployment = replace(deployment, settings=replace(deployment.settings, max_num_seqs=slots))
        room = account(_asked(deployment, demand), layers=known)
    if room.room_bytes <= 0 or not room.pool.holds(demand.context):
        short = float(max(1, int(room.pool.sequence_bytes(demand.context)) - room.room_bytes))
        return replace(compiled.miss(gpu, "does not fit", layout, by=short), value=short, unit="byte")
    slow = too_slow(deployment, room, demand, targets)
    if slow is not None:
        return _late(compiled, gpu, layout, *slow)
    line = curve(deployment, room, demand)
    best = best_limit(line, demand, targets, most_busy=space.max_busy, limit=deployment.settings.max_num_seqs)
    if best.load <= 0:
        worst = max(targets, key=lambda one: best.least[one.time, one.at] / one.limit_ms)
        return _late(compiled, gpu, layout, worst, best.least[worst.time, worst.at])
    replicas = max(1, math.ceil(load_of(demand) / best.load - EVEN))
    gpus = (replicas + space.spare_replicas) * layout.gpu_count
    if space.max_gpus is not None and gpus > space.max_gpus:
        missed = compiled.miss(gpu, "capacity", layout, by=float(gpus))
        return replace(missed, value=float(gpus), limit=float(space.max_gpus), unit="GPUs")
    return Kind(deployment=deployment, dtype=compiled.name, room=room, curve=line, best=best, replicas=replicas)


def _late(compiled: _Compiled, gpu: Gpu, layout: Layout, target: Target, value: float) -> Miss:
    missed = compiled.miss(gpu, WORDS[target.time], layout, by=value / target.limit_ms)
    return replace(missed, value=value, limit=target.limit_ms, unit="ms", at=target.at)
