"""Fit an engine's efficiencies to measurements: a few physical multipliers per device family, with priors and held-out rows.

The profile that is calibrated is the prior: few rows move it little. Needs NumPy and SciPy (`kvplan[calibrate]`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kvplan.calibration.fitted import MULTIPLIERS, Calibration, FamilyFit
from kvplan.calibration.planner import Planner
from kvplan.calibration.record import Record
from kvplan.calibration.records import read_records, records_from_rows
from kvplan.calibration.scoring import Score, score
from kvplan.core.dataclass import dataclass
from kvplan.core.deployment import deploy
from kvplan.core.efficiency import Efficiency
from kvplan.core.engine import Engine, Settings
from kvplan.core.estimate import rank_load
from kvplan.core.layout import Layout
from kvplan.core.memory import plan_memory
from kvplan.core.precision import apply_dtype
from kvplan.core.roofline import Machine
from kvplan.core.serving import Load, steady_state
from kvplan.core.units import MS_PER_S
from kvplan.core.work import StepWork
from kvplan.core.workload import Workload
from kvplan.errors import KvplanError, UsageError

_FOLDS: Final = 5
_TPOT_SIGMA, _TTFT_SIGMA = 0.10, 0.25
#: Repeated measurements of one configuration differ by 17 % at the 75th percentile (docs/validation.md): no range is narrower.
_LEAST_SPREAD: Final = 0.17
_ENOUGH_ROWS: Final = 10


_SHARES: Final = frozenset(
    {
        "gemm_bandwidth",
        "expert_bandwidth",
        "attention_bandwidth",
        "gemm_mfu",
        "expert_mfu",
        "attention_mfu_prefill",
        "attention_mfu_decode",
        "link_bandwidth",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Rows of one configuration: a load of arrays and what was measured (NaN where nothing was) [s]."""

    key: tuple[str, ...]
    family: str
    work: StepWork
    machine: Machine
    load: Load
    ttft_s: Any
    tpot_s: Any


def calibrate(
    source: str | Path | Iterable[Mapping[str, object]],
    *,
    planner: Planner,
    engine: Engine | None = None,
    defaults: Mapping[str, object] | None = None,
) -> Calibration:
    """Fit the efficiencies of one engine to measured TTFT and TPOT.

    Robust least squares (soft L1) on logarithms of ratios, 10 % TPOT weighing as much as 25 % TTFT; priors pull every
    multiplier to 1. Rows that queued, by label or by prediction, and rows that don't fit are left out.

    Args:
        source: Records as `validate` reads them.
        planner: Loaders.
        engine: Profile to start from; None is the records' own.
        defaults: Column → value for empty cells.

    Raises:
        UsageError: Nothing to fit, several engines, or a missing extra.
    """
    _require_scipy()
    records = read_records(source, defaults=defaults) if isinstance(source, str | Path) else records_from_rows(source)
    rows = [record for record in records.records if record.is_latency]
    names = {record.engine_name.partition("@")[0] for record in rows}
    if not rows or (len(names) > 1 and engine is None):
        msg = "no rows with ttft_ms or tpot_ms" if not rows else f"several engines: {', '.join(sorted(names))}"
        raise UsageError(msg, hint="give rows of one engine, or name the profile to start from with --engine")
    base: Engine = engine if engine is not None else planner.engine(_engine_of(rows[-1]))
    skipped: dict[str, str] = {}
    cases = _cases(_of_one_engine(rows, base, planner, skipped), base, planner, skipped)
    if not cases:
        msg = "no row can be used"
        raise UsageError(msg, hint=next(iter(skipped.values()), None))
    fits: list[FamilyFit] = []
    efficiencies = dict(base.efficiencies)
    for family in sorted({case.family for case in cases}):
        mine = [case for case in cases if case.family == family]
        fit, fitted = _fit_family(family, mine)
        fits.append(fit)
        efficiencies[family] = fitted
    return Calibration(engine=replace(base, efficiencies=efficiencies), families=tuple(fits), skipped=skipped)


def _of_one_engine(rows: Sequence[Record], base: Engine, planner: Planner, skipped: dict[str, str]) -> Sequence[Record]:
    """Rows that a profile may be fitted to: those of its own engine; a profile of the user's own takes any one engine's."""
    try:
        planner.engine(base.id)
    except KvplanError:
        return rows
    kept = []
    for record in rows:
        measured_on = record.engine_name.partition("@")[0]
        with suppress(KvplanError):  # an engine that nobody knows is not this one
            measured_on = planner.engine(_engine_of(record)).id
        if measured_on == base.id:
            kept.append(record)
        else:
            skipped[record.id or f"line {record.line}"] = f"measured on {measured_on}, not {base.id}"
    return kept


def _engine_of(record: Record) -> str | Path:
    return record.files.get("engine", record.engine_name)


def _require_scipy() -> None:
    try:
        import numpy  # noqa: F401, ICN001, PLC0415
        import scipy.optimize  # noqa: F401, PLC0415
    except ImportError:
        msg = "calibrate needs NumPy and SciPy"
        raise UsageError(msg, hint="pip install 'kvplan[calibrate]'") from None


def _cases(rows: Sequence[Record], base: Engine, planner: Planner, skipped: dict[str, str]) -> list[_Case]:
    import numpy as np  # noqa: PLC0415 - part of an extra

    grouped: dict[tuple[str, ...], list[tuple[Any, Load, Record]]] = {}
    for record in rows:
        label = record.id or f"line {record.line}"
        if record.queued:
            skipped[label] = "requests queued"
            continue
        try:
            deployment, load = _deployed(record, base, planner)
        except KvplanError as error:
            skipped[label] = str(error).splitlines()[0]
            continue
        if load.concurrency > min(load.capacity, load.max_num_seqs):
            skipped[label] = "requests would queue"
            continue
        kind = "benchmark" if load.benchmark_requests is not None else "steady"
        key: tuple[str, ...] = (
            record.model,
            str(record.dtype),
            record.gpu,
            f"{record.tp}/{record.pp}/{record.dp}/{record.ep}",
            kind,
        )
        grouped.setdefault(key, []).append((deployment, load, record))
    cases = []
    for name, items in grouped.items():
        deployment = items[0][0]

        def column(name: str, items: Sequence[tuple[Any, Load, Record]] = items) -> Any:  # noqa: ANN401 - an array
            return np.array([float(getattr(load, name)) for _, load, _ in items])

        def measured(name: str, items: Sequence[tuple[Any, Load, Record]] = items) -> Any:  # noqa: ANN401 - an array
            return np.array([record.measured.get(name, float("nan")) for _, _, record in items]) / MS_PER_S

        first = items[0][1]
        load = replace(
            first,
            **{name: column(name) for name in ("input_tokens", "output_tokens", "concurrency", "budget_tokens")},
            capacity=column("capacity"),
            equal_lengths=any(one.equal_lengths for _, one, _ in items),
            max_num_seqs=column("max_num_seqs"),
            benchmark_requests=None if first.benchmark_requests is None else column("benchmark_requests"),
        )
        cases.append(
            _Case(
                key=name,
                family=deployment.gpu.family,
                work=deployment.work,
                machine=deployment.machine,
                load=load,
                ttft_s=measured("ttft_ms"),
                tpot_s=measured("tpot_ms"),
            )
        )
    return cases


def _deployed(record: Record, base: Engine, planner: Planner) -> tuple[Any, Load]:
    arguments, _ = record.scenario()
    model = planner.model(record.files.get("model", record.model))
    if record.dtype is not None:
        model = apply_dtype(model, record.dtype)
    layout = Layout(tp=record.tp, pp=record.pp, dp=record.dp, ep=arguments["ep"])
    settings = Settings(
        gpu_memory_utilization=record.gpu_memory_utilization,
        max_num_seqs=record.max_num_seqs,
        max_num_batched_tokens=record.max_num_batched_tokens,
        enforce_eager=record.enforce_eager,
    )
    gpu = planner.gpu(record.files.get("gpu", record.gpu))
    deployment = deploy(model, gpu, base, layout=layout, settings=settings, kv_dtype=record.kv_dtype)
    workload = Workload(
        input_tokens=arguments["input_tokens"],
        output_tokens=arguments["output_tokens"],
        concurrency=arguments["concurrency"],
        benchmark_requests=arguments["benchmark_requests"],
        equal_lengths=arguments["equal_lengths"],
    )
    whole = workload.input_tokens + workload.output_tokens
    plan = plan_memory(deployment.question(context=whole, concurrency=workload.concurrency))
    return deployment, rank_load(deployment, workload, plan, concurrency=workload.concurrency)


def scaled(efficiency: Efficiency, factors: Mapping[str, float]) -> Efficiency:
    """An efficiency with multipliers applied; shares stay at 1 or below.

    >>> scaled(Efficiency(gemm_bandwidth=0.8), {"bandwidth": 2.0}).gemm_bandwidth
    1.0
    """
    changes: dict[str, Any] = {}
    for multiplier in MULTIPLIERS:
        factor = factors.get(multiplier.name, 1.0)
        for name in multiplier.fields:
            value = getattr(efficiency, name)
            changes[name] = (
                {key: _scaled(name, one, factor) for key, one in value.items()}
                if isinstance(value, Mapping)
                else _scaled(name, value, factor)
            )
    return replace(efficiency, **changes)


def _scaled(name: str, value: float, factor: float) -> float:
    return min(value * factor, max(1.0, value)) if name in _SHARES else value * factor


def _fit_family(family: str, cases: Sequence[_Case]) -> tuple[FamilyFit, Efficiency]:
    base = cases[0].machine.efficiency
    factors = _fit(cases)
    groups = sorted({case.key[:4] for case in cases})
    held: dict[str, list[float]] = {}
    if len(groups) > 1:
        folds = min(_FOLDS, len(groups))
        for fold in range(folds):
            out = {group for index, group in enumerate(groups) if index % folds == fold}
            seen = _fit([case for case in cases if case.key[:4] not in out])
            for name, ratios in _ratios([case for case in cases if case.key[:4] in out], seen).items():
                held.setdefault(name, []).extend(ratios)
    fitted = scaled(base, factors)
    fitted = replace(
        fitted,
        measured=True,
        spread_tpot=_spread(held.get("tpot_ms", []), base.spread_tpot),
        spread_ttft=_spread(held.get("ttft_ms", []), base.spread_ttft),
    )
    fit = FamilyFit(
        family=family,
        rows=sum(len(case.tpot_s) for case in cases),
        configurations=len(groups),
        factors=factors,
        before=_scores(_ratios(cases, {})),
        in_sample=_scores(_ratios(cases, factors)),
        out_of_sample=_scores(held),
    )
    return fit, fitted


def _spread(ratios: Sequence[float], fallback: float) -> float:
    """Half width that holds nine in ten of the held-out ratios; the profile's own where there are few."""
    if len(ratios) < _ENOUGH_ROWS:
        return fallback
    widths = sorted(max(ratio, 1.0 / ratio) - 1.0 for ratio in ratios)
    return round(max(widths[int(0.9 * (len(widths) - 1))], _LEAST_SPREAD), 3)


def _predict(case: _Case, factors: Mapping[str, float]) -> tuple[Any, Any]:
    machine = replace(case.machine, efficiency=scaled(case.machine.efficiency, factors))
    state = steady_state(case.work, case.load, machine)
    return state.ttft_s, state.tpot_s


def _ratios(cases: Sequence[_Case], factors: Mapping[str, float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"ttft_ms": [], "tpot_ms": []}
    for case in cases:
        ttft, tpot = _predict(case, factors)
        for name, ratio in (("ttft_ms", ttft / case.ttft_s), ("tpot_ms", tpot / case.tpot_s)):
            found[name].extend(float(one) for one in ratio if one == one)  # noqa: PLR0124 - NaN where nothing was measured
    return {name: ratios for name, ratios in found.items() if ratios}


def _scores(ratios: Mapping[str, Sequence[float]]) -> dict[str, Score]:
    return {name: score(values, []) for name, values in ratios.items() if values}


def _fit(cases: Sequence[_Case]) -> dict[str, float]:
    """The multipliers that fit some cases, as `exp` of the logarithms that least squares finds."""
    import numpy as np  # noqa: PLC0415 - part of an extra
    from scipy.optimize import least_squares  # noqa: PLC0415 - part of an extra

    sigmas = np.array([multiplier.sigma for multiplier in MULTIPLIERS])

    def residuals(logs: Any) -> Any:  # noqa: ANN401 - arrays
        factors = _factors(np.exp(logs))
        parts = [logs / sigmas]
        for case in cases:
            ttft, tpot = _predict(case, factors)
            parts.append(np.nan_to_num(np.log(tpot / case.tpot_s)) / _TPOT_SIGMA)
            parts.append(np.nan_to_num(np.log(ttft / case.ttft_s)) / _TTFT_SIGMA)
        return np.concatenate(parts)

    found = least_squares(residuals, np.zeros(len(MULTIPLIERS)), loss="soft_l1", x_scale=sigmas, max_nfev=20)
    return _factors(np.exp(found.x))


def _factors(values: Sequence[float]) -> dict[str, float]:
    return {multiplier.name: float(value) for multiplier, value in zip(MULTIPLIERS, values, strict=True)}
