"""Errors of memory, by who measured it: `python benchmarks/memory_errors.py [--leave-out]`.

Predicts the start-up logs of `data/memory.csv` and prints median and 90th percentile for vLLM from 0.10 on, the same outside the one
laboratory that most rows come from, older versions and other engines apart, and every row that is more than 10 % off.
Needs NumPy and SciPy. `--leave-out` refits the rule of the activation peak without each model in turn (vLLM 0.19, one laboratory) and
predicts that model, which takes a minute. The form of the rule was chosen with all models in sight, so that error is a lower bound.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import numpy as np
from scipy.optimize import minimize

from kvplan import api
from kvplan.calibration.scoring import score
from kvplan.calibration.validation import ValidationRow
from kvplan.core.layout import Layout
from kvplan.core.memory_rules import MemoryRules
from kvplan.core.model import Model
from kvplan.core.reservations import Limits, activation
from kvplan.core.units import GIB

DATA = Path(__file__).parent / "data"
ROWS = DATA / "memory.csv"
LABORATORY = "llmdp-019-"
QUANTITIES = ("weights_gib", "activation_gib", "kv_pool_gib", "kv_pool_tokens", "max_concurrency")
MISS = 0.1

#: What the refit may move, where it starts and why there: round guesses, away from the shipped values.
START: Mapping[str, float] = {
    "sampler_bytes_per_logit": 8.0,  # logits in fp32, twice
    "residual_rows": 2.0,
    "activation_fixed_bytes": 0.1 * GIB,
    "multimodal_bytes": 0.1 * GIB,
    "dense_hidden_rows": 6.0,
    "expert_hidden_rows": 6.0,
}
#: Cost of a factor e away from the start, so that a number which no other model fixes stays there.
PULL = 1e-3


@dataclass(frozen=True)
class SetUp:
    """A model as one log had it, and the activation peak [GiB] that was printed."""

    name: str
    model: Model
    layout: Layout
    limits: Limits
    measured: float

    def ratio(self, rules: MemoryRules) -> float:
        """Predicted ÷ measured."""
        return activation(rules, self.model, layout=self.layout, limits=self.limits).bytes / GIB / self.measured


def version(row: ValidationRow) -> tuple[int, ...]:
    """`0.19.0` as numbers; a row without a version counts as the newest."""
    return tuple(int(part) for part in row.engine_version.split(".")) if row.engine_version else (99,)


def is_new(row: ValidationRow) -> bool:
    """True for vLLM from 0.10 on."""
    return row.engine == "vllm" and version(row) >= (0, 10)


SCOPES: Mapping[str, Callable[[ValidationRow], bool]] = {
    "vLLM from 0.10": is_new,
    "… outside the laboratory": lambda row: is_new(row) and not row.id.startswith(LABORATORY),
    "vLLM before 0.10": lambda row: row.engine == "vllm" and not is_new(row),
    "other engines": lambda row: row.engine != "vllm",
}


def print_errors(rows: Sequence[ValidationRow]) -> None:
    """Medians and 90th percentiles by scope, then the misses."""
    for scope, belongs in SCOPES.items():
        for quantity in QUANTITIES:
            ratios = [row.ratio[quantity] for row in rows if belongs(row) and quantity in row.ratio]
            if ratios:
                found = score(ratios, [])
                print(
                    f"{scope:24}  {quantity:15}  n {found.n:2}  median {found.median_ape:6.2%}"
                    f"  p90 {found.p90_ape:5.1%}  max {max(abs(ratio - 1) for ratio in ratios):5.1%}  bias {found.bias:.3f}"
                )
    print(f"\nMore than {MISS:.0%} off")
    for row in sorted(rows, key=lambda row: -row.worst):
        missed = [
            f"{quantity} {row.predicted[quantity]:.4g} / {row.measured[quantity]:.4g} ({ratio - 1:+.0%})"
            for quantity, ratio in row.ratio.items()
            if abs(ratio - 1) > MISS
        ]
        if missed:
            print(f"  {row.id} ({row.engine} {row.engine_version or 'newest'}): {', '.join(missed)}")


def load_set_ups() -> list[SetUp]:
    """The laboratory's logs, each set-up that tells something new once."""
    found: dict[tuple[object, ...], SetUp] = {}
    with ROWS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not row["id"].startswith(LABORATORY):
                continue
            layout = Layout(tp=int(row["tp"]), pp=int(row["pp"]))
            source = row["model"] if "/" not in row["model"] else str(DATA / row["model"])
            dtype = row["dtype"] if row["dtype"] == "fp32" else None
            deployment = api.deployment(source, row["gpu"], engine="vllm@0.19", dtype=dtype, layout=layout)
            limits = Limits(
                max_num_seqs=int(row["max_num_seqs"]),
                max_num_batched_tokens=int(row["max_num_batched_tokens"]),
                tier=deployment.engine.memory.tiers[-1],
            )
            key = (deployment.model.id, layout, dtype)
            measured = float(row["activation_gib"])
            found.setdefault(key, SetUp(deployment.model.id, deployment.model, layout, limits, measured))
    return list(found.values())


def with_numbers(rules: MemoryRules, factors: Sequence[float]) -> MemoryRules:
    """Rules with the numbers that are fitted, each as a factor of its start."""
    values = {name: start * factor for (name, start), factor in zip(START.items(), factors, strict=True)}
    return replace(rules, **values)


def fit(rules: MemoryRules, seen: Sequence[SetUp]) -> MemoryRules:
    """Least absolute relative error over what was seen, from START, by Powell's method."""

    def cost(logs: Sequence[float]) -> float:
        tried = with_numbers(rules, np.exp(logs))
        return sum(abs(one.ratio(tried) - 1) for one in seen) + PULL * float(np.abs(logs).sum())

    best = minimize(cost, np.zeros(len(START)), method="Powell", options={"xtol": 1e-3, "ftol": 1e-5})
    best = minimize(cost, best.x, method="Powell", options={"xtol": 1e-3, "ftol": 1e-5})  # past a kink of the first
    return with_numbers(rules, np.exp(best.x))


def print_left_out() -> None:
    """Refit without each model and predict it."""
    set_ups = load_set_ups()
    rules = api.load_engine("vllm@0.19").memory
    shipped = [abs(one.ratio(rules) - 1) for one in set_ups]
    errors = []
    for name in sorted({one.name for one in set_ups}):
        refitted = fit(rules, [one for one in set_ups if one.name != name])
        for one in (one for one in set_ups if one.name == name):
            error = one.ratio(refitted) - 1
            errors.append(abs(error))
            ranks = f"tp {one.layout.tp} pp {one.layout.pp}"
            print(
                f"  {name:24}  {ranks}  measured {one.measured:.2f} GiB  left out {error:+6.1%}  shipped {one.ratio(rules) - 1:+6.1%}"
            )
        print(f"    {', '.join(f'{key} {getattr(refitted, key):.4g}' for key in START)}")
    for words, found in (("left out", errors), ("shipped", shipped)):
        print(
            f"{words}: {len(found)} set-ups, median {median(found):.1%}, mean {fmean(found):.1%}, max {max(found):.1%}"
        )


def main() -> int:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leave-out", action="store_true", help="leave each model out of the activation rule as well")
    options = parser.parse_args()
    print_errors(api.validate(ROWS).rows)
    if options.leave_out:
        print("\nActivation peak, each model left out")
        print_left_out()
    return 0


if __name__ == "__main__":
    sys.exit(main())
