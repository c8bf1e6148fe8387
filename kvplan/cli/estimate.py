"""`kvplan estimate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.boundary import EXIT_INFEASIBLE
from kvplan.cli.fields import OUTPUT, picture
from kvplan.cli.scenario import DeployTo, with_scenario

app = new_app()

Plot = Annotated[Path | None, picture("Memory, latency, throughput and roofline as a picture (.png, .svg).")]
ServeCommand = Annotated[
    bool,
    typer.Option("--serve-command", help="Print only the command that serves this.", rich_help_panel=OUTPUT),
]


@app.command(cls=Command)
@with_scenario
def estimate(
    *,
    base: Mapping[str, Any],
    explain: options.Explain = False,
    serve_command: ServeCommand = False,
    deploy: DeployTo = None,
    plot: Plot = None,
    json: options.Json = False,
    form: options.Format = None,
    output: options.Output = None,
) -> None:
    """Where the memory goes, how much fits, how fast it runs, and what binds it.

    \b
    Examples:
      kvplan estimate --model llama-3-8b --gpu a100-80g
      kvplan estimate -m llama-3.1-70b -g h100-sxm --tp 4 --concurrency 64
      kvplan estimate -m llama-3-8b -g l4 --dtype fp8 --context 8192 --explain
      kvplan estimate -m llama-3-8b -g a100-80g --json -o answer.json
      kvplan estimate -m llama-3-8b -g l4 --dtype fp8 --serve-command

    Exit code 3 says that it does not fit; the answer then names the smallest change that does.
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.cli.progress import working
    from kvplan.report.estimate import EstimateReport

    target = destination(json=json, form=form, output=output)
    with working("reading and estimating"):
        answer = api.estimate_of(base)
    if answer.capacity.fits:
        _beside(base, answer, serve_command=serve_command, deploy=deploy, plot=plot)
    if not (serve_command and answer.capacity.fits):
        deployed = api.deployment_of(base) if explain else None
        model, settings = (deployed.model, deployed.settings) if deployed is not None else (None, None)
        target.emit(EstimateReport(estimate=answer, explain=explain, model=model, settings=settings))
    if not answer.capacity.fits:
        raise typer.Exit(EXIT_INFEASIBLE)


def _beside(
    base: Mapping[str, Any], answer: Any, *, serve_command: bool, deploy: Path | None, plot: Path | None
) -> None:
    """The picture, the serve command and the files of a deployment, where they are asked for."""
    from kvplan import api

    if plot is not None:
        from kvplan.report.plot_estimate import plot_estimate

        gpu = api.load_gpu(base["gpu"])
        plot_estimate(
            answer,
            api.users_sweep(base, answer),
            plot,
            peaks=gpu.peak_flops_per_s,
            bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s,
        )
    if serve_command or deploy is not None:
        from kvplan.cli.scenario import write_deployment
        from kvplan.report.serve_command import serve_lines
        from kvplan.report.service import Service

        service = Service(**api.service_of(answer, base))
        if deploy is not None:
            write_deployment(deploy, service)
        if serve_command:
            typer.echo("\n".join(serve_lines(service)))
