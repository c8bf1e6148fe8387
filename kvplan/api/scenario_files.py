"""Questions that were written to a file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from kvplan.api.arguments import by_name
from kvplan.errors import UsageError
from kvplan.planning.scenarios import checked_fields, keywords
from kvplan.specs.scenario_file import read_mapping, read_scenario, scenario_yaml

if TYPE_CHECKING:
    from kvplan.planning.fields import ScenarioFields

#: Fields of a scenario that a plan takes too: what is served, where to look, lengths and limits.
_PLANNED: Final = (
    *("model", "gpu", "engine", "dtype", "kv_dtype", "tp", "pp", "dp", "ep"),
    *("input_tokens", "output_tokens", "context", "shared_prefix_tokens", "prefix_hit_rate"),
    *("gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens"),
)


def plan_request(given: Mapping[str, Any], *, scenario_file: str | Path | None = None) -> dict[str, Any]:
    """Arguments of `plan` from what was written on a command line, over those of a scenario file.

    Raises:
        UsageError: No model, an argument that does not exist, or a value that is not of its kind.
    """
    from kvplan.planning.requests import plan_arguments, prices  # noqa: PLC0415 - loaded on use

    under: dict[str, Any] = {}
    if scenario_file is not None:
        fields, sections = read_scenario_file(scenario_file)
        under = plan_arguments({name: fields[name] for name in _PLANNED if name in fields})
        under.update(plan_arguments(sections.get("plan") or {}))
    mine = dict(given)
    if isinstance(mine.get("prices"), str | Path):
        mine["prices"] = read_mapping(Path(mine["prices"]))
    if mine.get("price") is not None:
        mine["prices"] = {**(mine.get("prices") or {}), **prices(mine.pop("price"))}
    found = {**under, **plan_arguments(mine)}
    if found.get("model") is None:
        msg = "no model is given"
        raise UsageError(msg, hint="--model NAME")
    return found


@by_name
def load_scenario(path: str | Path) -> ScenarioFields:
    """What a scenario file asks for, as keywords of `estimate`: `kvplan.estimate(**kvplan.load_scenario("chat.yaml"))`.

    Raises:
        SpecError: It can't be read.
        UsageError: A field that does not exist, or a value that is not of its kind.
    """
    fields, _ = read_scenario_file(path)
    return cast("ScenarioFields", fields)


def read_scenario_file(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of a scenario file as keywords of `estimate`, and its sections `scenarios`, `vary`, `sweep`, `plan` as they are.

    Raises:
        SpecError: It can't be read.
        UsageError: A field that does not exist, or a value that is not of its kind.
    """
    fields, sections = read_scenario(Path(path))
    return keywords(checked_fields(fields)), sections


def scenario_text(fields: Mapping[str, Any]) -> str:
    """Fields and sections as the text of a scenario file."""
    return scenario_yaml(fields)
