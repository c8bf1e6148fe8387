"""Fit an engine's efficiencies to measurements: a few physical multipliers per device family, with priors and held-out rows.

The profile that is calibrated is the prior: few rows move it little. Needs NumPy and SciPy (`kvplan[calibrate]`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kvplan.calibration.cases import Case, cases_of, engine_of
from kvplan.calibration.fitted import MULTIPLIERS, Calibration, FamilyFit
from kvplan.calibration.planner import Planner
from kvplan.calibration.records import read_records, records_from_rows
from kvplan.calibration.scoring import Score, score
from kvplan.core.efficiency import Efficiency
from kvplan.core.engine import Engine
from kvplan.core.serving import steady_state
from kvplan.errors import UsageError

_FITTED: Final = frozenset({"ttft_ms", "tpot_ms"})
_FOLDS: Final = 5
_TPOT_SIGMA, _TTFT_SIGMA = 0.10, 0.25
#: Repeated measurements of one configuration differ by 17 % at the 75th percentile (docs/validation.md): no range is narrower.
_LEAST_SPREAD: Final = 0.17
_ENOUGH_ROWS: Final = 10
#: Fields that are shares of a peak: no fit makes them exceed it, or the profile's own value where that lies above.
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
    rows = [record for record in records.records if not _FITTED.isdisjoint(record.measured)]
    names = {record.engine_name.partition("@")[0] for record in rows}
    if not rows or (len(names) > 1 and engine is None):
        msg = "no rows with ttft_ms or tpot_ms" if not rows else f"several engines: {', '.join(sorted(names))}"
        raise UsageError(msg, hint="give rows of one engine, or name the profile to start from with --engine")
    base: Engine = engine if engine is not None else planner.engine(engine_of(rows[-1]))
    cases, skipped = cases_of(rows, base, planner=planner)
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


def _require_scipy() -> None:
    try:
        import numpy  # noqa: F401, ICN001, PLC0415
        import scipy.optimize  # noqa: F401, PLC0415
    except ImportError:
        msg = "calibrate needs NumPy and SciPy"
        raise UsageError(msg, hint="pip install 'kvplan[calibrate]'") from None


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


def _fit_family(family: str, cases: Sequence[Case]) -> tuple[FamilyFit, Efficiency]:
    base = cases[0].machine.efficiency
    factors = _fit(cases)
    groups = sorted({case.configuration for case in cases})
    held: dict[str, list[float]] = {}
    if len(groups) > 1:
        folds = min(_FOLDS, len(groups))
        for fold in range(folds):
            out = {group for index, group in enumerate(groups) if index % folds == fold}
            seen = _fit([case for case in cases if case.configuration not in out])
            for name, ratios in _ratios([case for case in cases if case.configuration in out], seen).items():
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


def _predict(case: Case, factors: Mapping[str, float]) -> tuple[Any, Any]:
    machine = replace(case.machine, efficiency=scaled(case.machine.efficiency, factors))
    state = steady_state(case.work, case.load, machine)
    return state.ttft_s, state.tpot_s


def _ratios(cases: Sequence[Case], factors: Mapping[str, float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"ttft_ms": [], "tpot_ms": []}
    for case in cases:
        ttft, tpot = _predict(case, factors)
        for name, ratio in (("ttft_ms", ttft / case.ttft_s), ("tpot_ms", tpot / case.tpot_s)):
            found[name].extend(float(one) for one in ratio if one == one)  # noqa: PLR0124 - NaN where nothing was measured
    return {name: ratios for name, ratios in found.items() if ratios}


def _scores(ratios: Mapping[str, Sequence[float]]) -> dict[str, Score]:
    return {name: score(values, []) for name, values in ratios.items() if values}


def _fit(cases: Sequence[Case]) -> dict[str, float]:
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
