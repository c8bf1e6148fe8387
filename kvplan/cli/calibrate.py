"""`kvplan calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.fields import option

app = new_app()

File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="Measurements, as `kvplan validate` reads them.", show_default=False),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="PROFILE", help="Profile to write; nothing is written without it."),
]
Engine = Annotated[
    str | None,
    option("engine", metavar="NAME|PATH", help="Profile to start from.", rich_help_panel=None),
]


@app.command(cls=Command)
def calibrate(
    file: File,
    *,
    profile: Output = None,
    engine: Engine = None,
    model: options.RowModel = None,
    gpu: options.RowGpu = None,
    json: options.Json = False,
    form: options.Format = None,
) -> None:
    """Fit an engine's efficiencies to measured TTFT and TPOT; errors are told in sample and on held-out configurations.

    \b
    Examples:
      kvplan calibrate measurements.csv -o my-vllm.yaml
      kvplan estimate --model llama-3.1-8b --gpu h100-sxm --engine my-vllm.yaml

    Needs NumPy and SciPy: pip install 'kvplan[calibrate]'.
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.cli.progress import working
    from kvplan.report.calibration import CalibrationReport
    from kvplan.report.text import neutral
    from kvplan.writing import write_file

    target = destination(json=json, form=form, output=None)
    defaults = {"model": model, "gpu": gpu, "engine": engine}
    with working("fitting"):
        found = api.calibrate(file, engine=engine, defaults={k: v for k, v in defaults.items() if v is not None})
    if profile is not None:
        rows = sum(fit.rows for fit in found.families)
        text = api.profile_text(
            found.engine, comment=f"Calibrated by `kvplan calibrate {neutral(file)}` on {rows} rows."
        )
        write_file(profile, text)
    target.emit(CalibrationReport(calibration=found, profile=None if profile is None else str(profile)))
