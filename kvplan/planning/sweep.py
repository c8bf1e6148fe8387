"""Sweeps: the full grid of any scenario fields, as named arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kvplan.core.deployment import Deployment
from kvplan.core.numeric import check_count
from kvplan.errors import KvplanError, UsageError
from kvplan.planning.compare import plain_base
from kvplan.planning.grid import ERROR, answer_grid, quantities
from kvplan.planning.scenarios import LOAD_FIELDS, described
from kvplan.planning.sweep_result import Array, Sweep

_LOAD_DEFAULTS: Final[dict[str, Any]] = {"input_tokens": 1024, "output_tokens": 256, "concurrency": 1}
#: Counts of a load, and the least that each may be.
_LEAST: Final = {
    **dict.fromkeys(("input_tokens", "output_tokens", "concurrency", "context"), 1),
    **dict.fromkeys(("shared_prefix_tokens", "source_tokens", "benchmark_requests", "network_ms"), 0),
}


def run_sweep(
    deployment: Callable[..., Deployment],
    base: Mapping[str, Any],
    axes: Mapping[str, Iterable[Any]],
    *,
    ranges: bool,
) -> Sweep:
    """Answer the full grid of the axes.

    Args:
        deployment: Makes a deployment of the fields that do not describe the load.
        base: Fields that do not vary.
        axes: Field → values, in the order of the arrays' dimensions.
        ranges: True to add the band and the floor of each time and rate.

    Raises:
        UsageError: No axis, an empty one, or no deployment could be made at all.
    """
    points = {
        name: values.tolist() if isinstance(values, np.ndarray) else list(values) for name, values in axes.items()
    }
    if not points or not all(points.values()):
        message = "sweep: name at least one field with several values"
        raise UsageError(message, hint="for example concurrency=1:512:log2")
    _check(base, points)
    inner = {name: values for name, values in points.items() if name in LOAD_FIELDS and _are_numbers(values)}
    outer = [name for name in points if name not in inner]
    fixed = {**_LOAD_DEFAULTS, **_load(base)}
    fixed = {name: value for name, value in fixed.items() if name not in inner}
    shared = {name: value for name, value in base.items() if name not in LOAD_FIELDS}
    overflow = bool(shared.get("allow_context_overflow"))
    order = [*outer, *inner]
    shape = tuple(len(points[name]) for name in order)
    units = quantities(ranges=ranges)
    arrays: dict[str, Array] = {name: np.full(shape, np.nan) for name in ("gpu_count", *units)}
    status = np.full(shape, ERROR, dtype=np.uint8)
    errors: list[KvplanError] = []
    told: list[str] = []
    warnings: dict[str, None] = {}
    for index in np.ndindex(*(len(points[name]) for name in outer)):
        changes = {name: points[name][i] for name, i in zip(outer, index, strict=True)}
        try:
            found = deployment({**shared, **{name: v for name, v in changes.items() if name not in LOAD_FIELDS}})
            load = {**fixed, **_load(changes)}
            answers = answer_grid(found, inner, load, ranges=ranges, allow_context_overflow=overflow)
        except KvplanError as error:
            errors.append(error)
            told.append(f"{described(changes)}: {error}" if changes else str(error))
            continue
        warnings.update(dict.fromkeys(found.warnings))
        status[index] = answers.pop("status")
        arrays["gpu_count"][index] = found.layout.gpu_count
        for name, values in answers.items():
            arrays[name][index] = values
    if errors and (status == ERROR).all():
        raise errors[0]
    back = [order.index(name) for name in points]
    return Sweep(
        base=plain_base(base),
        axes={name: tuple(values) for name, values in points.items()},
        arrays={name: values.transpose(back) for name, values in arrays.items()},
        units={"gpu_count": "GPUs", **units},
        status=status.transpose(back),
        errors=tuple(told),
        warnings=tuple(warnings),
    )


def _are_numbers(values: Sequence[Any]) -> bool:
    """True where values can be one array: switches and defaults (None) can't, and are answered one by one."""
    return not any(value is None or isinstance(value, bool) for value in values)


def _load(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that describe the load, without those that are left to their default."""
    return {name: value for name, value in fields.items() if name in LOAD_FIELDS and value is not None}


def _check(base: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]) -> None:
    """Refuse loads that make no sense anywhere, before anything is computed.

    Raises:
        UsageError: A count below one, or beyond all measure.
    """
    for name, least in _LEAST.items():
        given = [value for value in axes.get(name, [base.get(name)]) if value is not None]
        check_count(name, np.asarray(given), least=least)
