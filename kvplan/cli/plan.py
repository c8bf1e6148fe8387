"""`kvplan plan`."""

# ruff: noqa: ARG001 - options are read from the context, which tells those that were given from defaults

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.boundary import EXIT_INFEASIBLE
from kvplan.cli.completion import complete_engine, complete_gpu, complete_model
from kvplan.cli.scenario import DeployTo, ScenarioFile, save, was_given, write_deployment
from kvplan.errors import UsageError

app = new_app()

_LOAD = "Load"
_TARGETS = "Targets (none is set by default)"
_SPACE = "Where to look"
_COST = "Cost"

Rate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="X",
        callback=options.finite,
        help="Requests per second.",
        show_default="the most that can be carried",
        rich_help_panel=_LOAD,
    ),
]
Users = Annotated[
    float | None,
    typer.Option(
        "--users",
        metavar="N",
        callback=options.finite,
        help="Users who wait for the answer, think, and ask again.",
        rich_help_panel=_LOAD,
    ),
]
Think = Annotated[
    float,
    typer.Option(
        "--think-s", metavar="X", min=0.0, callback=options.finite, help="Their pause [s].", rich_help_panel=_LOAD
    ),
]
Input = Annotated[
    str | None,
    typer.Option(
        "--input-tokens",
        "--input-len",
        metavar="LENGTHS",
        help="Prompts [tokens]: 1024, 4k, uniform:100:2000, lognormal:MEDIAN:SIGMA, p50=500,p95=4000,p99=8000.",
        show_default="of the trace",
        rich_help_panel=_LOAD,
    ),
]
OutputTokens = Annotated[
    str | None,
    typer.Option(
        "--output-tokens",
        "--output-len",
        metavar="LENGTHS",
        help="Answers [tokens], in the same forms.",
        show_default="of the trace",
        rich_help_panel=_LOAD,
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Request times and lengths: Azure or BurstGPT CSV, Mooncake JSONL.",
        rich_help_panel=_LOAD,
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        "--max-model-len",
        parser=options.tokens,
        metavar="N",
        help="Longest sequence to plan for [tokens].",
        show_default="longest prompt + answer, within the model's limit",
        rich_help_panel=_LOAD,
    ),
]
Ttft = Annotated[
    str | None,
    typer.Option("--slo-ttft-ms", metavar="X[@STAT]", help="Time to the first token [ms].", rich_help_panel=_TARGETS),
]
Tpot = Annotated[
    str | None, typer.Option("--slo-tpot-ms", metavar="X[@STAT]", help="Time per token [ms].", rich_help_panel=_TARGETS)
]
EndToEnd = Annotated[
    str | None,
    typer.Option("--slo-e2e-ms", metavar="X[@STAT]", help="Time of the whole answer [ms].", rich_help_panel=_TARGETS),
]
At = Annotated[
    str,
    typer.Option(
        "--slo-at", metavar="STAT", help="Where targets name none: mean, p50, p90, p95, p99.", rich_help_panel=_TARGETS
    ),
]
Gpus = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu",
        "-g",
        metavar="NAME,…",
        help="Accelerators to look at.",
        show_default="those with a price, or all bundled that can be had",
        autocompletion=complete_gpu,
        rich_help_panel=_SPACE,
    ),
]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        "-e",
        metavar="NAME,…",
        help="Engines to look at.",
        show_default="vllm",
        autocompletion=complete_engine,
        rich_help_panel=_SPACE,
    ),
]
Dtypes = Annotated[
    list[str] | None,
    typer.Option(
        "--dtype",
        metavar="FORMAT,…",
        help="Weight formats to look at; default is the checkpoint's own.",
        show_default="default",
        rich_help_panel=_SPACE,
    ),
]
KvDtypes = Annotated[
    list[str] | None,
    typer.Option(
        "--kv-dtype",
        "--kv-cache-dtype",
        metavar="FORMAT,…",
        help="Cache formats to look at; default is the engine's rule.",
        show_default="default",
        rich_help_panel=_SPACE,
    ),
]
Tp = Annotated[
    str | None,
    typer.Option("--tp", metavar="N,…", help="Tensor-parallel ranks.", show_default="1,2,4,8", rich_help_panel=_SPACE),
]
Pp = Annotated[
    str | None,
    typer.Option(
        "--pp",
        metavar="N,…",
        help="Pipeline stages.",
        show_default="across nodes, or across cards on PCIe",
        rich_help_panel=_SPACE,
    ),
]
Dp = Annotated[
    str | None,
    typer.Option(
        "--dp", metavar="N,…", help="Data-parallel ranks inside a replica.", show_default="1", rich_help_panel=_SPACE
    ),
]
Ep = Annotated[
    str | None,
    typer.Option(
        "--ep",
        metavar="N,…",
        help="Expert-parallel ranks.",
        show_default="none, or all of the replica's",
        rich_help_panel=_SPACE,
    ),
]
MaxGpus = Annotated[
    int | None, typer.Option("--max-gpus", min=1, metavar="N", help="GPUs of the whole plan.", rich_help_panel=_SPACE)
]
Spare = Annotated[
    int,
    typer.Option(
        "--spare-replicas", min=0, metavar="N", help="Replicas for failures: 1 is N + 1.", rich_help_panel=_SPACE
    ),
]
Busy = Annotated[
    float,
    typer.Option(
        "--max-busy",
        min=0.01,
        max=0.99,
        metavar="X",
        help="Share of a replica's full rate that is planned with at most.",
        rich_help_panel=_SPACE,
    ),
]
Price = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        metavar="GPU=X",
        help="Price of a GPU-hour; without any, plans are ranked by their number of GPUs.",
        rich_help_panel=_COST,
    ),
]
Prices = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", help="YAML with a price for each GPU.", rich_help_panel=_COST),
]
Energy = Annotated[bool, typer.Option("--energy", help="A bound on energy from board power.", rich_help_panel=_COST)]
Choose = Annotated[
    str,
    typer.Option(
        "--choose", metavar="WHICH", help="Plan for --deploy: cheapest or fastest.", rich_help_panel=options.OUTPUT
    ),
]
Every = Annotated[bool, typer.Option("--all", help="List every rejected kind.", rich_help_panel=options.OUTPUT)]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Cost against latency (.png, .svg).", rich_help_panel=options.OUTPUT),
]
SaveScenario = Annotated[
    Path | None,
    typer.Option(
        "--save-scenario",
        metavar="FILE",
        help="Write what was asked as a scenario file.",
        rich_help_panel=options.OUTPUT,
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME|PATH",
        help="Bundled name, config.json or its folder, a spec YAML, a GGUF file, or a Hugging Face repo id.",
        autocompletion=complete_model,
        rich_help_panel=options.SCENARIO,
    ),
]

#: Options whose values may be lists, and how each item is read.
_LISTS = ("gpu", "engine", "dtype", "kv_dtype", "tp", "pp", "dp", "ep")
#: Options that shape the output only.
_SHOWN = frozenset(
    {"scenario_file", "save_scenario", "energy", "choose", "deploy", "every", "plot", "json", "form", "output"}
)


@app.command(cls=Command)
def plan(
    ctx: typer.Context,
    *,
    model: ModelName = None,
    scenario_file: ScenarioFile = None,
    rate: Rate = None,
    users: Users = None,
    think_s: Think = 0.0,
    input_tokens: Input = None,
    output_tokens: OutputTokens = None,
    trace: TraceFile = None,
    context: Context = None,
    shared_prefix_tokens: options.SharedPrefixTokens = 0,
    prefix_hit_rate: options.PrefixHitRate = 1.0,
    slo_ttft_ms: Ttft = None,
    slo_tpot_ms: Tpot = None,
    slo_e2e_ms: EndToEnd = None,
    slo_at: At = "p95",
    gpu: Gpus = None,
    engine: Engines = None,
    dtype: Dtypes = None,
    kv_dtype: KvDtypes = None,
    tp: Tp = None,
    pp: Pp = None,
    dp: Dp = None,
    ep: Ep = None,
    max_gpus: MaxGpus = None,
    spare_replicas: Spare = 0,
    max_busy: Busy = 0.9,
    max_num_seqs: options.MaxNumSeqs = None,
    max_num_batched_tokens: options.MaxNumBatchedTokens = None,
    gpu_memory_utilization: options.GpuMemoryUtilization = None,
    price: Price = None,
    prices: Prices = None,
    energy: Energy = False,
    every: Every = False,
    choose: Choose = "cheapest",
    deploy: DeployTo = None,
    plot: Plot = None,
    json: options.Json = False,
    form: options.Format = None,
    output: options.Output = None,
    save_scenario: SaveScenario = None,
) -> None:
    """The cheapest and the fastest way to serve a load within its targets, and why others are none.

    \b
    Examples:
      kvplan plan -m llama-3.1-70b --rate 20 --input-tokens 1024 --output-tokens 256 --slo-ttft-ms 1000 --slo-tpot-ms 50
      kvplan plan -m llama-3-8b --users 500 --think-s 30 --input-tokens 2000 --output-tokens 300 -g l4,l40s,h100-sxm
      kvplan plan -m llama-3-8b --rate 50 --input-tokens lognormal:500:1 --output-tokens 200 --price l4=0.7 --price h100-sxm=3
      kvplan plan -m llama-3-8b -g h100-sxm --max-gpus 1 --input-tokens 2k --output-tokens 300 --slo-tpot-ms 30
      kvplan plan -m llama-3-8b -g l40s --rate 10 --input-tokens 512 --output-tokens 128 --spare-replicas 1 --json

    Without --rate and --users it answers the most that --max-gpus (or one replica) carry within the targets: requests
    per second, or with --think-s users. Exit code 3 says that nothing serves the load; "does not fit" and "misses a target" are told apart.
    """  # noqa: D301 - click reads \b as "keep these lines"
    from kvplan import api
    from kvplan.cli.output import destination
    from kvplan.report.plan import PlanReport

    target = destination(json=json, form=form, output=output)
    if choose not in {"cheapest", "fastest"}:
        message = f"--choose: {choose!r} is neither cheapest nor fastest"
        raise UsageError(message)
    given = {name: value for name, value in ctx.params.items() if name not in _SHOWN and was_given(ctx, name)}
    asked = api.plan_request(given, scenario_file=scenario_file)
    if save_scenario is not None:
        save(save_scenario, {"model": str(asked["model"]), "plan": {k: v for k, v in asked.items() if k != "model"}})
    found = api.plan(**asked)
    if plot is not None:
        from kvplan.report.plots import plot_plan

        plot_plan(found, plot)
    chosen = found.fastest if choose == "fastest" else found.cheapest
    lines: tuple[str, ...] = ()
    if chosen is not None and chosen.estimate is not None:
        from kvplan.report.deploy import Service, serve_lines

        service = Service(**api.service_of(chosen.estimate, asked, chosen=chosen))
        lines = tuple(serve_lines(service)) if service.serves else ()
        if deploy is not None:
            write_deployment(deploy, service)
    target.emit(PlanReport(plan=found, deploy=lines, energy=energy, every=every))
    if chosen is None:
        raise typer.Exit(EXIT_INFEASIBLE)
