"""`kvplan plan`."""

# ruff: noqa: ARG001 - options are read from the context, which tells those that were given from defaults

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan.cli import options
from kvplan.cli.app import Command, new_app
from kvplan.cli.boundary import EXIT_INFEASIBLE
from kvplan.cli.completion import complete_dtype, complete_engine, complete_gpu, complete_kv_dtype, each
from kvplan.cli.fields import OUTPUT, finite, option, picture
from kvplan.cli.scenario import DeployTo, SaveScenario, ScenarioFile, save, was_given, write_deployment
from kvplan.errors import UsageError

app = new_app()

_LOAD = "Load"
_TARGETS = "Targets (none is set by default)"
_SPACE = "Where to look"
_COST = "Cost"


def _load(*names: str, help: str, **how: Any) -> Any:  # noqa: A002 - typer's own word
    return typer.Option(*names, help=help, rich_help_panel=_LOAD, **how)


def _target(name: str, words: str) -> Any:
    return typer.Option(name, metavar="X[@STAT]", help=words, rich_help_panel=_TARGETS)


def _space(*names: str, help: str, **how: Any) -> Any:  # noqa: A002 - typer's own word
    return typer.Option(*names, help=help, rich_help_panel=_SPACE, **how)


def _listed(field: str, words: str, default: str, complete: Callable[[str], list[str]]) -> Any:
    """Names with commas between them."""
    metavar = "FORMAT,…" if field.endswith("dtype") else "NAME,…"
    how = {"metavar": metavar, "show_default": default, "autocompletion": each(complete)}
    return option(field, help=words, rich_help_panel=_SPACE, **how)


def _ranks(field: str, words: str, default: str) -> Any:
    """Counts with commas between them."""
    return option(field, help=words, show_default=default, rich_help_panel=_SPACE, metavar="N,…", min=None)


Rate = Annotated[
    float | None,
    _load(
        "--rate",
        metavar="X",
        callback=finite,
        help="Requests per second.",
        show_default="the most that can be carried",
    ),
]
Users = Annotated[
    float | None,
    _load("--users", metavar="N", callback=finite, help="Users who wait for the answer, think, and ask again."),
]
Think = Annotated[float, _load("--think-s", metavar="X", min=0.0, callback=finite, help="Their pause [s]; 0 is none.")]
_LENGTHS = {"metavar": "LENGTHS", "parser": None, "show_default": "of the trace", "rich_help_panel": _LOAD}
Input = Annotated[
    str | None,
    option(
        "input_tokens",
        help="Prompts [tokens]: 1024, 4k, uniform:100:2000, lognormal:MEDIAN:SIGMA, p50=500,p95=4000,p99=8000.",
        **_LENGTHS,
    ),
]
OutputTokens = Annotated[str | None, option("output_tokens", help="Answers [tokens], in the same forms.", **_LENGTHS)]
TraceFile = Annotated[
    Path | None,
    _load("--trace", metavar="FILE", help="Request times and lengths: Azure or BurstGPT CSV, Mooncake JSONL."),
]
Context = Annotated[
    int | None,
    option(
        "context",
        help="Longest sequence to plan for [tokens].",
        show_default="longest prompt + answer, within the model's limit",
        rich_help_panel=_LOAD,
    ),
]
Ttft = Annotated[str | None, _target("--slo-ttft-ms", "Time to the first token [ms].")]
Tpot = Annotated[str | None, _target("--slo-tpot-ms", "Time per token [ms].")]
EndToEnd = Annotated[str | None, _target("--slo-e2e-ms", "Time of the whole answer [ms].")]
At = Annotated[
    str,
    typer.Option(
        "--slo-at", metavar="STAT", help="Where targets name none: mean, p50, p90, p95, p99.", rich_help_panel=_TARGETS
    ),
]
_PRICED = "those with a price, or all bundled that can be had"
Gpus = Annotated[list[str] | None, _listed("gpu", "Accelerators to look at.", _PRICED, complete_gpu)]
Engines = Annotated[list[str] | None, _listed("engine", "Engines to look at.", "vllm", complete_engine)]
_OWN = "Weight formats to look at; default is the checkpoint's own."
Dtypes = Annotated[list[str] | None, _listed("dtype", _OWN, "default", complete_dtype)]
_RULE = "Cache formats to look at; default is the engine's rule."
KvDtypes = Annotated[list[str] | None, _listed("kv_dtype", _RULE, "default", complete_kv_dtype)]
Tp = Annotated[str | None, _ranks("tp", "Tensor-parallel ranks.", "1,2,4,8")]
Pp = Annotated[str | None, _ranks("pp", "Pipeline stages.", "across nodes, or across cards on PCIe")]
Dp = Annotated[str | None, _ranks("dp", "Data-parallel ranks inside a replica.", "1")]
Ep = Annotated[str | None, _ranks("ep", "Expert-parallel ranks.", "none, or all of the replica's")]
MaxGpus = Annotated[int | None, _space("--max-gpus", min=1, metavar="N", help="GPUs of the whole plan.")]
Spare = Annotated[int, _space("--spare-replicas", min=0, metavar="N", help="Replicas for failures: 1 is N + 1.")]
Busy = Annotated[
    float,
    _space(
        "--max-busy",
        min=0.01,
        max=0.99,
        metavar="X",
        help="Share of a replica's full rate that is planned with at most.",
    ),
]
Price = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        metavar="GPU=X",
        help="Price of a GPU-hour, once for each card; without any, plans are ranked by their number of GPUs.",
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
    typer.Option("--choose", metavar="WHICH", help="Plan for --deploy: cheapest or fastest.", rich_help_panel=OUTPUT),
]
Every = Annotated[bool, typer.Option("--all", help="List every rejected kind.", rich_help_panel=OUTPUT)]
Plot = Annotated[Path | None, picture("Cost against latency (.png, .svg).")]
ModelName = Annotated[str | None, option("model")]

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
    from kvplan.cli.progress import working
    from kvplan.report.plan import PlanReport

    target = destination(json=json, form=form, output=output)
    if choose not in {"cheapest", "fastest"}:
        message = f"--choose: {choose!r} is neither cheapest nor fastest"
        raise UsageError(message)
    given = {name: value for name, value in ctx.params.items() if name not in _SHOWN and was_given(ctx, name)}
    asked = api.plan_request(given, scenario_file=scenario_file)
    if save_scenario is not None:
        save(save_scenario, {"model": str(asked["model"]), "plan": {k: v for k, v in asked.items() if k != "model"}})
    with working("looking for layouts"):
        found = api.plan(**asked)
    if plot is not None:
        from kvplan.report.plots import plot_plan

        plot_plan(found, plot)
    chosen = found.fastest if choose == "fastest" else found.cheapest
    lines: tuple[str, ...] = ()
    if chosen is not None and chosen.estimate is not None:
        from kvplan.report.serve_command import serve_lines
        from kvplan.report.service import Service

        service = Service(**api.service_of(chosen.estimate, asked, chosen=chosen))
        lines = tuple(serve_lines(service)) if service.serves else ()
        if deploy is not None:
            write_deployment(deploy, service)
    target.emit(PlanReport(plan=found, deploy=lines, energy=energy, every=every))
    if chosen is None:
        raise typer.Exit(EXIT_INFEASIBLE)
