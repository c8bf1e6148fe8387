"""The answer of `validate`, frozen and typed; its JSON keys are the contract `kvplan.validate/1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import ClassVar, Literal

from kvplan.calibration.columns import QUANTITIES
from kvplan.calibration.scoring import Score, score
from kvplan.core.dataclass import dataclass
from kvplan.core.results import Dumpable

Status = Literal["ok", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRow(Dumpable):
    """One record with what kvplan says about it.

    Attributes:
        id: Name of the row.
        line: Its line in the file.
        model, gpu, engine: Canonical ids, or as the row names them where it could not be predicted.
        engine_version: The version that counts, empty for the latest.
        status: `ok`, or `error` where nothing that was measured could be predicted.
        reason: Why not, or what part could not be; empty otherwise.
        predicted: Quantity → mid prediction, measured or not.
        measured: Quantity → measurement.
        ratio: `predicted ÷ measured` where both exist.
        inside_range: True where the measurement lies between low and high, for quantities with a range.
        queued: What the row is labelled as, None without a label.
        predicted_queued: True where kvplan says that requests wait for room.
    """

    id: str
    line: int
    model: str
    gpu: str
    engine: str
    engine_version: str
    status: Status
    reason: str
    predicted: Mapping[str, float]
    measured: Mapping[str, float]
    ratio: Mapping[str, float]
    inside_range: Mapping[str, bool]
    queued: bool | None
    predicted_queued: bool | None

    @property
    def worst(self) -> float:
        """Largest error of the row, as a factor of at least 1 either way."""
        return max((max(ratio, 1 / ratio) if ratio > 0 else float("inf") for ratio in self.ratio.values()), default=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScore(Dumpable):
    """Scores of the rows that share a model, GPU or engine.

    Attributes:
        key: What they share, name → value.
        quantity: The quantity that is scored.
        score: Its errors.
    """

    key: Mapping[str, str]
    quantity: str
    score: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Queueing(Dumpable):
    """Rows labelled as queued (waiting for room) against what kvplan says, and their scores apart.

    Attributes:
        labelled: Rows labelled queued that could be predicted.
        found: Of these, predicted as queued.
        others: Rows labelled not queued that could be predicted.
        false_alarms: Of these, predicted as queued.
        summary_queued, summary_others: The summary over each kind of row.
    """

    labelled: int
    found: int
    others: int
    false_alarms: int
    summary_queued: Mapping[str, Score]
    summary_others: Mapping[str, Score]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation(Dumpable):
    """Predictions against measurements.

    Attributes:
        rows: Every record, in the order of the file.
        summary: Quantity → errors over all rows.
        groups: Errors by group and quantity, worst median first.
        group_medians: Quantity → mean over the groups' median errors, so that large groups don't drown small ones.
        queueing: Rows with a `queued` label, None where no row has one.
        requests, failed_requests: Single requests behind the rows, and those that failed.
        assumptions: What the predictions take for granted, each once.
    """

    schema: ClassVar[str | None] = "kvplan.validate/1"
    rows: tuple[ValidationRow, ...]
    summary: Mapping[str, Score]
    groups: tuple[GroupScore, ...]
    group_medians: Mapping[str, float]
    queueing: Queueing | None
    requests: int
    failed_requests: int
    assumptions: tuple[str, ...]

    @property
    def answered(self) -> int:
        """Rows that could be predicted."""
        return sum(row.status == "ok" for row in self.rows)


def summarise(rows: Sequence[ValidationRow]) -> dict[str, Score]:
    """Errors per quantity, for quantities that at least one row has both predicted and measured."""
    found: dict[str, Score] = {}
    for name in QUANTITIES:
        ratios = [row.ratio[name] for row in rows if name in row.ratio]
        inside = [row.inside_range[name] for row in rows if name in row.inside_range]
        if ratios:
            found[name] = score(ratios, inside)
    return found


def group_scores(rows: Sequence[ValidationRow], by: Sequence[str]) -> tuple[GroupScore, ...]:
    """Errors per group of rows with equal fields and per quantity, worst median first."""
    groups: dict[tuple[str, ...], list[ValidationRow]] = {}
    for row in rows:
        groups.setdefault(tuple(str(getattr(row, name)) for name in by), []).append(row)
    scores = [
        GroupScore(key=dict(zip(by, key, strict=True)), quantity=quantity, score=value)
        for key, members in groups.items()
        for quantity, value in summarise(members).items()
    ]
    order = {name: place for place, name in enumerate(QUANTITIES)}
    return tuple(sorted(scores, key=lambda one: (order[one.quantity], -one.score.median_ape)))


def mean_of_medians(groups: Sequence[GroupScore]) -> dict[str, float]:
    """Mean over the groups' median errors, per quantity."""
    medians: dict[str, list[float]] = {}
    for group in groups:
        medians.setdefault(group.quantity, []).append(group.score.median_ape)
    return {quantity: fmean(values) for quantity, values in medians.items()}


def queueing(rows: Sequence[ValidationRow]) -> Queueing | None:
    """How well queueing is foreseen, or None where no row has a label."""
    queued = [row for row in rows if row.queued is True and row.status == "ok"]
    others = [row for row in rows if row.queued is False and row.status == "ok"]
    if not queued and not others:
        return None
    return Queueing(
        labelled=len(queued),
        found=sum(row.predicted_queued is True for row in queued),
        others=len(others),
        false_alarms=sum(row.predicted_queued is True for row in others),
        summary_queued=summarise(queued),
        summary_others=summarise(others),
    )
