"""An engine as the text of a profile file: what `--engine PATH` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from enum import Enum
from typing import Any

import yaml

from kvplan.core.efficiency import Efficiency
from kvplan.core.engine import Engine


def profile_yaml(engine: Engine, *, comment: str = "") -> str:
    """A complete profile of one version: nothing is inherited, fields at their defaults are left out."""
    data = {
        "id": engine.id,
        **({"vendors": list(engine.vendors)} if engine.vendors else {}),
        "memory": _fields(engine.memory),
        "scheduling": _fields(engine.scheduling),
        "efficiency": {
            "inherits": False,
            "shared": _fields(engine.fallback),
            "families": {
                family: _changes(efficiency, engine.fallback) for family, efficiency in engine.efficiencies.items()
            },
        },
        "notes": list(engine.notes),
    }
    header = "".join(f"# {line}\n" for line in comment.splitlines())
    return header + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a field holds
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(asdict(one) if hasattr(one, "__dataclass_fields__") else one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _fields(record: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    found = {}
    for field in fields(record):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        value = getattr(record, field.name)
        if value != default:
            found[field.name] = _plain(value)
    return found


def _changes(efficiency: Efficiency, shared: Efficiency) -> dict[str, Any]:
    names = [field.name for field in fields(Efficiency)]
    return {
        name: _plain(getattr(efficiency, name)) for name in names if getattr(efficiency, name) != getattr(shared, name)
    }
