"""Pictures of comparisons, sweeps and plans (the `plots` extra)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvplan.core.units import GIB, MS_PER_S
from kvplan.errors import UsageError
from kvplan.planning.comparison import Comparison
from kvplan.planning.plan_result import Option, Plan
from kvplan.report.figures import (
    COLOURS,
    DASHES,
    HATCHES,
    MARKERS,
    decades,
    figure,
    lettered,
    powers,
    save,
    short,
    tidy,
)
from kvplan.report.text import plural

if TYPE_CHECKING:
    from kvplan.planning.sweep_result import Sweep

_SERIES: Final = 7
_FEW: Final = 2
_WIDE_RATIO: Final = 30
_LABEL: Final = 34

#: Title, quantity, unit on the axis and what a value is divided by.
_BARS: Final = (
    ("Weights", "weights_bytes", "GiB on one GPU", GIB),
    ("KV cache pool", "kv_pool_bytes", "GiB on one GPU", GIB),
    ("Sequences that fit", "max_concurrency", "sequences, one replica", 1.0),
    ("Time to first token", "ttft_ms", "ms", 1.0),
    ("Time per output token", "tpot_ms", "ms", 1.0),
    ("Throughput", "output_tokens_per_second", "output tokens/s", 1.0),
)
_CURVES: Final = (
    ("Time to first token", "ttft_ms", "ms"),
    ("Time per output token", "tpot_ms", "ms"),
    ("Throughput", "output_tokens_per_second", "output tokens/s"),
    ("Sequences that fit", "max_concurrency", "sequences, one replica"),
)
_UNITS: Final = {
    "concurrency": "sequences in flight",
    "context": "context [tokens]",
    "input_tokens": "prompt [tokens]",
    "output_tokens": "answer [tokens]",
    "tp": "tensor-parallel GPUs",
    "pp": "pipeline stages",
    "dp": "data-parallel ranks",
}


def plot_comparison(comparison: Comparison, path: Path) -> None:
    """Bars of memory, capacity, latency and throughput, a panel each.

    Raises:
        UsageError: The file can't be drawn.
    """
    scenarios = comparison.scenarios
    names = [lettered(one.name if len(one.name) <= _LABEL else f"{one.name[: _LABEL - 1]}…") for one in scenarios]
    drawn = figure(width=11.0, height=1.6 + 2.0 * max(1.0, len(names) * 0.34), path=path)
    panels = drawn.subplots(2, 3, sharey=True)
    for axes, (title, quantity, unit, scale) in zip(panels.flat, _BARS, strict=True):
        values = [None if one.values[quantity] is None else (one.values[quantity] or 0.0) / scale for one in scenarios]
        heights = [value or 0.0 for value in values]
        bars = axes.barh(range(len(names)), heights, color=COLOURS[0], height=0.62)
        for index, bar in enumerate(bars):
            bar.set_facecolor(COLOURS[6] if index == 0 else COLOURS[(index - 1) % 6])
            bar.set_hatch(HATCHES[index % len(HATCHES)])
            bar.set_edgecolor("white")
        axes.bar_label(
            bars, labels=["no answer" if v is None else short(float(f"{v:.3g}")) for v in values], padding=3, fontsize=8
        )
        axes.set_yticks(range(len(names)), names)
        axes.set_xlim(0, (max(heights) or 1.0) * 1.22)
        tidy(axes, title=title, x=unit, y="")
        axes.grid(visible=False, axis="y")
    panels.flat[0].invert_yaxis()
    drawn.suptitle(_base(comparison.base), fontsize=10, x=0.01, ha="left")
    save(drawn, path)


def plot_sweep(sweep: Sweep, path: Path, *, limits: Mapping[str, float] | None = None) -> None:
    """Latency, throughput and capacity along the longest numeric axis, a line for each value of the others.

    Args:
        sweep: The sweep; bands are drawn where it has ranges.
        path: Where to.
        limits: Quantity → target, drawn as a line.

    Raises:
        UsageError: No numeric axis of two values or more, or the file can't be drawn.
    """
    numeric = [
        name
        for name, values in sweep.axes.items()
        if len(values) >= _FEW and all(isinstance(value, int | float) for value in values)
    ]
    if not numeric:
        message = "--plot: no axis with two numbers or more"
        raise UsageError(message, hint="for example --sweep concurrency=1:256:log2")
    along = max(numeric, key=lambda name: len(sweep.axes[name]))
    drawn = figure(width=11.0, height=7.4, path=path)
    panels = drawn.subplots(2, 2)
    series = _series(sweep, along)
    for axes, (title, quantity, unit) in zip(panels.flat, _CURVES, strict=True):
        for index, (label, rows) in enumerate(series[:_SERIES]):
            _line(axes, rows, along, quantity, index=index, label=label)
        limit = (limits or {}).get(quantity)
        if limit is not None:
            axes.axhline(limit, color="black", linewidth=1.0, linestyle=(0, (6, 2)))
            axes.annotate(
                f"target {short(limit)} ms",
                (0.01, limit),
                xycoords=("axes fraction", "data"),
                fontsize=8,
                va="bottom",
            )
        tidy(axes, title=title, x=_UNITS.get(along, along.replace("_", " ")), y=unit)
        values = sweep.axes[along]
        if min(values) > 0 and max(values) / min(values) >= _WIDE_RATIO:
            powers(axes, values)
        known = [row[quantity] for _, rows in series for row in rows if row[quantity]]
        if known and quantity.endswith("_ms") and max(known) / min(known) >= _WIDE_RATIO:
            decades(axes, known)
        elif known:
            axes.set_ylim(bottom=0)
    if len(series) > 1:
        handles, labels = panels.flat[0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)), fontsize=8, frameon=False)
    drawn.suptitle(_title(sweep, shown=min(len(series), _SERIES), total=len(series)), fontsize=10, x=0.01, ha="left")
    save(drawn, path)


def _series(sweep: Sweep, along: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Rows by the values of the other axes."""
    groups: dict[str, list[dict[str, Any]]] = {}
    others = [name for name in sweep.axes if name != along]
    for row in sweep.rows():
        label = lettered(", ".join(f"{name.replace('_', '-')} {row[name]}" for name in others))
        groups.setdefault(label, []).append(row)
    return list(groups.items())


def _base(fields: Mapping[str, Any]) -> str:
    """What all scenarios of a picture share."""
    return lettered(", ".join(f"{name.replace('_', '-')} {value}" for name, value in fields.items()))


def _title(sweep: Sweep, *, shown: int, total: int) -> str:
    return _base(sweep.base) + (f"  ({shown} of {total} lines)" if shown < total else "")


def _line(
    axes: Any,  # noqa: ANN401 - matplotlib is untyped
    rows: list[dict[str, Any]],
    along: str,
    quantity: str,
    *,
    index: int,
    label: str,
) -> None:
    points = [row for row in rows if row[quantity] is not None and (row["status"] in {"ok", "requests queue"})]
    x = [row[along] for row in points]
    colour = COLOURS[index % len(COLOURS)]
    axes.plot(
        x,
        [row[quantity] for row in points],
        color=colour,
        marker=MARKERS[index % len(MARKERS)],
        markersize=4,
        linestyle=DASHES[index % len(DASHES)],
        linewidth=1.4,
        label=label,
    )
    if points and points[0].get(f"{quantity}_low") is not None:
        low = [row[f"{quantity}_low"] for row in points]
        high = [row[f"{quantity}_high"] for row in points]
        axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)


def plot_plan(plan: Plan, path: Path) -> None:
    """Cost against mean end-to-end time of the plans that no other beats, numbered and told beside.

    Raises:
        UsageError: Nothing serves the load, or the file can't be drawn.
    """
    if not plan.front:
        message = "--plot: nothing serves this load"
        raise UsageError(message)
    drawn = figure(width=11.0, height=5.0, path=path)
    axes = drawn.subplots()
    x = [one.times["e2e_ms"]["mean"] / MS_PER_S for one in plan.front]
    y = [one.gpu_count if not plan.priced else one.cost.per_hour or 0.0 for one in plan.front]
    axes.plot(x, y, color="#999999", linewidth=1.0, zorder=1)
    axes.scatter(x, y, s=230, color="white", edgecolors=COLOURS[0], linewidths=1.4, zorder=2)
    if len(y) > 1 and max(y) / min(y) >= _WIDE_RATIO / 3:
        decades(axes, y)
    for number, (a, b) in enumerate(zip(x, y, strict=True), start=1):
        axes.annotate(str(number), (a, b), ha="center", va="center", fontsize=8, zorder=3)
    money = "price of an hour" if plan.priced else "GPUs"
    tidy(axes, title=lettered(f"{plan.model}: cost against latency"), x="mean end-to-end time [s]", y=money)
    axes.margins(0.08)
    text = "\n".join(f"{number}   {lettered(_told(one))}" for number, one in enumerate(plan.front, start=1))
    drawn.text(0.66, 0.5, text, fontsize=8, va="center", ha="left", linespacing=1.6)
    drawn.get_layout_engine().set(rect=(0, 0, 0.64, 1))
    save(drawn, path)


def _told(one: Option) -> str:
    ranks = "×".join(f"{name}{value}" for name, value in (("tp", one.tp), ("pp", one.pp), ("dp", one.dp)) if value > 1)
    replicas = plural(one.replicas + one.spare_replicas, "replica")
    return f"{one.gpu_count} × {one.gpu}, {one.dtype}: {replicas} of {ranks or 'tp1'}"
