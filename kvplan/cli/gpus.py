"""`kvplan gpus`."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.completion import complete_gpu

app = new_app(help="Bundled accelerators, and your own by path.", group=True)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME|PATH",
        help="Bundled name, or a spec YAML of your own card.",
        autocompletion=complete_gpu,
        show_default=False,
    ),
]


@app.command("list", cls=Command)
def list_gpus(
    *, text: options.Text = "", json: options.Json = False, form: options.Format = None, output: options.Output = None
) -> None:
    """List the bundled accelerators, one line each.

    \b
    Examples:
      kvplan gpus list
      kvplan gpus list h100
      kvplan gpus list 48gb
      kvplan gpus list --format csv
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.report.specs import GpuListReport
    from kvplan.specs.registry import holding

    target = destination(json=json, form=form, output=output)
    names = holding("gpu", text)
    report = GpuListReport(gpus=tuple(api.load_gpu(name) for name in names))
    target.emit(report)


@app.command(cls=Command)
def show(name: Name, json: options.Json = False, form: options.Format = None, output: options.Output = None) -> None:
    """Show one accelerator in full.

    \b
    Examples:
      kvplan gpus show a100-80g
      kvplan gpus show a100-80g --json
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.report.specs import GpuReport

    target = destination(json=json, form=form, output=output)
    target.emit(GpuReport(gpu=api.load_gpu(name)))
