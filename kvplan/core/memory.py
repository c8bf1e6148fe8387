"""Memory as an engine spends it: the ledger of one GPU, the pool for caches, and how much fits.

One question gives the same answer everywhere: `account` (ledger.py) keeps the books, `paging.py` lays out the pool, this
module says what fits, what ran out and what to change.
"""

from __future__ import annotations

from kvplan.core.blocks import Pool, PoolPart
from kvplan.core.cached_layers import logical_state_bytes, logical_token_bytes
from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import format_by_id, kv_format
from kvplan.core.engine import Engine, Settings
from kvplan.core.ledger import Account, Question, account
from kvplan.core.memory_notes import assumptions, warnings
from kvplan.core.memory_rules import Budget, Paging
from kvplan.core.model import Model
from kvplan.core.results import Capacity, Memory
from kvplan.core.reverse import longest_useful
from kvplan.core.suggestions import suggestions
from kvplan.core.units import round_up

_COMPUTE_DTYPES = frozenset({"fp32", "bf16", "fp16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The memory half of an estimate.

    Attributes:
        memory: The ledger of one GPU, the fullest.
        capacity: What fits in one replica.
        pool: The caches of one replica's rank; `pool.sequences(context)` answers for any context, or for arrays.
        max_num_seqs, max_num_batched_tokens: Resolved limits of the scheduler.
        assumptions: What was taken for granted.
        warnings: What the reader should doubt.
    """

    memory: Memory
    capacity: Capacity
    pool: Pool
    max_num_seqs: int
    max_num_batched_tokens: int
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


def resolve_kv_dtype(model: Model, engine: Engine, kv_dtype: str | None) -> str:
    """The cache format: as asked, else the engine's own, else the checkpoint's, else the model's compute dtype."""
    wanted = kv_dtype or engine.memory.kv_dtype or model.kv_dtype
    if wanted is not None:
        return kv_format(wanted)
    compute = format_by_id(model.dtype).id
    return compute if compute in _COMPUTE_DTYPES else "bf16"


def plan_memory(question: Question, *, advise: bool = True) -> MemoryPlan:
    """Ledger, pool and capacity of one engine instance.

    Args:
        question: The instance (`Deployment.question` asks it of a deployment).
        advise: False leaves the suggestions out, which cost ten times the rest (sweeps).
    """
    found = account(question)
    fits = found.room_bytes > 0 and found.pool.holds(question.context)
    return MemoryPlan(
        memory=_memory(question, found),
        capacity=_capacity(question, found, fits=fits, advise=advise),
        pool=found.pool,
        max_num_seqs=found.limits.max_num_seqs,
        max_num_batched_tokens=found.limits.max_num_batched_tokens,
        assumptions=assumptions(question, found),
        warnings=warnings(question, found),
    )


def pool_follows_load(engine: Engine, settings: Settings) -> bool:
    """True where the pool itself depends on context or concurrency, so that each pair needs a plan of its own.

    Engines that allocate caches up front size them for the load; old ones without chunked prefill let their batch, and
    with it the activation peak, follow the context.
    """
    rules = engine.memory
    follows = rules.batched_tokens_follow_context > 0 and settings.max_num_batched_tokens is None
    return rules.budget is Budget.UP_FRONT or follows


def _capacity(question: Question, found: Account, *, fits: bool, advise: bool) -> Capacity:
    cap = longest_useful(question)
    room = found.room_bytes > 0
    short = 0 if fits else max(1, found.pool.sequence_bytes(question.context) - found.room_bytes)
    return Capacity(
        fits=fits,
        max_concurrency=float(found.pool.sequences(question.context)) if room else 0.0,
        max_context=found.pool.longest(cap=cap) if room else 0,
        max_context_at_concurrency=found.pool.longest(sequences=question.per_replica, cap=cap) if room else 0,
        limited_by=_limit(question, found, fits=fits),
        short_by_bytes=short,
        suggestions=suggestions(question, found, fits=fits) if advise else (),
    )


def _limit(question: Question, found: Account, *, fits: bool) -> str:
    if found.room_bytes <= 0:
        return "weights"
    part = found.pool.binding(question.context)
    ran_out = "state_blocks" if part is not None and _mostly_states(found, part, question.context) else "kv_pool"
    if not fits:
        return ran_out
    limit = question.model.max_context
    if limit is not None and question.context > limit:
        return "model_max_context"
    own_slots = question.engine.memory.budget is Budget.UP_FRONT and question.settings.max_num_seqs is None
    if part is None or (found.limits.max_num_seqs < found.pool.sequences(question.context) and not own_slots):
        return "max_num_seqs"
    return ran_out


def _mostly_states(found: Account, part: PoolPart, context: int) -> bool:
    """True where recurrent states take more of a sequence's room than its tokens do."""
    if not any(one.kind == "state" for one in found.layers):
        return False
    fixed = sum(group.needed(context) for group in part.groups if group.limit == 0)
    return bool(2 * fixed > part.needed(context))


def _memory(question: Question, found: Account) -> Memory:
    tokens = _pool_tokens(question, found)
    logged = _logged_tokens(question, found)
    return Memory(
        gpu_bytes=found.gpu_bytes,
        usable_bytes=found.usable_bytes,
        weights_bytes=found.weights.bytes,
        weights_logged_bytes=found.weights.bytes + found.beside_weights_bytes,
        activation_bytes=found.activation.bytes,
        graph_bytes=found.graph.bytes,
        runtime_bytes=found.runtime.bytes,
        kv_pool_bytes=found.kv_pool_bytes,
        unused_bytes=found.unused_bytes,
        graph_outside_bytes=found.graph_outside.bytes,
        kv_bytes_per_token=logical_token_bytes(found.layers),
        kv_bytes_per_token_reserved=found.pool.token_bytes(),
        state_bytes_per_sequence=logical_state_bytes(found.layers),
        sequence_bytes=found.pool.sequence_bytes(question.context),
        kv_pool_tokens=tokens,
        kv_logged_tokens=logged if logged != tokens else None,
        kv_block_tokens=found.pool.block_tokens,
        ledger=found.lines,
    )


def _pool_tokens(question: Question, found: Account) -> int:
    """Tokens that the pool holds: in whole blocks for plain models, else concurrency × context, rounded down."""
    pool, context = found.pool, question.context
    if question.engine.memory.budget is Budget.UP_FRONT:
        return found.limits.max_num_seqs * round_up(context, pool.block_tokens) if found.kv_pool_bytes else 0
    groups = [group for part in pool.parts for group in part.groups]
    if len(groups) == 1 and groups[0].limit is None:
        return pool.parts[0].units // groups[0].units * groups[0].block_tokens
    return min((part.units * context // part.needed(context) for part in pool.parts), default=0)


def _logged_tokens(question: Question, found: Account) -> int | None:
    """The cache size that this engine version prints at start, or None where it prints none."""
    rules, context = question.engine.memory, question.context
    kv = next((part for part in found.pool.parts if part.name == "kv"), None)
    if kv is None:
        return None
    if rules.paging is Paging.POOLS:
        return kv.units
    if rules.budget is not Budget.TOTAL:
        return None
    if rules.prints_concurrency:
        return int(kv.units * context // kv.needed(context))
    return kv.units // sum(group.units for group in kv.groups) * found.pool.block_tokens
