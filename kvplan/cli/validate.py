"""`kvplan validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.boundary import EXIT_INFEASIBLE
from kvplan.cli.fields import ROWS, picture, row_option

app = new_app()

_SHOWN = "What is shown"

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Measurements: CSV or JSONL, single requests, or a result of vllm bench, sglang or genai-perf; - is stdin.",
        show_default=False,
    ),
]
GroupBy = Annotated[
    str,
    typer.Option("--group-by", metavar="NAMES", help="Any of model,gpu,engine,engine_version.", rich_help_panel=_SHOWN),
]
Worst = Annotated[
    int,
    typer.Option(
        "--worst", min=0, metavar="N", help="Groups and rows shown, worst first; 0 is all.", rich_help_panel=_SHOWN
    ),
]
Plot = Annotated[Path | None, picture("Scatter plot of predicted against measured (.png, .svg, .pdf).", panel=_SHOWN)]
EngineVersion = Annotated[
    str | None, typer.Option("--engine-version", metavar="TEXT", help="Engine version.", rich_help_panel=ROWS)
]
Tp = Annotated[int | None, row_option("tp", "Tensor-parallel ranks [GPUs].")]
Pp = Annotated[int | None, row_option("pp", "Pipeline stages [GPUs].")]
Dp = Annotated[int | None, row_option("dp", "Data-parallel ranks [GPUs].")]
Ep = Annotated[int | None, row_option("ep", "Expert-parallel ranks.")]
Dtype = Annotated[str | None, row_option("dtype", "Weights.")]
KvDtype = Annotated[str | None, row_option("kv_dtype", "KV cache.")]
Concurrency = Annotated[int | None, row_option("concurrency", "Sequences in flight.")]


@app.command(cls=Command)
def validate(
    file: File,
    *,
    group_by: GroupBy = "model,gpu,engine",
    worst: Worst = 10,
    plot: Plot = None,
    model: options.RowModel = None,
    gpu: options.RowGpu = None,
    engine: options.RowEngine = None,
    engine_version: EngineVersion = None,
    dtype: Dtype = None,
    kv_dtype: KvDtype = None,
    tp: Tp = None,
    pp: Pp = None,
    dp: Dp = None,
    ep: Ep = None,
    concurrency: Concurrency = None,
    json: options.Json = False,
    form: options.Format = None,
    output: options.Output = None,
) -> None:
    """Predict what was measured and say how far off kvplan is, worst first.

    \b
    Examples:
      kvplan validate measurements.csv
      kvplan validate measurements.csv --group-by gpu --worst 20
      kvplan validate bench.json --gpu h100-sxm --model llama-3.1-8b --json

    Exit code 3 says that no row could be predicted.
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.cli.progress import working
    from kvplan.report.validation import ValidationReport

    target = destination(json=json, form=form, output=output)
    defaults = {
        "model": model,
        "gpu": gpu,
        "engine": engine,
        "engine_version": engine_version,
        "dtype": dtype,
        "kv_dtype": kv_dtype,
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "ep": ep,
        "concurrency": concurrency,
    }
    fields = [name.strip() for name in group_by.split(",") if name.strip()]
    with working("predicting what was measured"):
        found = api.validate(file, group_by=fields, defaults=defaults)
    if plot is not None:
        from kvplan.report.validation_plot import plot_validation

        plot_validation(found, plot)
    target.emit(ValidationReport(validation=found, worst=worst))
    if not found.answered:
        raise typer.Exit(EXIT_INFEASIBLE)
