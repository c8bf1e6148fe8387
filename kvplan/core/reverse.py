"""Reverse questions: which fraction, how many GPUs, which longest context for N sequences of L tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import kv_bits
from kvplan.core.ledger import Account, Question, account
from kvplan.core.memory_rules import Budget
from kvplan.core.numeric import check_count
from kvplan.core.results import Dumpable
from kvplan.errors import UsageError

_PERCENT = 100
_TP_CHOICES = (1, 2, 4, 8, 16, 32)


def holds(found: Account, question: Question) -> bool:
    """True where the asked sequences of one replica fit and may run at once."""
    sequences = question.per_replica
    return (
        found.room_bytes > 0
        and found.limits.max_num_seqs >= sequences
        and found.pool.holds(question.context, sequences=sequences)
    )


def utilization_for(question: Question) -> float | None:
    """The smallest fraction, in whole percent up to the engine's highest, that holds the asked sequences.

    None where none does, and for engines that are given none.
    """
    if question.engine.memory.budget in {Budget.UP_FRONT, Budget.EVERYTHING}:
        return None
    low, high = 1, int(question.engine.memory.highest_utilization * _PERCENT)

    def enough(percent: int) -> bool:
        settings = replace(question.settings, gpu_memory_utilization=percent / _PERCENT)
        asked = replace(question, settings=settings)
        return holds(account(asked), asked)

    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high / _PERCENT


def gpus_for(question: Question, *, choices: Sequence[int] = _TP_CHOICES) -> int | None:
    """The smallest tensor-parallel size that holds the asked sequences, or None.

    Args:
        question: The deployment; its own tp is replaced.
        choices: Sizes to try, smallest first.
    """
    for tp in choices:
        asked = replace(question, layout=replace(question.layout, tp=tp))
        try:
            asked.layout.check(asked.model)
        except UsageError:
            continue
        if holds(account(asked), asked):
            return tp
    return None


def sequences_for(question: Question) -> int:
    """Sequences of the asked length that run at once over the whole deployment, as it stands."""
    found = account(question)
    if found.room_bytes <= 0:
        return 0
    each = min(int(found.pool.sequences(question.context)), found.limits.max_num_seqs)
    return each * question.layout.dp


def kv_dtype_for(question: Question) -> str | None:
    """The cache format that holds the asked sequences: the question's own, else the engine's compact one, else None."""
    compact = question.engine.memory.compact_kv_dtype
    for name in (question.kv_dtype, compact):
        asked = None if name is None else replace(question, kv_dtype=name)
        if asked is not None and kv_bits(asked.kv_dtype) <= kv_bits(question.kv_dtype) and holds(account(asked), asked):
            return name
    return None


def max_model_len_for(question: Question) -> int:
    """The longest context at which the asked sequences of one replica all run at once, 0 where none does [token]."""
    found = account(question)
    if found.room_bytes <= 0:
        return 0
    return found.pool.longest(sequences=question.per_replica, cap=longest_useful(question))


def longest_useful(question: Question) -> int | None:
    """The model's own limit; where it has none and nothing grows with the sequence, the context asked for."""
    if question.model.max_context is not None:
        return question.model.max_context
    found = account(question)
    return None if any(one.grows for one in found.layers) else question.context


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs(Dumpable):
    """What the asked sequences need, against what the engine would reserve on one GPU.

    Attributes:
        model, gpu, engine, dtype, kv_dtype, tp, pp, dp, concurrency, context: The question.
        fits: True where the asked sequences run at once as the deployment stands.
        needed_bytes: Weights, activations, runtime, graphs and the caches of the asked sequences [byte].
        reserved_bytes: What the engine takes when it starts: its budget, without what llama.cpp's slots and the fraction
            of TensorRT-LLM leave free [byte].
        gpu_memory_utilization: Smallest fraction that holds them, in whole percent, or None (llama.cpp has no fraction).
        tp_needed: Smallest tensor-parallel size that holds them, or None.
        gpu_count_needed: `tp_needed × pp × dp`, or None.
        max_model_len: Longest context at which the asked sequences still run at once [token].
        sequences: How many of the asked length run at once as the deployment stands.
        kv_dtype_needed: Cache format that holds them: the deployment's own, the engine's compact one, or None.
    """

    schema: ClassVar[str | None] = "kvplan.needs/1"
    model: str
    gpu: str
    engine: str
    dtype: str
    kv_dtype: str
    tp: int
    pp: int
    dp: int
    concurrency: int
    context: int
    fits: bool
    needed_bytes: int
    reserved_bytes: int
    gpu_memory_utilization: float | None
    tp_needed: int | None
    gpu_count_needed: int | None
    max_model_len: int
    sequences: int
    kv_dtype_needed: str | None


def needs(question: Question, *, dtype: str) -> Needs:
    """Answer the reverse questions of one deployment.

    Raises:
        UsageError: Sequences or a length below one, or beyond all measure.
    """
    check_count("concurrency", question.concurrency)
    check_count("context", question.context)
    found = account(question)
    layout = question.layout
    tp = gpus_for(question)
    caches = found.pool.sequence_bytes(question.context) * question.per_replica
    leaves_room = question.engine.memory.budget in {Budget.UP_FRONT, Budget.FREE_AFTER}
    free = max(found.unused_bytes, 0) if leaves_room else 0
    return Needs(
        model=question.model.id,
        gpu=question.gpu.id,
        engine=question.engine.name,
        dtype=dtype,
        kv_dtype=question.kv_dtype,
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        concurrency=question.concurrency,
        context=question.context,
        fits=holds(found, question),
        needed_bytes=found.fixed_bytes + found.graph_outside.bytes + caches,
        reserved_bytes=found.usable_bytes - free + found.graph_outside.bytes,
        gpu_memory_utilization=utilization_for(question),
        tp_needed=tp,
        gpu_count_needed=None if tp is None else tp * layout.pp * layout.dp,
        max_model_len=max_model_len_for(question),
        sequences=sequences_for(question),
        kv_dtype_needed=kv_dtype_for(question),
    )
