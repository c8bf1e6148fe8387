"""Start-up: wall time of whole command lines, kvplan beside a small peer, interleaved so that both see the same machine.

    python benchmarks/startup.py [--runs 20] [--peer PATH/TO/servcalc --peer-config PATH/TO/config.json]

The peer is `servcalc` (PyPI), installed in an environment of its own; it reads the same model's config.json.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

ESTIMATE = ["estimate", "--model", "llama-3-8b", "--gpu", "a100-80g"]


def wall_s(command: list[str]) -> float:
    """Wall time of one run [s]."""
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> None:
    """Measure and print the fastest and the median run of each command."""
    parser = argparse.ArgumentParser(description="Wall time of whole command lines.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--peer", help="path of the servcalc command")
    parser.add_argument("--peer-config", help="config.json of Llama 3 8B, for servcalc")
    options = parser.parse_args()
    kvplan = [sys.executable, "-m", "kvplan"]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "kvplan --help": [*kvplan, "--help"],
        "kvplan estimate": [*kvplan, *ESTIMATE],
        "kvplan estimate --json": [*kvplan, *ESTIMATE, "--json"],
    }
    if options.peer and options.peer_config:
        commands["servcalc"] = [options.peer, options.peer_config, "--gpu", "A100 80GB"]
    times: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        wall_s(command)  # compiles and warms the disk cache
    for _ in range(options.runs):
        for name, command in commands.items():
            times[name].append(wall_s(command))
    for name, values in times.items():
        print(f"{name:24} fastest {min(values) * 1000:6.0f} ms   median {statistics.median(values) * 1000:6.0f} ms")
    if "servcalc" in times:
        ratio = statistics.median(times["kvplan estimate"]) / statistics.median(times["servcalc"])
        print(f"kvplan estimate ÷ servcalc (medians): {ratio:.2f}")


if __name__ == "__main__":
    main()
