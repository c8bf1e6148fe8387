"""A start-up log beside kvplan's estimate of the same deployment, line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kvplan.calibration.explanation import ExplainedFigure, LogExplanation, Trouble
from kvplan.calibration.figures import logged_figures, table_bytes
from kvplan.calibration.log_reasons import Context, meaning, notes, says
from kvplan.calibration.log_settings import LogSettings, quantize_if_full, settings_of
from kvplan.calibration.logs import LogFigure, StartupLog, read_log
from kvplan.calibration.planner import Planner
from kvplan.core.precision import display_dtype
from kvplan.core.results import Estimate
from kvplan.core.units import GIB
from kvplan.errors import KvplanError

#: Figures in a log → lines of the ledger that explain them.
_LEDGER: Final = {
    "weights_gib": ("weights",),
    "consumed_gib": ("weights", "runtime"),
    "activation_gib": ("activation", "graph"),
    "runtime_gib": ("runtime",),
    "graph_gib": ("graph", "graph_outside"),
    "graph_estimate_gib": ("graph", "graph_outside"),
    "kv_pool_gib": ("kv_pool",),
    "budget_gib": ("usable",),
}

#: How far the memory of a card differs between drivers.
_SAME_CARD: Final = 0.015


def explain_log(
    source: str | Path,
    *,
    planner: Planner,
    known_model: Callable[[str], str | None],
    known_gpus: Callable[[], Iterable[str]] = tuple,
    options: Mapping[str, Any] | None = None,
) -> LogExplanation:
    """Read a start-up log, predict each of its figures, and say where and why they differ.

    Args:
        source: The log; `-` is standard input.
        planner: Loaders and the estimate.
        known_model: Bundled id of a model's name, None for others.
        known_gpus: Names of the GPUs that the log's may be one of.
        options: What the log does not say, or says wrongly, as `estimate` names it.

    Returns:
        Log and estimate, line by line.

    Raises:
        UsageError: The file can't be opened, or an option makes no sense.
        SpecError: No start-up figures in it.
    """
    log, given = read_log(source), options or {}
    return explain(log, planner=planner, known_model=known_model, known_gpus=known_gpus, options=given)


def explain(
    log: StartupLog,
    *,
    planner: Planner,
    known_model: Callable[[str], str | None],
    known_gpus: Callable[[], Iterable[str]] = tuple,
    options: Mapping[str, Any],
) -> LogExplanation:
    """As `explain_log`, for a log that was read."""
    settings = settings_of(log, options, known_model=known_model)
    warnings = [*_doubts(log), *_card(log, settings.gpu, planner, known_gpus)]
    missing = tuple(f"--{name}" for name in ("model", "gpu", "engine") if getattr(settings, name) is None)
    estimate = None
    if not missing:
        try:
            estimate = _estimate(settings, planner)
        except KvplanError as error:
            if not options:
                warnings.append(f"no prediction: {'; '.join(str(error).splitlines())}")
            else:
                raise
    figures = sorted(log.figures.values(), key=lambda figure: figure.line)
    return LogExplanation(
        engine=log.engine,
        engine_version=log.facts.get("version"),
        settings=settings.said,
        missing=missing,
        scenario=None if estimate is None else estimate.scenario,
        figures=tuple(_explained(log, figure, estimate, frozenset(settings.said)) for figure in figures),
        troubles=tuple(Trouble(line=line, text=text, meaning=meaning(text)) for line, text in log.troubles),
        suggestions=() if estimate is None else estimate.capacity.suggestions,
        assumptions=() if estimate is None else estimate.assumptions,
        warnings=(*warnings, *(() if estimate is None else estimate.warnings)),
    )


def _estimate(settings: LogSettings, planner: Planner) -> Estimate:
    model = planner.model(settings.model)
    quantize_if_full(settings, display_dtype(model))
    return planner.estimate(
        model,
        planner.gpu(settings.gpu),
        engine=planner.engine(settings.engine),
        **{"allow_context_overflow": True, **settings.arguments},
    )


def _doubts(log: StartupLog) -> list[str]:
    doubts = []
    if log.starts > 1:
        doubts.append(f"the log holds {log.starts} starts; the last is read")
    if log.cut:
        doubts.append(f"only the first {log.lines:,} lines were read: give the start of the log alone")
    if len(log.devices) > 1:
        doubts.append(f"the log names several GPUs ({', '.join(log.devices)}): give --gpu")
    return doubts


def _card(log: StartupLog, gpu: str | None, planner: Planner, known_gpus: Callable[[], Iterable[str]]) -> Iterator[str]:
    """The memory that the log prints beside that of the GPU that was named, or of those that it may be."""
    figure = log.figures.get("total_gpu_gib")
    if figure is None:
        return

    def fits(name: str) -> bool:
        total: int = planner.gpu(name).framework_memory_bytes
        return abs(figure.value * GIB / total - 1) <= _SAME_CARD

    if gpu is None:
        alike = [name for name in known_gpus() if fits(name)]
        if alike:
            yield f"the log's GPU has {figure.value:.2f} GiB, as have {', '.join(alike)}: give --gpu"
        return
    try:
        same = fits(gpu)
    except KvplanError:  # told where the estimate asks for it
        return
    if not same:
        total = planner.gpu(gpu).framework_memory_bytes / GIB
        yield f"the log's GPU has {figure.value:.2f} GiB, {gpu} has {total:.2f} GiB: another card, or a slice of it?"


def _explained(log: StartupLog, figure: LogFigure, estimate: Estimate | None, given: frozenset[str]) -> ExplainedFigure:
    predicted = None if estimate is None else logged_figures(estimate).get(figure.name)
    ratio = predicted / figure.value if predicted is not None and figure.value > 0 else None
    said: tuple[str, ...] = ()
    if estimate is not None:
        said = tuple(notes(Context(log=log, estimate=estimate, figure=figure, ratio=ratio, said=given)))
    return ExplainedFigure(
        name=figure.name,
        unit=figure.unit,
        logged=figure.value,
        predicted=predicted,
        ratio=ratio,
        line=figure.line,
        text=figure.text,
        meaning=says(log, figure),
        formula="" if estimate is None else _formula(figure.name, estimate),
        notes=said,
    )


def _formula(name: str, estimate: Estimate) -> str:
    wanted = _LEDGER.get(name, ())
    parts = [line.formula for line in estimate.memory.ledger if line.name in wanted and line.bytes]
    tables = table_bytes(estimate.memory)
    if name == "weights_gib" and tables:
        parts.append(f"and tables that loading adds, {tables / GIB:.2f} GiB")
    return "; ".join(parts)
