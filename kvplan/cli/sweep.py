"""`kvplan sweep`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.boundary import EXIT_INFEASIBLE
from kvplan.cli.fields import OUTPUT, finite, picture
from kvplan.cli.scenario import with_scenario

app = new_app()

_SWEPT = "What is swept"
Axes = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="KEY=VALUES",
        help="A list a,b,c or a range low:high:STEP, :log2, :log10, :linN, :geoN; several are crossed.",
        rich_help_panel=_SWEPT,
    ),
]
Ranges = Annotated[
    bool, typer.Option("--ranges", help="Add the 90 % band and the floor to CSV and JSON.", rich_help_panel=_SWEPT)
]


def _target(name: str) -> Any:
    return typer.Option(
        name,
        metavar="X",
        min=0.0,
        callback=finite,
        help="Target: rows that miss it are marked, a line in the picture [ms].",
        rich_help_panel=OUTPUT,
    )


Ttft = Annotated[float | None, _target("--slo-ttft-ms")]
Tpot = Annotated[float | None, _target("--slo-tpot-ms")]
Plot = Annotated[Path | None, picture("Curves as a picture (.png, .svg).")]


@app.command(cls=Command)
@with_scenario
def sweep(
    *,
    base: Mapping[str, Any],
    sections: Mapping[str, Any],
    axes: Axes = None,
    ranges: Ranges = False,
    slo_ttft_ms: Ttft = None,
    slo_tpot_ms: Tpot = None,
    plot: Plot = None,
    json: options.Json = False,
    form: options.Format = None,
    output: options.Output = None,
) -> None:
    """How capacity, latency and throughput bend as any fields change: the full grid of their values.

    \b
    Examples:
      kvplan sweep -m llama-3-8b -g a100-80g --sweep concurrency=1:512:log2 --slo-tpot-ms 30
      kvplan sweep -m llama-3.1-70b -g h100-sxm --sweep tp=2,4,8 --sweep context=8192,32768,131072
      kvplan sweep --sweep model=llama-3-8b,qwen3-8b --sweep gpu=l4,l40s,a100-80g --format csv -o grid.csv

    Exit code 3 says that no scenario fits.
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.cli.progress import working
    from kvplan.errors import UsageError
    from kvplan.report.render import Form
    from kvplan.report.sweep import SweepReport

    target = destination(json=json, form=form, output=output)
    if ranges and plot is None and target.form in {Form.TABLE, Form.MARKDOWN}:
        message = f"--ranges: a {target.form} has no room for bands"
        raise UsageError(message, hint="--format csv or --json has them, and --plot draws them")
    limits = {"ttft_ms": slo_ttft_ms, "tpot_ms": slo_tpot_ms}
    targets = {name: limit for name, limit in limits.items() if limit is not None}
    swept = [sections.get("sweep", {}), *(axes or ())]
    with working("answering the grid"):
        found = api.sweep(axes=swept, ranges=ranges or plot is not None, **base)
    if plot is not None:
        from kvplan.report.plots import plot_sweep

        plot_sweep(found, plot, limits=targets)
    target.emit(SweepReport(sweep=found, targets=targets))
    if not found.answered:
        raise typer.Exit(EXIT_INFEASIBLE)
