"""Predicted against measured as a scatter plot (the `plots` extra)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from kvplan.calibration.validation import Validation
from kvplan.errors import UsageError

_COLUMNS: Final = 3
_INCHES: Final = 4.2
_FACTOR: Final = 1.25
_SUFFIXES: Final = frozenset({".png", ".svg", ".pdf"})


def plot_validation(validation: Validation, path: Path) -> None:
    """Draw one log–log panel per quantity, coloured by engine, with the line of equality and ±25 %.

    Raises:
        UsageError: Nothing to draw, a kind of file that is not drawn, or matplotlib is not installed.
    """
    if path.suffix.lower() not in _SUFFIXES:
        message = f"--plot: {path.name} must end in {', '.join(sorted(_SUFFIXES))}"
        raise UsageError(message)
    if not validation.summary:
        message = "--plot: no row has both a prediction and a measurement"
        raise UsageError(message)
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = "--plot needs matplotlib"
        raise UsageError(message, hint="pip install 'kvplan[plots]'") from error
    names = list(validation.summary)
    columns = min(_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(_INCHES * columns, _INCHES * rows), layout="constrained")
    for index, name in enumerate(names):
        _panel(figure.add_subplot(rows, columns, index + 1), validation, name)
    try:
        figure.savefig(path, dpi=144)
    except OSError as error:
        message = f"--plot: cannot write {path}: {error.strerror or error}"
        raise UsageError(message) from error


def _panel(axes: Any, validation: Validation, name: str) -> None:  # noqa: ANN401 - matplotlib is untyped
    engines: dict[str, list[tuple[float, float]]] = {}
    for row in validation.rows:
        if name in row.ratio:
            engines.setdefault(row.engine, []).append((row.measured[name], row.predicted[name]))
    every = [value for points in engines.values() for point in points for value in point if value > 0]
    ends = [min(every), max(every)] if every else [1.0, 10.0]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    for factor in (_FACTOR, 1 / _FACTOR):
        axes.plot(ends, [end * factor for end in ends], color="grey", linewidth=0.6, linestyle="--")
    for engine, points in sorted(engines.items()):
        axes.scatter([x for x, _ in points], [y for _, y in points], s=9, alpha=0.6, label=engine)
    axes.set(xscale="log", yscale="log", xlabel="measured", ylabel="predicted", title=name)
    axes.legend(fontsize="x-small")
