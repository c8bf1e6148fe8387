"""Readers of what stands on a command line: names, and the line as a whole."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvplan
from kvplan.errors import KvplanError
from tests.fuzz.guard import CODES, broken, check_shown

MOST_WORDS = 20_000


def names() -> list[bytes]:
    names = (
        "meta-llama/Llama-3.1-8B@main", "llama-3-8b", "vllm@0.19", "a100-80g", "owner/../name", "~root/x", "./config.json", "a/b/c",
        "owner/name@refs/pr/1", "x.gguf", "-", "/dev/zero", "/proc/self/mem", "-x/y", "a@b", "owner--name/x..y",
    )  # fmt: skip
    return [json.dumps(name).encode() for name in names]


def read_name(data: bytes, folder: Path) -> None:
    """A name where a model, GPU or engine is asked for; the hub is offline."""
    try:
        name = json.loads(data)
    except ValueError:
        name = data.decode("utf-8", "surrogateescape")
    if not isinstance(name, str) or Path(name.replace("\0", "")).is_absolute() or ".." in name:
        return  # a path that the user gives is read, wherever it is
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HOME"] = str(folder / "hub")
    with contextlib.chdir(folder):  # where a name may mean a file
        for load in (kvplan.load_engine, kvplan.load_gpu, kvplan.load_model):
            try:
                load(name)
            except KvplanError as error:
                last = error
            else:
                return
    raise last


_SWITCHES = (
    "--model", "--gpu", "--engine", "--dtype", "--kv-dtype", "--tp", "--pp", "--dp", "--ep", "--gpu-count", "--input-tokens",
    "--output-tokens", "--concurrency", "--context", "--gpu-memory-utilization", "--max-num-seqs", "--max-num-batched-tokens",
    "--gpu-memory-gib", "--n-gpu-layers", "--shared-prefix-tokens", "--prefix-hit-rate", "--source-tokens", "--network-ms",
    "--benchmark-requests",
)  # fmt: skip


_LEADS_OUT = re.compile(r"(?:^|[=:,])\s*(?:/|~)|\.\.")
_PLAN = ["plan", "-m", "llama-3-8b", "--input-tokens", "1024", "--output-tokens", "lognormal:100:1", "-g", "l4"]


def command_lines() -> list[bytes]:
    base = ["estimate", "--model", "llama-3-8b", "--gpu", "a100-80g"]
    lines = [
        base,
        [*base, "--json", "--tp", "2", "--concurrency", "8"],
        [*base, "--explain", "--kv-dtype", "fp8", "--dtype", "int4"],
        [
            "estimate",
            "--model",
            "deepseek-v3",
            "--gpu",
            "h200",
            "--tp",
            "8",
            "--dp",
            "2",
            "--ep",
            "16",
            "--format",
            "csv",
        ],
        ["estimate", "--model", "gpt-oss-120b", "--gpu", "mi300x", "--engine", "vllm@0.11", "--context", "100000"],
        ["compare", *base[1:], "--vary", "kv-dtype=bf16,fp8", "--vary", "tp=1,2", "--format", "markdown"],
        ["compare", *base[1:], "--scenario", "small:gpu=l4,kv-heads=32", "--scenario", "b:layers=16"],
        ["sweep", *base[1:], "--sweep", "concurrency=1:64:log2", "--sweep", "context=4096,8192", "--json"],
        ["models", "show", "qwen3-8b"],
        ["gpus", "show", "h100-sxm", "--format", "markdown"],
        ["engines", "show", "vllm@0.6", "--json"],
        ["gpus", "list", "h1", "--format", "csv"],
        ["needs", *base[1:], "--concurrency", "8", "--context", "8k"],
        [*_PLAN, "--rate", "5", "--slo-ttft-ms", "500@p99", "--price", "l4=0.7", "--spare-replicas", "1"],
        [*_PLAN, "--users", "50", "--think-s", "10", "--max-gpus", "8", "--json"],
        ["estimat", "--help"],
    ]
    lines.extend([*base, switch, "1"] for switch in _SWITCHES[5:])
    return [json.dumps(line).encode() for line in lines]


def read_command_line(data: bytes, folder: Path) -> None:
    """A command line of several words, run in this process, its streams looked at."""
    try:
        words = json.loads(data)
    except (ValueError, RecursionError):
        words = data.decode("utf-8", "replace").split()
    if not isinstance(words, list):
        return
    arguments = [word if isinstance(word, str) else json.dumps(word) for word in words[:40]]
    arguments = [word.replace("\0", "") for word in arguments]
    if any(
        word.startswith(("-o", "--out", "--plot", "--save", "--deploy", "--install", "--show-compl"))
        for word in arguments
    ):
        return
    if any(_LEADS_OUT.search(word) for word in arguments):
        return  # a path that the user gives is read, wherever it is
    if "plan" in arguments and not {"-g", "--gpu"} & set(arguments):
        return  # a search over all GPUs takes its second
    code, out, _ = run_line(arguments, folder)
    if code in {0, 3} and "--json" in arguments and not {"--help", "-h", "--version"} & set(arguments):
        json.loads(out, parse_constant=_not_json)


def run_line(arguments: list[str], folder: Path, *, refused: frozenset[int] = CODES) -> tuple[int, str, str]:
    """A command line run in a folder: its exit code and what stands on its streams, which is looked at.

    Raises:
        LawBrokenError: Another exit code, an answer beside an error, an error without words, something that acts.
    """
    from kvplan.cli.main import app

    return _looked_at(lambda: app(arguments, prog_name="kvplan", standalone_mode=False), folder, refused)


def _looked_at(
    run: Callable[[], Any], folder: Path, refused: frozenset[int], *, columns: bool = False
) -> tuple[int, str, str]:
    from kvplan.cli.boundary import guarded

    streams = [io.StringIO(), io.StringIO()]
    inside = Path.cwd()
    os.chdir(folder)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HOME"] = str(folder / "hub")
    try:
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            code = guarded(run)
    finally:
        os.chdir(inside)
    out, err = (stream.getvalue() for stream in streams)
    check_shown(out.replace("\t", "") if columns else out)
    check_shown(err)
    if code not in {0, 3} | refused:
        broken(f"exit code {code}", err[:200])
    if code in refused and (out or not err or len(err) > MOST_WORDS):
        broken("an error that says too much or nothing", f"{code}: {out[:80]!r}, {len(err)} characters")
    return code, out, err


def completions() -> list[bytes]:
    """Lines that a shell asks to be completed."""
    lines = (
        "kvplan ", "kvplan est", "kvplan estimate --gpu a100", "kvplan estimate --model llama-3", "kvplan gpus show h1",
        "kvplan plan --gpu l4,h1", "kvplan explain-log x --kv-dtype f", "kvplan models import x -o y --", "kvplan 'a", 'kvplan "',
        "kvplan compare --vary kv-dtype=f", "kvplan engines show vllm@",
    )  # fmt: skip
    return [
        json.dumps({"line": line, "at": len(line.split(" ")) - 1, "shell": n % 3}).encode()
        for n, line in enumerate(lines)
    ]


def complete(data: bytes, folder: Path) -> None:
    """A half-written line, as bash, zsh and fish hand it over in the environment."""
    from kvplan.cli.main import app

    try:
        recipe = json.loads(data)
        shell = ("bash", "zsh", "fish")[recipe["shell"]]
        line = recipe["line"].replace("\0", "").encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        place = str(int(recipe["at"]))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError, OverflowError):
        return
    asked = {
        "_KVPLAN_COMPLETE": f"complete_{shell}", "COMP_WORDS": line, "COMP_CWORD": place, "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }  # fmt: skip
    before = dict(os.environ)
    os.environ.update(asked)
    try:
        _looked_at(
            lambda: app([], prog_name="kvplan", standalone_mode=False), folder, frozenset(), columns=shell == "fish"
        )
    finally:
        os.environ.clear()
        os.environ.update(before)


def _not_json(text: str) -> None:
    broken("no JSON", text)
