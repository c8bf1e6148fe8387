"""The account of one GPU: total, budget, weights, activation, runtime, graphs, and the pool that remains."""

from __future__ import annotations

from dataclasses import replace

from kvplan.core.blocks import Pool
from kvplan.core.cached_layers import CachedLayer, cached_layers
from kvplan.core.dataclass import dataclass
from kvplan.core.engine import Engine, Settings
from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.loaded_weights import layers_on_cpu, loaded_weights, weights_extra
from kvplan.core.memory_rules import Budget, MemoryRules, Paging
from kvplan.core.model import LatentAttention, Model
from kvplan.core.paging import PoolRequest, lay_out
from kvplan.core.reservations import (
    Amount,
    Limits,
    activation,
    computed_fraction,
    fraction_factor,
    gib_text,
    graphs,
    limits_for,
    runtime,
)
from kvplan.core.results import LedgerLine
from kvplan.core.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where the memory of one GPU goes, before anyone asks what fits.

    Attributes:
        gpu_bytes, usable_bytes: The card's total and the engine's budget [byte].
        fraction: The fraction that was used.
        weights, activation, runtime, graph: Inside the budget; they and the pool and `unused` sum to it.
        beside_weights_bytes: Part of `runtime` that the engine's own log counts as weights (rotary table) [byte].
        graph_outside: Graphs on top of the budget [byte].
        room_bytes: What is left for caches; negative where the rest does not fit [byte].
        kv_pool_bytes, unused_bytes: Blocks handed out, and what remains (negative where it doesn't fit) [byte].
        layers: Caching layers of the rank.
        pool: The pool.
        limits: Resolved limits.
        lines: The ledger in the order of a start-up log.
    """

    gpu_bytes: int
    usable_bytes: int
    fraction: float
    weights: Amount
    beside_weights_bytes: int
    activation: Amount
    runtime: Amount
    graph: Amount
    graph_outside: Amount
    room_bytes: int
    kv_pool_bytes: int
    unused_bytes: int
    layers: tuple[CachedLayer, ...]
    pool: Pool
    limits: Limits
    lines: tuple[LedgerLine, ...]

    @property
    def max_num_seqs(self) -> int:
        """Sequences that run at most."""
        return self.limits.max_num_seqs

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens of one iteration at most."""
        return self.limits.max_num_batched_tokens

    @property
    def fixed_bytes(self) -> int:
        """Everything inside the budget but the pool [byte]."""
        return self.weights.bytes + self.activation.bytes + self.runtime.bytes + self.graph.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One instance to account for; `account` is a pure function of it, so that reverse questions vary one field.

    Attributes:
        model, gpu, engine, layout, settings: The deployment.
        kv_dtype: Cache format, resolved.
        context: Longest sequence planned for [token].
        concurrency: Sequences in flight over the whole deployment.
        source_tokens: Encoder tokens whose cross cache each sequence keeps; None is the model's most [token].
    """

    model: Model
    gpu: Gpu
    engine: Engine
    layout: Layout
    settings: Settings
    kv_dtype: str
    context: int
    concurrency: int
    source_tokens: int | None = None

    @property
    def per_replica(self) -> int:
        """Sequences that one data-parallel rank has in flight."""
        return ceil_div(self.concurrency, self.layout.dp)


def account(question: Question, *, layers: tuple[CachedLayer, ...] | None = None) -> Account:
    """The ledger and pool of one instance.

    Args:
        question: The instance.
        layers: Its caching layers (`layers_of`), where they are known already: the same on every card.
    """
    model, gpu, layout, settings = question.model, question.gpu, question.layout, question.settings
    rules = question.engine.memory
    total = settings.gpu_memory_bytes or gpu.framework_memory_bytes
    limits = limits_for(rules, gpu, settings, total_bytes=total, context=question.context, model=model)
    if rules.budget is Budget.UP_FRONT and settings.max_num_seqs is None:
        limits = replace(limits, max_num_seqs=question.per_replica)
    fraction = settings.gpu_memory_utilization or rules.utilization
    if fraction is None:
        fraction = computed_fraction(rules, model, layout=layout, limits=limits, total_bytes=total)
    weights = loaded_weights(rules, model, layout=layout, settings=settings, gpu=gpu)
    beside = weights_extra(rules, model)
    peak, context = activation(rules, model, layout=layout, limits=limits), runtime(rules, gpu, layout)
    around = _together(context, beside)
    captured = graphs(rules, model, layout=layout, limits=limits, eager=settings.enforce_eager)
    inside = captured if rules.graph_inside else Amount(0, "")
    usable, formula, charged = total, f"all of {gib_text(total)}", (weights, peak, around, inside)
    headroom = 0
    match rules.budget:
        case Budget.TOTAL:
            usable, formula = int(total * fraction), f"{gib_text(total)} × {fraction:g}"
        case Budget.FREE_BEFORE:
            before = total - context.bytes
            usable, formula = int(before * fraction), f"({gib_text(total)} − {context.formula}) × {fraction:g}"
            factor = fraction_factor(rules, gpu, model, layout=layout)
            if factor != 1:
                usable, formula = int(before * fraction * factor), f"{formula} × {factor:g} (AMD, long context)"
            charged = (weights, Amount(0, "from the headroom"), beside, Amount(0, ""))
        case Budget.FREE_AFTER:
            headroom = int((1 - fraction) * max(0, total - weights.bytes - peak.bytes - around.bytes))
        case Budget.UP_FRONT | Budget.EVERYTHING:
            pass
    weights, peak, around, inside = charged
    room = usable - sum(one.bytes for one in charged) - headroom
    if layers is None:
        layers = layers_of(question)
    pool = lay_out(pool_request(question, limits, layers, room=room))
    held = _held(question, pool, limits)
    draft = Account(
        gpu_bytes=total,
        usable_bytes=usable,
        fraction=fraction,
        weights=weights,
        beside_weights_bytes=beside.bytes,
        activation=peak,
        runtime=around,
        graph=inside,
        graph_outside=Amount(0, "") if rules.graph_inside else captured,
        room_bytes=room,
        kv_pool_bytes=held,
        unused_bytes=usable - sum(one.bytes for one in charged) - held,
        layers=layers,
        pool=pool,
        limits=limits,
        lines=(),
    )
    return replace(draft, lines=_lines(draft, rules, budget=formula))


def layers_of(question: Question) -> tuple[CachedLayer, ...]:
    """Caching layers of a rank, those of a draft model among them.

    With decode context parallelism a rank holds every `dcp`-th token of the layers without a window.
    """
    own = cached_layers(
        question.model,
        question.layout,
        kv_dtype=question.kv_dtype,
        source_tokens=question.source_tokens,
        sparse_latent_rows=question.engine.memory.sparse_latent_rows,
        speculative_tokens=question.settings.speculative_tokens,
        skip_layers=layers_on_cpu(question.model, settings=question.settings, gpu=question.gpu),
    )
    draft = question.settings.draft_model
    if draft is not None:
        own = (*own, *cached_layers(draft, question.layout, kv_dtype=question.kv_dtype))
    ranks = question.settings.dcp
    if ranks == 1:
        return own
    return tuple(
        replace(one, token_bytes=one.token_bytes / ranks) if one.grows and one.window is None else one for one in own
    )


def pool_request(question: Question, limits: Limits, layers: tuple[CachedLayer, ...], *, room: int) -> PoolRequest:
    """What the pool of `room` bytes is laid out for."""
    rules, settings = question.engine.memory, question.settings
    batches = rules.batches_in_flight
    if batches > 1:
        batches = max(batches, question.layout.pp)
    latent = any(isinstance(m, LatentAttention) for g in question.model.groups for m in g.layer.mixers)
    return PoolRequest(
        room_bytes=room,
        layers=layers,
        rules=rules,
        max_num_seqs=limits.max_num_seqs,
        tokens_in_flight=limits.max_num_batched_tokens * batches,
        block_tokens=settings.block_size or (rules.latent_block_tokens if latent else rules.block_tokens),
        state_mode=settings.state_mode or rules.state_mode,
        speculative_tokens=settings.speculative_tokens,
    )


def _held(question: Question, pool: Pool, limits: Limits) -> int:
    """Bytes of the pool in whole blocks; up-front engines take what their slots need [byte]."""
    rules = question.engine.memory
    if rules.budget is Budget.UP_FRONT:
        wanted: int = pool.sequence_bytes(question.context) * limits.max_num_seqs
        return min(pool.room_bytes, wanted)
    nulls = rules.null_blocks if pool.room_bytes else 0
    return min(pool.room_bytes, sum((part.units + nulls) * part.unit_bytes for part in pool.parts))


def _together(a: Amount, b: Amount) -> Amount:
    formula = " + ".join(part.formula for part in (a, b) if part.bytes)
    return Amount(a.bytes + b.bytes, formula or a.formula)


def _lines(found: Account, rules: MemoryRules, *, budget: str) -> tuple[LedgerLine, ...]:
    rows = (
        ("usable", found.usable_bytes, budget),
        ("weights", found.weights.bytes, found.weights.formula),
        ("activation", found.activation.bytes, found.activation.formula),
        ("runtime", found.runtime.bytes, found.runtime.formula),
        ("graph", found.graph.bytes, found.graph.formula),
        ("kv_pool", found.kv_pool_bytes, _pool_formula(found, rules)),
        ("unused", found.unused_bytes, _unused_formula(found)),
        ("graph_outside", found.graph_outside.bytes, found.graph_outside.formula),
    )
    always = {"usable", "weights", "kv_pool"}
    return tuple(
        LedgerLine(name=name, bytes=value, formula=formula, log_line=rules.log_words.get(name))
        for name, value, formula in rows
        if value or name in always
    )


def _pool_formula(found: Account, rules: MemoryRules) -> str:
    if found.room_bytes <= 0:
        return f"nothing: {gib_text(found.fixed_bytes)} of weights and reserves against {gib_text(found.usable_bytes)}"
    left = f"{gib_text(found.room_bytes)} left"
    if not found.pool.parts:
        return f"{left}, nothing is cached"
    if rules.paging is Paging.PER_LAYER:
        return left
    word = {"kv": "tokens", "window": "window tokens", "state": "states"} if rules.paging is Paging.POOLS else {}
    parts = [f"{part.units} {word.get(part.name, 'blocks')} × {part.unit_bytes} B" for part in found.pool.parts]
    return f"{left}: {' + '.join(parts)}"


def _unused_formula(found: Account) -> str:
    if found.unused_bytes < 0:
        return "missing"
    return "beyond the pool"
