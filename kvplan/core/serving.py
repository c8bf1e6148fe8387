"""Steady state of continuous batching: how many sequences run, how often prefill joins, and the times that follow.

Definitions (docs/nomenclature.md): TTFT is queue + prefill + engine + network; TPOT is (end-to-end − TTFT) /
(output − 1), so it holds the mixed iterations; the decode step is an iteration without prefill.
"""

from __future__ import annotations

from dataclasses import field, replace

from kvplan.core.dataclass import dataclass
from kvplan.core.numeric import Num, ceil, maximum, minimum, select
from kvplan.core.roofline import Machine
from kvplan.core.step import StepLoad, step_s
from kvplan.core.work import StepWork

#: Part of a group of prompts that arrive together which a request waits for, where lengths are equal: all of the others
#: if they stay in step for good.
_LOCKSTEP = 0.8

#: Requests in flight from which benchmark servers are set up for throughput: InferenceX's scripts let SGLang look for new
#: requests every 10 steps, from here on every 30 (`--scheduler-recv-interval`).
_BUSY = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one data-parallel rank of a replica serves, in plain numbers or arrays.

    Attributes:
        input_tokens: Prompt tokens that are really computed (a cached prefix is not) [token].
        cached_tokens: Prompt tokens found in the prefix cache [token].
        output_tokens: Tokens generated [token].
        concurrency: Sequences in flight.
        capacity: Sequences that the KV pool (or the state pool) holds while they run, as grown as they are on average.
        full_capacity: Sequences that it holds when all are at their full length; None is the same.
        max_num_seqs: Sequences that the scheduler runs at most.
        budget_tokens: Tokens of one iteration at most (prefill chunk).
        source_tokens: Encoder tokens of an encoder–decoder model [token].
        mixes_prefill: True where a chunk of prompt runs in one iteration with the decodes, False where they wait for it.
        benchmark_requests: Requests of a benchmark with lengths drawn at random that starts with all its concurrency at
            once and streams in chunks; None for a steady state.
        equal_lengths: True for a benchmark of requests of one length, whose prompts come together in groups.
    """

    input_tokens: Num
    output_tokens: Num
    concurrency: Num
    capacity: Num
    max_num_seqs: Num
    budget_tokens: Num
    full_capacity: Num | None = None
    cached_tokens: Num = 0
    source_tokens: Num = 0
    mixes_prefill: bool = True
    benchmark_requests: Num | None = None
    equal_lengths: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """Times of one request and rates of one data-parallel rank, in seconds.

    Attributes:
        running: Sequences that run at once.
        queued: True where not all asked sequences run at once at their full length: some wait, or are set back.
        decoding: Of these, sequences that decode (the others are in prefill).
        decode_step_s: An iteration without prefill.
        mixed_step_s: An iteration with a prefill chunk.
        mixed_share: Share of iterations that carry prefill.
        prefill_s: Prefill of one prompt beside the running decodes, first chunk to last.
        queue_s: Waiting for a place, for other prompts and for the running iteration.
        engine_s: Time per request outside iterations.
        ttft_s, tpot_s, e2e_s: The request's times.
        requests_per_s: Completed requests.
        decode_load, mixed_load: The iterations behind the figures.
    """

    running: Num
    queued: Num
    decoding: Num
    decode_step_s: Num
    mixed_step_s: Num
    mixed_share: Num
    prefill_s: Num
    queue_s: Num
    engine_s: Num
    ttft_s: Num
    tpot_s: Num
    e2e_s: Num
    requests_per_s: Num
    decode_load: StepLoad = field(repr=False)
    mixed_load: StepLoad = field(repr=False)


def steady_state(work: StepWork, load: Load, machine: Machine) -> SteadyState:
    """Solve the closed loop of `concurrency` sequences, each `input_tokens` in and `output_tokens` out.

    A sequence that ends makes room for a prompt of `I` tokens, so the `D − 1` others bring `R = (D − 1) · I / O` prompt
    tokens per iteration of a running sequence; they come `p = I / ⌈I / budget⌉` or more at a time, in a share `f = R / p`
    of iterations:

    `TPOT = (1 − f) · t(D, 0) + f · t(D, p)`, `prefill = ⌈I / budget⌉ · t(D, p)`; with `pp` pipeline stages, through which
    the chunks of a prompt follow one another, `(⌈I / budget⌉ + pp − 1) / pp` of them.

    Where `f` reaches 1 prefill is the bottleneck and requests wait for it. Engines that run prompts in iterations of
    their own add `t(0, p)` to the step instead. Little's law ties the rest: `running = X · (TTFT + (O − 1) · TPOT)` with
    `TTFT = queue + prefill + engine`.
    """
    running = minimum(load.concurrency, minimum(load.max_num_seqs, maximum(load.capacity, 1.0)))
    others = maximum(running - 1.0, 0.0)
    gaps = maximum(load.output_tokens - 1.0, 0.0)
    budget = maximum(load.budget_tokens - running, 1.0)
    arriving = others * load.input_tokens / maximum(load.output_tokens, 1.0)
    chunks = ceil(load.input_tokens / budget)
    chunk = maximum(load.input_tokens / chunks, minimum(arriving, budget))
    share = minimum(arriving / chunk, 1.0)
    decode = _decode_load(load, running)
    mixed = _mixed_load(load, others if load.mixes_prefill else 0.0, chunk=chunk, chunks=chunks)
    decode_step = step_s(work, decode, machine)
    mixed_step = step_s(work, mixed, machine)
    prefill = (chunks + work.pp - 1.0) / work.pp * mixed_step
    prompts = load.input_tokens / chunk  # iterations that one prompt fills, below 1 where several share one
    if load.mixes_prefill:
        stall, added = mixed_step, prompts * maximum(mixed_step - decode_step, 0.0)
    else:
        stall, added = mixed_step + decode_step, prompts * mixed_step
    group = minimum(running, maximum(budget / load.input_tokens, 1.0))
    tpot = (1.0 - share) * decode_step + share * stall
    if _in_waves(load):
        tpot = decode_step + added * (running - group) / 2.0 / maximum(gaps, 1.0)
    together = _together(load, running=running, group=group, added=added)
    occupied = prompts * stall / work.pp  # of the slowest stage
    saturated = maximum(running * occupied - (prefill + gaps * tpot), 0.0) if load.mixes_prefill else 0.0
    residual = _residual(decode_step, stall, share) * minimum(running - 1.0, 1.0)
    queue = maximum(saturated, residual + together)
    engine = machine.efficiency.request_s + _streamed(load, machine) * tpot
    ttft = prefill + queue + engine
    service = ttft + gaps * tpot
    waiting = service * maximum(load.concurrency / running - 1.0, 0.0)
    whole = load.capacity if load.full_capacity is None else load.full_capacity
    return SteadyState(
        running=running,
        queued=load.concurrency > minimum(load.max_num_seqs, maximum(whole, 1.0)),
        decoding=running * gaps * tpot / service,
        decode_step_s=decode_step,
        mixed_step_s=mixed_step,
        mixed_share=share,
        prefill_s=prefill,
        queue_s=queue + waiting,
        engine_s=engine,
        ttft_s=ttft + waiting,
        tpot_s=tpot,
        e2e_s=service + waiting,
        requests_per_s=running / service,
        decode_load=decode,
        mixed_load=mixed,
    )


def _in_waves(load: Load) -> bool:
    """True where all prompts run before the decodes go on: requests of one length on an engine that doesn't mix them."""
    return load.equal_lengths and load.benchmark_requests is None and not load.mixes_prefill


def _together(load: Load, *, running: Num, group: Num, added: Num) -> Num:
    """Waiting for prompts that come at the same time, in closed-loop benchmarks; none in a steady state [s].

    - A benchmark that starts at once: its first `running` requests wait for half of the others' prompts.
    - Equal lengths in waves: for the groups before, half of `running − group` prompts, and for its own group's others.
    - Equal lengths beside decodes: for most of its own group's others.

    Args:
        load: What is served.
        running: Sequences that run at once.
        group: Prompts that one iteration takes.
        added: Time that one prompt adds to the iterations [s].
    """
    if load.benchmark_requests is not None:
        return added * (running - 1.0) / 2.0 * minimum(running / load.benchmark_requests, 1.0)
    if _in_waves(load):
        return added * (running + group - 2.0) / 2.0
    return added * (group - 1.0) * _LOCKSTEP if load.equal_lengths else 0.0


def _residual(decode_step: Num, mixed: Num, share: Num) -> Num:
    """What is left of the running iteration when a prompt arrives at any moment [s].

    Long iterations are met more often than short ones: `E[t²] / (2 · E[t])` over decode and mixed iterations.
    """
    squares = (1.0 - share) * decode_step * decode_step + share * mixed * mixed
    return squares / (2.0 * ((1.0 - share) * decode_step + share * mixed))


def _streamed(load: Load, machine: Machine) -> Num:
    """Tokens that pass before a request is taken up and its first chunk sent, on servers set up for a benchmark."""
    if load.benchmark_requests is None:
        return 0.0
    eff = machine.efficiency
    return select(load.concurrency >= _BUSY, eff.stream_tokens_busy, eff.stream_tokens)


def _decode_load(load: Load, sequences: Num) -> StepLoad:
    context = load.input_tokens + load.cached_tokens
    return StepLoad(
        sequences=sequences,
        context_start=context,
        context_end=context + load.output_tokens,
        source_tokens=load.source_tokens,
    )


def _mixed_load(load: Load, sequences: Num, *, chunk: Num, chunks: Num) -> StepLoad:
    """An iteration with `chunk` prompt tokens: part of one prompt, or several prompts."""
    decode = _decode_load(load, sequences)
    own = minimum(chunk, load.input_tokens)
    return replace(
        decode,
        prefill_tokens=chunk,
        prefill_prior=load.cached_tokens + (load.input_tokens - own) / 2.0,
        prefill_sequences=maximum(chunk / load.input_tokens, 1.0 / chunks),
    )
