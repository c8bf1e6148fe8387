"""What all commands share: help in panels, commands that load when they are called, one error boundary."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from kvplan.cli.boundary import guarded

_GENERAL = "General"


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyCommand:
    """A command that costs nothing until it is called.

    Attributes:
        module: Module with a `typer.Typer` named `app`, made by `new_app`.
        help: Its line in `kvplan --help`.
    """

    module: str
    help: str

    def load(self, name: str) -> Any:
        """Import the module and build its command under a name."""
        command = typer.main.get_command(import_module(self.module).app)
        command.name = name
        return command


def _panels(command: Any, context: Any, formatter: Any) -> None:
    """Write arguments and options under the panels that they name, in the order of first appearance."""
    panels: dict[str, list[Any]] = {}
    for parameter in command.get_params(context):
        if parameter.param_type_name == "argument" and parameter.help is None:
            parameter.help = _argument_help(command.callback, parameter.name)
        record = parameter.get_help_record(context)
        if record is not None:
            panel = getattr(parameter, "rich_help_panel", None) or _GENERAL
            panels.setdefault(panel, []).append(record)
    general = panels.pop(_GENERAL, [])
    for title, records in [*panels.items(), (_GENERAL, general)]:
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def _argument_help(callback: Any, name: str) -> str | None:
    """What an argument says of itself; under typer 0.25, click 8.5 sets an attribute of the same name to None."""
    import inspect

    annotation = inspect.signature(callback, eval_str=True).parameters[name].annotation
    return next((one.help for one in getattr(annotation, "__metadata__", ()) if hasattr(one, "help")), None)


def _usage_error(message: str, context: Any) -> Exception:
    """What typer raises about a command line, wherever this version of it keeps the class."""
    usage_error: type[Exception] = typer.BadParameter.__bases__[0]
    return usage_error(message, context)


class Command(TyperCommand):
    """A command whose options stand in panels."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse empty words: a script's variable that is not set would be the working folder where a path is meant."""
        for before, word in pairwise(["", *args] if not ctx.resilient_parsing else ()):
            option = before if not word and before.startswith("-") else word.removesuffix("=")
            if not word or (word.startswith("--") and word.count("=") == 1 and word.endswith("=")):
                message = f"{option}: is empty" if option else "an argument is empty"
                raise _usage_error(message, ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write options by panel."""
        _panels(self, ctx, formatter)


class Group(TyperGroup):
    """A group that loads its commands lazily and shows its help when it is called bare."""

    lazy: ClassVar[Mapping[str, LazyCommand]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order they were written."""
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, imported now."""
        lazy = self.lazy.get(cmd_name)
        return lazy.load(cmd_name) if lazy is not None else super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Called bare, answer with the help."""
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; a name that is unknown gets the nearest ones."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not ctx.resilient_parsing and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, known)
            ending = f"did you mean {', '.join(near)}?" if near else f"commands: {', '.join(known)}"
            message = f"no command {name!r}; {ending}"
            raise _usage_error(message, ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write options by panel, then the commands."""
        _panels(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's signature
        """List the commands without importing those that are lazy."""
        rows = [(name, lazy.help) for name, lazy in self.lazy.items()]
        rows.extend((name, command.get_short_help_str(limit=200)) for name, command in self.commands.items())
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Root(Group):
    """The `kvplan` command: the error boundary lies around everything."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and leave with the exit code of STYLE: 0, 1, 2, 3, 4, 5 or 130."""

        def run(*, standalone: bool) -> Any:
            return super(Root, self).main(args, prog_name, complete_var, standalone, windows_expand_args, **extra)

        if not standalone_mode:
            return run(standalone=False)
        return sys.exit(guarded(lambda: run(standalone=False)))


def new_app(*, help: str | None = None, group: bool = False) -> typer.Typer:  # noqa: A002 - typer's own word
    """A typer app for one command, or for a group of them."""
    app = typer.Typer(
        cls=Group,
        help=help,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    if group:
        app.callback()(_nothing)
    return app


def _nothing() -> None:
    """Only what its commands do."""
