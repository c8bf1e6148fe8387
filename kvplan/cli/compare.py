"""`kvplan compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.boundary import EXIT_INFEASIBLE
from kvplan.cli.fields import picture
from kvplan.cli.scenario import with_scenario

app = new_app()

_COMPARED = "What is compared"
Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="KEY=A,B",
        help="Values of a field; several --vary are crossed. Also kv-heads, layers, head-dim, heads, config.KEY.",
        rich_help_panel=_COMPARED,
    ),
]
Scenarios = Annotated[
    list[str] | None,
    typer.Option(
        "--scenario",
        metavar="NAME:KEY=VALUE,…",
        help="A named scenario by its changes; one alone is compared with the base.",
        rich_help_panel=_COMPARED,
    ),
]
Plot = Annotated[Path | None, picture("Bars as a picture (.png, .svg).")]


@app.command(cls=Command)
@with_scenario
def compare(
    *,
    base: Mapping[str, Any],
    sections: Mapping[str, Any],
    vary: Vary = None,
    scenario: Scenarios = None,
    plot: Plot = None,
    json: options.Json = False,
    form: options.Format = None,
    output: options.Output = None,
) -> None:
    """Scenarios side by side: what changes against the first, and which term of the ledger or the step moved it.

    \b
    Examples:
      kvplan compare -m llama-3-8b -g a100-80g --vary kv-dtype=bf16,fp8 --vary dtype=bf16,fp8
      kvplan compare -m llama-3-8b -g a100-80g -c 64 --vary kv-heads=32,8
      kvplan compare -m llama-3.1-70b --scenario h100:gpu=h100-sxm,tp=4 --scenario l40s:gpu=l40s,tp=8
      kvplan compare -m llama-3.1-70b -g h100-sxm --vary tp=2,4,8 --format markdown

    Exit code 3 says that none of them fits.
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.cli.progress import working
    from kvplan.report.comparison import ComparisonReport

    target = destination(json=json, form=form, output=output)
    named, varied = [*sections.get("scenarios", ()), *(scenario or ())], [sections.get("vary", {}), *(vary or ())]
    with working("answering the scenarios"):
        found = api.compare(named, vary=varied, **base)
    if plot is not None:
        from kvplan.report.plots import plot_comparison

        plot_comparison(found, plot)
    target.emit(ComparisonReport(comparison=found))
    if not found.answered:
        raise typer.Exit(EXIT_INFEASIBLE)
