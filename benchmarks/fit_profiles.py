"""Rebuild the efficiencies of the shipped profiles: `python benchmarks/fit_profiles.py --write`.

Measured kernels are the priors (their op-by-op fits are the constants in `KERNELS`); end-to-end rows of `data/` move them. Errors are
told in sample, and on configurations, models and GPUs left out. Needs NumPy and SciPy; takes a few minutes.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from profile_sections import write_profiles
from scipy.optimize import least_squares

from kvplan import api
from kvplan.calibration.record import leading_version
from kvplan.core.efficiency import Efficiency
from kvplan.core.layout import Layout
from kvplan.core.memory import plan_memory
from kvplan.core.roofline import Machine
from kvplan.core.serving import Load, steady_state

DATA = Path(__file__).parent / "data"
Array = Any  # a NumPy array
LOW = 64
ENGINES = ("vllm", "sglang", "tensorrt-llm")

#: Op-by-op fits of measured kernels (GEMM, grouped GEMM, attention, collectives), by family. Times in µs.
KERNELS: dict[str, dict[str, Any]] = {
    "hopper": {
        "bandwidth": 0.80, "bf16": 0.75, "fp8": 0.55, "fp4": 0.40, "kernel": 2.8, "idle": 0.1, "quantise": 2.2, "experts": 0.88,
        "grouped": {"bf16": 0.5, "fp8": 0.4, "mxfp4": 0.45, "fp4": 0.45}, "moe": 32.0, "rows": 0.8, "tokens": 3.0, "pad": 60.0,
        "tile": 12.0, "cache": 0.85, "prefill": 0.85, "softmax": 50.0, "row": 3.5, "allreduce": 4.0,
    },
    "blackwell-dc": {
        "bandwidth": 0.74, "bf16": 0.70, "fp8": 0.57, "fp4": 0.45, "kernel": 2.3, "idle": 0.2, "quantise": 2.7, "experts": 0.90,
        "grouped": {"bf16": 0.45, "fp8": 0.25, "fp4": 0.6, "mxfp4": 0.6}, "moe": 22.4, "rows": 1.5, "tokens": 1.3, "pad": 40.0,
        "tile": 5.0, "cache": 0.92, "prefill": 0.95, "softmax": 100.0, "row": 1.6, "allreduce": 5.5,
    },
}  # fmt: skip
FAMILIES = tuple(KERNELS)

#: All priors are this much tighter than written: found by leaving out models, whose error it halves against in-sample.
TIGHTNESS = 0.35
#: Noise of a row and what rows of one configuration share (logarithms); TTFT by benchmark and by equal lengths.
ROW, SHARED = 0.08, 0.04
TTFT = (0.15, 0.35)


@dataclass(frozen=True)
class Parameter:
    """A number to fit: its prior, the standard deviation of its logarithm, its limit and whom it concerns."""

    name: str
    prior: float
    sigma: float
    limit: float = np.inf
    scope: str | None = None


def parameters() -> list[Parameter]:
    """Every number that end-to-end rows may move, 69 in all: 12 or 13 per family, 10 per engine, the rest shared."""
    found: list[Parameter] = []

    def add(name: str, prior: float, sigma: float, limit: float = np.inf, scope: str | None = None) -> None:
        found.append(Parameter(name if scope is None else f"{name}.{scope}", prior, sigma, limit, scope))

    for family, kernel in KERNELS.items():
        add("bandwidth", kernel["bandwidth"], 0.07, 0.95, family)
        add("bf16", kernel["bf16"], 0.08, 0.9, family)
        add("fp8", kernel["fp8"], 0.1, 0.8, family)
        if family != "hopper":
            add("fp4", kernel["fp4"], 0.15, 0.8, family)
        add("experts", kernel["experts"], 0.08, 0.97, family)
        add("grouped", 1.0, 0.3, scope=family)
        add("moe", kernel["moe"], 0.3, scope=family)
        add("cache", kernel["cache"], 0.08, 0.97, family)
        add("prefill", kernel["prefill"], 0.15, 1.2, family)
        add("layer", 14.0, 0.4, scope=family)
        add("allreduce", kernel["allreduce"], 0.3, scope=family)
    for name, prior, sigma, limit in (
        ("kernel", 0.8, 0.2, np.inf), ("activations", 1.2, 0.25, np.inf), ("quantised", 4.0, 0.4, np.inf),
        ("elementwise", 8.0, 0.3, np.inf), ("expand_mfu", 0.8, 0.2, np.inf), ("expand_bandwidth", 0.9, 0.1, 1.0),
        ("skew", 1.25, 0.4, np.inf), ("imbalance", 0.2, 0.5, np.inf), ("link", 0.65, 0.15, 1.0), ("alltoall", 60.0, 0.4, np.inf),
        ("decode_mfu", 0.5, 0.25, 1.0), ("recurrent", 20.0, 0.4, np.inf), ("scan", 2.5, 0.2, np.inf), ("indexer", 35.0, 0.4, np.inf),
        ("recurrent_old", 2.0, 0.9, np.inf), ("block_old", 10.0, 1.5, np.inf), ("fp4_bandwidth", 0.88, 0.15, 1.0),
        ("stream_hopper", 12.0, 1.5, np.inf),
    ):  # fmt: skip
        add(name, prior, sigma, limit)
    for engine in ENGINES:
        sglang = engine == "sglang"
        add("step", 0.4e-3, 1.5, scope=engine)
        add("sequence", 8e-6, 1.0, scope=engine)
        add("request", 12e-3, 2.0, scope=engine)
        add("prompt_token", 1e-6, 2.0, scope=engine)
        add("layers", 0.85 if engine == "tensorrt-llm" else 1.0, 0.2, scope=engine)
        add("moes", 1.0, 0.2, scope=engine)
        add("groupeds", 1.0, 0.2, scope=engine)
        add("stream", 10.0 if sglang else 4.0, 2.0, scope=engine)
        add("stream_busy", 20.0 if sglang else 5.0, 2.0, scope=engine)
        add("quantise", 1.5, 0.9, scope=engine)
    return found


PARAMETERS = parameters()
NAMES = [one.name for one in PARAMETERS]
PRIOR = np.log([one.prior for one in PARAMETERS])
SIGMA = TIGHTNESS * np.array([one.sigma for one in PARAMETERS])
LIMIT = np.array([np.log(one.limit) for one in PARAMETERS])


def efficiency(q: Mapping[str, float], family: str, engine: str, *, old: bool = False) -> Efficiency:
    """The efficiency of an engine on a family; `old` before SGLang 0.5.10 and vLLM 0.18."""
    kernel = KERNELS[family]
    grouped = q[f"grouped.{family}"] * q[f"groupeds.{engine}"]
    local = engine == "tensorrt-llm" and family == "hopper"  # CUTLASS kernels move only the rows of their own experts
    hopper_sglang = engine == "sglang" and family == "hopper"
    return Efficiency(
        gemm_bandwidth=q[f"bandwidth.{family}"],
        fp4_bandwidth=q["fp4_bandwidth"],
        gemm_mfu={"bf16": q[f"bf16.{family}"], "fp8": q[f"fp8.{family}"], "fp4": q.get(f"fp4.{family}", kernel["fp4"])},
        gemm_idle_tiles=kernel["idle"],
        gemm_activation_traffic=q["activations"],
        quantised_activation_traffic=q["quantised"],
        kernel_s=kernel["kernel"] * q["kernel"] * 1e-6,
        quantise_kernel_s=kernel["quantise"] * q[f"quantise.{engine}"] * 1e-6,
        block_kernel_s=q["block_old"] * 1e-6 if old and engine == "vllm" else 0.0,
        dequantise_mfu=q["expand_mfu"],
        dequantise_bandwidth=q["expand_bandwidth"],
        expert_bandwidth=q[f"experts.{family}"],
        expert_mfu={name: share * grouped for name, share in kernel["grouped"].items()},
        expert_pad_tokens=kernel["pad"],
        expert_tile=kernel["tile"],
        expert_activation_traffic=2.2 if local else kernel["rows"],
        expert_token_traffic=1.0 if local else kernel["tokens"],
        expert_skew=q["skew"],
        expert_imbalance=q["imbalance"],
        attention_bandwidth=q[f"cache.{family}"],
        attention_mfu_decode=q["decode_mfu"],
        attention_mfu_prefill=q[f"prefill.{family}"],
        attention_softmax_dims=kernel["softmax"],
        attention_s=10e-6 * q["kernel"],
        attention_row_s=kernel["row"] * 1e-6,
        indexer_s=q["indexer"] * 1e-6,
        state_bandwidth=0.83,
        recurrent_s=q["recurrent"] * 1e-6 * (q["recurrent_old"] if old and engine == "sglang" else 1.0),
        scan_s=q["scan"] * 1e-6,
        link_bandwidth=q["link"],
        allreduce_s=q[f"allreduce.{family}"] * 1e-6,
        allreduce_hop_s=0.15e-6,
        alltoall_s=q["alltoall"] * 1e-6,
        layer_s=q[f"layer.{family}"] * q[f"layers.{engine}"] * 1e-6,
        moe_layer_s=q[f"moe.{family}"] * q[f"moes.{engine}"] * 1e-6,
        elementwise_traffic=q["elementwise"],
        step_s=q[f"step.{engine}"],
        sequence_s=q[f"sequence.{engine}"],
        request_s=q[f"request.{engine}"],
        prefill_token_s=q[f"prompt_token.{engine}"],
        stream_tokens=q["stream_hopper"] if hopper_sglang else q[f"stream.{engine}"],
        stream_tokens_busy=q["stream_hopper"] if hopper_sglang else q[f"stream_busy.{engine}"],
    )


@dataclass(frozen=True)
class Case:
    """Rows of one configuration, engine version and way of measuring.

    `old_by_number` is what a version number tells; `old` knows nightly builds of February 2026 as well.
    """

    configuration: tuple[str, ...]
    model: str
    gpu: str
    engine: str
    family: str
    old: bool
    old_by_number: bool
    benchmark: bool
    deployment: Any
    load: Load
    ttft_s: Any
    tpot_s: Any

    def concerns(self, parameter: Parameter) -> bool:
        """True where the parameter can move this case."""
        return parameter.scope in {None, self.family, self.engine}


def load_cases() -> list[Case]:
    """The rows of `data/serving.csv` that did not queue, by configuration."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    with (DATA / "serving.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["queued"] == "0":
                names = ("model", "dtype", "kv_dtype", "gpu", "tp", "ep", "dp", "engine")
                kind = "benchmark" if row["length_distribution"] else "equal"
                groups[(*(row[name] for name in names), row["engine_version"], kind)].append(row)
    return [_case(key, rows) for key, rows in groups.items()]


def _case(key: tuple[str, ...], rows: list[dict[str, str]]) -> Case:
    path, dtype, kv_dtype, gpu, tp, ep, dp, engine, text, kind = key
    version = leading_version(text)
    deployment = api.deployment(
        _model(path), gpu, engine=f"{engine}@{version}" if version else engine, dtype=dtype or None, kv_dtype=kv_dtype or None,
        layout=Layout(tp=int(tp), dp=int(dp), ep=None if ep == "1" else int(ep)),
    )  # fmt: skip
    scale = 0.9 if kind == "benchmark" else 1.0

    def column(name: str) -> Array:
        return np.array([float(row[name]) for row in rows])

    inputs, outputs = np.round(column("input_tokens") * scale), np.round(column("output_tokens") * scale)
    longest, most = int(inputs.max() + outputs.max()), int(column("concurrency").max())
    plan = plan_memory(deployment.question(context=longest, concurrency=most))
    load = Load(
        input_tokens=inputs, output_tokens=outputs, concurrency=column("concurrency") / int(dp), capacity=1e9, max_num_seqs=1e9,
        budget_tokens=float(plan.max_num_batched_tokens), mixes_prefill=deployment.engine.scheduling.mixes_prefill,
        equal_lengths=kind == "equal", benchmark_requests=10 * column("concurrency") / int(dp) if kind == "benchmark" else None,
    )  # fmt: skip
    parts = tuple(int(part) for part in version.split(".")[:3]) if version else ()
    new = {"sglang": (0, 5, 10), "vllm": (0, 18)}.get(engine, ())
    return Case(
        configuration=key[:8], model=rows[0]["model_name"], gpu=gpu, engine=engine, family=deployment.gpu.family,
        old=bool(parts and parts < new) or (engine == "sglang" and text.startswith("nightly")),
        old_by_number=bool(parts and parts < new), benchmark=kind == "benchmark",
        deployment=deployment, load=load, ttft_s=column("ttft_ms") / 1e3, tpot_s=column("tpot_ms") / 1e3,
    )  # fmt: skip


_MODELS: dict[str, Any] = {}


def _model(path: str) -> Array:
    if path not in _MODELS:
        _MODELS[path] = api.load_model(DATA / path)
    return _MODELS[path]


def predict(case: Case, q: Mapping[str, float]) -> tuple[Any, Any]:
    """TTFT and TPOT of a case [s]."""
    machine = Machine(gpu=case.deployment.gpu, efficiency=efficiency(q, case.family, case.engine, old=case.old))
    state = steady_state(case.deployment.work, case.load, machine)
    return state.ttft_s, state.tpot_s


def residuals(case: Case, q: Mapping[str, float]) -> Array:
    """TPOT whitened for what rows of a case share; TTFT under a Cauchy loss (servers' stream intervals are not recorded)."""
    ttft, tpot = predict(case, q)
    log = np.log(tpot / case.tpot_s)
    kept = 1 - np.sqrt(ROW**2 / (ROW**2 + len(log) * SHARED**2))
    first = np.log(ttft / case.ttft_s) / TTFT[0 if case.benchmark else 1]
    return np.concatenate([(log - kept * log.mean()) / ROW, np.sign(first) * np.sqrt(np.log1p(first**2))])


def jacobian(cases: Sequence[Case], logs: Array) -> tuple[list[Any], list[Any]]:
    """Residuals and their derivatives by case; only parameters that concern a case are moved."""
    q = dict(zip(NAMES, np.exp(logs), strict=True))
    base = [residuals(case, q) for case in cases]
    slopes = [np.zeros((len(one), len(NAMES))) for one in base]
    for column, parameter in enumerate(PARAMETERS):
        moved = {**q, parameter.name: q[parameter.name] * np.exp(1e-4)}
        for index, case in enumerate(cases):
            if case.concerns(parameter):
                slopes[index][:, column] = (residuals(case, moved) - base[index]) / 1e-4
    return base, slopes


def fit(cases: Sequence[Case], start: Array = PRIOR, steps: int = 12) -> Array:
    """Logarithms of the parameters that fit the cases."""
    prior = np.diag(1 / SIGMA)
    found = least_squares(
        lambda logs: np.concatenate([*jacobian_free(cases, logs), (logs - PRIOR) / SIGMA]),
        np.minimum(start, LIMIT - 1e-6),
        jac=lambda logs: np.vstack([*jacobian(cases, logs)[1], prior]),
        loss="soft_l1", max_nfev=steps, x_scale=SIGMA, bounds=(np.full(len(PRIOR), -np.inf), LIMIT),
    )  # fmt: skip
    return found.x


def jacobian_free(cases: Sequence[Case], logs: Array) -> list[Any]:
    """Residuals alone."""
    q = dict(zip(NAMES, np.exp(logs), strict=True))
    return [residuals(case, q) for case in cases]


def left_out(cases: Sequence[Case], by: Callable[[Case], Any], logs: Array) -> list[tuple[Any, Any]]:
    """Predictions of each case from parameters without its group, by one Gauss–Newton step away from the optimum.

    The step drops the group's normal equations under the robust weights of the optimum. Refitting five folds of
    configurations gave the same errors within 0.01 (median TPOT 0.081 for 0.088, p90 0.212 for 0.204).
    """
    base, slopes = jacobian(cases, logs)
    weights = [1 / np.sqrt(1 + one**2) for one in base]
    squares = [slope.T @ (slope * weight[:, None]) for slope, weight in zip(slopes, weights, strict=True)]
    pulls = [slope.T @ (weight * one) for slope, weight, one in zip(slopes, weights, base, strict=True)]
    square = np.diag(1 / SIGMA**2) + sum(squares)
    pull = (logs - PRIOR) / SIGMA**2 + sum(pulls)
    free = ~((logs >= LIMIT - 1e-3) & (pull < 0))
    found: list[Any] = [None] * len(cases)
    for group in sorted({by(case) for case in cases}):
        mine = [index for index, case in enumerate(cases) if by(case) == group]
        rest = square - sum(squares[index] for index in mine)
        step = np.zeros(len(logs))
        step[free] = np.linalg.solve(rest[np.ix_(free, free)], -(pull - sum(pulls[index] for index in mine))[free])
        q = dict(zip(NAMES, np.exp(np.minimum(logs + np.clip(step, -1, 1), LIMIT)), strict=True))
        for index in mine:
            found[index] = predict(replace(cases[index], old=cases[index].old_by_number), q)
    return found


def held_out(
    cases: Sequence[Case], by: Callable[[Case], Any], start: Array, folds: int | None
) -> list[tuple[Any, Any]]:
    """Predictions of each case from fits that did not see its group; `folds` None leaves out one group at a time."""
    groups = sorted({by(case) for case in cases})
    np.random.default_rng(0).shuffle(groups)
    fold = {group: index % (folds or len(groups)) for index, group in enumerate(groups)}
    found: list[Any] = [None] * len(cases)
    for one in range(folds or len(groups)):
        logs = fit([case for case in cases if fold[by(case)] != one], start, steps=5)
        q = dict(zip(NAMES, np.exp(logs), strict=True))
        for index, case in enumerate(cases):
            if fold[by(case)] == one:
                found[index] = predict(replace(case, old=case.old_by_number), q)
    return found


def report(title: str, cases: Sequence[Case], predictions: Sequence[tuple[Any, Any]]) -> None:
    """Print errors: medians, means, ninth deciles, and the mean of group medians."""
    ttft = np.concatenate([one[0] / case.ttft_s for one, case in zip(predictions, cases, strict=True)])
    tpot = np.concatenate([one[1] / case.tpot_s for one, case in zip(predictions, cases, strict=True)])
    low = np.concatenate(
        [case.benchmark & (case.load.concurrency * case.deployment.layout.dp <= LOW) for case in cases]
    )
    groups = defaultdict(list)
    for one, case in zip(predictions, cases, strict=True):
        groups[case.model, case.gpu, case.engine].append(np.abs(one[1] / case.tpot_s - 1))
    medians = np.mean([np.median(np.concatenate(errors)) for errors in groups.values()])
    print(
        f"{title}: TPOT {_errors(tpot)}, group medians {medians:.3f}; TTFT {_errors(ttft)}; InferenceX to 64: {_errors(ttft[low])}"
    )


def table(cases: Sequence[Case], predictions: Sequence[tuple[Any, Any]]) -> None:
    """Print errors by model, GPU and engine, worst TPOT first."""
    groups: dict[tuple[str, ...], list[tuple[Any, Any]]] = defaultdict(list)
    for one, case in zip(predictions, cases, strict=True):
        groups[case.model, case.gpu, case.engine].append((one[1] / case.tpot_s, one[0] / case.ttft_s))
    rows = []
    for names, pairs in groups.items():
        tpot, ttft = (np.concatenate([pair[k] for pair in pairs]) for k in (0, 1))
        errors = [np.median(np.abs(ratio - 1)) for ratio in (tpot, ttft)]
        bias = [np.exp(np.log(ratio).mean()) for ratio in (tpot, ttft)]
        cells = f"{len(tpot)} | {errors[0]:.3f} | {bias[0]:.2f} | {errors[1]:.3f} | {bias[1]:.2f}"
        rows.append((errors[0], f"| {' | '.join(names)} | {cells} |"))
    print(
        "\n| model | GPU | engine | n | TPOT median | bias | TTFT median | bias |\n|---|---|---|---:|---:|---:|---:|---:|"
    )
    print("\n".join(text for _, text in sorted(rows, reverse=True)))


def _errors(ratio: Array) -> str:
    error = np.abs(ratio - 1)
    return f"median {np.median(error):.3f} mean {error.mean():.3f} p90 {np.quantile(error, 0.9):.3f}"


def main() -> int:
    """Fit, report, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write kvplan/specs/profiles")
    parser.add_argument(
        "--held-out", action="store_true", help="fit again without each part of the data (many minutes)"
    )
    options = parser.parse_args()
    cases = load_cases()
    logs = fit(cases, steps=25)
    q = dict(zip(NAMES, (float(value) for value in np.exp(logs)), strict=True))
    report(f"in sample ({len(NAMES)} parameters)", cases, [predict(case, q) for case in cases])
    groups: dict[str, Callable[[Case], Any]] = {
        "configurations left out": lambda case: case.configuration,
        "models left out": lambda case: case.model,
        "GPUs left out": lambda case: case.gpu,
    }
    for title, by in groups.items():
        report(title, cases, left_out(cases, by, logs))
        if options.held_out:
            report(f"{title}, fitted again", cases, held_out(cases, by, logs, 5 if "configurations" in title else None))
    table(cases, left_out(cases, groups["configurations left out"], logs))
    if options.write:
        write_profiles(
            q, {(family, engine): efficiency(q, family, engine) for family in FAMILIES for engine in ENGINES}, KERNELS
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
