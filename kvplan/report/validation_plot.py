"""Predicted against measured as a scatter plot (the `plots` extra)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from kvplan.calibration.validation import Validation
from kvplan.errors import UsageError
from kvplan.report.figures import COLOURS, MARKERS, decades, figure, lettered, save, tidy
from kvplan.report.validation import NAMES

_COLUMNS: Final = 3
_INCHES: Final = 4.2
_FACTOR: Final = 1.25


def plot_validation(validation: Validation, path: Path) -> None:
    """Draw one log–log panel per quantity, with a colour and a marker for each engine, the line of equality and a factor of 1.25 about it.

    Raises:
        UsageError: Nothing to draw, a kind of file that is not drawn, or matplotlib is not installed.
    """
    if not validation.summary:
        message = "--plot: no row has both a prediction and a measurement"
        raise UsageError(message)
    names = list(validation.summary)
    columns = min(_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    drawn = figure(width=_INCHES * columns, height=_INCHES * rows, path=path)
    for index, name in enumerate(names):
        _panel(drawn.add_subplot(rows, columns, index + 1), validation, name)
    save(drawn, path)


def _panel(axes: Any, validation: Validation, name: str) -> None:  # noqa: ANN401 - matplotlib is untyped
    engines: dict[str, list[tuple[float, float]]] = {}
    for row in validation.rows:
        if name in row.ratio:
            engines.setdefault(row.engine, []).append((row.measured[name], row.predicted[name]))
    every = [value for points in engines.values() for point in points for value in point if value > 0]
    ends = [min(every) / _FACTOR, max(every) * _FACTOR] if every else [1.0, 10.0]
    axes.plot(ends, ends, color="black", linewidth=0.8, label="equal")
    for factor in (_FACTOR, 1 / _FACTOR):
        band = "÷ × 1.25" if factor > 1 else None
        axes.plot(ends, [end * factor for end in ends], color="grey", linewidth=0.6, linestyle="--", label=band)
    for index, (engine, points) in enumerate(sorted(engines.items())):
        look = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}
        axes.scatter([x for x, _ in points], [y for _, y in points], s=12, alpha=0.7, label=lettered(engine), **look)
    tidy(axes, title=NAMES.get(name, name), x="measured", y="predicted")
    for axis in ("x", "y"):
        decades(axes, ends, axis=axis)
    axes.legend(fontsize=8)
