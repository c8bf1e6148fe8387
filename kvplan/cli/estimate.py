"""`kvplan estimate`."""

from __future__ import annotations

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.boundary import EXIT_INFEASIBLE

app = new_app()


@app.command(cls=Command)
def estimate(
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
    gpu_count: options.GpuCount = None,
    input_tokens: options.InputTokens = 1024,
    output_tokens: options.OutputTokens = 256,
    concurrency: options.Concurrency = 1,
    context: options.Context = None,
    shared_prefix_tokens: options.SharedPrefixTokens = 0,
    prefix_hit_rate: options.PrefixHitRate = 1.0,
    source_tokens: options.SourceTokens = None,
    network_ms: options.NetworkMs = 0.0,
    benchmark_requests: options.BenchmarkRequests = None,
    gpu_memory_utilization: options.GpuMemoryUtilization = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_num_batched_tokens: options.MaxNumBatchedTokens = None,
    enforce_eager: options.EnforceEager = False,
    gpu_memory_gib: options.GpuMemoryGib = None,
    n_gpu_layers: options.NGpuLayers = None,
    allow_context_overflow: options.AllowContextOverflow = False,
    explain: options.Explain = False,
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

    Exit code 3 says that it does not fit; the answer then names the smallest change that does.
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.report.estimate import EstimateReport

    target = destination(json=json, form=form, output=output)
    answer = api.estimate(
        model,
        gpu,
        engine=engine,
        dtype=dtype,
        kv_dtype=kv_dtype,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        gpu_count=gpu_count,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        context=context,
        gpu_memory_utilization=gpu_memory_utilization,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        enforce_eager=enforce_eager,
        gpu_memory_gib=gpu_memory_gib,
        shared_prefix_tokens=shared_prefix_tokens,
        prefix_hit_rate=prefix_hit_rate,
        source_tokens=source_tokens,
        network_ms=network_ms,
        benchmark_requests=benchmark_requests,
        n_gpu_layers=n_gpu_layers,
        allow_context_overflow=allow_context_overflow,
        assume_plain=assume_plain,
    )
    shown = api.load_model(model, assume_plain=assume_plain) if explain else None
    report = EstimateReport(estimate=answer, explain=explain, model=shown, dtype=dtype)
    target.emit(report)
    if not answer.capacity.fits:
        raise typer.Exit(EXIT_INFEASIBLE)
