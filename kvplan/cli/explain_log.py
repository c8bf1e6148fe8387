"""`kvplan explain-log`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.completion import complete_engine, complete_gpu, complete_model

app = new_app()

File = Annotated[str, typer.Argument(metavar="FILE", help="Start-up log; - reads standard input.", show_default=False)]


def _as_logged(name: str, *others: str, metavar: str, words: str, panel: str, **more: Any) -> Any:
    return typer.Option(
        name, *others, metavar=metavar, help=words, show_default="what the log says", rich_help_panel=panel, **more
    )


def _deployed(name: str, short: str, words: str, complete: Callable[[str], list[str]], metavar: str) -> Any:
    return _as_logged(name, short, metavar=metavar, words=words, panel=options.SCENARIO, autocompletion=complete)


def _format(name: str, *others: str, words: str) -> Any:
    return _as_logged(name, *others, metavar="FORMAT", words=words, panel=options.SCENARIO)


def _ranks(name: str, long: str, words: str) -> Any:
    return _as_logged(name, long, metavar="N", words=words, panel=options.LAYOUT, min=1)


def _setting(name: str, other: str, metavar: str, words: str, **more: Any) -> Any:
    return _as_logged(name, other, metavar=metavar, words=words, panel=options.ENGINE, **more)


_MODEL = "Model, where the log names none that is bundled."
Model = Annotated[str | None, _deployed("--model", "-m", _MODEL, complete_model, "NAME|PATH")]
Gpu = Annotated[str | None, _deployed("--gpu", "-g", "GPU, where the log names none.", complete_gpu, "NAME|PATH")]
Engine = Annotated[str | None, _deployed("--engine", "-e", "Engine profile.", complete_engine, "NAME[@VERSION]")]
Dtype = Annotated[str | None, _format("--dtype", words="Weight format.")]
KvDtype = Annotated[str | None, _format("--kv-dtype", "--kv-cache-dtype", words="KV cache format.")]
Tp = Annotated[int | None, _ranks("--tp", "--tensor-parallel-size", "Tensor-parallel ranks [GPUs].")]
Pp = Annotated[int | None, _ranks("--pp", "--pipeline-parallel-size", "Pipeline stages [GPUs].")]
Dp = Annotated[int | None, _ranks("--dp", "--data-parallel-size", "Data-parallel ranks [GPUs].")]
Ep = Annotated[int | None, _ranks("--ep", "--expert-parallel-size", "Ranks that divide the routed experts.")]
Context = Annotated[
    int | None,
    _as_logged(
        "--context",
        "--max-model-len",
        metavar="N",
        words="Longest sequence [tokens].",
        panel=options.WORKLOAD,
        parser=options.tokens,
    ),
]
Utilization = Annotated[
    float | None,
    _setting(
        "--gpu-memory-utilization",
        "--mem-fraction-static",
        "X",
        "The engine's own memory fraction [0 to 1].",
        callback=options.finite,
    ),
]
MaxNumSeqs = Annotated[
    int | None,
    _setting("--max-num-seqs", "--max-running-requests", "N", "Sequences that the scheduler runs at most.", min=1),
]
MaxNumBatchedTokens = Annotated[
    int | None,
    _setting(
        "--max-num-batched-tokens",
        "--chunked-prefill-size",
        "N",
        "Tokens of one iteration at most [tokens].",
        parser=options.tokens,
    ),
]


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
