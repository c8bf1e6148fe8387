"""One engine iteration: a decode token for each running sequence, and perhaps a chunk of prompt beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvplan.core.collectives import allreduce_s, alltoall_s, link_for
from kvplan.core.dataclass import dataclass
from kvplan.core.numeric import Num, maximum, minimum, smooth_maximum
from kvplan.core.results import OpTime
from kvplan.core.roofline import (
    Cost,
    Machine,
    decode_attention_cost,
    expert_cost,
    gemm_cost,
    prefill_attention_cost,
    recurrent_cost,
)
from kvplan.core.units import MS_PER_S
from kvplan.core.work import StepWork

#: Operations of a breakdown, in its order (docs/formulas.md).
OPS = (
    "attention_gemm",
    "feed_forward_gemm",
    "other_gemm",
    "experts",
    "attention_decode",
    "attention_prefill",
    "recurrence",
    "elementwise",
    "head",
    "allreduce",
    "alltoall",
    "pipeline",
    "layer_overhead",
    "host",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """What one iteration carries, on one data-parallel rank.

    Attributes:
        sequences: Sequences that decode one token each.
        context_start, context_end: Their contexts lie evenly between these [token].
        prefill_tokens: Prompt tokens beside them [token].
        prefill_prior: Tokens of that prompt that are cached already [token].
        prefill_sequences: Prompts that these tokens belong to.
        source_tokens: Encoder tokens of one prompt, which cross attention sees [token].
    """

    sequences: Num
    context_start: Num
    context_end: Num
    prefill_tokens: Num = 0
    prefill_prior: Num = 0
    prefill_sequences: Num = 0
    source_tokens: Num = 0


@dataclass(frozen=True, slots=True)
class Term:
    """One kind of work in a step, over all its layers.

    Attributes:
        op: One of `OPS`.
        cost: What it asks for.
        seconds: What it takes [s].
        communication: True for messages; `cost.bytes` are then what is summed, or a copy for each expert or stage to come.
    """

    op: str
    cost: Cost
    seconds: Num
    communication: bool = False


def step_terms(work: StepWork, load: StepLoad, machine: Machine) -> Iterator[Term]:
    """The terms of one iteration; their seconds add up to it.

    With pipeline stages the sequences are divided over the stages as micro-batches, and a token passes all stages in
    turn: the sum is the time until it is back.
    """
    eff = machine.efficiency
    sequences = maximum(load.sequences / work.pp, minimum(load.sequences, 1.0)) if work.pp > 1 else load.sequences
    prefill = load.prefill_tokens
    tokens = sequences + prefill
    sampled = sequences + load.prefill_sequences
    sources = load.prefill_sequences * load.source_tokens
    for count, gemm in work.gemms:
        if gemm.of_source and _is_zero(prefill):
            continue
        passing = sources if gemm.of_source else sampled if gemm.sampled else tokens
        yield _term(gemm.op, count, gemm_cost(gemm, passing, machine))
    for count, experts in work.experts:
        group_tokens = tokens * work.dp if work.alltoalls else tokens
        yield _term("experts", count, expert_cost(experts, group_tokens, machine))
    for count, attention in work.attention:
        start, end = (load.source_tokens,) * 2 if attention.cross else (load.context_start, load.context_end)
        yield _term(
            "attention_decode",
            count,
            decode_attention_cost(attention, sequences=sequences, start=start, end=end, machine=machine),
        )
        if not _is_zero(prefill):
            prior = load.source_tokens if attention.cross else load.prefill_prior
            yield _term(
                "attention_prefill",
                count,
                prefill_attention_cost(
                    attention, tokens=prefill, prompts=load.prefill_sequences, prior=prior, machine=machine
                ),
            )
    for count, recurrent in work.recurrent:
        cost = recurrent_cost(
            recurrent, sequences=sequences, prefill=prefill, prompts=load.prefill_sequences, machine=machine
        )
        yield _term("recurrence", count, cost)
    yield from _elementwise(work, tokens, machine)
    yield from _messages(work, tokens, machine)
    if work.encoder is not None and not _is_zero(prefill):
        encoder = step_terms(work.encoder, _encoder_load(load), machine)
        yield from (term for term in encoder if term.op != "host")  # which schedules the iteration once, by its prompts
    yield _fixed("layer_overhead", work.layers * eff.layer_s)
    yield _fixed("host", eff.step_s + eff.sequence_s * load.sequences + eff.prefill_token_s * prefill)


def _encoder_load(load: StepLoad) -> StepLoad:
    """The sources of the prompts of an iteration: the encoder takes each of them whole."""
    return StepLoad(
        sequences=0,
        context_start=0,
        context_end=0,
        prefill_tokens=load.prefill_sequences * load.source_tokens,
        prefill_sequences=load.prefill_sequences,
    )


def _is_zero(value: Num) -> bool:
    return isinstance(value, int | float) and value == 0


def _term(op: str, count: int, cost: Cost) -> Term:
    seconds = count * (cost.fixed_s + smooth_maximum(cost.memory_s, cost.compute_s))
    whole = Cost(  # by place, which takes half the time of names and is asked for every operation
        count * cost.flops, count * cost.bytes, count * cost.memory_s, count * cost.compute_s, count * cost.fixed_s
    )
    return Term(op, whole, seconds)


def _fixed(op: str, seconds: Num) -> Term:
    return Term(op, Cost(fixed_s=seconds), seconds)


def _elementwise(work: StepWork, tokens: Num, machine: Machine) -> Iterator[Term]:
    """Norms, residuals, rotary and activations: the residual stream crosses memory some times per layer."""
    moved = work.layers * machine.efficiency.elementwise_traffic * tokens * work.hidden_bytes
    seconds = moved / machine.bytes_per_s(1.0)
    yield Term("elementwise", Cost(bytes=moved, memory_s=seconds), seconds)


def _messages(work: StepWork, tokens: Num, machine: Machine) -> Iterator[Term]:
    eff = machine.efficiency
    payload = tokens * work.hidden_bytes
    if work.tp > 1:
        link = link_for(machine.gpu, work.tp)
        seconds = work.allreduces * allreduce_s(payload, work.tp, link=link, efficiency=eff)
        yield Term("allreduce", Cost(bytes=work.allreduces * payload), seconds, communication=True)
    if work.alltoalls:
        link = link_for(machine.gpu, work.ep)
        top_k = work.experts[0][1].top_k
        one = alltoall_s(tokens, work.hidden_bytes, ranks=work.ep, top_k=top_k, link=link, efficiency=eff)
        copies = work.alltoalls * payload * top_k
        yield Term("alltoall", Cost(bytes=copies), work.alltoalls * one, communication=True)
    if work.pp > 1:
        link = link_for(machine.gpu, work.pp * work.tp)
        hops = work.pp - 1
        seconds = hops * (eff.allreduce_s + payload / (link.bytes_per_s * eff.link_bandwidth))
        yield Term("pipeline", Cost(bytes=hops * payload), seconds, communication=True)


def step_s(work: StepWork, load: StepLoad, machine: Machine) -> Num:
    """Time of one iteration [s].

    With `overlap` (the floor) memory, arithmetic and messages run wholly side by side and the slowest counts; else
    the terms follow one another, and the host sets a floor.
    """
    return _duration(step_terms(work, load, machine), work, machine)


def _duration(terms: Iterable[Term], work: StepWork, machine: Machine) -> Num:
    if not machine.efficiency.overlap:
        device = sum(term.seconds for term in terms)
        floor = machine.host_floor_s(work.layers)
        return maximum(device, floor) if floor > 0 else device
    memory = compute = messages = 0.0
    for term in terms:
        if term.communication:
            messages = messages + term.seconds
        memory = memory + term.cost.memory_s
        compute = compute + term.cost.compute_s
    return maximum(maximum(memory, compute), messages)


def breakdown(work: StepWork, load: StepLoad, machine: Machine, *, phase: str) -> tuple[tuple[OpTime, ...], str]:
    """One step by kind of work, scaled so that it sums to the step, and what binds it.

    Returns:
        The rows in the order of `OPS`, and the bound with the largest share: `memory`, `compute`, `communication` or
        `overhead`.
    """
    terms = list(step_terms(work, load, machine))
    total = sum(term.seconds for term in terms)
    scale = _duration(terms, work, machine) / total if total > 0 else 0.0
    rows: dict[str, list[Term]] = {}
    for term in terms:
        rows.setdefault(term.op, []).append(term)
    shares: dict[str, float] = {"memory": 0.0, "compute": 0.0, "communication": 0.0, "overhead": 0.0}
    result: list[OpTime] = []
    for op in OPS:
        if op not in rows or not any(term.seconds > 0 for term in rows[op]):
            continue
        bounds = dict.fromkeys(shares, 0.0)
        for term in rows[op]:
            for bound, seconds in _split(term).items():
                bounds[bound] += seconds
                shares[bound] += seconds
        result.append(
            OpTime(
                phase=phase,
                op=op,
                flops=sum(term.cost.flops for term in rows[op]),
                bytes=sum(term.cost.bytes for term in rows[op]),
                ms=sum(term.seconds for term in rows[op]) * scale * MS_PER_S,
                bound=max(bounds, key=lambda bound: bounds[bound]),
            )
        )
    return tuple(result), max(shares, key=lambda bound: shares[bound])


def _split(term: Term) -> dict[str, float]:
    """A term's seconds by what binds them: the slower of memory and arithmetic, the fixed part as overhead."""
    if term.communication:
        return {"communication": term.seconds}
    binding = "memory" if term.cost.memory_s >= term.cost.compute_s else "compute"
    return {binding: term.seconds - term.cost.fixed_s, "overhead": term.cost.fixed_s}
