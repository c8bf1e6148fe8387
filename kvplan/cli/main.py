"""The `kvplan` command. To add a command: write its module with an `app`, and name it here."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import Annotated, NoReturn

import typer

from kvplan import __version__
from kvplan.cli.app import LazyCommand, Root

_COLLECT_AFTER = 200_000

#: Commands in the order of `kvplan --help`.
COMMANDS = {
    "estimate": LazyCommand(
        module="kvplan.cli.estimate", help="Memory, capacity, latency and throughput of one deployment."
    ),
    "needs": LazyCommand(
        module="kvplan.cli.needs", help="What N sequences of L tokens need: memory fraction, GPUs, context."
    ),
    "compare": LazyCommand(
        module="kvplan.cli.compare", help="Scenarios side by side: what changes against the first, and why."
    ),
    "sweep": LazyCommand(module="kvplan.cli.sweep", help="A grid of scenarios: how figures bend with any field."),
    "plan": LazyCommand(module="kvplan.cli.plan", help="The cheapest way to serve a load within its targets."),
    "validate": LazyCommand(module="kvplan.cli.validate", help="Predictions against measurements, worst first."),
    "calibrate": LazyCommand(module="kvplan.cli.calibrate", help="Fit an engine's efficiencies to your measurements."),
    "explain-log": LazyCommand(module="kvplan.cli.explain_log", help="An engine's start-up log, figure by figure."),
    "models": LazyCommand(module="kvplan.cli.models", help="Bundled models and your own: list, show, import."),
    "gpus": LazyCommand(module="kvplan.cli.gpus", help="Bundled accelerators: list, show."),
    "engines": LazyCommand(module="kvplan.cli.engines", help="Bundled engine profiles: list, show."),
}


class Kvplan(Root):
    """`kvplan` with its commands."""

    lazy = COMMANDS


app = typer.Typer(
    name="kvplan",
    cls=Kvplan,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"kvplan {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Plan the capacity of an LLM deployment from specs alone, without a GPU.

    \b
    Examples:
      kvplan estimate --model llama-3-8b --gpu a100-80g
      kvplan needs -m qwen3-32b -g l40s --dtype fp8 --concurrency 4 --context 32K
      kvplan plan -m llama-3.1-70b --rate 20 --input-tokens 1024 --output-tokens 256 --slo-tpot-ms 50
      kvplan models list qwen3
    """  # noqa: D301 - click reads \b as "keep these lines"


def main() -> NoReturn:
    """Run the command line and leave.

    Start-up is a feature, measured by `benchmarks/`: the collector waits for many more objects than one answer makes
    (8 ms), and the process ends without taking its modules apart one by one (25 ms); streams are flushed first.
    """
    gc.set_threshold(_COLLECT_AFTER)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by who called: nothing comes from it, and what goes to it is lost
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - open to the end
    try:
        app(prog_name="kvplan")
        code = 0
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 0
    atexit._run_exitfuncs()  # noqa: SLF001 - what the interpreter itself calls here
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # the reader has gone
        pass
    os._exit(code)


if __name__ == "__main__":
    main()
