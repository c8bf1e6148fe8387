"""`kvplan explain-log`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.fields import option

app = new_app()

File = Annotated[str, typer.Argument(metavar="FILE", help="Start-up log; - reads standard input.", show_default=False)]


def _as_logged(field: str, words: str | None = None) -> Any:
    return option(field, **({"help": words} if words else {}), show_default="what the log says")


Model = Annotated[str | None, _as_logged("model", "Model, where the log names none that is bundled.")]
Gpu = Annotated[str | None, _as_logged("gpu", "GPU, where the log names none.")]
Engine = Annotated[str | None, _as_logged("engine", "Engine profile.")]
Dtype = Annotated[str | None, _as_logged("dtype", "Weight format.")]
KvDtype = Annotated[str | None, _as_logged("kv_dtype", "KV cache format.")]
Tp = Annotated[int | None, _as_logged("tp")]
Pp = Annotated[int | None, _as_logged("pp")]
Dp = Annotated[int | None, _as_logged("dp", "Data-parallel ranks [GPUs].")]
Ep = Annotated[int | None, _as_logged("ep", "Ranks that divide the routed experts.")]
Context = Annotated[int | None, _as_logged("context", "Longest sequence [tokens].")]
Utilization = Annotated[float | None, _as_logged("gpu_memory_utilization")]
MaxNumSeqs = Annotated[int | None, _as_logged("max_num_seqs")]
MaxNumBatchedTokens = Annotated[int | None, _as_logged("max_num_batched_tokens")]


@app.command("explain-log", cls=Command)
def explain_log(
    file: File,
    *,
    model: Model = None,
    gpu: Gpu = None,
    engine: Engine = None,
    dtype: Dtype = None,
    kv_dtype: KvDtype = None,
    tp: Tp = None,
    pp: Pp = None,
    dp: Dp = None,
    ep: Ep = None,
    context: Context = None,
    gpu_memory_utilization: Utilization = None,
    max_num_seqs: MaxNumSeqs = None,
    max_num_batched_tokens: MaxNumBatchedTokens = None,
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

    Reads logs of vLLM (0.2 and later), SGLang, TensorRT-LLM and llama.cpp. Options win over the log; what neither
    says is the engine's default.
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.report.log_report import LogReport

    target = destination(json=json, form=form, output=output)

    given: dict[str, Any] = {
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
