"""The options of a scenario, given once to every command that asks about more than one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kvplan.cli import options
from kvplan.cli.fields import OUTPUT, SCENARIO

if TYPE_CHECKING:
    from kvplan.report.service import Service

#: Field of a scenario → its option and default, as `kvplan estimate` has them.
_FIELDS: Final[dict[str, tuple[Any, Any]]] = {
    "model": (options.Model, None),
    "gpu": (options.Gpu, None),
    "engine": (options.Engine, "vllm"),
    "dtype": (options.Dtype, None),
    "kv_dtype": (options.KvDtype, None),
    "assume_plain": (options.AssumePlain, False),
    "tp": (options.Tp, 1),
    "pp": (options.Pp, 1),
    "dp": (options.Dp, 1),
    "ep": (options.Ep, None),
    "dcp": (options.Dcp, 1),
    "gpu_count": (options.GpuCount, None),
    "input_tokens": (options.InputTokens, 1024),
    "output_tokens": (options.OutputTokens, 256),
    "concurrency": (options.Concurrency, 1),
    "context": (options.Context, None),
    "shared_prefix_tokens": (options.SharedPrefixTokens, 0),
    "prefix_hit_rate": (options.PrefixHitRate, 1.0),
    "source_tokens": (options.SourceTokens, None),
    "network_ms": (options.NetworkMs, 0.0),
    "benchmark_requests": (options.BenchmarkRequests, None),
    "equal_lengths": (options.EqualLengths, False),
    "gpu_memory_utilization": (options.GpuMemoryUtilization, None),
    "max_num_seqs": (options.MaxNumSeqs, None),
    "max_num_batched_tokens": (options.MaxNumBatchedTokens, None),
    "enforce_eager": (options.EnforceEager, False),
    "gpu_memory_gib": (options.GpuMemoryGib, None),
    "n_gpu_layers": (options.NGpuLayers, None),
    "max_loras": (options.MaxLoras, 0),
    "max_lora_rank": (options.MaxLoraRank, 16),
    "speculative_tokens": (options.SpeculativeTokens, 0),
    "draft_model": (options.DraftModel, None),
    "allow_context_overflow": (options.AllowContextOverflow, False),
}
ScenarioFile = Annotated[
    Path | None,
    typer.Option(
        "--scenario-file",
        metavar="FILE",
        help="YAML with fields of the scenario; options given here count before it.",
        rich_help_panel=SCENARIO,
    ),
]
DeployTo = Annotated[
    Path | None,
    typer.Option(
        "--deploy",
        metavar="FOLDER|FILE",
        help="Write serve.sh, compose.yaml and kubernetes.yaml, or one of them by its name.",
        rich_help_panel=OUTPUT,
    ),
]
SaveScenario = Annotated[
    Path | None,
    typer.Option(
        "--save-scenario",
        metavar="FILE",
        help="Write what was asked as a scenario file.",
        rich_help_panel=OUTPUT,
    ),
]


def with_scenario(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the scenario's options and files.

    It receives `base`, the fields that were really given, and `sections`, the other parts of the scenario file.
    """
    asked_for = inspect.signature(command, eval_str=True).parameters
    own = [part for part in asked_for.values() if part.name not in {"base", "sections"}]

    def run(ctx: typer.Context, **given: Any) -> None:
        mine = {part.name: given[part.name] for part in own}
        asked = {name: given[name] for name in _FIELDS if was_given(ctx, name)}
        base, sections = merged(given["scenario_file"], asked)
        if given["save_scenario"] is not None:
            save(given["save_scenario"], {**base, **sections})
        both = {"base": base, "sections": sections}
        command(**{name: both[name] for name in both if name in asked_for}, **mine)

    parameters = [
        inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *(_keyword(name, default, kind) for name, (kind, default) in _FIELDS.items()),
        _keyword("scenario_file", None, ScenarioFile),
        *own,
        _keyword("save_scenario", None, SaveScenario),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {part.name: part.annotation for part in parameters}
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run


def _keyword(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def was_given(ctx: typer.Context, name: str) -> bool:
    """True where an option stands on the command line or in the environment."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name not in {"DEFAULT", "DEFAULT_MAP"}


def merged(file: Path | None, asked: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of a scenario file under those of the command line, and the file's sections (`scenarios`, `sweep`, …)."""
    if file is None:
        return dict(asked), {}
    from kvplan import api

    fields, sections = api.read_scenario_file(file)
    return {**fields, **asked}, sections


def save(path: Path, fields: Mapping[str, Any]) -> None:
    """Write a scenario file, whole or not at all."""
    from kvplan import api
    from kvplan.writing import write_file

    write_file(path, api.scenario_text(fields), option="--save-scenario")


def write_deployment(place: Path, service: Service) -> None:
    """Write the files of a deployment into a folder, or the one that a file's name asks for; each whole or not at all.

    What was written is told on stderr, since the answer beside it does not say.
    """
    from kvplan.report.manifests import file_for, files
    from kvplan.report.text import neutral
    from kvplan.writing import make_folder, write_file

    made = files(service)
    if place.suffix:
        written = {place: file_for(place, made)}
    else:
        make_folder(place, option="--deploy")
        written = {place / name: text for name, text in made.items()}
    for path, text in written.items():
        write_file(path, text, option="--deploy")
    typer.echo(neutral(f"wrote {', '.join(map(str, written))}"), err=True)
