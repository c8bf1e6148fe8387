"""Sweeps: scenarios per second and core, beside the Python APIs of servcalc and ridgepoint, in one run.

    python benchmarks/sweep_speed.py [--rounds 3] [--venv DIR]

kvplan answers a grid of one million scenarios (1000 concurrencies × 1000 prompt lengths; Llama 3 8B on an A100 80 GB, one
layout): weights, pool, capacity, TTFT, TPOT and throughput each, with `kvplan.sweep`. servcalc answers all concurrencies
of one prompt length per call; ridgepoint, a compiled core, answers one prompt length and context per call and knows no
concurrency. Both get as many scenarios as take them a second or so. A new virtual environment gets the peers from the
package registry; `--venv` names one that has them. The tools take turns; CPU time (user + system) is counted, because it
moves less on a busy machine, and the best round counts for each.

The aims: 500,000 scenarios per second and core, cost linear in scenarios, ahead of both peers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = ("servcalc==0.1.0", "ridgepoint==0.1.2")
AIM = 500_000
LINEAR = 1.3

OURS = """
import json, sys, time
import numpy as np, kvplan
def rate(size):
    c, i = np.arange(1, size + 1), np.linspace(16, 7900, size).round()
    t = time.process_time()
    found = kvplan.sweep("llama-3-8b", "a100-80g", concurrency=c, input_tokens=i)
    assert found.answered == size * size and np.isfinite(found["ttft_ms"]).all()
    return size * size / (time.process_time() - t)
rate(50)
print(json.dumps({str(n * n): rate(n) for n in (316, 1000)}))
"""
SERVCALC = """
import json, time
import servcalc
from servcalc.work import Arch
arch = Arch.from_config(dict(model_type="llama", hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, intermediate_size=14336, vocab_size=128256, _name_or_path="llama-3-8b"))
users = tuple(range(1, 1001))
t = time.process_time()
for prompt in range(100, 1100, 100):
    servcalc.estimate(arch, "A100 80GB", workload=servcalc.Workload(prompt, 256, users))
print(json.dumps({"10000": 10 * len(users) / (time.process_time() - t)}))
"""
RIDGEPOINT = """
import json, time
import ridgepoint
t = time.process_time()
for prompt in range(1, 100_001):
    ridgepoint.fit("llama-3-8b", "a100-80gb", prompt=prompt % 7900 + 16, ctx=8192)
print(json.dumps({"100000": 100_000 / (time.process_time() - t)}))
"""


def measured(python: Path, code: str) -> dict[str, float]:
    """Scenarios per second of CPU by grid size."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT) if code is OURS else "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def prepared(folder: Path) -> Path:
    """Python of a new virtual environment with the peers."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS], check=True)
    return python


def main() -> int:
    """Measure, print, and fail where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--venv", type=Path, help="environment that has the peers")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peers = given.venv / "bin" / "python" if given.venv else prepared(Path(folder) / "peers")
        best: dict[str, dict[str, float]] = {}
        for _ in range(given.rounds):
            for name, python, code in (
                ("kvplan", Path(sys.executable), OURS),
                ("servcalc", peers, SERVCALC),
                ("ridgepoint", peers, RIDGEPOINT),
            ):
                for size, rate in measured(python, code).items():
                    rates = best.setdefault(name, {})
                    rates[size] = max(rates.get(size, 0.0), rate)
    for name, rates in best.items():
        for size, rate in rates.items():
            print(f"{name:<11} {int(size):>9,} scenarios  {rate:>12,.0f} per second and core")
    ours = best["kvplan"]["1000000"]
    growth = best["kvplan"][str(316 * 316)] / ours
    print(f"cost of a scenario, a million against a hundred thousand: × {growth:.2f}")
    missed = ours < AIM or growth > LINEAR
    for name in ("servcalc", "ridgepoint"):
        ratio = ours / max(best[name].values())
        missed = missed or ratio <= 1
        print(f"kvplan ÷ {name}: × {ratio:.1f}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
