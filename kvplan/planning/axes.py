"""Axes of a sweep as people write them: lists, steps, powers and evenly spaced points."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kvplan.errors import UsageError
from kvplan.planning.scenarios import FIELDS, MODEL_FIELDS, field_name, field_value, with_ending

_RANGE: Final = re.compile(
    r"^(?P<low>[-+.\dekKmM]+):(?P<high>[-+.\dekKmM]+)(?::(?P<how>(?:log|lin|geo)?)(?P<size>[.\dekKmM]+)?)?$"
)
_OTHER_RANGE: Final = re.compile(r"^\s*(?P<low>[\d.]+?[kKmM]?)\s*(?:\.\.+|-|–)\s*(?P<high>[\d.]*\d[kKmM]?)\s*$")
_MOST: Final = 1_000_000
_POINTS: Final = 2


def read_axes(given: Mapping[str, Iterable[Any]] | Iterable[str | Mapping[str, Iterable[Any]]]) -> dict[str, list[Any]]:
    """Axes from a mapping, texts, or both; a field named twice takes its last values.

    >>> read_axes([{"tp": [1, 2]}, "kv-dtype=bf16,fp8"])
    {'tp': [1, 2], 'kv_dtype': ['bf16', 'fp8']}
    """
    found: dict[str, list[Any]] = {}
    parts: Iterable[object] = [given] if isinstance(given, Mapping | str) else given
    for part in parts:
        if isinstance(part, str):
            name, points = read_axis(part)
            found[name] = list(points)
        elif not isinstance(part, Mapping):
            message = f"{str(part)[:80]!r}: must be key=values, or names with values"
            raise UsageError(message)
        else:
            found.update(_axis(field_name(str(key)), values) for key, values in part.items())
    return found


def _axis(name: str, values: Any) -> tuple[str, list[Any]]:  # noqa: ANN401 - text, one value or several
    if isinstance(values, str):
        return name, list(read_axis(f"{name}={values}")[1])
    several = values if hasattr(values, "__iter__") and not isinstance(values, Mapping) else [values]
    specs = name in {"model", "gpu", "engine"}
    return name, [value if specs else field_value(name, value) for value in several]


def read_axis(text: str) -> tuple[str, tuple[Any, ...]]:
    """`key=a,b,c` or `key=low:high[:how]` as the field and its values.

    `how` is a step (`:128`), powers (`:log2`, `:log10`), or a number of points, evenly (`:lin20`) or geometrically
    (`:geo20`) spaced; without it every whole number.

    >>> read_axis("concurrency=1:16:log2")
    ('concurrency', (1, 2, 4, 8, 16))
    >>> read_axis("context=1000:4000:1000")[1], read_axis("tp=1,2")[1], read_axis("input-tokens=10:1000:geo3")[1]
    ((1000, 2000, 3000, 4000), (1, 2), (10, 100, 1000))
    >>> read_axis("context=8k,32K")[1], read_axis("context=1K:4K:1K")[1]
    ((8000, 32768), (1024, 2048, 3072, 4096))

    Raises:
        UsageError: Not of this form, empty, or above a million values.
    """
    key, equals, value = text.partition("=")
    if not equals or not value.strip():
        message = f"{text!r} is not key=values"
        raise UsageError(
            message, hint="for example dtype=bf16,fp8, tp=1,2,4,8, concurrency=1:512:log2, context=4096:32768:4096"
        )
    name = field_name(key)
    kind = int if name in MODEL_FIELDS else FIELDS.get(name, str)
    if kind in {int, float} and (other := _OTHER_RANGE.match(value)):
        message = f"{name}: {value!r} is no range"
        raise UsageError(message, hint=f"{key.strip()}={other['low']}:{other['high']}:log2, or :STEP, :lin20, :geo20")
    match = _RANGE.match(value.strip())
    if match is None or kind not in {int, float}:
        values = tuple(field_value(name, part) for part in value.split(",") if part.strip())
    else:
        values = _spread(name, match, whole=kind is int)
    if not values:
        message = f"{name}: no values in {value!r}"
        raise UsageError(message)
    return name, tuple(dict.fromkeys(values))


def _spread(name: str, match: re.Match[str], *, whole: bool) -> tuple[Any, ...]:
    low, high = field_value(name, match["low"]), field_value(name, match["high"])
    size = match["size"]
    try:
        number = float(with_ending(size)) if size else math.nan
    except ValueError:
        number = math.nan
    match match["how"]:
        case None | "":
            points = _steps(low, high, 1.0 if size is None else number)
        case "log":
            points = _powers(low, high, number)
        case "lin":
            points = [low + (high - low) * share for share in _shares(number)]
        case "geo" if low > 0:
            points = [low * (high / low) ** share for share in _shares(number)]
        case _:
            points = []
    if not points:
        message = f"{name}={match.string}: not a range"
        raise UsageError(message, hint="low:high:step, low:high:log2, low:high:lin20 or low:high:geo20, low below high")
    return tuple(round(point) if whole else point for point in points)


def _steps(low: float, high: float, step: float) -> list[float]:
    if not step > 0 or high < low or (high - low) / step > _MOST:
        return []
    return [low + index * step for index in range(int((high - low) / step + 1e-9) + 1)]


def _powers(low: float, high: float, base: float) -> list[float]:
    if not base > 1 or not 0 < low <= high:
        return []
    count = int(math.log(high / low) / math.log(base) + 1e-9) + 1
    points = [low * base**index for index in range(count)]
    return points if math.isclose(points[-1], high) else [*points, high]


def _shares(count: float) -> list[float]:
    if not _POINTS <= count <= _MOST or count != int(count):
        return []
    return [index / (count - 1) for index in range(int(count))]
