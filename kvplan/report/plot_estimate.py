"""One estimate as a picture: memory as users come, latency with its band, the trade against throughput, the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvplan.core.results import Estimate, OpTime
from kvplan.core.units import GIB, MS_PER_S
from kvplan.errors import UsageError
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

if TYPE_CHECKING:
    from kvplan.planning.sweep_result import Sweep

_PARTS: Final = (
    ("weights", "weights_bytes"),
    ("activations", "activation_bytes"),
    ("runtime", "runtime_bytes"),
    ("graphs", "graph_bytes"),
)
_MESSAGES: Final = frozenset({"allreduce", "alltoall", "pipeline"})
_STEPS: Final = 200
_TERA: Final = 1e12
_LOW, _HIGH = 0.1, 1e5


def plot_estimate(
    estimate: Estimate, sweep: Sweep, path: Path, *, peaks: Mapping[str, float], bandwidth_bytes_per_s: float
) -> None:
    """Four panels about one deployment.

    Args:
        estimate: The answer.
        sweep: The same scenario along concurrency, with ranges.
        path: Where to.
        peaks: Compute format → dense peak of the GPU [FLOP/s].
        bandwidth_bytes_per_s: Its memory bandwidth.

    Raises:
        UsageError: The file can't be drawn.
    """
    drawn = figure(width=11.0, height=8.0, path=path)
    panels = drawn.subplots(2, 2)
    rows = [row for row in sweep.rows() if row["status"] in {"ok", "requests queue"}]
    if not rows or estimate.latency is None:
        message = "--plot: it does not fit, so that there is nothing to draw"
        raise UsageError(message)
    _ledger(panels[0][0], estimate, rows)
    _latency(panels[0][1], rows)
    _trade(panels[1][0], estimate, rows)
    _roofline(panels[1][1], estimate, peaks=peaks, bandwidth=bandwidth_bytes_per_s)
    asked = estimate.scenario
    title = (
        f"{asked.model} on {asked.gpu_count} × {asked.gpu}, {asked.engine}, weights {asked.dtype}, KV {asked.kv_dtype}"
    )
    title += f", {asked.input_tokens:,} tokens in + {asked.output_tokens:,} out"
    drawn.suptitle(lettered(title), fontsize=10, x=0.01, ha="left")
    save(drawn, path)


def _ledger(axes: Any, estimate: Estimate, rows: Sequence[Mapping[str, Any]]) -> None:  # noqa: ANN401 - matplotlib is untyped
    """Memory of one GPU, stacked, as sequences come; the cache of all of them against the budget."""
    memory, ranks = estimate.memory, estimate.scenario.dp
    low, high = rows[0]["concurrency"], rows[-1]["concurrency"]
    x = [low * (high / low) ** (step / _STEPS) for step in range(_STEPS + 1)]
    one = rows[0]["sequence_bytes"]
    layers = [(name, [getattr(memory, field) / GIB] * len(x)) for name, field in _PARTS if getattr(memory, field)]
    layers.append(("KV cache in use", [one * max(users / ranks, 1.0) / GIB for users in x]))
    shown = axes.stackplot(x, *(values for _, values in layers), labels=[name for name, _ in layers])
    for index, area in enumerate(shown):
        area.set_facecolor(COLOURS[index % 6])
        area.set_edgecolor("white")
        area.set_hatch(HATCHES[index % len(HATCHES)])
    budget = memory.usable_bytes / GIB
    axes.axhline(budget, color="black", linewidth=1.4, linestyle="--", label=f"budget {budget:.1f} GiB")
    powers(axes, [row["concurrency"] for row in rows])
    axes.set_xlim(low, high)
    axes.set_ylim(0, budget * 1.3)
    tidy(axes, title="Memory of one GPU", x="sequences in flight", y="GiB")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", fontsize=7, framealpha=0.9, ncols=2)


def _latency(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:  # noqa: ANN401 - matplotlib is untyped
    x = [row["concurrency"] for row in rows]
    every: list[float] = []
    for index, (name, label) in enumerate((("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"))):
        colour = COLOURS[index]
        axes.plot(
            x,
            [row[name] for row in rows],
            color=colour,
            marker=MARKERS[index],
            markersize=4,
            linestyle=DASHES[index],
            label=label,
        )
        low, high = [row[f"{name}_low"] for row in rows], [row[f"{name}_high"] for row in rows]
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0, label=f"{label}, 90 % within")
        every.extend([*low, *high])
    powers(axes, x)
    decades(axes, every)
    tidy(axes, title="Latency", x="sequences in flight", y="ms")
    axes.legend(loc="upper left", fontsize=7, framealpha=0.9)


def _trade(axes: Any, estimate: Estimate, rows: Sequence[Mapping[str, Any]]) -> None:  # noqa: ANN401 - matplotlib is untyped
    """Throughput of a GPU against the speed that one user sees."""
    running = [row for row in rows if row["status"] == "ok"] or list(rows)
    x = [MS_PER_S / row["tpot_ms"] for row in running]
    y = [row["per_gpu_output_tokens_per_second"] for row in running]
    axes.plot(x, y, color=COLOURS[0], marker="o", markersize=4, linewidth=1.4)
    step = max(1, -(-len(running) // 6))
    chosen = sorted({*range(0, len(running), step), len(running) - 1})
    for index in chosen:
        axes.annotate(
            short(running[index]["concurrency"]),
            (x[index], y[index]),
            textcoords="offset points",
            xytext=(6, 4),
            fontsize=8,
        )
    tidy(
        axes,
        title="Throughput against speed (numbers: sequences in flight)",
        x="tokens/s that one user sees",
        y="output tokens/s of one GPU",
    )
    axes.set_ylim(0, max(y) * 1.15)
    axes.set_xlim(0, max(x) * 1.12)
    asked = estimate.scenario.concurrency
    here = next((index for index, row in enumerate(running) if row["concurrency"] == asked), None)
    if here is not None:
        axes.scatter(
            [x[here]], [y[here]], s=110, facecolors="none", edgecolors=COLOURS[1], linewidths=1.6, label="asked"
        )
        axes.legend(loc="upper right", fontsize=7)


def _roofline(axes: Any, estimate: Estimate, *, peaks: Mapping[str, float], bandwidth: float) -> None:  # noqa: ANN401 - matplotlib is untyped
    intensities = [_LOW * (_HIGH / _LOW) ** (step / 200) for step in range(201)]
    units = {
        name: peak for name, peak in sorted(peaks.items(), key=lambda item: item[1]) if name in {"bf16", "fp8", "fp4"}
    }
    units = units or dict(list(peaks.items())[:1])
    for index, (name, peak) in enumerate(units.items()):
        roof = [min(bandwidth * one, peak) / _TERA for one in intensities]
        axes.plot(intensities, roof, color="black", linewidth=1.0, linestyle=DASHES[index], label=f"{name} peak")
    for index, phase in enumerate(("prefill", "decode")):
        point = _point([row for row in estimate.breakdown if row.phase == phase and row.op not in _MESSAGES])
        if point is not None:
            axes.scatter(*point, s=70, color=COLOURS[index], marker=MARKERS[index], zorder=3, label=phase)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(_LOW, _HIGH)
    tidy(axes, title="Roofline of one GPU", x="FLOP per byte of memory traffic", y="TFLOP/s")
    axes.legend(loc="lower right", fontsize=7)


def _point(rows: Sequence[OpTime]) -> tuple[float, float] | None:
    flops, moved, ms = (sum(getattr(row, name) for row in rows) for name in ("flops", "bytes", "ms"))
    if not flops or not moved or not ms:
        return None
    return flops / moved, flops / (ms / MS_PER_S) / _TERA
