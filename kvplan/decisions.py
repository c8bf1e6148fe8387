"""The Python face of questions about many scenarios: compare, sweep, plan, and the files that ask them.

`kvplan.api` hands these functions out under its own name; one estimate never loads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvplan.api import EngineLike, GpuLike, ModelLike, deployment, estimate, load_engine, load_gpu, load_model
from kvplan.core.deployment import Deployment
from kvplan.core.engine import Settings, memory_bytes
from kvplan.core.layout import Layout
from kvplan.core.precision import apply_dtype, display_dtype
from kvplan.core.results import Estimate
from kvplan.errors import UsageError
from kvplan.planning.axes import read_axes
from kvplan.planning.scenarios import Scenario, checked_fields, field_name, keywords
from kvplan.specs import registry
from kvplan.specs.scenario_file import read_mapping, read_scenario, scenario_yaml

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kvplan.planning.comparison import Comparison
    from kvplan.planning.fields import GridFields, ScenarioFields
    from kvplan.planning.plan_result import Option, Plan
    from kvplan.planning.sweep_result import Sweep

#: Keywords of `estimate` that an engine's settings take as they are.
_KNOBS: Final = (
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enforce_eager",
    "n_gpu_layers",
    "max_loras",
    "max_lora_rank",
    "speculative_tokens",
    "dcp",
)


def deployment_of(fields: Mapping[str, Any]) -> Deployment:
    """The deployment that fields of a scenario describe; those of the load are not asked.

    Args:
        fields: Keywords of `estimate`, and what-ifs on the model (`kv_heads`, `layers`, `config.KEY`).

    Raises:
        UsageError: Values that make no sense together.
    """
    for name in ("model", "gpu"):
        if fields.get(name) is None:
            msg = f"no {name} is given"
            raise UsageError(msg, hint=f"name one: {name}=…")
    given = {name: value for name, value in keywords(fields).items() if value is not None}
    layout = Layout(**{name: given[name] for name in ("tp", "pp", "dp", "ep") if name in given})
    gib = given.get("gpu_memory_gib")
    draft = given.get("draft_model")
    settings = Settings(
        draft_model=None if draft is None else load_model(draft),
        gpu_memory_bytes=memory_bytes(gib),
        **{name: given[name] for name in _KNOBS if name in given},
    )
    parts = ("engine", "dtype", "kv_dtype", "assume_plain", "overrides")
    return deployment(
        given["model"],
        given["gpu"],
        layout=layout,
        settings=settings,
        **{name: given[name] for name in parts if name in given},
    )


def sweep(
    model: ModelLike | Sequence[ModelLike] | None = None,
    gpu: GpuLike | Sequence[GpuLike] | None = None,
    *,
    axes: Mapping[str, Iterable[Any]] | Iterable[str | Mapping[str, Iterable[Any]]] = (),
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
    found = {name: value for name, value in given.items() if _several(value)}
    base = {name: value for name, value in given.items() if name not in found}
    if fields.get("overrides"):
        base["overrides"] = fields["overrides"]
    found.update(read_axes(axes))
    return run_sweep(deployment_of, base, found, ranges=ranges)


def users_sweep(fields: Mapping[str, Any], answer: Estimate) -> Sweep:
    """The same scenario for one user up to twice what fits, the asked concurrency among them, with ranges."""
    _need_arrays("--plot")
    most = max(answer.capacity.max_concurrency * answer.scenario.dp * 2, answer.scenario.concurrency, 2)
    counts = {2**power for power in range(12) if 2**power <= most} | {answer.scenario.concurrency}
    base = {name: value for name, value in fields.items() if name not in {"concurrency", "gpu_count"}}
    return sweep(axes={"concurrency": sorted(counts)}, ranges=True, **base)  # type: ignore[misc, unused-ignore]


def compare(
    scenarios: Iterable[Scenario | Mapping[str, Any] | str] = (),
    *,
    vary: Mapping[str, Iterable[Any]] | Iterable[str | Mapping[str, Iterable[Any]]] = (),
    **base: Unpack[ScenarioFields],
) -> Comparison:
    """Answer several scenarios and say what changed against the first, and why.

    Args:
        scenarios: Each a `Scenario`, a mapping of the fields that differ from the base (`name` names it), or text
            (`"small:gpu=l40s,tp=2"`).
        vary: Field → values, or text (`"kv-dtype=bf16,fp8"`); every combination is a scenario.
        **base: Keywords of `estimate` (`model` and `gpu` among them) that all scenarios share.

    Raises:
        UsageError: Fewer than two scenarios, or a field that does not exist.
    """
    from kvplan.planning.compare import run_compare  # noqa: PLC0415

    _no_lists(base, "--vary")
    return run_compare(estimate, dict(base), scenarios, vary=read_axes(vary))


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
    tp: Sequence[int] | None = None,
    pp: Sequence[int] | None = None,
    dp: Sequence[int] | None = None,
    ep: Sequence[int | None] | None = None,
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
    priced = {load_gpu(name).id: float(price) for name, price in (prices or {}).items()}
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
    formats = dict.fromkeys(_listed(dtypes))
    space = Space(
        gpus=[load_gpu(gpu) for gpu in _listed(gpus)],
        engines=[load_engine(engine) for engine in _listed(engines)],
        models={one or "as published": loaded if one is None else apply_dtype(loaded, one) for one in formats},
        kv_dtypes=_listed(kv_dtypes),
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
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


def plan_request(given: Mapping[str, Any], *, scenario_file: str | Path | None = None) -> dict[str, Any]:
    """Arguments of `plan` from what was written on a command line, over those of a scenario file.

    Raises:
        UsageError: No model, an argument that does not exist, or a value that is not of its kind.
    """
    from kvplan.planning.requests import plan_arguments, prices  # noqa: PLC0415 - loaded on use

    under: dict[str, Any] = {}
    if scenario_file is not None:
        fields, sections = read_scenario_file(scenario_file)
        shared = ("model", "gpu", "engine", "dtype", "kv_dtype", "context")
        under = plan_arguments({name: fields[name] for name in shared if name in fields})
        under.update(plan_arguments(sections.get("plan") or {}))
    mine = dict(given)
    if isinstance(mine.get("prices"), str | Path):
        mine["prices"] = read_mapping(Path(mine["prices"]))
    if mine.get("price") is not None:
        mine["prices"] = {**(mine.get("prices") or {}), **prices(mine.pop("price"))}
    found = {**under, **plan_arguments(mine)}
    if found.get("model") is None:
        msg = "no model is given"
        raise UsageError(msg, hint="--model NAME")
    return found


def read_scenario_file(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of a scenario file as keywords of `estimate`, and its sections `scenarios`, `vary`, `sweep`, `plan` as they are.

    Raises:
        SpecError: It can't be read.
        UsageError: A field that does not exist, or a value that is not of its kind.
    """
    fields, sections = read_scenario(Path(path))
    return keywords(checked_fields(fields)), sections


def scenario_text(fields: Mapping[str, Any]) -> str:
    """Fields and sections as the text of a scenario file."""
    return scenario_yaml(fields)


def service_of(answer: Estimate, fields: Mapping[str, Any], *, chosen: Option | None = None) -> dict[str, Any]:
    """What `kvplan.report.deploy.Service` takes, so that the deployment is the one of the estimate.

    Args:
        answer: The estimate of one replica.
        fields: What was asked.
        chosen: The option of a plan that it belongs to, which sets a limit and replicas.
    """
    dtype = chosen.dtype if chosen is not None else fields.get("dtype")
    published = display_dtype(load_model(fields["model"]))
    gpu = load_gpu(answer.scenario.gpu if chosen is not None else fields["gpu"])
    return {
        "estimate": answer,
        "model": repository_of(fields["model"]),
        "vendor": gpu.vendor.lower(),
        "quantization": None if dtype in {None, published} else dtype,
        "max_num_seqs": chosen.max_num_seqs if chosen is not None else fields.get("max_num_seqs"),
        "max_num_batched_tokens": fields.get("max_num_batched_tokens"),
        "gpu_memory_utilization": fields.get("gpu_memory_utilization"),
        "card_bytes": gpu.framework_memory_bytes if fields.get("gpu_memory_gib") is not None else None,
        "enforce_eager": bool(fields.get("enforce_eager")),
        "n_gpu_layers": fields.get("n_gpu_layers"),
        "max_loras": fields.get("max_loras") or 0,
        "max_lora_rank": fields.get("max_lora_rank") or 16,
        "speculative_tokens": fields.get("speculative_tokens") or 0,
        "dcp": fields.get("dcp") or 1,
        "draft_model": None if fields.get("draft_model") is None else repository_of(fields["draft_model"]),
        "replicas": chosen.replicas + chosen.spare_replicas if chosen is not None else 1,
    }


def repository_of(model: ModelLike) -> str:
    """What an engine loads: the first repository among a bundled model's aliases, else the name as it was given."""
    name = str(model) if isinstance(model, str | Path) else str(getattr(model, "id", "MODEL"))
    found = registry.find("model", name)
    if found is None:
        return name
    if "/" in name:
        return name
    return next(
        (alias for alias, spec in registry.aliases("model").items() if spec == found.stem and "/" in alias), name
    )


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
        if isinstance(value, str) and "," in value and not Path(value).exists():
            word = name.replace("_", "-")
            msg = f"{word}: {value!r} is a list"
            raise UsageError(msg, hint=f"{option} {word}={value}")


def _several(value: object) -> bool:
    """True for lists, tuples and arrays with a dimension."""
    return isinstance(value, list | tuple | range) or bool(getattr(value, "ndim", 0))


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 - one or several of anything
    return list(value) if _several(value) else [value]
