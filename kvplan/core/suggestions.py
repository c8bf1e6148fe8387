"""The smallest changes that make it fit, or that gain room, in the engine's own options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvplan.core.dtypes import FORMATS, kv_bits
from kvplan.core.ledger import Account, Question, account
from kvplan.core.memory_rules import Budget
from kvplan.core.precision import apply_dtype, display_dtype
from kvplan.core.reverse import gpus_for, holds, max_model_len_for, utilization_for
from kvplan.core.units import ceil_div

_FEWER_SEQUENCES = (512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
_FEWER_TOKENS = (8192, 4096, 2048, 1024, 512)
_LEAST_CONTEXT_SHARE = 0.25
_SIXTEEN_BITS = frozenset({"bf16", "fp16"})


def suggestions(question: Question, found: Account, *, fits: bool) -> tuple[str, ...]:
    """What to change, by how much, and what it then holds; empty where all asked sequences fit.

    Args:
        question: The deployment.
        found: Its account.
        fits: False where not even one sequence fits: then one sequence is the goal, else all asked ones.
    """
    if fits and holds(found, question):
        return ()
    goal = question if fits else replace(question, concurrency=question.layout.dp)
    return tuple(_changes(goal, found, fits=fits))


def _changes(goal: Question, found: Account, *, fits: bool) -> Iterator[str]:
    rules = goal.engine.memory
    sequences, settings = goal.per_replica, goal.settings
    if found.limits.max_num_seqs < sequences:
        wider = replace(goal, settings=replace(settings, max_num_seqs=sequences))
        if holds(account(wider), wider):
            yield _told(wider, rules.option("max_num_seqs", sequences), now=found.limits.max_num_seqs)
            return
    same_card = [*_budget_changes(goal, found), *_smaller_batches(goal, found)]
    yield from same_card or _both(goal, found)
    longest = max_model_len_for(goal)
    if goal.context > longest >= (goal.context * _LEAST_CONTEXT_SHARE if sequences > 1 else 1):
        shorter = replace(goal, context=longest)
        slots = sequences if rules.budget is Budget.UP_FRONT else 1
        yield _told(shorter, rules.option("context", longest * slots), now=goal.context * slots)
    if not fits:
        yield from _smaller_weights(goal)
    gpus = gpus_for(goal)
    if gpus is not None and gpus > goal.layout.tp:
        yield _told(replace(goal, layout=replace(goal.layout, tp=gpus)), rules.option("tp", gpus), now=goal.layout.tp)
    yield from _more_replicas(goal, found)


def _smaller_weights(goal: Question) -> Iterator[str]:
    """The widest format that the engine runs and the card multiplies which is small enough, for 16-bit checkpoints."""
    now = display_dtype(goal.model)
    if now not in _SIXTEEN_BITS:
        return
    for name in goal.engine.memory.compact_dtypes:
        compute = FORMATS[name].compute if name in FORMATS else None  # file types of GGUF expand their weights
        if compute is not None and not goal.gpu.peak_flops_per_s.get(compute):
            continue
        smaller = replace(goal, model=apply_dtype(goal.model, name))
        if holds(account(smaller), smaller):
            yield _told(smaller, f"weights in {name}, --dtype {name}", now=now)
            return


def _more_replicas(goal: Question, found: Account) -> Iterator[str]:
    """Replicas that hold the asked sequences together, where one holds at least one of them."""
    held = min(int(found.pool.sequences(goal.context)), found.limits.max_num_seqs) if found.room_bytes > 0 else 0
    if not 0 < held < goal.per_replica or goal.layout.shared_experts_over_dp:
        return
    replicas = ceil_div(goal.concurrency, held)
    option = goal.engine.memory.option("replicas", replicas)
    yield f"{option} (now {goal.layout.dp}): each replica holds {_sequences(held)} of {goal.context:,} tokens"


def _budget_changes(goal: Question, found: Account) -> Iterator[str]:
    """A higher fraction, or a smaller cache format, each alone."""
    rules = goal.engine.memory
    higher = _higher_fraction(goal, found)
    if higher is not None:
        fraction = higher.settings.gpu_memory_utilization
        yield _told(higher, rules.option("utilization", f"{fraction:.2f}"), now=f"{found.fraction:g}")
    smaller = _smaller_cache(goal, found)
    if smaller is not None and holds(account(smaller), smaller):
        yield _told(smaller, rules.option("kv_dtype", smaller.kv_dtype), now=goal.kv_dtype)


def _higher_fraction(goal: Question, found: Account) -> Question | None:
    fraction = utilization_for(goal)
    if fraction is None or fraction <= found.fraction:
        return None
    return replace(goal, settings=replace(goal.settings, gpu_memory_utilization=fraction))


def _smaller_cache(goal: Question, found: Account) -> Question | None:
    compact = goal.engine.memory.compact_kv_dtype
    if compact is None or not found.layers or kv_bits(compact) >= kv_bits(goal.kv_dtype):
        return None
    return replace(goal, kv_dtype=compact)


def _both(goal: Question, found: Account) -> Iterator[str]:
    """A higher fraction together with a smaller cache format, where neither alone is enough."""
    rules, smaller = goal.engine.memory, _smaller_cache(goal, found)
    higher = _higher_fraction(smaller, found) if smaller is not None else None
    if smaller is None or higher is None:
        return
    fraction = rules.option("utilization", f"{higher.settings.gpu_memory_utilization:.2f}")
    option = f"{fraction} with {rules.option('kv_dtype', smaller.kv_dtype)}"
    yield _told(higher, option, now=f"{found.fraction:g} and {goal.kv_dtype}")


def _smaller_batches(goal: Question, found: Account) -> Iterator[str]:
    """Limits that shrink the activation peak enough, the largest that does."""
    if not goal.engine.memory.sampler_bytes_per_logit:
        return
    for knob, current, choices in (
        ("max_num_seqs", found.limits.max_num_seqs, _FEWER_SEQUENCES),
        ("max_num_batched_tokens", found.limits.max_num_batched_tokens, _FEWER_TOKENS),
    ):
        for value in choices:
            if value >= current:
                continue
            fewer = _with_limit(goal, knob, value)
            if holds(account(fewer), fewer):
                yield _told(fewer, goal.engine.memory.option(knob, value), now=current)
                break


def _with_limit(goal: Question, knob: str, value: int) -> Question:
    if knob == "max_num_seqs":
        return replace(goal, settings=replace(goal.settings, max_num_seqs=value))
    return replace(goal, settings=replace(goal.settings, max_num_batched_tokens=value))


def _told(changed: Question, option: str, *, now: object) -> str:
    held = account(changed).pool.sequences(changed.context)
    return f"{option} (now {now}): holds {_sequences(held)} of {changed.context:,} tokens"


def _sequences(count: float) -> str:
    return f"{count:.4g} sequence{'' if count == 1 else 's'}"
