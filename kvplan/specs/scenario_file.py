"""Scenario files: small YAML with the fields of a scenario, and sections for the commands that ask about several."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvplan.errors import SpecError

#: Parts of a file that are not fields of the scenario itself.
SECTIONS: Final = ("scenarios", "vary", "sweep", "plan")
_KINDS: Final[dict[str, type | tuple[type, ...]]] = {"scenarios": list, "vary": dict, "sweep": dict, "plan": dict}
_PLAIN: Final = (str, int, float, bool)


def read_scenario(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields as written, and the sections.

    Raises:
        SpecError: It can't be read, or is no mapping.
    """
    data = read_mapping(path)
    for name, kinds in _KINDS.items():
        if data.get(name) is not None and not isinstance(data[name], kinds):
            msg = f"{path}: {name}: must be {'a list' if kinds is list else 'names with values'}"
            raise SpecError(msg)
    fields = {str(key): value for key, value in data.items() if key not in SECTIONS}
    return fields, {name: data[name] for name in SECTIONS if data.get(name) is not None}


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML file that holds names and values.

    Raises:
        SpecError: It can't be read, or is no mapping.
    """
    from kvplan.specs.yaml import load_yaml  # noqa: PLC0415 - loaded where a file is read

    data: Any = load_yaml(path).data
    if not isinstance(data, Mapping):
        msg = f"{path}: must be a mapping of names to values"
        raise SpecError(msg, hint="for example `model: llama-3-8b` and `gpu: a100-80g`, each on a line")
    return {str(key): value for key, value in data.items()}


def scenario_yaml(fields: Mapping[str, Any]) -> str:
    """Fields and sections as YAML that diffs well: one field a line, in a fixed order, nothing that is a default."""
    import yaml  # noqa: PLC0415 - loaded where a file is written

    plain = {
        name if name.startswith("config.") else name.replace("_", "-"): _plain(value)
        for name, value in _spelt(fields).items()
        if value is not None
    }
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, default_flow_style=False, width=100)


def _spelt(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Changed config keys as fields of their own, `config.KEY`; names in sections with dashes, as on a command line."""
    found = {name: value for name, value in fields.items() if name != "overrides"}
    found.update({f"config.{key}": value for key, value in (fields.get("overrides") or {}).items()})
    for section in ("vary", "sweep", "plan"):
        if isinstance(found.get(section), Mapping):
            found[section] = {str(key).replace("_", "-"): value for key, value in found[section].items()}
    return found


def _plain(value: Any) -> Any:  # noqa: ANN401 - plain data in and out
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if isinstance(value, _PLAIN) or value is None else str(value)
