"""What a calibration found, for people: factors and errors per device family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.calibration.fitted import MULTIPLIERS, Calibration, FamilyFit
from kvplan.core.dataclass import dataclass
from kvplan.report.blocks import Block, Bullets, Line, Table
from kvplan.report.text import TIMES, percent, plural, significant


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """A calibration, ready for every form.

    Attributes:
        calibration: The answer.
        profile: Where its profile was written, or None.
    """

    calibration: Calibration
    profile: str | None = None

    def data(self) -> dict[str, Any]:
        """The `kvplan.calibrate/1` document."""
        found = self.calibration.model_dump()
        return {"schema": found.pop("schema"), "engine": found.pop("engine"), "profile": self.profile, **found}

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One row per family and multiplier."""
        return [
            {"family": fit.family, "multiplier": name, "factor": factor}
            for fit in self.calibration.families
            for name, factor in fit.factors.items()
        ]

    def blocks(self) -> Sequence[Block]:
        """Families with their errors and factors, then what was left out."""
        found: list[Block] = []
        for fit in self.calibration.families:
            rows, sets = plural(fit.rows, "row"), plural(fit.configurations, "configuration")
            found.append(Line(text=f"{self.calibration.engine.name} on {fit.family}: {rows}, {sets}"))
            found.append(_errors(fit))
            found.append(
                Table(
                    title="Fitted multipliers",
                    columns=("multiplier", "factor", "why it exists"),
                    open_end=True,
                    rows=tuple((one.name, significant(fit.factors[one.name]), one.why) for one in MULTIPLIERS),
                )
            )
        if self.calibration.skipped:
            found.append(
                Bullets(title="Left out", items=tuple(f"{k}: {why}" for k, why in self.calibration.skipped.items()))
            )
        if self.profile:
            found.append(Line(text=f"Profile written to {self.profile}; use it with --engine {self.profile}"))
        return found


def _errors(fit: FamilyFit) -> Table:
    rows = []
    for label, scores in (("before", fit.before), ("in sample", fit.in_sample), ("held out", fit.out_of_sample)):
        for name, one in scores.items():
            cells = (percent(one.median_ape), percent(one.mean_ape), percent(one.p90_ape), significant(one.bias))
            rows.append((TIMES[name], label, str(one.n), *cells))
    columns = ("quantity", "errors", "n", "median", "mean", "p90", "bias")
    return Table(title="Errors", columns=columns, rows=tuple(rows), left=2)
