"""The answer of `explain-log`, frozen and typed; its JSON keys are the contract `kvplan.explain-log/1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvplan.core.dataclass import dataclass
from kvplan.core.results import Dumpable, Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedFigure(Dumpable):
    """One figure of a log beside kvplan's.

    Attributes:
        name: What it is.
        unit: Unit of both figures.
        logged: What the log says.
        predicted: What kvplan says, None where it does not model it or facts are missing.
        ratio: `predicted ÷ logged`.
        line: Line of the log.
        text: That line, shortened.
        meaning: What the figure says, in other words; empty where its name is enough.
        formula: How kvplan's figure comes about, with its numbers.
        notes: What the engine counts here, and why the two may differ.
    """

    name: str
    unit: str
    logged: float
    predicted: float | None
    ratio: float | None
    line: int
    text: str
    meaning: str
    formula: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble(Dumpable):
    """A line that says why the engine did not start, and what it means."""

    line: int
    text: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExplanation(Dumpable):
    """A start-up log beside kvplan's estimate of the same deployment.

    Attributes:
        engine: Engine that wrote it, None where its words fit none.
        engine_version: As the log writes it.
        settings: What the deployment was taken to be: name → value and where it is from (`log` or `option`).
        missing: What must be given for a prediction, as options.
        scenario: What kvplan estimated, None where something is missing.
        figures: Line by line, in the order of the log.
        troubles: Why it did not start.
        suggestions: What would make it fit, in the engine's own flags.
        assumptions, warnings: Of the estimate and of the reading.
    """

    schema: ClassVar[str | None] = "kvplan.explain-log/1"
    engine: str | None
    engine_version: str | None
    settings: Mapping[str, Mapping[str, str]]
    missing: tuple[str, ...]
    scenario: Scenario | None
    figures: tuple[ExplainedFigure, ...]
    troubles: tuple[Trouble, ...]
    suggestions: tuple[str, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
