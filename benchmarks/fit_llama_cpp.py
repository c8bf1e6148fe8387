"""Rebuild llama.cpp's efficiencies from `data/llama_cpp.csv`: `python benchmarks/fit_llama_cpp.py [--held-out]`.

Prints the numbers of the `efficiency` section of `kvplan/specs/profiles/llama.cpp.yaml`; `--held-out` leaves out devices in five folds.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from kvplan import api
from kvplan.core.efficiency import Efficiency
from kvplan.core.layout import Layout
from kvplan.core.roofline import Machine
from kvplan.core.serving import Load, steady_state

DATA = Path(__file__).parent / "data"
FOLDS, SHORTEST_PROMPT, CHUNK = 5, 500, 512

#: Numbers that all families share: prior, standard deviation of the logarithm, limit.
SHARED = {
    "dequantise_bandwidth": (0.95, 0.2, 1.2), "dequantise_mfu": (0.7, 0.3, 1.3), "layer_s": (20e-6, 0.5, 1.0),
    "kernel_s": (4e-6, 0.4, 1.0), "quantise_kernel_s": (2e-6, 0.6, 1.0), "attention_mfu_prefill": (0.25, 0.5, 1.0),
    "step_s": (0.2e-3, 0.6, 1.0), "attention_bandwidth": (0.7, 0.2, 1.0),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Rows of one model, card and format; NaN where nothing was measured [s]."""

    gpu: str
    family: str
    deployment: Any
    load: Load
    ttft_s: Any
    tpot_s: Any


def load_cases() -> list[Case]:
    """Rows by deployment; batches (llama-batched-bench) are left for validation."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    with (DATA / "llama_cpp.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["concurrency"] in {"", "1"}:
                groups[row["model"], row["gpu"], row["dtype"], row["tp"], row["pp"]].append(row)
    return [_case(key, rows) for key, rows in groups.items()]


def _case(key: tuple[str, ...], rows: Sequence[Mapping[str, str]]) -> Case:
    path, gpu, dtype, tp, pp = key
    deployment = api.deployment(
        str(DATA / path), gpu, engine="llama.cpp", dtype=dtype or None, layout=Layout(tp=int(tp), pp=int(pp))
    )

    def measured(name: str, other: str) -> Any:  # noqa: ANN401 - an array
        cells = [row[name] if row[name] and not row["id"].endswith(other) else "nan" for row in rows]
        return np.array([float(cell) for cell in cells]) / 1e3

    def column(name: str, default: int = 1) -> Any:  # noqa: ANN401 - an array
        return np.array([float(row[name] or default) for row in rows])

    ttft = measured("ttft_ms", "-decode")
    whole = np.array(["WHOLE" in row["notes"] for row in rows])
    ttft[(column("input_tokens") < SHORTEST_PROMPT) | whole] = np.nan
    load = Load(
        input_tokens=column("input_tokens"), output_tokens=column("output_tokens"), concurrency=column("concurrency"), capacity=1e9,
        max_num_seqs=1e9, budget_tokens=column("max_num_batched_tokens", CHUNK),
    )  # fmt: skip
    return Case(gpu, deployment.gpu.family, deployment, load, ttft, measured("tpot_ms", "-prefill"))


def efficiency(q: Mapping[str, float], case: Case) -> Efficiency:
    """The family's efficiency with fitted numbers in their places."""
    base = case.deployment.machine.efficiency
    mfu = {**base.gemm_mfu, **dict.fromkeys(("bf16", "fp16"), q[f"mfu.{case.family}"])}
    return replace(
        base, gemm_bandwidth=q[f"bandwidth.{case.family}"], gemm_mfu=mfu, attention_softmax_dims=0.0, gemm_idle_tiles=0.0, half_accumulate=True,
        **{name: q[name] for name in SHARED},
    )  # fmt: skip


def ratios(case: Case, q: Mapping[str, float]) -> tuple[Any, Any]:
    """Predicted ÷ measured TPOT and TTFT."""
    machine = Machine(gpu=case.deployment.gpu, efficiency=efficiency(q, case))
    state = steady_state(case.deployment.work, case.load, machine)
    return state.tpot_s / case.tpot_s, state.ttft_s / case.ttft_s


def priors(cases: Sequence[Case]) -> dict[str, tuple[float, float, float]]:
    """Priors: bandwidth of the family, three quarters of its arithmetic (kernels of llama.cpp are simpler)."""
    found = dict(SHARED)
    for case in cases:
        eff = api.load_engine("vllm").efficiency_for(case.deployment.gpu)[0]
        found[f"bandwidth.{case.family}"] = (eff.gemm_bandwidth, 0.12, 0.95)
        found[f"mfu.{case.family}"] = (0.75 * eff.mfu("bf16"), 0.35, 1.0)
    return found


def fit(cases: Sequence[Case], prior: Mapping[str, tuple[float, float, float]], steps: int = 10) -> dict[str, float]:
    """Robust least squares on logarithms: 10 % of TPOT weighs as much as 25 % of TTFT."""
    names = list(prior)
    centre, sigma = np.log([prior[name][0] for name in names]), np.array([prior[name][1] for name in names])
    limit = np.log([prior[name][2] for name in names])

    def residuals(logs: Any) -> Any:  # noqa: ANN401 - arrays
        q = dict(zip(names, np.exp(logs), strict=True))
        parts = [(logs - centre) / sigma]
        for case in cases:
            tpot, ttft = ratios(case, q)
            parts += [np.nan_to_num(np.log(tpot)) / 0.1, np.nan_to_num(np.log(ttft)) / 0.25]
        return np.concatenate(parts)

    start = np.minimum(centre, limit - 1e-6)
    found = least_squares(residuals, start, loss="soft_l1", bounds=(-np.inf, limit), x_scale=sigma, max_nfev=steps)
    return dict(zip(names, np.exp(found.x), strict=True))


def report(title: str, pairs: Sequence[tuple[Case, tuple[Any, Any]]]) -> None:
    """Print medians by family."""
    families = sorted({case.family for case, _ in pairs})
    for family in [*families, "all"]:
        mine = [pair for case, pair in pairs if family in {case.family, "all"}]
        words = []
        for name, k in (("TPOT", 0), ("TTFT", 1)):
            values = np.concatenate([pair[k] for pair in mine])
            values = values[~np.isnan(values)]
            if len(values):
                words.append(f"{name} n {len(values)} median {np.median(np.abs(values - 1)):.3f}")
        print(f"{title}, {family}: {'; '.join(words)}")


def main() -> int:
    """Fit, print the numbers, and errors in sample or on devices left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-out", action="store_true", help="leave out devices in five folds as well")
    options = parser.parse_args()
    cases = load_cases()
    prior = priors(cases)
    q = fit(cases, prior)
    for name, value in q.items():
        print(f"{name}: {value:.3g}")
    report("in sample", [(case, ratios(case, q)) for case in cases])
    if options.held_out:
        devices = sorted({case.gpu for case in cases})
        pairs = []
        for fold in range(FOLDS):
            out = set(devices[fold::FOLDS])
            seen = fit([case for case in cases if case.gpu not in out], prior, steps=5)
            pairs += [(case, ratios(case, seen)) for case in cases if case.gpu in out]
        report("devices left out", pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
