"""`kvplan engines`."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.completion import complete_engine
from kvplan.writing import write_file

_SPEC_SUFFIXES = {".yaml", ".yml"}

app = new_app(help="Engine profiles: memory rules, scheduling and measured efficiencies.", group=True)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME|PATH",
        help="Engine, with @version where rules differ (`kvplan engines list`).",
        autocompletion=complete_engine,
        show_default=False,
    ),
]


@app.command("list", cls=Command)
def list_engines(
    *, text: options.Text = "", json: options.Json = False, form: options.Format = None, output: options.Output = None
) -> None:
    """List the bundled engine profiles, one line each.

    \b
    Examples:
      kvplan engines list
      kvplan engines list vllm
      kvplan engines list --format csv
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.report.engines import EngineListReport
    from kvplan.specs.registry import holding

    target = destination(json=json, form=form, output=output)
    names = holding("engine", text)
    report = EngineListReport(
        engines=tuple(api.load_engine(name) for name in names),
        versions={name: api.engine_versions(name) for name in names},
    )
    target.emit(report)


@app.command(cls=Command)
def show(name: Name, json: options.Json = False, form: options.Format = None, output: options.Output = None) -> None:
    """Show one engine profile in full; with -o FILE.yaml write it as a profile to edit, which `--engine FILE` reads.

    \b
    Examples:
      kvplan engines show vllm
      kvplan engines show vllm --json
      kvplan engines show vllm@0.29 -o my-engine.yaml
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.report.engines import EngineReport

    if output is not None and output.suffix.lower() in _SPEC_SUFFIXES and form is None and not json:
        engine = api.load_engine(name)
        write_file(output, api.profile_text(engine, comment=f"As `kvplan engines show {engine.name}` wrote it."))
        return
    target = destination(json=json, form=form, output=output)
    target.emit(EngineReport(engine=api.load_engine(name)))
