"""The answer of one estimate, frozen and typed; its JSON keys are the public contract."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, ClassVar, Final

from kvplan.core.dataclass import dataclass

#: Characters at which a result that is printed is cut into lines, and a line cut short.
_WHOLE: Final = 400
_LINE: Final = 100


class Dumpable:
    """Results that turn into plain data."""

    __slots__ = ()
    schema: ClassVar[str | None] = None

    def model_dump(self) -> dict[str, Any]:
        """This result as plain dicts, lists and numbers, with its `schema` first where it has one."""
        plain: dict[str, Any] = _plain(self)
        return {"schema": self.schema, **plain} if self.schema else plain

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """This result as one JSON document; numbers that are not finite don't occur."""
        return json.dumps(self.model_dump(), indent=indent, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        """Its fields, where they are long each on a line that is cut: for a look at it; `repr` leaves nothing out."""
        whole = repr(self)
        if len(whole) <= _WHOLE:
            return whole
        parts = {field.name: repr(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        lines = [f"  {name}={part if len(part) <= _LINE else f'{part[:_LINE]}…'}" for name, part in parts.items()]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])


def _plain(value: Any) -> Any:  # noqa: ANN401 - any result field
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(Dumpable):
    """A figure with its floor and the band where 90 % of measurements should fall.

    For times `floor <= low <= mid <= high`, and floor is the ideal roofline that no machine beats. For rates floor is
    the same ideal seen as a rate, so it is the largest: `low <= mid <= high <= floor`.
    """

    floor: float
    low: float
    mid: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Dumpable):
    """What was asked, in canonical ids."""

    model: str
    gpu: str
    gpu_count: int
    engine: str
    dtype: str
    kv_dtype: str
    tp: int
    pp: int
    dp: int
    ep: int | None
    input_tokens: int
    output_tokens: int
    concurrency: int
    context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures(Dumpable):
    """What the model is, over all its ranks."""

    id: str
    architecture: str
    params_total: int
    params_active: int
    layers: int
    kv_bytes_per_token_model: int
    state_bytes_per_sequence_model: int
    max_context: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine(Dumpable):
    """One line of the ledger with its reason.

    Attributes:
        name: `weights`, `activation`, `runtime`, `graph`, `kv_pool`, `unused`, `graph_outside`, …
        bytes: Size on one GPU [byte].
        formula: How it came about, with the numbers put in.
        log_line: The engine's own words for it in a start-up log, or None.
    """

    name: str
    bytes: int
    formula: str
    log_line: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Dumpable):
    """Where the memory of ONE GPU, the fullest, goes [byte].

    `usable_bytes = weights + activation + runtime + graph + kv_pool + unused`, exactly; `graph_outside_bytes` lies
    outside the engine's budget and is 0 where `graph_bytes` is inside.

    Attributes:
        gpu_bytes: Total as the framework reports it.
        usable_bytes: What the engine budgets with.
        weights_bytes, activation_bytes, graph_bytes, runtime_bytes, kv_pool_bytes, unused_bytes: The ledger.
        weights_logged_bytes: What the engine's start-up log calls weights: with the tables that it loads beside them.
        graph_outside_bytes: Captured graphs that come on top of the budget.
        kv_bytes_per_token: Bytes that one more token adds while every window is open (logical).
        kv_bytes_per_token_reserved: Bytes that the engine reserves for it after its page rules.
        state_bytes_per_sequence: Fixed state of one sequence.
        sequence_bytes: What one sequence of `context` tokens reserves in the pool.
        kv_pool_tokens: `floor(max_concurrency × context)` (plain models: pool ÷ bytes per token in whole blocks).
        kv_logged_tokens: What this engine version prints as its cache size, where it differs, or None.
        kv_block_tokens: Tokens of one block.
        ledger: The same, line by line, with formulas.
    """

    gpu_bytes: int
    usable_bytes: int
    weights_bytes: int
    weights_logged_bytes: int
    activation_bytes: int
    graph_bytes: int
    runtime_bytes: int
    kv_pool_bytes: int
    unused_bytes: int
    graph_outside_bytes: int
    kv_bytes_per_token: int
    kv_bytes_per_token_reserved: int
    state_bytes_per_sequence: int
    sequence_bytes: int
    kv_pool_tokens: int
    kv_logged_tokens: int | None
    kv_block_tokens: int
    ledger: tuple[LedgerLine, ...]

    @property
    def peak_logged_bytes(self) -> int:
        """What the engine's log calls peak activation: with the graphs where it budgets for them (vLLM from 0.20)."""
        return self.activation_bytes + self.graph_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity(Dumpable):
    """How much fits, for one replica (one engine instance).

    Attributes:
        fits: True where the weights and one sequence of `context` tokens fit.
        max_concurrency: Sequences of `context` tokens that the pool holds, with a fraction.
        max_context: Longest single sequence that fits, capped by the model's own limit [token].
        max_context_at_concurrency: Longest sequence when all asked sequences of a replica run at once [token].
        limited_by: `weights | kv_pool | max_num_seqs | model_max_context | state_blocks`.
        short_by_bytes: What is missing on one GPU where it does not fit, else 0 [byte].
        suggestions: The smallest changes that would make it fit (or gain room), in the engine's own flags.
    """

    fits: bool
    max_concurrency: float
    max_context: int
    max_context_at_concurrency: int
    limited_by: str
    short_by_bytes: int = 0
    suggestions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(Dumpable):
    """Times as ranges [ms]; TPOT is (end-to-end − TTFT) / (output − 1) and so includes mixed iterations.

    Attributes:
        ttft_ms: From sending a request to its first token.
        tpot_ms: Per token after the first.
        e2e_ms: From sending a request to its last token.
        prefill_ms: Iterations that take the prompt in, beside the running decodes.
        decode_step_ms: One iteration without prefill.
        bound_prefill, bound_decode: What binds them: `memory`, `compute`, `communication` or `overhead`.
        ttft_parts_ms: TTFT in its parts: `queue`, `prefill`, `engine`, `network`; they sum to the mid value.
        running: Sequences that run at once on one data-parallel rank.
        queued: True where not all asked sequences fit at their full length, so that some wait or are set back.
    """

    ttft_ms: Range
    tpot_ms: Range
    e2e_ms: Range
    prefill_ms: Range
    decode_step_ms: Range
    bound_prefill: str
    bound_decode: str
    ttft_parts_ms: Mapping[str, float]
    running: float
    queued: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput(Dumpable):
    """Rates of the whole deployment, and per GPU [1/s]."""

    output_tokens_per_second: Range
    total_tokens_per_second: Range
    requests_per_second: Range
    per_gpu_output_tokens_per_second: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTime(Dumpable):
    """One kind of work in one step on one GPU, summed over its layers.

    Attributes:
        phase: `prefill` (one chunk or prompt) or `decode` (one step).
        op: One of the fixed list in docs/formulas.md.
        flops: Operations [FLOP].
        bytes: Bytes moved through memory; of messages what is summed, or a copy for each expert or stage [byte].
        ms: Its share of the step; shares sum to the step [ms].
        bound: `memory | compute | communication | overhead`.
    """

    phase: str
    op: str
    flops: float
    bytes: float
    ms: float
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Dumpable):
    """The answer to one scenario. Byte figures are for ONE GPU, the fullest, unless the name says model."""

    schema: ClassVar[str | None] = "kvplan.estimate/1"
    scenario: Scenario
    model: ModelFigures
    memory: Memory
    capacity: Capacity
    latency: Latency | None
    throughput: Throughput | None
    breakdown: tuple[OpTime, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
