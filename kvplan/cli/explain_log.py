"""`kvplan explain-log`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.completion import complete_engine, complete_gpu, complete_model

app = new_app()

File = Annotated[str, typer.Argument(metavar="FILE", help="Start-up log; - reads standard input.", show_default=False)]
_FROM_LOG = "what the log says"
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME|PATH",
        help="Model, where the log names none that is bundled.",
        show_default=_FROM_LOG,
        autocompletion=complete_model,
        rich_help_panel=options.SCENARIO,
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        "-g",
        metavar="NAME|PATH",
        help="GPU, where the log names none.",
        show_default=_FROM_LOG,
        autocompletion=complete_gpu,
        rich_help_panel=options.SCENARIO,
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        "-e",
        metavar="NAME[@VERSION]",
        help="Engine profile.",
        show_default=_FROM_LOG,
        autocompletion=complete_engine,
        rich_help_panel=options.SCENARIO,
    ),
]


def _ranks(name: str, long: str, words: str) -> Any:
    return typer.Option(name, long, min=1, help=words, show_default=_FROM_LOG, rich_help_panel=options.LAYOUT)


Tp = Annotated[int | None, _ranks("--tp", "--tensor-parallel-size", "Tensor-parallel ranks [GPUs].")]
Pp = Annotated[int | None, _ranks("--pp", "--pipeline-parallel-size", "Pipeline stages [GPUs].")]
Dp = Annotated[int | None, _ranks("--dp", "--data-parallel-size", "Data-parallel ranks [GPUs].")]
Ep = Annotated[int | None, _ranks("--ep", "--expert-parallel-size", "Ranks that divide the routed experts.")]


@app.command("explain-log", cls=Command)
def explain_log(
    file: File,
    *,
    model: Model = None,
    gpu: Gpu = None,
    engine: Engine = None,
    dtype: options.Dtype = None,
    kv_dtype: options.KvDtype = None,
    tp: Tp = None,
    pp: Pp = None,
    dp: Dp = None,
    ep: Ep = None,
    context: options.Context = None,
    gpu_memory_utilization: options.GpuMemoryUtilization = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_num_batched_tokens: options.MaxNumBatchedTokens = None,
    enforce_eager: options.EnforceEager = False,
    gpu_memory_gib: options.GpuMemoryGib = None,
    json: options.Json = False,
    form: options.Format = None,
    output: options.Output = None,
) -> None:
    """Read the start-up log of an engine, predict each of its memory figures, and say why they differ.

    \b
    Examples:
      kvplan explain-log server.log
      kvplan explain-log server.log --model llama-3.1-8b --gpu h100-sxm
      docker logs vllm 2>&1 | kvplan explain-log - --gpu l40s --json

    Reads logs of vLLM (0.2 and later), SGLang, TensorRT-LLM and llama.cpp. Options win over the log.
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.report.log_report import LogReport

    target = destination(json=json, form=form, output=output)

    given = {
        "model": model,
        "gpu": gpu,
        "engine": engine,
        "dtype": dtype,
        "kv_dtype": kv_dtype,
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "ep": ep,
        "context": context,
        "gpu_memory_utilization": gpu_memory_utilization,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "enforce_eager": enforce_eager or None,
        "gpu_memory_gib": gpu_memory_gib,
    }
    found = api.explain_log(file, **given)
    target.emit(LogReport(explanation=found))
