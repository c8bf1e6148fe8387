"""The Python face: names become specs, specs become a deployment, a deployment answers questions.

Every function here takes what the command line takes, under the same names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan.core.deployment import Deployment, deploy
from kvplan.core.engine import Engine, Settings, memory_bytes
from kvplan.core.estimate import estimate as _estimate
from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.model import Model
from kvplan.core.precision import apply_dtype
from kvplan.core.results import Estimate
from kvplan.core.workload import Workload
from kvplan.errors import UsageError
from kvplan.specs import registry
from kvplan.specs.registry import Kind

if TYPE_CHECKING:
    from kvplan.calibration.explanation import LogExplanation
    from kvplan.calibration.fitted import Calibration
    from kvplan.calibration.planner import Planner
    from kvplan.calibration.validation import Validation
    from kvplan.core.reverse import Needs

#: What a model, GPU or engine may be given as: a name, a path, a mapping, or the spec itself.
ModelLike = str | Path | Mapping[str, Any] | Model
GpuLike = str | Path | Mapping[str, Any] | Gpu
EngineLike = str | Path | Mapping[str, Any] | Engine

_CACHE_SIZE = 256


def load_model(model: ModelLike, *, assume_plain: bool = False, overrides: Mapping[str, Any] | None = None) -> Model:
    """Read a model from a name, a repo id, a path (`config.json`, its folder, YAML, GGUF), a mapping or a spec.

    Args:
        model: What to read.
        assume_plain: Read an unknown architecture with only plain fields as a plain decoder, with a warning.
        overrides: Config fields to change before reading (`{"num_key_value_heads": 32}`).

    Raises:
        UnknownNameError: No such name; the hint has the nearest.
        SpecError: The file is broken or not understood.
        HubError: The hub can't be reached, or the repository is missing or gated.
    """
    from kvplan.specs.models import load_model as load  # noqa: PLC0415 - loaded on use

    return load(model, assume_plain=assume_plain, overrides=overrides)


def load_gpu(gpu: GpuLike) -> Gpu:
    """Read a GPU from a name, an alias, a YAML path, a mapping or a spec.

    Raises:
        UnknownNameError: No such GPU; the hint has the nearest.
        SpecError: The file is broken.
    """
    from kvplan.specs.hardware import load_gpu as load  # noqa: PLC0415 - loaded on use

    return load(gpu)


def load_engine(engine: EngineLike) -> Engine:
    """Read an engine profile from a name with an optional version (`vllm@0.19`), a YAML path, a mapping or a profile.

    Raises:
        UnknownNameError: No such engine; the hint has the nearest.
        SpecError: The file is broken.
    """
    from kvplan.specs.engines import load_engine as load  # noqa: PLC0415 - loaded on use

    return load(engine)


def engine_versions(engine: str) -> tuple[str, ...]:
    """Versions of a bundled engine at which its rules change, oldest first; those between take the rules before them."""
    from kvplan.specs.engines import engine_versions as versions  # noqa: PLC0415 - loaded on use

    return versions(engine)


_deployments: OrderedDict[tuple[Any, ...], tuple[tuple[Any, ...], Deployment]] = OrderedDict()


def deployment(
    model: ModelLike,
    gpu: GpuLike,
    *,
    engine: EngineLike = "vllm",
    dtype: str | None = None,
    kv_dtype: str | None = None,
    layout: Layout | None = None,
    settings: Settings | None = None,
    assume_plain: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> Deployment:
    """Resolve names and lay the model out over GPUs; the last few hundred deployments are kept.

    Files are read anew at every call; only names of bundled specs and spec objects are kept.
    """
    layout = layout if layout is not None else Layout()
    settings = settings if settings is not None else Settings()
    parts = (model, gpu, engine)
    kinds: tuple[Kind, ...] = ("model", "gpu", "engine")
    keep = not overrides and all(_is_kept(kind, part) for kind, part in zip(kinds, parts, strict=True))
    key = (*(part if isinstance(part, str) else id(part) for part in parts), dtype, kv_dtype, layout, settings)
    if keep and key in _deployments:
        _deployments.move_to_end(key)
        return _deployments[key][1]
    loaded = load_model(model, assume_plain=assume_plain, overrides=overrides)
    if dtype is not None:
        loaded = apply_dtype(loaded, dtype)
    found = deploy(loaded, load_gpu(gpu), load_engine(engine), layout=layout, settings=settings, kv_dtype=kv_dtype)
    if keep:
        _deployments[key] = (parts, found)
        if len(_deployments) > _CACHE_SIZE:
            _deployments.popitem(last=False)
    return found


def _is_kept(kind: Kind, part: ModelLike | GpuLike | EngineLike) -> bool:
    if isinstance(part, str):
        return registry.find(kind, part.partition("@")[0] if kind == "engine" else part) is not None
    return isinstance(part, Model | Gpu | Engine)


def estimate(
    model: ModelLike,
    gpu: GpuLike,
    *,
    engine: EngineLike = "vllm",
    dtype: str | None = None,
    kv_dtype: str | None = None,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int | None = None,
    gpu_count: int | None = None,
    input_tokens: int = 1024,
    output_tokens: int = 256,
    concurrency: int = 1,
    context: int | None = None,
    gpu_memory_utilization: float | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    enforce_eager: bool = False,
    gpu_memory_gib: float | None = None,
    n_gpu_layers: int | None = None,
    max_loras: int = 0,
    max_lora_rank: int = 16,
    speculative_tokens: int = 0,
    draft_model: ModelLike | None = None,
    dcp: int = 1,
    shared_prefix_tokens: int = 0,
    prefix_hit_rate: float = 1.0,
    source_tokens: int | None = None,
    network_ms: float = 0.0,
    benchmark_requests: int | None = None,
    equal_lengths: bool = False,
    allow_context_overflow: bool = False,
    assume_plain: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> Estimate:
    """Answer one scenario: does it fit, how much fits, how fast it is, and why.

    Args:
        model: Name, repo id, path, mapping or spec.
        gpu: Name, path, mapping or spec.
        engine: Name with an optional version, path, mapping or profile.
        dtype: Weight format to plan with instead of the checkpoint's.
        kv_dtype: Cache format; None is the engine's rule.
        tp: Ranks that share each layer.
        pp: Pipeline stages.
        dp: Data-parallel ranks of attention.
        ep: Ranks that routed experts are divided over; None lets them follow tp.
        gpu_count: Checked against `tp × pp × dp` where given.
        input_tokens: Prompt of one request [token].
        output_tokens: Tokens that one request generates.
        concurrency: Sequences in flight over the whole deployment.
        context: Longest sequence to plan memory for (`max_model_len`) [token]; None is input + output.
        gpu_memory_utilization: The engine's own memory fraction.
        max_num_seqs: Sequences that the scheduler runs at most.
        max_num_batched_tokens: Tokens of one iteration at most.
        enforce_eager: No captured graphs.
        gpu_memory_gib: Memory of one GPU to plan with instead of its total [GiB].
        n_gpu_layers: Layers on the GPU (llama.cpp).
        max_loras: LoRA adapters that the engine makes room for at start.
        max_lora_rank: The largest rank of such an adapter.
        speculative_tokens: Tokens that multi-token-prediction layers or a draft model guess.
        draft_model: A smaller model that guesses tokens, on the same GPUs.
        dcp: Tensor-parallel ranks that divide the cache by tokens instead of copying it (decode context parallelism).
        shared_prefix_tokens: Leading prompt tokens that requests share [token].
        prefix_hit_rate: Share of requests that find them cached, 0 to 1.
        source_tokens: Encoder tokens of an encoder–decoder model.
        network_ms: Network time added to TTFT [ms].
        benchmark_requests: Requests of a closed-loop benchmark that starts with all its concurrency at once.
        equal_lengths: A closed-loop benchmark whose requests are all of one length, so that their prompts come together.
        allow_context_overflow: Plan beyond the model's own limit.
        assume_plain: Read an unknown plain architecture as a plain decoder.
        overrides: Config fields of the model to change.

    Returns:
        The estimate. Where nothing fits, `latency` and `throughput` are None.

    Raises:
        UsageError: Values that make no sense together.
        SpecError: A file that is broken or not understood.
    """
    layout = Layout(tp=tp, pp=pp, dp=dp, ep=ep)
    if gpu_count is not None and gpu_count != layout.gpu_count:
        msg = f"gpu_count: {gpu_count} is not tp × pp × dp = {tp} × {pp} × {dp} = {layout.gpu_count}"
        spread = f"tp={gpu_count} lays one copy of the model over all of them, dp={gpu_count} one on each"
        raise UsageError(msg, hint=spread if layout.gpu_count == 1 else f"leave it out, or use {layout.gpu_count}")
    found = deployment(
        model,
        gpu,
        engine=engine,
        dtype=dtype,
        kv_dtype=kv_dtype,
        layout=layout,
        settings=Settings(
            gpu_memory_utilization=gpu_memory_utilization,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enforce_eager=enforce_eager,
            gpu_memory_bytes=memory_bytes(gpu_memory_gib),
            n_gpu_layers=n_gpu_layers,
            max_loras=max_loras,
            max_lora_rank=max_lora_rank,
            speculative_tokens=speculative_tokens,
            draft_model=None if draft_model is None else load_model(draft_model),
            dcp=dcp,
        ),
        assume_plain=assume_plain,
        overrides=overrides,
    )
    workload = Workload(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        shared_prefix_tokens=shared_prefix_tokens,
        prefix_hit_rate=prefix_hit_rate,
        benchmark_requests=benchmark_requests,
        equal_lengths=equal_lengths,
        source_tokens=source_tokens,
        network_ms=network_ms,
    )
    return _estimate(found, workload, context=context, allow_context_overflow=allow_context_overflow)


def needs(
    model: ModelLike,
    gpu: GpuLike,
    *,
    engine: EngineLike = "vllm",
    dtype: str | None = None,
    kv_dtype: str | None = None,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int | None = None,
    concurrency: int = 1,
    context: int = 4096,
    gpu_memory_utilization: float | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    enforce_eager: bool = False,
    gpu_memory_gib: float | None = None,
    assume_plain: bool = False,
) -> Needs:
    """What `concurrency` sequences of `context` tokens need: which memory fraction, how many GPUs, which context.

    Args as in `estimate`. The fraction, the tensor-parallel size and the context are each found with the others left
    as they are.

    Raises:
        UsageError: Values that make no sense together.
        SpecError: A file that is broken or not understood.
    """
    from kvplan.core.ledger import Question  # noqa: PLC0415 - loaded on use
    from kvplan.core.reverse import needs as answer  # noqa: PLC0415 - loaded on use

    for name, value in (("concurrency", concurrency), ("context", context)):
        if value < 1:
            msg = f"{name}: must be at least 1, not {value}"
            raise UsageError(msg)
    found = deployment(
        model,
        gpu,
        engine=engine,
        dtype=dtype,
        kv_dtype=kv_dtype,
        layout=Layout(tp=tp, pp=pp, dp=dp, ep=ep),
        settings=Settings(
            gpu_memory_utilization=gpu_memory_utilization,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enforce_eager=enforce_eager,
            gpu_memory_bytes=memory_bytes(gpu_memory_gib),
        ),
        assume_plain=assume_plain,
    )
    question = Question(
        model=found.model,
        gpu=found.gpu,
        engine=found.engine,
        layout=found.layout,
        settings=found.settings,
        kv_dtype=found.kv_dtype,
        context=context,
        concurrency=concurrency,
    )
    return answer(question, dtype=found.dtype)


def validate(
    source: str | Path | Iterable[Mapping[str, object]],
    *,
    group_by: Sequence[str] = ("model", "gpu", "engine"),
    defaults: Mapping[str, Any] | None = None,
) -> Validation:
    """Predict every record of a measurement file and say how far off each prediction is.

    Args:
        source: CSV, JSONL or JSON file, or rows in memory; docs/validation.md lists the columns and the benchmark files
            that are read as well.
        group_by: Columns whose groups get tables of their own.
        defaults: Values for cells that the file leaves empty (`{"gpu": "h100"}`).

    Raises:
        SpecError: The file is broken: all its errors in one run.
    """
    from kvplan.calibration.validate import validate as run  # noqa: PLC0415 - loaded on use

    return run(source, planner=_planner(), group_by=list(group_by), defaults=dict(defaults or {}))


def calibrate(
    source: str | Path | Iterable[Mapping[str, object]],
    *,
    engine: EngineLike | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Calibration:
    """Fit the efficiencies of one engine to measured TTFT and TPOT; needs the extra `calibrate`.

    Args:
        source: Records as `validate` reads them.
        engine: Profile to start from; None is the one that the records name.
        defaults: Values for cells that the file leaves empty.

    Returns:
        The engine with fitted efficiencies, and errors before, in sample and out of sample per device family.

    Raises:
        SpecError: The file is broken: all its errors in one run.
        UsageError: Nothing to fit, several engines, or the extra is missing.
    """
    from kvplan.calibration.fit import calibrate as run  # noqa: PLC0415 - loaded on use

    start = load_engine(engine) if engine is not None else None
    return run(source, planner=_planner(), engine=start, defaults=dict(defaults or {}))


def profile_text(engine: EngineLike, *, comment: str = "") -> str:
    """An engine as the text of a profile file that `--engine PATH` and `load_engine` read."""
    from kvplan.specs.profile_writing import profile_yaml  # noqa: PLC0415 - loaded on use

    return profile_yaml(load_engine(engine), comment=comment)


def explain_log(source: str | Path, **options: Any) -> LogExplanation:  # noqa: ANN401 - as `estimate` takes them
    """Read an engine's start-up log, predict each of its figures and say where and why they differ.

    Args:
        source: The log, or `-` for standard input.
        **options: Facts that the log leaves out or that win over it, under the names of `estimate`.

    Raises:
        SpecError: The file can't be read, or holds nothing that is known.
    """
    from kvplan.calibration.explain_log import explain_log as run  # noqa: PLC0415 - loaded on use

    def known_model(name: str) -> str | None:
        path = registry.find("model", name)
        return None if path is None else path.stem

    return run(source, planner=_planner(), known_model=known_model, options=options)


def _planner() -> Planner:
    from kvplan.calibration.planner import Planner  # noqa: PLC0415 - loaded on use

    return Planner(load_model=load_model, load_gpu=load_gpu, load_engine=load_engine, estimate=estimate)


def estimate_of(fields: Mapping[str, Any]) -> Estimate:
    """Answer the scenario that fields describe, by the names of `estimate`'s keywords.

    Raises:
        UsageError: No model or GPU is named, or values make no sense together.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    for name in ("model", "gpu"):
        if name not in given:
            msg = f"Missing option '--{name}'"
            raise UsageError(msg, hint=f"`kvplan {name}s list` shows the names; a scenario file may name one too")
    return estimate(given.pop("model"), given.pop("gpu"), **given)


_DECISIONS = frozenset(
    {
        "compare",
        "deployment_of",
        "plan",
        "plan_request",
        "read_scenario_file",
        "repository_of",
        "scenario_text",
        "service_of",
        "sweep",
        "users_sweep",
    }
)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any of the functions named above
    if name in _DECISIONS:
        from kvplan import decisions  # noqa: PLC0415 - only questions about many scenarios need it

        return getattr(decisions, name)
    msg = f"module 'kvplan.api' has no attribute {name!r}"
    raise AttributeError(msg)
