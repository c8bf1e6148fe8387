"""One scenario, answered: memory, capacity, latency and throughput from the same parts."""

from __future__ import annotations

from typing import Protocol

from kvplan.core.blocks import Pool
from kvplan.core.deployment import Deployment
from kvplan.core.memory import plan_memory
from kvplan.core.model import Model
from kvplan.core.numeric import Num, check_count, maximum, minimum
from kvplan.core.results import Estimate, Latency, OpTime, Range, Scenario, Throughput
from kvplan.core.serving import Load, SteadyState, steady_state
from kvplan.core.step import breakdown
from kvplan.core.units import MS_PER_S
from kvplan.core.workload import Workload
from kvplan.errors import UsageError

#: A prompt and an answer of one token each.
_SHORTEST = 2


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
    budget: Num = plan.max_num_batched_tokens
    if deployment.model.encodes_only:  # at least one prompt, whole
        budget = maximum(budget, workload.input_tokens + concurrency)
    source = workload.source_tokens if workload.source_tokens is not None else deployment.model.max_source_tokens or 0
    return Load(
        input_tokens=maximum(workload.input_tokens - cached, 1.0),
        cached_tokens=cached,
        output_tokens=workload.output_tokens,
        concurrency=concurrency / deployment.layout.dp,
        capacity=plan.pool.sequences(held),
        full_capacity=plan.pool.sequences(whole),
        max_num_seqs=plan.max_num_seqs,
        budget_tokens=budget,
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
        deployment.question(context=planned, concurrency=workload.concurrency, source_tokens=workload.source_tokens)
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
    check_count("context", planned)
    if context is not None and context < needed:
        msg = f"context: {context} is below input + output = {needed} tokens"
        raise UsageError(msg, hint=f"raise context to {needed} or shorten the workload")
    if model.max_context is not None and planned > model.max_context:
        if not allow_overflow:
            msg = f"context: {planned} is above the {model.max_context} tokens that {model.id} is made for"
            raise UsageError(
                msg, hint=f"{_shorter(model.max_context, workload, context)}, or pass --allow-context-overflow"
            )
        warnings.append(f"context {planned:,} is above the model's own limit of {model.max_context:,} tokens")
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
