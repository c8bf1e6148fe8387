"""Predict every measurement record and say how far off kvplan is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kvplan.calibration.figures import quantities
from kvplan.calibration.planner import Planner
from kvplan.calibration.record import Record
from kvplan.calibration.records import Records, read_records, records_from_rows
from kvplan.calibration.validation import Validation, ValidationRow, group_scores, mean_of_medians, queueing, summarise
from kvplan.core.results import Estimate, Range
from kvplan.core.units import GIB
from kvplan.errors import KvplanError, SpecError, UsageError

FIELDS: Final = ("model", "gpu", "engine", "engine_version")
GROUPS: Final = ("model", "gpu", "engine")


def validate(
    source: str | Path | Records | Iterable[Mapping[str, object]],
    *,
    planner: Planner,
    group_by: Sequence[str] = GROUPS,
    defaults: Mapping[str, object] | None = None,
) -> Validation:
    """Predictions against measurements.

    A row that can't be predicted is an error with a reason. `kv_pool_tokens` is compared with the figure that this
    engine version prints, where that differs from what the pool holds.

    Args:
        source: A file of records, records, or rows in memory.
        planner: Loaders and the estimate.
        group_by: What groups share: `model`, `gpu`, `engine`, `engine_version`.
        defaults: Column → value for cells that are missing or empty.

    Returns:
        Every row, and the errors per quantity and group.

    Raises:
        UsageError: A field to group by that rows don't have, or a file that can't be opened.
        SpecError: A file that breaks a rule.
    """
    unknown = [name for name in group_by if name not in FIELDS]
    if unknown:
        message = f"group_by: rows have no {', '.join(map(repr, unknown))}"
        raise UsageError(message, hint=f"choose from {', '.join(FIELDS)}")
    if isinstance(source, str | Path):
        records = read_records(source, defaults=defaults)
    else:
        records = source if isinstance(source, Records) else records_from_rows(source)
    assumptions: dict[str, None] = dict.fromkeys(records.notes)
    rows = tuple(predict(record, planner, assumptions) for record in records.records)
    groups = group_scores(rows, group_by)
    return Validation(
        rows=rows,
        summary=summarise(rows),
        groups=groups,
        group_medians=mean_of_medians(groups),
        queueing=queueing(rows),
        requests=records.requests,
        failed_requests=records.failed_requests,
        assumptions=tuple(assumptions),
    )


def predict(record: Record, planner: Planner, assumptions: dict[str, None]) -> ValidationRow:
    """One record with its prediction; what it assumes is added to `assumptions`."""
    try:
        estimate = _estimate(record, planner, assumptions)
    except KvplanError as error:
        return _row(record, None, {}, reason=_one_line(error))
    figures = quantities(estimate)
    if record.is_decode_alone and estimate.latency is not None:
        figures["tpot_ms"] = estimate.latency.decode_step_ms
    missing = [name for name in record.measured if name not in figures]
    reason = ""
    if missing:
        reason = f"{', '.join(missing)}: {_why_not(estimate)}"
    elif not record.measured:
        reason = "nothing was measured, so nothing is compared"
    return _row(record, estimate, figures, reason=reason)


def _estimate(record: Record, planner: Planner, assumptions: dict[str, None]) -> Estimate:
    for name, path in record.files.items():
        if not path.exists():
            message = f"no file {getattr(record, name)!r} beside the records"
            raise SpecError(message)
    model = planner.model(record.files.get("model", record.model))
    gpu = planner.gpu(record.files.get("gpu", record.gpu))
    engine = planner.engine(record.files.get("engine", record.engine_name))
    arguments, taken = record.scenario()
    assumptions.update(dict.fromkeys(taken))
    return planner.estimate(model, gpu, engine=engine, **arguments)


def _row(
    record: Record, estimate: Estimate | None, figures: Mapping[str, float | Range], *, reason: str
) -> ValidationRow:
    predicted: dict[str, float] = {}
    ratio: dict[str, float] = {}
    inside: dict[str, bool] = {}
    for name, figure in figures.items():
        value = figure.mid if isinstance(figure, Range) else figure
        if not math.isfinite(value):
            continue
        predicted[name] = value
        measured = record.measured.get(name)
        if measured is None:
            continue
        ratio[name] = value / measured
        if isinstance(figure, Range):
            inside[name] = figure.low <= measured <= figure.high
    answered = estimate is not None and (bool(ratio) or not record.measured)
    latency = None if estimate is None else estimate.latency
    asked = None if estimate is None else estimate.scenario
    engine, _, version = record.engine_name.partition("@")
    return ValidationRow(
        id=record.id,
        line=record.line,
        model=record.model if asked is None else asked.model,
        gpu=record.gpu if asked is None else asked.gpu,
        engine=engine if asked is None else asked.engine.partition("@")[0],
        engine_version=version,
        status="ok" if answered else "error",
        reason=reason,
        predicted=predicted,
        measured=record.measured,
        ratio=ratio,
        inside_range=inside,
        queued=record.queued,
        predicted_queued=None if latency is None else latency.queued,
    )


def _why_not(estimate: Estimate) -> str:
    capacity = estimate.capacity
    if capacity.fits:
        return "the estimate has no such figure"
    short = f"{capacity.short_by_bytes / GIB:.2f} GiB short on each GPU"
    if capacity.limited_by == "weights":
        return f"the weights do not fit ({short}), so there is no latency to predict"
    longest = f"the longest that fits is {capacity.max_context:,}"
    return f"one sequence of {estimate.scenario.context:,} tokens does not fit ({short}; {longest})"


def _one_line(error: KvplanError) -> str:
    words = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return words or type(error).__name__
