"""Predictions against measurements for people: errors per quantity, worst groups and rows first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kvplan.calibration.scoring import Score
from kvplan.calibration.validation import GroupScore, Queueing, Validation, ValidationRow
from kvplan.core.dataclass import dataclass
from kvplan.report.blocks import Block, Bullets, Line, Table, Tone
from kvplan.report.text import percent, plural, significant, whole

#: Measured quantities in words, with their units.
NAMES: Final = {
    "weights_gib": "weights [GiB]",
    "activation_gib": "activations [GiB]",
    "kv_pool_gib": "KV cache pool [GiB]",
    "kv_pool_tokens": "KV cache [tokens]",
    "max_concurrency": "maximum concurrency",
    "ttft_ms": "TTFT [ms]",
    "tpot_ms": "TPOT [ms]",
    "e2e_ms": "end to end [ms]",
    "output_tokens_per_second": "output [tokens/s]",
}
_HEADS: Final = ("n", "median", "mean", "p90", "bias", "in range")
_GROUP_HEADS: Final = ("n", "median", "p90", "bias", "in range")
_REASON: Final = 160
_NONE: Final = "–"
_SMALL: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """A validation, ready for every form.

    Attributes:
        validation: The answer.
        worst: Groups and rows that are shown, worst first; 0 shows all.
    """

    validation: Validation
    worst: int = 10

    def data(self) -> dict[str, Any]:
        """The `kvplan.validate/1` document."""
        return self.validation.model_dump()

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One row per record, a column per quantity and figure."""
        return [_record(row) for row in self.validation.rows]

    def blocks(self) -> Sequence[Block]:
        """Summary, queueing, groups, rows, errors."""
        return list(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        found = self.validation
        failed = len(found.rows) - found.answered
        tone: Tone = "good" if not failed else "warning" if found.answered else "bad"
        words = f"{whole(found.answered)} of {plural(len(found.rows), 'row')} predicted"
        yield Line(text=words + (f", {whole(failed)} could not be" if failed else ""), tone=tone)
        if found.requests or found.failed_requests:
            told = (
                f"gathered from {plural(found.requests, 'request')}; {whole(found.failed_requests)} failed, not counted"
            )
            yield Line(text=told, tone="quiet")
        if found.summary:
            yield Line(
                text="Errors are |predicted ÷ measured − 1|; bias is the geometric mean of the ratio.", tone="quiet"
            )
            yield _summary("All rows", found.summary)
        if found.queueing is not None:
            yield from _queueing(found.queueing)
        yield from self._groups()
        yield from self._rows()
        yield from _errors(found.rows, self.worst)
        if found.assumptions:
            yield Bullets(title="Assumptions", items=found.assumptions)

    def _groups(self) -> Iterator[Block]:
        means = self.validation.group_medians
        several = [name for name in self.validation.summary if _several(self.validation.groups, name)]
        if several:
            words = ", ".join(f"{NAMES[name]} {_error(means[name])}" for name in several)
            yield Line(text=f"Mean over the medians of the groups: {words}")
        for quantity in several:
            groups = [group for group in self.validation.groups if group.quantity == quantity]
            shown = groups[: self.worst] if self.worst else groups
            keys = tuple(groups[0].key)
            more = f"; {whole(len(groups) - len(shown))} more, --worst 0 shows all" if len(shown) < len(groups) else ""
            yield _narrow(
                title=f"{NAMES[quantity]} by {', '.join(keys)}, worst first{more}",
                columns=(*keys, *_GROUP_HEADS),
                rows=[_group_row(group, keys) for group in shown],
                left=len(keys),
            )

    def _rows(self) -> Iterator[Block]:
        scored = [(row, *worst) for row in self.validation.rows if (worst := _worst_quantity(row)) is not None]
        scored.sort(key=lambda item: -item[2])
        shown = scored[: self.worst] if self.worst else scored
        if shown:
            yield Table(
                title="Worst rows" if len(shown) < len(scored) else "Rows, worst first",
                columns=("id", "quantity", "predicted", "measured", "ratio"),
                rows=tuple(
                    (
                        row.id,
                        NAMES[name],
                        significant(row.predicted[name]),
                        significant(row.measured[name]),
                        significant(row.ratio[name]),
                    )
                    for row, name, _ in shown
                ),
                left=2,
            )


def _several(groups: Sequence[GroupScore], quantity: str) -> bool:
    """True for a quantity of at least two groups; one group is the summary again."""
    return sum(group.quantity == quantity for group in groups) > 1


def _summary(title: str, summary: Mapping[str, Score]) -> Table:
    rows = [(NAMES[name], *_score(score)) for name, score in summary.items()]
    return _narrow(title=title, columns=("quantity", *_HEADS), rows=rows, left=1)


def _narrow(*, title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], left: int) -> Table:
    """A table without its last column where that says nothing (memory has no range)."""
    end = -1 if all(row[-1] == _NONE for row in rows) else len(columns)
    return Table(title=title, columns=columns[:end], rows=tuple(row[:end] for row in rows), left=left)


def _score(score: Score) -> tuple[str, ...]:
    return (
        whole(score.n),
        _error(score.median_ape),
        _error(score.mean_ape),
        _error(score.p90_ape),
        f"{score.bias:.3f}",
        _NONE if score.inside_range is None else percent(score.inside_range),
    )


def _error(share: float) -> str:
    """An error in percent; two places below one percent, where memory figures lie."""
    return percent(share) if share >= _SMALL else f"{share * 100:.2f} %"


def _group_row(group: GroupScore, keys: Sequence[str]) -> tuple[str, ...]:
    n, median, _, p90, bias, inside = _score(group.score)
    return (*(group.key[key] or _NONE for key in keys), n, median, p90, bias, inside)


def _queueing(found: Queueing) -> Iterator[Block]:
    counts = (("queued", found.labelled, found.found), ("not queued", found.others, found.false_alarms))
    yield Table(
        title="Requests that wait for room",
        columns=("rows labelled", "rows", "predicted to wait", "share"),
        rows=tuple((name, whole(rows), whole(wait), percent(wait / rows)) for name, rows, wait in counts if rows),
    )
    if found.summary_others and found.summary_queued:
        yield _summary("Rows that are not queued", found.summary_others)
        yield _summary("Queued rows", found.summary_queued)


def _worst_quantity(row: ValidationRow) -> tuple[str, float] | None:
    """The quantity that a row misses most, by factor either way."""
    factors = {name: max(ratio, 1 / ratio) if ratio > 0 else float("inf") for name, ratio in row.ratio.items()}
    if not factors:
        return None
    name = max(factors, key=lambda key: factors[key])
    return name, factors[name]


def _errors(rows: Sequence[ValidationRow], limit: int) -> Iterator[Block]:
    reasons = Counter(row.reason for row in rows if row.reason)
    if not reasons:
        return
    first = {row.reason: row.id for row in reversed(rows)}
    shown = reasons.most_common(limit or None)
    items = [
        f"{plural(count, 'row')}: {reason[:_REASON]}{'…' if len(reason) > _REASON else ''} (first: {first[reason]})"
        for reason, count in shown
    ]
    if len(shown) < len(reasons):
        items.append(f"{plural(len(reasons) - len(shown), 'other reason')}; --worst 0 shows all")
    yield Bullets(title="Not predicted, or only in part", items=tuple(items), tone="warning")


def _record(row: ValidationRow) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "id": row.id,
        "model": row.model,
        "gpu": row.gpu,
        "engine": row.engine,
        "engine_version": row.engine_version,
        "status": row.status,
        "reason": row.reason,
        "queued": row.queued,
        "predicted_queued": row.predicted_queued,
    }
    for name in NAMES:
        cells[f"{name}.predicted"] = row.predicted.get(name)
        cells[f"{name}.measured"] = row.measured.get(name)
        cells[f"{name}.ratio"] = row.ratio.get(name)
        cells[f"{name}.inside_range"] = row.inside_range.get(name)
    return cells
