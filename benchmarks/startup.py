"""Start-up: whole command lines of kvplan beside servcalc, a small peer, both as installed console scripts.

    python benchmarks/startup.py [--runs 20] [--venv DIR]

A new virtual environment gets this checkout (as a wheel) and `servcalc` from the package registry; `--venv` names one that
has both already. The commands take turns, so that all of them see the same machine, after one run each that compiles and
warms the disk cache. Wall time is what a user waits; CPU time (user + system) moves less on a busy machine. Both tools
answer for Llama 3 8B on an A100 80 GB; servcalc reads the model's config.json, kvplan knows the name.

The aim: `kvplan estimate` takes at most twice the wall time of servcalc. The last line is the same estimate again inside
one Python process, where names, specs and layout are resolved already.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEER = "servcalc==0.1.0"
MODEL, GPU = "llama-3-8b", "a100-80g"
ESTIMATE = ["estimate", "--model", MODEL, "--gpu", GPU]
CONFIG = f"""
import json
from kvplan.specs import registry
from kvplan.specs.yaml import load_yaml
print(json.dumps(load_yaml(registry.resolve("model", {MODEL!r})).data["config"]))
"""
AGAIN = f"""
import timeit, kvplan
run = lambda: kvplan.estimate({MODEL!r}, {GPU!r}, concurrency=16)
run()
print(min(timeit.repeat(run, number=1, repeat=1000)) * 1000)
"""
#: Bytecode is kept, as it is for every user who has not forbidden it.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(command: list[str]) -> str:
    """What a command says; its failure is ours."""
    return subprocess.run(command, check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU time of one run [ms]."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall * 1000, cpu * 1000


def make_environment(folder: Path) -> None:
    """A virtual environment with kvplan and the peer."""
    venv.create(folder, with_pip=True)
    run([str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", str(ROOT), PEER])


def measure(folder: Path, config: Path, runs: int) -> dict[str, list[tuple[float, float]]]:
    """Times of every command, run in turns."""
    scripts = folder / "bin"
    config.write_text(run([str(scripts / "python"), "-c", CONFIG]), encoding="utf-8")
    kvplan = str(scripts / "kvplan")
    commands = {
        "python -c pass": [str(scripts / "python"), "-c", "pass"],
        "kvplan --help": [kvplan, "--help"],
        "kvplan estimate": [kvplan, *ESTIMATE],
        "kvplan estimate --json": [kvplan, *ESTIMATE, "--json"],
        "servcalc estimate": [str(scripts / "servcalc"), "estimate", str(config), "--gpu", "A100 80GB"],
    }
    commands["servcalc estimate --json"] = [*commands["servcalc estimate"], "--json"]
    for command in commands.values():
        timed(command)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(timed(command))
    return times


def main() -> None:
    """Measure, and print each command's fastest and median run and the ratios of the two tools."""
    parser = argparse.ArgumentParser(description="Wall and CPU time of whole command lines, kvplan beside servcalc.")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="runs of each command (default: 20)")
    parser.add_argument("--venv", type=Path, metavar="DIR", help="an environment that has kvplan and servcalc")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.venv or Path(scratch) / "venv"
        if options.venv is None:
            make_environment(folder)
        times = measure(folder, Path(scratch) / "config.json", options.runs)
        again_ms = float(run([str(folder / "bin" / "python"), "-c", AGAIN]))
    print(f"Python {sys.version.split()[0]}, {options.runs} runs of each in turns, load {os.getloadavg()[0]:.1f}")
    print(f"{'[ms]':26}{'wall min':>10}{'median':>9}{'CPU min':>10}{'median':>9}")
    figures = {}
    for name, values in times.items():
        wall, cpu = zip(*values, strict=True)
        figures[name] = (min(wall), statistics.median(wall), min(cpu), statistics.median(cpu))
        print("{:26}{:10.1f}{:9.1f}{:10.1f}{:9.1f}".format(name, *figures[name]))
    for form in ("", " --json"):
        ours, peer = figures[f"kvplan estimate{form}"], figures[f"servcalc estimate{form}"]
        ratios = [mine / other for mine, other in zip(ours, peer, strict=True)]
        print("{:26}{:10.2f}{:9.2f}{:10.2f}{:9.2f}".format(f"kvplan ÷ servcalc{form}", *ratios))
    print(f"the same estimate again in one process: {again_ms:.2f} ms")


if __name__ == "__main__":
    main()
