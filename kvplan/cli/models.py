"""`kvplan models`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.completion import complete_model

app = new_app(help="Bundled models, and your own by path or repo id.", group=True)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME|PATH",
        help="Bundled name, config.json or its folder, a spec YAML, a GGUF file, or a Hugging Face repo id.",
        autocompletion=complete_model,
        show_default=False,
    ),
]


@app.command("list", cls=Command)
def list_models(
    *, text: options.Text = "", json: options.Json = False, form: options.Format = None, output: options.Output = None
) -> None:
    """List the bundled models, one line each.

    \b
    Examples:
      kvplan models list
      kvplan models list llama
      kvplan models list --format csv
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.report.specs import ModelListReport
    from kvplan.specs.registry import holding

    target = destination(json=json, form=form, output=output)
    names = holding("model", text)
    report = ModelListReport(models=tuple(api.load_model(name) for name in names))
    target.emit(report)


@app.command(cls=Command)
def show(
    *,
    name: Name,
    assume_plain: options.AssumePlain = False,
    json: options.Json = False,
    form: options.Format = None,
    output: options.Output = None,
) -> None:
    """Show one model in full.

    \b
    Examples:
      kvplan models show llama-3-8b
      kvplan models show llama-3-8b --json
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.cli.progress import working
    from kvplan.report.specs import ModelReport

    target = destination(json=json, form=form, output=output)
    with working("reading the model"):
        model = api.load_model(name, assume_plain=assume_plain)
    target.emit(ModelReport(model=model))


@app.command("import", cls=Command)
def import_(
    *,
    source: Annotated[
        str,
        typer.Argument(
            metavar="REPO|PATH", help="Hugging Face repo id, config.json or its folder.", show_default=False
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The spec YAML to write.", show_default=False)
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
    json: options.Json = False,
) -> None:
    """Write a model's config as a spec file to review, edit and keep; `--model FILE` then reads it.

    \b
    Examples:
      kvplan models import path/to/config.json -o my-model.yaml
      kvplan models import openai/gpt-oss-20b -o gpt-oss-20b.yaml     (needs the network)
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan.cli.output import destination
    from kvplan.cli.progress import working
    from kvplan.report.specs import ImportReport
    from kvplan.specs.importing import import_model

    target = destination(json=json, form=None, output=None)
    with working("reading the model"):
        found = import_model(source, output, overwrite=overwrite)
    report = ImportReport(
        path=str(found.path), model=found.model.id, parameters=found.parameters, warnings=found.warnings
    )
    target.emit(report)
