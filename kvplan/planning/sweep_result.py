"""The answer of `sweep`: named arrays over the full grid of some fields."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from kvplan.core.dataclass import dataclass
from kvplan.core.results import Dumpable
from kvplan.errors import UsageError

Array = npt.NDArray[Any]

#: What became of a point, by its number in `status`.
STATUS: Final = (
    "ok",
    "requests queue",
    "does not fit",
    "above the model's context",
    "context below input + output",
    "error",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Dumpable):
    """The answers to a grid of scenarios.

    Attributes:
        base: Fields that all scenarios share.
        axes: Field → its values; one dimension of the arrays each, in this order.
        arrays: Quantity → array of the shape of the axes; NaN where there is no answer.
        units: Quantity → unit.
        status: Number in `STATUS` of each point.
        errors: What went wrong where no deployment could be made, with the place.
        warnings: Warnings of all deployments, each once.
    """

    schema: ClassVar[str | None] = "kvplan.sweep/1"
    base: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]
    arrays: Mapping[str, Array]
    units: Mapping[str, str]
    status: Array
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Array:
        """One quantity's array."""
        return self.arrays[name]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each axis."""
        return tuple(len(values) for values in self.axes.values())

    @property
    def answered(self) -> int:
        """Scenarios that fit."""
        return int((self.status <= 1).sum())

    def rows(self) -> Iterator[dict[str, Any]]:
        """One flat row per scenario, the last axis running fastest; None where there is no answer."""
        flat = {name: values.reshape(-1).tolist() for name, values in self.arrays.items()}
        codes = self.status.reshape(-1).tolist()
        for index, values in enumerate(product(*self.axes.values())):
            row: dict[str, Any] = dict(zip(self.axes, values, strict=True))
            row["status"] = STATUS[codes[index]]
            row.update({name: _plain(name, cells[index]) for name, cells in flat.items()})
            yield row

    def model_dump(self) -> dict[str, Any]:
        """The document of `sweep --json`."""
        return {
            "schema": self.schema,
            "base": dict(self.base),
            "axes": {name: list(values) for name, values in self.axes.items()},
            "units": dict(self.units),
            "rows": list(self.rows()),
            "errors": list(self.errors),
            "warnings": list(self.warnings),
        }

    def to_dataframe(self) -> Any:  # noqa: ANN401 - pandas is an extra
        """One row per scenario as a pandas DataFrame (the `pandas` extra).

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - an extra
        except ImportError as error:
            message = "to_dataframe needs pandas"
            raise UsageError(message, hint="pip install 'kvplan[pandas]'") from error
        grids = np.meshgrid(*(np.arange(len(values)) for values in self.axes.values()), indexing="ij")
        columns: dict[str, Any] = {
            name: np.asarray(values, dtype=object if None in values else None)[grid.reshape(-1)]
            for (name, values), grid in zip(self.axes.items(), grids, strict=True)
        }
        columns["status"] = np.asarray(STATUS)[self.status.reshape(-1)]
        columns.update({name: values.reshape(-1) for name, values in self.arrays.items()})
        return pd.DataFrame(columns)


def _plain(name: str, value: float) -> float | None:
    """A cell of a row: counts and bytes are whole numbers."""
    if math.isnan(value):
        return None
    return int(value) if (name.endswith("_bytes") or name == "gpu_count") and value.is_integer() else value
