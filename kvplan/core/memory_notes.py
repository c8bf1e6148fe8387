"""What a memory plan takes for granted, and what its reader should doubt, as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvplan.core.ledger import Account, Question, account
from kvplan.core.memory_rules import Budget, Paging
from kvplan.core.model import Attention, LatentAttention
from kvplan.core.reservations import fraction_factor
from kvplan.errors import UsageError

_SLOTS_KEPT = (3, 5)  # SGLang: MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO, and two more that overlap with scheduling


def assumptions(question: Question, found: Account) -> tuple[str, ...]:
    """Defaults that the engine chose."""
    return tuple(_assumptions(question, found))


def warnings(question: Question, found: Account) -> tuple[str, ...]:
    """Rules that rest on little, and effects that surprise."""
    return tuple(_warnings(question, found))


def _assumptions(question: Question, found: Account) -> Iterator[str]:
    rules, limits, engine = question.engine.memory, found.limits, question.engine.name
    if rules.budget is Budget.EVERYTHING:
        return
    for name in limits.defaulted:
        value = getattr(limits, name)
        if rules.budget is Budget.UP_FRONT and name == "max_num_seqs":
            total = value * question.context
            yield f"{value} slots for the asked sequences: {rules.option('context', total)} {rules.option(name, value)}"
        elif name == "max_num_batched_tokens" and rules.whole_items and value == question.model.whole_item_tokens:
            yield f"{name} {value}: the longest media item, which {question.model.id} takes whole"
        else:
            yield f"{name} {value}: the default of {engine} on this card"
    if question.settings.gpu_memory_utilization is None and rules.budget is not Budget.UP_FRONT:
        yield f"memory fraction {found.fraction:.4g}: the default of {engine}"
    states = any(one.kind == "state" for one in found.layers)
    if states and rules.paging is Paging.GROUPS and question.settings.state_mode is None:
        yield f"recurrent state kept as `{rules.state_mode.value}` (prefix caching of hybrids): the default of {engine}"
    if rules.budget is Budget.FREE_BEFORE:
        share = found.fraction * fraction_factor(rules, question.gpu, question.model, layout=question.layout)
        yield f"activations and graphs live in the {1 - share:.0%} headroom outside the fraction"


def _warnings(question: Question, found: Account) -> Iterator[str]:
    rules, model, layout, gpu = question.engine.memory, question.model, question.layout, question.gpu
    if rules.confidence == "low":
        yield f"the memory rules of {question.engine.name} {rules.caution or 'were not checked against start-up logs'}"
    if gpu.unified_memory and rules.runtime_unified_bytes:
        yield "memory shared with the CPU: the system's share was seen in three set-ups only; expect the pool within ±10 %"
    item = model.whole_item_tokens
    if rules.whole_items and found.limits.max_num_batched_tokens < item:
        yield (
            f"{model.id} takes a media item of up to {item} tokens whole: the engine refuses to start below "
            f"{rules.option('max_num_batched_tokens', item)} unless it is served without media"
        )
    yield from _replication(question, found)
    yield from _hybrid(question, found)
    yield from _state_slots(question, found)
    if (
        rules.graph_inside
        and model.has_routed_experts
        and gpu.family in {"blackwell-dc", "gb10"}
        and not question.settings.enforce_eager
    ):
        yield (
            "mixture of experts on Blackwell: the engine may overestimate its graphs by many GiB and shrink the pool "
            "(vLLM issue 45178); raise the fraction if it does"
        )
    if rules.budget is Budget.TOTAL and any(one.kind == "compressed" for one in found.layers):
        yield (
            "compressed attention: workspaces that grow with the context are not counted; one log had 5 GiB less pool "
            "(DeepSeek-V4-Flash, 2 × H20, 912,128 tokens)"
        )
    if layout.pp > 1:
        yield "with pipeline stages the log's pool is that of rank 0; this ledger is that of the fullest rank"


def _replication(question: Question, found: Account) -> Iterator[str]:
    layout = question.layout
    mixers = [m for group in question.model.groups for m in group.layer.mixers]
    latent = sum(1 for m in mixers if isinstance(m, LatentAttention))
    heads = min((m.num_key_value_heads for m in mixers if isinstance(m, Attention) and m.cached), default=None)
    if question.settings.dcp > 1:
        return
    if heads is not None and layout.tp > heads:
        yield f"{layout.tp} ranks share {heads} KV heads: each head is kept {layout.tp // heads} times"
    if not latent or layout.tp == 1 or found.room_bytes <= 0:
        return
    now = found.pool.sequences(question.context)
    told = f"the latent cache is copied on all {layout.tp} tensor-parallel ranks, which hold {now:.4g} sequences of {question.context:,} tokens"
    held = _data_parallel_sequences(question)
    yield told if held is None else f"{told}; data-parallel attention (dp={layout.tp}) would hold {held:.4g}"


def _data_parallel_sequences(question: Question) -> float | None:
    """Sequences that the same GPUs hold with attention data-parallel and experts divided, or None where it can't be."""
    ranks = question.layout.tp * question.layout.dp
    if not question.model.has_routed_experts:
        return None
    layout = replace(question.layout, tp=1, dp=ranks, ep=ranks)
    try:
        layout.check(question.model)
    except UsageError:
        return None
    other = account(replace(question, layout=layout))
    if other.room_bytes <= 0:
        return 0.0
    return float(other.pool.sequences(question.context)) * question.layout.tp


def _state_slots(question: Question, found: Account) -> Iterator[str]:
    slots = next((part.units for part in found.pool.parts if part.name == "state"), None)
    if found.room_bytes > 0 and slots is not None and slots < _SLOTS_KEPT[0] * question.per_replica:
        low, high = (slots // kept for kept in reversed(_SLOTS_KEPT))
        yield (
            f"with its prefix cache on, the engine keeps three to five state slots for each sequence: of {slots} slots "
            f"{low} to {high} sequences run at once"
        )


def _hybrid(question: Question, found: Account) -> Iterator[str]:
    rules, context = question.engine.memory, question.context
    if rules.paging is not Paging.GROUPS or found.room_bytes <= 0:
        return
    part = found.pool.parts[0] if found.pool.parts else None
    if part is None:
        return
    states = any(one.kind == "state" for one in found.layers)
    if states and found.limits.max_num_seqs > part.units:
        yield (
            f"recent versions refuse to start with more sequences than state blocks: use "
            f"{rules.option('max_num_seqs', part.units)} or less (now {found.limits.max_num_seqs})"
        )
    windows = [group for group in part.groups if group.limit]
    full = any(group.limit is None for group in part.groups)
    if windows and full and all(context <= (group.limit or 0) for group in windows):
        yield f"windows save nothing at {context:,} tokens: the engine reserves window + tokens in flight ({windows[0].limit:,})"
