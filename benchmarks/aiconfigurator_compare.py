"""aiconfigurator 0.12 beside kvplan on the same rows: `python benchmarks/aiconfigurator_compare.py [--venv DIR]`.

aiconfigurator interpolates measured kernel tables, some of these very cards. Its `cli_estimate` is asked for each row of
`data/serving.csv` that is not queued: aggregated serving, mean lengths, concurrency per attention rank as batch size, the formats that the
row and the checkpoint name (no choice in hindsight), tables in its `HYBRID` mode, which fills gaps by formula, of its newest version of
each engine. Rows that it refuses are told and left out on both sides. kvplan's shipped profiles were fitted on these rows, so its column is
in sample; docs/validation.md has its errors on rows left out. A new virtual environment gets the package (600 MB) from the registry;
`--venv` names one that has it. The first answers take a minute or two, then about a second of CPU each; `--every 20` takes a sample.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvplan import api
from kvplan.calibration.record import length_factor
from kvplan.calibration.scoring import score

ROWS = Path(__file__).parent / "data" / "serving.csv"
PEER = "aiconfigurator==0.12.0"
SYSTEMS = {"h100-sxm": "h100_sxm", "h200-sxm": "h200_sxm", "b200-sxm": "b200_sxm", "b300-sxm": "b300_sxm"}
BACKENDS = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
WEIGHTS = {"nvfp4": "nvfp4", "fp8": "fp8"}
CACHE = {"fp8": "fp8", "bf16": "bfloat16"}

#: Runs in the peer's environment: questions in, answers out, one JSON object per line.
THEIRS = """
import json, logging, sys, warnings
warnings.simplefilter("ignore")
from aiconfigurator.cli.api import cli_estimate
logging.disable(logging.CRITICAL)
answers = sys.stdout
sys.stdout = sys.stderr
for line in sys.stdin:
    question = json.loads(line)
    name = question.pop("id")
    try:
        found = cli_estimate(**question)
        answer = {"id": name, "ttft_ms": float(found.ttft), "tpot_ms": float(found.tpot)}
    except (Exception, SystemExit) as error:
        answer = {"id": name, "error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(answer), file=answers, flush=True)
"""


def question(row: Mapping[str, str]) -> dict[str, Any]:
    """A row in the peer's words."""
    tp, dp, ep = int(row["tp"]), int(row["dp"]), int(row["ep"])
    scale = length_factor(row["length_distribution"])[0] or 1.0
    asked: dict[str, Any] = {
        "id": row["id"],
        "model_path": Path(row["model"]).stem.replace("--", "/"),
        "system_name": SYSTEMS[row["gpu"]],
        "backend_name": BACKENDS[row["engine"]],
        "database_mode": "HYBRID",
        "isl": round(int(row["input_tokens"]) * scale),
        "osl": round(int(row["output_tokens"]) * scale),
        "batch_size": max(1, round(int(row["concurrency"]) / dp)),
        "tp_size": tp,
        "pp_size": int(row["pp"]),
        "attention_dp_size": dp,
        "moe_ep_size": ep,
        "moe_tp_size": max(1, tp * dp // ep),
    }
    if row["dtype"]:
        asked["gemm_quant_mode"] = asked["moe_quant_mode"] = WEIGHTS[row["dtype"]]
    if row["kv_dtype"]:
        asked["kvcache_quant_mode"] = CACHE[row["kv_dtype"]]
    return asked


def their_answers(rows: Sequence[Mapping[str, str]], python: Path) -> dict[str, dict[str, Any]]:
    """The peer's answers by row."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as questions:
        questions.writelines(json.dumps(question(row)) + "\n" for row in rows)
        questions.seek(0)
        with subprocess.Popen([python, "-c", THEIRS], stdin=questions, stdout=subprocess.PIPE, text=True) as peer:
            for line in peer.stdout or ():
                answer = json.loads(line)
                found[answer["id"]] = answer
                print(f"\r{len(found)} of {len(rows)} rows", end="", file=sys.stderr)
    print(file=sys.stderr)
    if len(found) < len(rows):
        sys.exit(f"{PEER} stopped after {len(found)} of {len(rows)} rows")
    return found


def print_errors(title: str, measured: Sequence[Mapping[str, str]], predicted: Callable[[str, str], float]) -> None:
    """One line for each quantity."""
    for quantity in ("tpot_ms", "ttft_ms"):
        found = score([predicted(row["id"], quantity) / float(row[quantity]) for row in measured], [])
        print(
            f"{title:16}  {quantity}  n {found.n}  median {found.median_ape:.1%}  mean {found.mean_ape:.1%}"
            f"  p90 {found.p90_ape:.1%}  bias {found.bias:.2f}"
        )


def compare(python: Path, every: int) -> None:
    """Ask both and print errors over the rows that both answer."""
    with ROWS.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["queued"] == "0"][::every]
    theirs = their_answers(rows, python)
    ours = {row.id: row.predicted for row in api.validate(ROWS).rows}
    both = [row for row in rows if "error" not in theirs[row["id"]]]
    print(f"{len(both)} of {len(rows)} rows answered by {PEER}")
    for (model, reason), count in Counter(
        (row["model"], theirs[row["id"]]["error"]) for row in rows if "error" in theirs[row["id"]]
    ).most_common():
        print(f"  refused {count}: {model}: {reason}")
    for key in ("", "gpu", "engine"):
        for value in sorted({row[key] for row in both}) if key else [""]:
            mine = [row for row in both if not key or row[key] == value]
            print(f"\n{value or 'all rows'}")
            print_errors("aiconfigurator", mine, lambda name, quantity: theirs[name][quantity])
            print_errors("kvplan", mine, lambda name, quantity: ours[name][quantity])


def main() -> int:
    """Make or take an environment, then compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, help="virtual environment that has the package")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take each N-th row only")
    options = parser.parse_args()
    scripts = "Scripts" if os.name == "nt" else "bin"
    if options.venv is not None:
        compare(options.venv / scripts / "python", options.every)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / scripts / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", PEER], check=True)
        compare(python, options.every)
    return 0


if __name__ == "__main__":
    sys.exit(main())
