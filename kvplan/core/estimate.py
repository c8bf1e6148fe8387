"""One scenario, answered: memory, capacity, latency and throughput from the same parts.

`Deployment` is everything that does not depend on the load (the model laid out over GPUs under an engine); it is made
once and asked many times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from kvplan.core import cache, parameters
from kvplan.core.blocks import Pool
from kvplan.core.cache import elements_per_token, kv_shards
from kvplan.core.dataclass import dataclass
from kvplan.core.efficiency import IDEAL
from kvplan.core.engine import Engine, Settings
from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.memory import plan_memory, resolve_kv_dtype
from kvplan.core.model import CrossAttention, Model
from kvplan.core.numeric import Num, maximum, minimum
from kvplan.core.precision import display_dtype, with_state_dtype
from kvplan.core.results import Estimate, Latency, ModelFigures, OpTime, Range, Scenario, Throughput
from kvplan.core.roofline import Machine
from kvplan.core.serving import Load, SteadyState, steady_state
from kvplan.core.step import breakdown
from kvplan.core.units import MS_PER_S
from kvplan.core.warnings import deployment_warnings
from kvplan.core.work import StepWork, compile_work
from kvplan.core.workload import Workload
from kvplan.errors import UsageError

#: A prompt and an answer of one token each.
_SHORTEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A model laid out over GPUs under an engine.

    Attributes:
        model, gpu, engine, layout, settings: The parts.
        kv_dtype: Cache format.
        dtype: Display name of the weight format.
        work: Compiled work of a step.
        machine, ideal: The GPU under the engine's efficiencies, and under none.
        measured: True where the efficiencies were fitted on this device family.
        assumptions, warnings: What was assumed and what to doubt, whatever the load.
    """

    model: Model
    gpu: Gpu
    engine: Engine
    layout: Layout
    settings: Settings
    kv_dtype: str
    dtype: str
    work: StepWork
    machine: Machine
    ideal: Machine
    figures: ModelFigures
    measured: bool
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


def deploy(
    model: Model,
    gpu: Gpu,
    engine: Engine,
    *,
    layout: Layout,
    settings: Settings,
    kv_dtype: str | None = None,
) -> Deployment:
    """Lay a model out over GPUs.

    Args:
        model: The model with its precision.
        gpu: One accelerator; all are equal.
        engine: Rules and efficiencies.
        layout: Ranks.
        settings: The engine's knobs.
        kv_dtype: Cache format, or None for the checkpoint's wish, else the model's compute dtype.

    Raises:
        UsageError: The layout does not fit the model.
        UnknownNameError: No such cache format.
    """
    layout.check(model)
    _check_speculation(model, layout, settings)
    _check_context_parallelism(model, layout, settings)
    assumptions = [*model.assumptions]
    if engine.memory.state_dtype is not None:
        told, model = model, with_state_dtype(model, engine.memory.state_dtype)
        if model is not told:
            assumptions.append(f"recurrent state in {engine.memory.state_dtype}: the default of {engine.name}")
    if settings.speculative_tokens or settings.draft_model is not None:
        assumptions.append("speculative decoding is counted in memory only: times are those without it")
    if settings.dcp > 1:
        assumptions.append(
            f"context parallelism over {settings.dcp} ranks divides the cache; times are those without it"
        )
    resolved = resolve_kv_dtype(model, engine, kv_dtype)
    if kv_dtype is None:
        assumptions.append(f"kv_dtype {resolved}: {_kv_dtype_reason(model, engine)}")
    efficiency, measured = engine.efficiency_for(gpu)
    return Deployment(
        model=model,
        gpu=gpu,
        engine=engine,
        layout=layout,
        settings=settings,
        kv_dtype=resolved,
        dtype=display_dtype(model),
        work=compile_work(model, layout, kv_dtype=resolved),
        machine=Machine(gpu=gpu, efficiency=efficiency, eager=settings.enforce_eager),
        ideal=Machine(gpu=gpu, efficiency=IDEAL),
        figures=_figures(model, resolved),
        measured=measured,
        assumptions=tuple(assumptions),
        warnings=deployment_warnings(model, gpu, engine, layout, kv_dtype=resolved, measured=measured),
    )


def _check_speculation(model: Model, layout: Layout, settings: Settings) -> None:
    if settings.draft_model is not None:
        layout.check(settings.draft_model)
    elif settings.speculative_tokens and not model.mtp_layers:
        msg = f"speculative_tokens: {model.id} declares no multi-token-prediction layers to draft with"
        raise UsageError(msg, hint="give draft_model, a smaller model of the same vocabulary")


def _check_context_parallelism(model: Model, layout: Layout, settings: Settings) -> None:
    copies = min(
        (layout.tp // kv_shards(m, layout.tp) for g in model.groups for m in g.layer.mixers if elements_per_token(m)),
        default=1,
    )
    if settings.dcp > 1 and (settings.dcp > copies or copies % settings.dcp):
        msg = f"dcp: {settings.dcp} does not divide the {copies} copies of the cache that tp={layout.tp} keeps"
        raise UsageError(msg, hint="raise tp, or leave dcp out: KV heads are divided before tokens")


def _kv_dtype_reason(model: Model, engine: Engine) -> str:
    if engine.memory.kv_dtype is not None:
        return f"the default of {engine.name}"
    if model.kv_dtype is not None:
        return "the checkpoint asks for it"
    return "the engine follows the model's compute dtype"


def _figures(model: Model, kv_dtype: str) -> ModelFigures:
    return ModelFigures(
        id=model.id,
        architecture=model.architecture,
        params_total=parameters.parameters_total(model),
        params_active=parameters.parameters_active(model),
        layers=model.num_hidden_layers,
        kv_bytes_per_token_model=cache.kv_bytes_per_token_model(model, kv_dtype),
        state_bytes_per_sequence_model=cache.state_bytes_per_sequence_model(model),
        max_context=model.max_context,
    )


def moved_to(deployment: Deployment, gpu: Gpu) -> Deployment:
    """The same model, engine and layout on another accelerator, without compiling its work anew."""
    efficiency, measured = deployment.engine.efficiency_for(gpu)
    return replace(
        deployment,
        gpu=gpu,
        machine=replace(deployment.machine, gpu=gpu, efficiency=efficiency),
        ideal=Machine(gpu=gpu, efficiency=IDEAL),
        measured=measured,
        warnings=deployment_warnings(
            deployment.model,
            gpu,
            deployment.engine,
            deployment.layout,
            kv_dtype=deployment.kv_dtype,
            measured=measured,
        ),
    )


class Room(Protocol):
    """What a load needs to know of memory."""

    @property
    def pool(self) -> Pool:
        """The caches of one rank."""

    @property
    def max_num_seqs(self) -> int:
        """Sequences that run at most."""

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens of one iteration at most."""


def rank_load(deployment: Deployment, workload: Workload, plan: Room, *, concurrency: Num) -> Load:
    """The load of one data-parallel rank: `concurrency / dp` sequences, and the pool it has for them; arrays give arrays."""
    whole = workload.input_tokens + workload.output_tokens
    reserves = deployment.engine.scheduling.reserves_output
    held = whole if reserves else workload.input_tokens + (workload.output_tokens + 1) // 2
    cached = workload.cached_prefix_tokens
    source = workload.source_tokens if workload.source_tokens is not None else deployment.model.max_source_tokens or 0
    return Load(
        input_tokens=maximum(workload.input_tokens - cached, 1.0),
        cached_tokens=cached,
        output_tokens=workload.output_tokens,
        concurrency=concurrency / deployment.layout.dp,
        capacity=plan.pool.sequences(held),
        full_capacity=plan.pool.sequences(whole),
        max_num_seqs=plan.max_num_seqs,
        budget_tokens=plan.max_num_batched_tokens,
        source_tokens=source,
        mixes_prefill=deployment.engine.scheduling.mixes_prefill,
        benchmark_requests=workload.benchmark_requests,
        equal_lengths=workload.equal_lengths,
    )


def estimate(
    deployment: Deployment, workload: Workload, *, context: int | None = None, allow_context_overflow: bool = False
) -> Estimate:
    """Answer one scenario.

    Args:
        deployment: The model laid out over GPUs.
        workload: The load.
        context: Longest sequence to plan memory for [token]; None is input + output.
        allow_context_overflow: True to plan beyond the model's own limit, with a warning.

    Raises:
        UsageError: The context lies above the model's limit, or below input + output.
    """
    warnings = list(deployment.warnings)
    planned = _context(deployment.model, workload, context, warnings, allow_overflow=allow_context_overflow)
    plan = plan_memory(
        deployment.model,
        deployment.gpu,
        deployment.engine,
        deployment.layout,
        deployment.settings,
        kv_dtype=deployment.kv_dtype,
        context=planned,
        concurrency=workload.concurrency,
        source_tokens=workload.source_tokens,
    )
    scenario = _scenario(deployment, workload, planned)
    latency: Latency | None = None
    throughput: Throughput | None = None
    rows: tuple[OpTime, ...] = ()
    if plan.capacity.fits:
        load = rank_load(deployment, workload, plan, concurrency=workload.concurrency)
        state = steady_state(deployment.work, load, deployment.machine)
        floor = steady_state(deployment.work, load, deployment.ideal)
        prefill, bound_prefill = breakdown(deployment.work, state.mixed_load, deployment.machine, phase="prefill")
        decode, bound_decode = breakdown(deployment.work, state.decode_load, deployment.machine, phase="decode")
        rows = (*prefill, *decode)
        latency = latency_of(deployment, workload, state, floor=floor, bounds=(bound_prefill, bound_decode))
        throughput = throughput_of(deployment, workload, state, floor=floor)
        if latency.queued:
            warnings.append(_waiting(load, state))
    return Estimate(
        scenario=scenario,
        model=deployment.figures,
        memory=plan.memory,
        capacity=plan.capacity,
        latency=latency,
        throughput=throughput,
        breakdown=rows,
        assumptions=(*deployment.assumptions, *plan.assumptions),
        warnings=(*warnings, *plan.warnings),
    )


def _context(
    model: Model, workload: Workload, context: int | None, warnings: list[str], *, allow_overflow: bool
) -> int:
    needed = workload.input_tokens + workload.output_tokens
    planned = context if context is not None else needed
    if planned < 1:
        msg = f"context: must be at least 1, not {planned}"
        raise UsageError(msg)
    if context is not None and context < needed:
        msg = f"context: {context} is below input + output = {needed} tokens"
        raise UsageError(msg, hint=f"raise context to {needed} or shorten the workload")
    if model.max_context is not None and planned > model.max_context:
        if not allow_overflow:
            msg = f"context: {planned} is above the {model.max_context} tokens that {model.id} is made for"
            raise UsageError(
                msg, hint=f"{_shorter(model.max_context, workload, context)}, or pass --allow-context-overflow"
            )
        warnings.append(f"context {planned} is above the model's own limit of {model.max_context} tokens")
    return planned


def _shorter(limit: int, workload: Workload, context: int | None) -> str:
    if context is not None or limit < _SHORTEST:
        return "shorten it"
    output = int(min(workload.output_tokens, limit // 2))
    return f"--input-tokens {limit - output} --output-tokens {output} would do"


def _scenario(deployment: Deployment, workload: Workload, context: int) -> Scenario:
    layout = deployment.layout
    return Scenario(
        model=deployment.model.id,
        gpu=deployment.gpu.id,
        gpu_count=layout.gpu_count,
        engine=deployment.engine.name,
        dtype=deployment.dtype,
        kv_dtype=deployment.kv_dtype,
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        ep=layout.ep,
        input_tokens=workload.input_tokens,
        output_tokens=workload.output_tokens,
        concurrency=workload.concurrency,
        context=context,
    )


def time_range(mid_s: Num, floor_s: Num, spread: Num) -> Range:
    """A time with its floor and 90 % band [ms]: `mid / (1 + spread)` to `mid · (1 + spread)`, never below the floor."""
    floor = minimum(floor_s, mid_s) * MS_PER_S
    mid = mid_s * MS_PER_S
    return Range(floor=floor, low=maximum(mid / (1 + spread), floor), mid=mid, high=mid * (1 + spread))


def rate_range(mid: Num, ceiling: Num, spread: Num) -> Range:
    """A rate with its ideal ceiling (in `floor`) and 90 % band [1/s]."""
    top = maximum(ceiling, mid)
    return Range(floor=top, low=mid / (1 + spread), mid=mid, high=minimum(mid * (1 + spread), top))


def _waiting(load: Load, state: SteadyState) -> str:
    asked = f"{load.concurrency:g} sequences were asked for on each replica"
    if state.running < load.concurrency:
        return f"{asked}, {state.running:.3g} run at once: the others wait"
    return f"{asked} and run while half grown; {load.full_capacity:.3g} fit at full length, so some are set back"


def latency_of(
    deployment: Deployment, workload: Workload, state: SteadyState, *, floor: SteadyState, bounds: tuple[str, str]
) -> Latency:
    """Times of a steady state as ranges; arrays in, arrays out.

    Args:
        deployment: What serves.
        workload: What was asked.
        state: Its steady state.
        floor: The same on the ideal machine.
        bounds: What binds prefill and decode.
    """
    network = workload.network_ms / MS_PER_S
    efficiency = deployment.machine.efficiency
    wide, narrow = efficiency.spread_ttft, efficiency.spread_tpot
    share = state.ttft_s / state.e2e_s
    return Latency(
        ttft_ms=time_range(state.ttft_s + network, floor.prefill_s, wide),
        tpot_ms=time_range(state.tpot_s, floor.tpot_s, narrow),
        e2e_ms=time_range(
            state.e2e_s + network,
            floor.prefill_s + floor.tpot_s * (workload.output_tokens - 1),
            share * wide + (1 - share) * narrow,
        ),
        prefill_ms=time_range(state.prefill_s, floor.prefill_s, wide),
        decode_step_ms=time_range(state.decode_step_s, floor.decode_step_s, narrow),
        bound_prefill=bounds[0],
        bound_decode=bounds[1],
        ttft_parts_ms={
            "queue": state.queue_s * MS_PER_S,
            "prefill": state.prefill_s * MS_PER_S,
            "engine": state.engine_s * MS_PER_S,
            "network": workload.network_ms,
        },
        running=state.running,
        queued=state.queued,
    )


def throughput_of(deployment: Deployment, workload: Workload, state: SteadyState, *, floor: SteadyState) -> Throughput:
    """Rates of the whole deployment in a steady state as ranges; arrays in, arrays out."""
    spread = deployment.machine.efficiency.spread_tpot
    ranks = deployment.layout.dp
    requests = state.requests_per_s * ranks
    ideal = floor.requests_per_s * ranks
    tokens = workload.input_tokens + workload.output_tokens
    gpus = deployment.layout.gpu_count

    def rate(per_request: Num) -> Range:
        return rate_range(requests * per_request, ideal * per_request, spread)

    return Throughput(
        output_tokens_per_second=rate(workload.output_tokens),
        total_tokens_per_second=rate(tokens),
        requests_per_second=rate(1.0),
        per_gpu_output_tokens_per_second=rate(workload.output_tokens / gpus),
    )


def has_cross_cache(model: Model) -> bool:
    """True for a decoder that keeps a cache of its source."""
    return any(isinstance(mixer, CrossAttention) for group in model.groups for mixer in group.layer.mixers)
