"""Against what was measured: predictions scored, efficiencies fitted, start-up logs explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvplan.api.answers import estimate
from kvplan.api.arguments import Rows, by_name, keywords_of
from kvplan.api.loading import EngineLike, load_engine, load_gpu, load_model
from kvplan.specs import registry
from kvplan.specs.files import located

if TYPE_CHECKING:
    from typing import Unpack

    from kvplan.calibration.explanation import LogExplanation
    from kvplan.calibration.fitted import Calibration
    from kvplan.calibration.planner import Planner
    from kvplan.calibration.validation import Validation
    from kvplan.core.engine import Engine
    from kvplan.core.hardware import Gpu
    from kvplan.core.model import Model
    from kvplan.planning.fields import ScenarioFields

_NAMED: Final[tuple[registry.Kind, ...]] = ("model", "gpu", "engine")


@by_name
def validate(
    source: Rows,
    *,
    group_by: str | Sequence[str] = ("model", "gpu", "engine"),
    defaults: Mapping[str, Any] | None = None,
) -> Validation:
    """Predict every record of a measurement file and say how far off each prediction is.

    Args:
        source: CSV, JSONL or JSON file, or rows in memory; docs/specs.md lists the columns and the benchmark files
            that are read as well.
        group_by: Columns whose groups get tables of their own.
        defaults: Values for cells that the file leaves empty (`{"gpu": "h100"}`).

    Raises:
        SpecError: The file is broken: all its errors in one run.

    What a file names is a bundled spec, a file in its own folder, or a repository in the hub's cache: nothing else is
    read, and nothing fetched. `defaults` are the caller's own words and may be anything.
    """
    from kvplan.calibration.validate import validate as run  # noqa: PLC0415 - loaded on use

    given = _own_words(defaults)
    return run(source, planner=_planner_of_records(given), group_by=list(group_by), defaults=given)


@by_name
def calibrate(
    source: Rows,
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
    given = _own_words(defaults)
    return run(source, planner=_planner_of_records(given), engine=start, defaults=given)


def profile_text(engine: EngineLike, *, comment: str = "") -> str:
    """An engine as the text of a profile file that `--engine PATH` and `load_engine` read."""
    from kvplan.specs.profile_writing import profile_yaml  # noqa: PLC0415 - loaded on use

    return profile_yaml(load_engine(engine), comment=comment)


@by_name
def explain_log(source: str | Path, **options: Unpack[ScenarioFields]) -> LogExplanation:
    """Read an engine's start-up log, predict each of its figures and say where and why they differ.

    Args:
        source: The log, or `-` for standard input.
        **options: Facts that the log leaves out or that win over it, under the names of `estimate`.

    Raises:
        SpecError: The file can't be read, or holds nothing that is known.
    """
    given = keywords_of(estimate, options, asked="explain_log")  # what is None is left out: the log says it, no default
    from kvplan.calibration.explain_log import explain_log as run  # noqa: PLC0415 - loaded on use

    def known_model(name: str) -> str | None:
        path = registry.find("model", name)
        return None if path is None else path.stem

    def known_gpus() -> tuple[str, ...]:
        return registry.ids("gpu")

    return run(source, planner=_planner(), known_model=known_model, known_gpus=known_gpus, options=given)


def _own_words(defaults: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the caller says for rows that do not, files among it as paths."""
    given = dict(defaults or {})
    for kind in _NAMED:
        word = given.get(kind)
        if isinstance(word, str) and registry.find(kind, word) is None and (path := located(word)) is not None:
            given[kind] = path
    return given


def _planner_of_records(own: Mapping[str, Any]) -> Planner:
    from kvplan.calibration.planner import Planner  # noqa: PLC0415 - loaded on use
    from kvplan.specs.engines import bundled_engine  # noqa: PLC0415
    from kvplan.specs.hardware import bundled_gpu  # noqa: PLC0415
    from kvplan.specs.models import named_model  # noqa: PLC0415

    def model(word: str | Path) -> Model:
        return load_model(word) if isinstance(word, Path) or word == own.get("model") else named_model(word)

    def gpu(word: str | Path) -> Gpu:
        return load_gpu(word) if isinstance(word, Path) else bundled_gpu(word)

    def engine(word: str | Path) -> Engine:
        return load_engine(word) if isinstance(word, Path) else bundled_engine(word)

    return Planner(load_model=model, load_gpu=gpu, load_engine=engine, estimate=estimate)


def _planner() -> Planner:
    from kvplan.calibration.planner import Planner  # noqa: PLC0415 - loaded on use

    return Planner(load_model=load_model, load_gpu=load_gpu, load_engine=load_engine, estimate=estimate)
