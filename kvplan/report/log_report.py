"""A start-up log beside kvplan's figures, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kvplan.calibration.explanation import ExplainedFigure, LogExplanation
from kvplan.core.dataclass import dataclass
from kvplan.report.blocks import Block, Bullets, Line, Table, Tone
from kvplan.report.text import significant, whole

_TITLES: Final = {
    "weights_gib": "weights",
    "consumed_gib": "weights and runtime",
    "activation_gib": "activations (peak)",
    "runtime_gib": "outside torch",
    "graph_gib": "graphs captured",
    "graph_estimate_gib": "graphs estimated",
    "budget_gib": "budget",
    "total_gpu_gib": "memory of the GPU",
    "free_at_start_gib": "free at the start",
    "free_after_weights_gib": "free after the weights",
    "free_after_pool_gib": "free after the pool",
    "available_gib": "free before the pool",
    "kv_pool_gib": "KV cache pool",
    "kv_pool_tokens": "KV cache tokens",
    "kv_blocks": "KV cache blocks",
    "block_tokens": "tokens per block",
    "max_concurrency": "maximum concurrency",
    "kv_needed_gib": "one sequence needs",
    "longest_context": "longest context",
    "padding_layers": "padding layers",
    "state_blocks": "state blocks",
    "state_gib": "recurrent state",
    "conv_state_gib": "convolution state",
    "ssm_state_gib": "recurrent state",
    "file_gib": "file",
    "gpu_layers": "layers on the GPU",
}
_CLOSE: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """An explained log, ready for every form."""

    explanation: LogExplanation

    def data(self) -> dict[str, Any]:
        """The `kvplan.explain-log/1` document."""
        return self.explanation.model_dump()

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One row per figure."""
        return [{**figure.model_dump(), "notes": "; ".join(figure.notes)} for figure in self.explanation.figures]

    def blocks(self) -> Sequence[Block]:
        """Verdict, table, reasons, troubles."""
        return list(_blocks(self.explanation))


def _blocks(found: LogExplanation) -> Iterator[Block]:
    version = f" {found.engine_version}" if found.engine_version else ""
    asked = found.scenario
    name = f"{found.engine or 'unknown engine'}{version}"
    if asked is None:
        yield Line(text=f"Start-up log of {name}", tone="title")
    else:
        yield Line(text=f"Start-up log of {name}: {asked.model} on {asked.gpu_count} × {asked.gpu}", tone="title")
        layout = [
            f"{key} {value}" for key in ("tp", "pp", "dp", "ep") if (value := getattr(asked, key)) not in {None, 1}
        ]
        words = [
            f"weights {asked.dtype}",
            f"KV cache {asked.kv_dtype}",
            f"context {whole(asked.context)} tokens",
            *layout,
        ]
        yield Line(text=f"{', '.join(words)}; predicted with {asked.engine}", tone="quiet")
    if found.missing:
        yield Line(text=f"No prediction: the log does not say all; give {' and '.join(found.missing)}.", tone="warning")
    else:
        yield _verdict(found.figures)
    yield Table(
        title="",
        columns=("line", "figure", "log", "kvplan", "ratio"),
        rows=tuple(_row(figure) for figure in found.figures),
        left=2,
    )
    meanings = [f"{_title(figure)}: {figure.meaning}" for figure in found.figures if figure.meaning]
    if meanings:
        yield Bullets(title="What the log says", items=tuple(meanings))
    yield from _reasons(found)
    if found.troubles:
        items = [f"line {one.line}: {one.text} — {one.meaning}" for one in found.troubles]
        yield Bullets(title="Why it did not start", items=tuple(items), tone="bad")
        if found.suggestions:
            yield Bullets(title="What would help", items=found.suggestions)
    if found.warnings:
        yield Bullets(title="Warnings", items=found.warnings, tone="warning")
    if found.settings:
        yield Bullets(title="What was read", items=tuple(_settings(found)))
    if found.assumptions:
        yield Bullets(title="Assumptions", items=found.assumptions)


def _settings(found: LogExplanation) -> Iterator[str]:
    for source in ("log", "option"):
        words = [f"{name} {said['value']}" for name, said in found.settings.items() if said["source"] == source]
        if words:
            yield f"from the {source}{'s' if source == 'option' else ''}: {', '.join(words)}"


def _verdict(figures: Sequence[ExplainedFigure]) -> Line:
    compared = [figure for figure in figures if figure.ratio is not None]
    close = [figure for figure in compared if figure.ratio is not None and abs(figure.ratio - 1) <= _CLOSE]
    if not compared:
        return Line(text="No figure of this log has a prediction.", tone="warning")
    tone: Tone = "good" if len(close) == len(compared) else "plain"
    return Line(text=f"{len(close)} of {len(compared)} figures agree within 2 %.", tone=tone)


def _row(figure: ExplainedFigure) -> tuple[str, ...]:
    return (
        f"{figure.line}",
        _title(figure),
        _value(figure.logged, figure.unit),
        "–" if figure.predicted is None else _value(figure.predicted, figure.unit),
        "–" if figure.ratio is None else f"{figure.ratio:.3f}",
    )


def _title(figure: ExplainedFigure) -> str:
    return _TITLES.get(figure.name, figure.name.replace("_", " "))


def _value(value: float, unit: str) -> str:
    match unit:
        case "GiB":
            return f"{value:,.2f} GiB"
        case "x":
            return f"{significant(value, 4)}x"
        case "tokens" | "blocks":
            return f"{whole(value)} {unit}"
        case "tokens/block":
            return f"{whole(value)} tokens"
        case _:
            return significant(value) if value else "0"


def _reasons(found: LogExplanation) -> Iterator[Block]:
    items = []
    for figure in found.figures:
        if figure.predicted is None and not figure.notes:
            continue
        parts = [f"kvplan counts {figure.formula}"] if figure.formula else []
        if parts or figure.notes:
            items.append(f"{_title(figure)}: {'; '.join([*parts, *figure.notes])}")
    if items:
        yield Bullets(title="What is counted, and why it may differ", items=tuple(items))
