"""Steady state of continuous batching: how many sequences run, how often prefill joins, and the times that follow.

Definitions (docs/nomenclature.md): TTFT is queue + prefill + engine + network; TPOT is (end-to-end − TTFT) /
(output − 1), so it holds the mixed iterations; the decode step is an iteration without prefill.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvplan.core.numeric import Num, ceil, maximum, minimum
from kvplan.core.roofline import Machine
from kvplan.core.step import StepLoad, encoder_s, step_s
from kvplan.core.work import StepWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one data-parallel rank of a replica serves, in plain numbers or arrays.

    Attributes:
        input_tokens: Prompt tokens that are really computed (a cached prefix is not) [token].
        cached_tokens: Prompt tokens found in the prefix cache [token].
        output_tokens: Tokens generated [token].
        concurrency: Sequences in flight.
        capacity: Sequences that the KV pool (or the state pool) holds at this length.
        max_num_seqs: Sequences that the scheduler runs at most.
        budget_tokens: Tokens of one iteration at most (prefill chunk).
        source_tokens: Encoder tokens of an encoder–decoder model [token].
        benchmark_requests: Requests of a benchmark that starts with all its concurrency at once, or None.
    """

    input_tokens: Num
    output_tokens: Num
    concurrency: Num
    capacity: Num
    max_num_seqs: Num
    budget_tokens: Num
    cached_tokens: Num = 0
    source_tokens: Num = 0
    benchmark_requests: Num | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """Times of one request and rates of one data-parallel rank, in seconds.

    Attributes:
        running: Sequences that run at once.
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

    A sequence that ends makes room for a prompt of `I` tokens, so `D` decoding sequences bring `D · I / O` prompt
    tokens per iteration; they come `p = min(I, budget)` at a time, in a share `f = D · I / (O · p)` of iterations:

    `TPOT = (1 − f) · t(D, 0) + f · t(D, p)`, `prefill = ceil(I / budget) · t(D, p)`.

    Where `f` reaches 1 prefill is the bottleneck and requests wait for it. Little's law ties the rest:
    `running = X · (prefill + queue + (O − 1) · TPOT)`.
    """
    running = minimum(load.concurrency, minimum(load.max_num_seqs, maximum(load.capacity, 1.0)))
    context = load.input_tokens + load.cached_tokens
    chunk = minimum(load.input_tokens, maximum(load.budget_tokens - running, 1.0))
    chunks = ceil(load.input_tokens / chunk)
    gaps = maximum(load.output_tokens - 1.0, 0.0)

    def decode_load(sequences: Num) -> StepLoad:
        return StepLoad(
            sequences=sequences,
            context_start=context,
            context_end=context + load.output_tokens,
            source_tokens=load.source_tokens,
        )

    def mixed_load(sequences: Num) -> StepLoad:
        return StepLoad(
            sequences=sequences,
            context_start=context,
            context_end=context + load.output_tokens,
            prefill_tokens=chunk,
            prefill_prior=load.cached_tokens + (load.input_tokens - chunk) / 2.0,
            prefill_sequences=1.0 / chunks,
            source_tokens=load.source_tokens,
        )

    others = running - 1.0 / (1.0 + gaps)
    decode_step = step_s(work, decode_load(running), machine)
    mixed_step = step_s(work, mixed_load(maximum(running - 1.0, 0.0)), machine)
    encode = encoder_s(work, load.source_tokens, machine)
    prefill = chunks * mixed_step + encode
    demand = running * chunks / maximum(load.output_tokens, 1.0)
    share = minimum(demand, 1.0)
    tpot = (1.0 - share) * decode_step + share * mixed_step
    saturated_wait = maximum(running * prefill - (prefill + gaps * tpot), 0.0)
    residual = (share * mixed_step + (1.0 - share) * decode_step) / 2.0 * minimum(others, 1.0)
    queue = saturated_wait + residual + _prefill_wait(share, prefill, running)
    engine = machine.efficiency.request_s
    ttft = prefill + queue + engine
    service = ttft + gaps * tpot
    waiting = service * maximum(load.concurrency / running - 1.0, 0.0)
    return SteadyState(
        running=running,
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
        decode_load=decode_load(running),
        mixed_load=mixed_load(maximum(running - 1.0, 0.0)),
    )


def _prefill_wait(share: Num, prefill: Num, running: Num) -> Num:
    """Mean wait for prompts ahead: an M/D/1 queue of load `share`, never longer than all others' prefills [s].

    `prefill · share / (2 (1 − share))`, capped at `(running − 1) / 2` prefills.
    """
    free = maximum(1.0 - share, 1e-6)
    return prefill * minimum(share / (2.0 * free), maximum(running - 1.0, 0.0) / 2.0)
