"""What-ifs on a model: the same config with some keys changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.specs.huggingface.config import MOST_LAYERS, TEXT_CONFIGS


def override(config: Mapping[str, Any], changes: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A config with some keys changed, in its text config where that has them.

    With another `num_hidden_layers`, lists with one entry per layer are cut, or repeated from their start.

    >>> override({"num_hidden_layers": 2, "layer_types": ["a", "b"]}, {"num_hidden_layers": 3})["layer_types"]
    ['a', 'b', 'a']
    """
    if not changes:
        return config
    changed = dict(config)
    nested = next((name for name in TEXT_CONFIGS if isinstance(config.get(name), Mapping)), None)
    inner = dict(config[nested]) if nested else {}
    for key, value in changes.items():
        target = inner if nested and (key in inner or key not in changed) else changed
        if key == "num_hidden_layers" and isinstance(value, int) and 0 < value <= MOST_LAYERS:
            _resize(target, target.get(key), value)
        target[key] = value
    if nested:
        changed[nested] = inner
    return changed


def _resize(config: dict[str, Any], before: object, after: int) -> None:
    for name, value in config.items():
        if isinstance(value, list) and value and len(value) == before:
            config[name] = [value[index % len(value)] for index in range(after)]
