"""Against what was measured: predictions scored, efficiencies fitted, start-up logs explained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan.api.answers import estimate
from kvplan.api.loading import EngineLike, load_engine, load_gpu, load_model
from kvplan.specs import registry

if TYPE_CHECKING:
    from typing import Unpack

    from kvplan.calibration.explanation import LogExplanation
    from kvplan.calibration.fitted import Calibration
    from kvplan.calibration.planner import Planner
    from kvplan.calibration.validation import Validation
    from kvplan.planning.fields import ScenarioFields


def validate(
    source: str | Path | Iterable[Mapping[str, object]],
    *,
    group_by: Sequence[str] = ("model", "gpu", "engine"),
    defaults: Mapping[str, Any] | None = None,
) -> Validation:
    """Predict every record of a measurement file and say how far off each prediction is.

    Args:
        source: CSV, JSONL or JSON file, or rows in memory; docs/validation.md lists the columns and the benchmark files
            that are read as well.
        group_by: Columns whose groups get tables of their own.
        defaults: Values for cells that the file leaves empty (`{"gpu": "h100"}`).

    Raises:
        SpecError: The file is broken: all its errors in one run.
    """
    from kvplan.calibration.validate import validate as run  # noqa: PLC0415 - loaded on use

    return run(source, planner=_planner(), group_by=list(group_by), defaults=dict(defaults or {}))


def calibrate(
    source: str | Path | Iterable[Mapping[str, object]],
    *,
    engine: EngineLike | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Calibration:
    """Fit the efficiencies of one engine to measured TTFT and TPOT; needs the extra `calibrate`.

    Args:
        source: Records as `validate` reads them.
        engine: Profile to start from; None is the one that the records name.
        defaults: Values for cells that the file leaves empty.

    Returns:
        The engine with fitted efficiencies, and errors before, in sample and out of sample per device family.

    Raises:
        SpecError: The file is broken: all its errors in one run.
        UsageError: Nothing to fit, several engines, or the extra is missing.
    """
    from kvplan.calibration.fit import calibrate as run  # noqa: PLC0415 - loaded on use

    start = load_engine(engine) if engine is not None else None
    return run(source, planner=_planner(), engine=start, defaults=dict(defaults or {}))


def profile_text(engine: EngineLike, *, comment: str = "") -> str:
    """An engine as the text of a profile file that `--engine PATH` and `load_engine` read."""
    from kvplan.specs.profile_writing import profile_yaml  # noqa: PLC0415 - loaded on use

    return profile_yaml(load_engine(engine), comment=comment)


def explain_log(source: str | Path, **options: Unpack[ScenarioFields]) -> LogExplanation:
    """Read an engine's start-up log, predict each of its figures and say where and why they differ.

    Args:
        source: The log, or `-` for standard input.
        **options: Facts that the log leaves out or that win over it, under the names of `estimate`.

    Raises:
        SpecError: The file can't be read, or holds nothing that is known.
    """
    from kvplan.calibration.explain_log import explain_log as run  # noqa: PLC0415 - loaded on use

    def known_model(name: str) -> str | None:
        path = registry.find("model", name)
        return None if path is None else path.stem

    return run(source, planner=_planner(), known_model=known_model, options=options)


def _planner() -> Planner:
    from kvplan.calibration.planner import Planner  # noqa: PLC0415 - loaded on use

    return Planner(load_model=load_model, load_gpu=load_gpu, load_engine=load_engine, estimate=estimate)
