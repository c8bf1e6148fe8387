"""Questions about many scenarios: compare, sweep, plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan.api.answers import estimate
from kvplan.api.arguments import Axes, by_name, keywords_of, kinds_of, of_kind
from kvplan.api.deployments import deployment_of
from kvplan.api.loading import EngineLike, GpuLike, ModelLike, load_engine, load_gpu, load_model
from kvplan.core.deployment import Deployment
from kvplan.core.dtypes import kv_format
from kvplan.core.engine import Settings
from kvplan.core.precision import apply_dtype
from kvplan.core.results import Estimate
from kvplan.errors import UsageError
from kvplan.planning.axes import read_axes
from kvplan.planning.requests import prices as read_prices
from kvplan.planning.scenarios import LOAD_FIELDS, Scenario, field_name, keywords
from kvplan.specs import registry
from kvplan.specs.files import located

if TYPE_CHECKING:
    from typing import Unpack

    from kvplan.planning.comparison import Comparison
    from kvplan.planning.fields import GridFields, ScenarioFields
    from kvplan.planning.plan_result import Plan
    from kvplan.planning.sweep_result import Sweep


@by_name
def sweep(
    model: ModelLike | Sequence[ModelLike] | None = None,
    gpu: GpuLike | Sequence[GpuLike] | None = None,
    *,
    axes: Axes = (),
    ranges: bool = False,
    **fields: Unpack[GridFields],
) -> Sweep:
    """Answer the full grid of scenarios: every list or array among the arguments is an axis.

    Args:
        model: One, or a list of them; None where `axes` has it.
        gpu: The same.
        axes: Further axes by name or as text (`"context=4096:32768:log2"`), what-ifs on the model (`kv_heads`,
            `layers`, `config.KEY`) among them.
        ranges: True to add the 90 % band and the floor of each time and rate, which takes twice as long.
        **fields: Keywords of `estimate`, each one value or several.

    Returns:
        Named arrays, one dimension for each axis in the order of the call.

    Raises:
        UsageError: No axis, or values that make no sense together.
    """
    _need_arrays("sweep")
    _no_lists({"model": model, "gpu": gpu, **fields}, "--sweep")
    from kvplan.planning.sweep import run_sweep  # noqa: PLC0415

    named: dict[str, Any] = {field_name(name): value for name, value in fields.items() if name != "overrides"}
    given = {"model": model, "gpu": gpu, **named}
    kinds = kinds_of(estimate)
    found = {name: value for name, value in given.items() if _several(value)}
    base = {name: of_kind(name, value, kinds.get(name)) for name, value in given.items() if name not in found}
    if fields.get("overrides") is not None:
        base["overrides"] = of_kind("overrides", fields["overrides"], kinds["overrides"])
    found.update(read_axes(axes))
    for name in found.keys() & LOAD_FIELDS & kinds.keys():
        if kinds[name] == "bool":
            found[name] = [of_kind(name, value, "bool") for value in found[name]]
        for value in found[name]:
            if not isinstance(value, Real):  # numbers become arrays, in which fractions are numbers too
                of_kind(name, value, kinds[name])
    return run_sweep(_deployment_of_kinds, base, found, ranges=ranges)


def _deployment_of_kinds(fields: Mapping[str, Any]) -> Deployment:
    """A point of a grid, its values checked as those of an estimate are."""
    kinds = kinds_of(estimate)
    given = {name: of_kind(name, value, kinds.get(name)) for name, value in fields.items()}
    return deployment_of(keywords(given))


def users_sweep(fields: Mapping[str, Any], answer: Estimate) -> Sweep:
    """The same scenario for one user up to twice what fits, the asked concurrency among them, with ranges."""
    _need_arrays("--plot")
    most = max(answer.capacity.max_concurrency * answer.scenario.dp * 2, answer.scenario.concurrency, 2)
    counts = {2**power for power in range(12) if 2**power <= most} | {answer.scenario.concurrency}
    base = {name: value for name, value in fields.items() if name not in {"concurrency", "gpu_count"}}
    return sweep(axes={"concurrency": sorted(counts)}, ranges=True, **base)  # type: ignore[misc, unused-ignore]


@by_name
def compare(
    scenarios: Scenario | Mapping[str, Any] | str | Iterable[Scenario | Mapping[str, Any] | str] = (),
    *,
    vary: Axes = (),
    **base: Unpack[ScenarioFields],
) -> Comparison:
    """Answer several scenarios and say what changed against the first, and why.

    Args:
        scenarios: Each a `Scenario`, a mapping of the fields that differ from the base (`name` names it), or text
            (`"small:gpu=l40s,tp=2"`). One alone is compared with the base.
        vary: Field → values, or text (`"kv-dtype=bf16,fp8"`); every combination is a scenario.
        **base: Keywords of `estimate` (`model` and `gpu` among them) that all scenarios share.

    Raises:
        UsageError: Fewer than two scenarios, or a field that does not exist.
    """
    from kvplan.planning.compare import run_compare  # noqa: PLC0415

    _no_lists(base, "--vary")
    shared = keywords_of(estimate, base, asked="compare")
    if isinstance(scenarios, str | Mapping | Scenario) or not isinstance(scenarios, Iterable):
        scenarios = [scenarios]
    return run_compare(estimate, shared, scenarios, vary=read_axes(vary))


@by_name
def plan(
    model: ModelLike,
    gpus: GpuLike | Sequence[GpuLike] | None = None,
    *,
    rate: float | None = None,
    users: float | None = None,
    think_s: float | None = None,
    input_tokens: int | str | None = None,
    output_tokens: int | str | None = None,
    trace: str | Path | None = None,
    shared_prefix_tokens: int = 0,
    prefix_hit_rate: float = 1.0,
    context: int | None = None,
    slo_ttft_ms: float | str | None = None,
    slo_tpot_ms: float | str | None = None,
    slo_e2e_ms: float | str | None = None,
    slo_at: str = "p95",
    engines: EngineLike | Sequence[EngineLike] = "vllm",
    dtypes: str | Sequence[str | None] | None = None,
    kv_dtypes: str | Sequence[str | None] | None = None,
    tp: int | Sequence[int] | None = None,
    pp: int | Sequence[int] | None = None,
    dp: int | Sequence[int] | None = None,
    ep: int | Sequence[int | None] | None = None,
    max_gpus: int | None = None,
    spare_replicas: int = 0,
    prices: Mapping[str, float] | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    gpu_memory_utilization: float | None = None,
    max_busy: float = 0.9,
) -> Plan:
    """Find the cheapest and the fastest deployment that serves a load within its targets.

    Args:
        model: What is served.
        gpus: Accelerators to look at; None is those with a price, or all bundled ones that can be had.
        rate: Requests per second; or
        users: Users who wait, think and ask again. Without either, the most that `max_gpus` (or one replica) carry is
            the answer: users where `think_s` is given, else requests per second.
        think_s: Their pause [s]; None is none.
        input_tokens: Length of prompts: a number, `uniform:100:2000`, `lognormal:500:1`, `p50=500,p95=4000` [token].
        output_tokens: Length of answers, in the same forms [token].
        trace: File with request times and lengths (Azure, BurstGPT, Mooncake), which fills in what is not given.
        shared_prefix_tokens: Leading prompt tokens that requests share [token].
        prefix_hit_rate: How often they are cached.
        context: Longest sequence to plan for [token]; None is the longest prompt and answer.
        slo_ttft_ms: Target for the time to the first token, `500` or `500@p99` [ms].
        slo_tpot_ms: Target for the time per token [ms].
        slo_e2e_ms: Target for the whole answer [ms].
        slo_at: Statistic of targets that name none: `mean`, `p50`, `p90`, `p95`, `p99`.
        engines: Engines to look at.
        dtypes: Weight formats to look at; None among them is the checkpoint's own.
        kv_dtypes: Cache formats to look at; None among them is the engine's rule.
        tp: Tensor-parallel ranks to look at; None is the usual ones, as below.
        pp: Pipeline stages.
        dp: Data-parallel ranks inside a replica.
        ep: Expert-parallel ranks.
        max_gpus: GPUs of the whole plan.
        spare_replicas: Replicas on top of those that carry the load (N + 1 is 1).
        prices: GPU → price of one hour; without any, plans are ranked by their number of GPUs.
        max_num_seqs: Limit on running sequences of a replica; None is searched for.
        max_num_batched_tokens: Tokens of an iteration.
        gpu_memory_utilization: The engine's memory fraction.
        max_busy: Share of a replica's full rate that is planned with at most.

    Returns:
        The plan; `cheapest` is None where nothing serves the load, with the reasons in `rejected`.

    Raises:
        UsageError: Values that make no sense together.
    """
    _need_arrays("plan")
    from kvplan.planning.demand import read_demand, read_target  # noqa: PLC0415 - loaded on use
    from kvplan.planning.kinds import Space  # noqa: PLC0415
    from kvplan.planning.search import run_plan  # noqa: PLC0415
    from kvplan.planning.trace import read_trace  # noqa: PLC0415

    loaded = load_model(model)
    if not 0 < max_busy < 1 or spare_replicas < 0 or (max_gpus is not None and max_gpus < 1):
        msg = "max_busy must lie between 0 and 1, spare_replicas not below 0, max_gpus not below 1"
        raise UsageError(msg)
    priced = {load_gpu(name).id: price for name, price in read_prices(prices or {}).items()}
    if gpus is None:
        gpus = tuple(priced) or tuple(one for one in map(load_gpu, registry.ids("gpu")) if one.available)
    demand = read_demand(
        rate=rate,
        users=users,
        think_s=think_s,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        trace=read_trace(Path(trace)) if trace is not None else None,
        context=context,
        shared_prefix_tokens=shared_prefix_tokens,
        prefix_hit_rate=prefix_hit_rate,
        max_context=loaded.max_context,
    )
    wanted = (("ttft_ms", slo_ttft_ms), ("tpot_ms", slo_tpot_ms), ("e2e_ms", slo_e2e_ms))
    targets = tuple(found for name, value in wanted if (found := read_target(name, value, at=slo_at)) is not None)
    formats = dict.fromkeys(_listed("dtypes", dtypes))
    space = Space(
        gpus=[load_gpu(gpu) for gpu in _listed("gpus", gpus)],
        engines=[load_engine(engine) for engine in _listed("engines", engines)],
        models={one or "as published": loaded if one is None else apply_dtype(loaded, one) for one in formats},
        kv_dtypes=[one if one is None else kv_format(one) for one in _listed("kv_dtypes", kv_dtypes)],
        tp=None if tp is None else _listed("tp", tp),
        pp=None if pp is None else _listed("pp", pp),
        dp=None if dp is None else _listed("dp", dp),
        ep=None if ep is None else _listed("ep", ep),
        max_gpus=max_gpus,
        spare_replicas=spare_replicas,
        prices=priced,
        settings=Settings(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            gpu_memory_utilization=gpu_memory_utilization,
        ),
        max_busy=max_busy,
    )
    return run_plan(space, demand, targets)


def _need_arrays(what: str) -> None:
    """Refuse where NumPy is missing, or older than arrays that carry their namespace.

    Raises:
        UsageError: The `arrays` extra is not installed.
    """
    try:
        import numpy as np  # noqa: PLC0415 - an extra
    except ImportError:
        msg = f"{what} needs NumPy"
    else:
        if hasattr(np.ndarray, "__array_namespace__"):
            return
        msg = f"{what} needs NumPy 2.0 or newer, not {np.__version__}"
    raise UsageError(msg, hint=f"pip install 'kvplan[{'plots' if what == '--plot' else 'sweep'}]'")


def _no_lists(base: Mapping[str, Any], option: str) -> None:
    """Refuse a list where one name belongs, and say where lists go.

    Raises:
        UsageError: A name with a comma that is no file.
    """
    for name in ("model", "gpu", "engine", "dtype", "kv_dtype"):
        value = base.get(name)
        if isinstance(value, str) and "," in value and located(value) is None:
            word = name.replace("_", "-")
            msg = f"{word}: {value!r} is a list"
            raise UsageError(msg, hint=f"{option} {word}={value}")


def _several(value: object) -> bool:
    """True for lists, tuples and arrays with a dimension."""
    return isinstance(value, list | tuple | range) or bool(getattr(value, "ndim", 0))


def _listed(name: str, value: Any) -> list[Any]:  # noqa: ANN401 - one or several of anything
    """One value or several as a list.

    Raises:
        UsageError: There is none.
    """
    found = list(value) if _several(value) else [value]
    if not found:
        msg = f"{name}: no values"
        raise UsageError(msg)
    return found
