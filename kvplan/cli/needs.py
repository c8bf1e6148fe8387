"""`kvplan needs`."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.boundary import EXIT_INFEASIBLE
from kvplan.cli.fields import option

app = new_app()

Context = Annotated[
    int,
    option(
        "context",
        help="Length of each sequence, input + output [tokens]; 32K is 32,768, 32k is 32,000.",
        show_default=True,
    ),
]


@app.command(cls=Command)
def needs(
    *,
    model: options.Model,
    gpu: options.Gpu,
    engine: options.Engine = "vllm",
    dtype: options.Dtype = None,
    kv_dtype: options.KvDtype = None,
    assume_plain: options.AssumePlain = False,
    tp: options.Tp = 1,
    pp: options.Pp = 1,
    dp: options.Dp = 1,
    ep: options.Ep = None,
    concurrency: options.Concurrency = 1,
    context: Context = 4096,
    gpu_memory_utilization: options.GpuMemoryUtilization = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_num_batched_tokens: options.MaxNumBatchedTokens = None,
    enforce_eager: options.EnforceEager = False,
    gpu_memory_gib: options.GpuMemoryGib = None,
    json: options.Json = False,
    form: options.Format = None,
    output: options.Output = None,
) -> None:
    """What N sequences of L tokens need: which memory fraction, how many GPUs, which longest context.

    \b
    Examples:
      kvplan needs --model llama-3.1-8b --gpu l40s --concurrency 32 --context 8192
      kvplan needs -m qwen3-32b -g l40s --concurrency 4 --context 32K --dtype fp8
      kvplan needs -m llama-3.1-70b -g h100 --tp 4 --concurrency 64 --context 16K --json

    Exit code 3 says that they do not fit as the deployment stands; the answers then say what would hold them.
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.report.needs import NeedsReport

    target = destination(json=json, form=form, output=output)
    answer = api.needs(
        model,
        gpu,
        engine=engine,
        dtype=dtype,
        kv_dtype=kv_dtype,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        concurrency=concurrency,
        context=context,
        gpu_memory_utilization=gpu_memory_utilization,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        enforce_eager=enforce_eager,
        gpu_memory_gib=gpu_memory_gib,
        assume_plain=assume_plain,
    )
    target.emit(NeedsReport(needs=answer))
    if not answer.fits:
        raise typer.Exit(EXIT_INFEASIBLE)
