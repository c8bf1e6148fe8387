"""A comparison for people: figures, change against the first, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kvplan.core.dataclass import dataclass
from kvplan.planning.comparison import Cause, Compared, Comparison, Term
from kvplan.report.blocks import Block, Bullets, Line, Table, plain_data
from kvplan.report.text import duration, gib, significant, size, whole

_MINUS: Final = "−"
_NONE: Final = "–"
_SEEN: Final = 0.005
_TERMS: Final = 3
_BAR: Final = 16


def _count(value: float) -> str:
    """Sequences: whole ones as such."""
    return whole(round(value)) if math.isclose(value, round(value), rel_tol=1e-9) else significant(value)


#: Head, quantity and how its values are written.
_MEMORY: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("GPUs", "gpu_count", whole),
    ("weights", "weights_bytes", gib),
    ("KV pool", "kv_pool_bytes", gib),
    ("KV/token", "kv_bytes_per_token", size),
    ("sequences", "max_concurrency", _count),
)
_SPEED: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("running", "running", _count),
    ("TTFT", "ttft_ms", duration),
    ("TPOT", "tpot_ms", duration),
    ("tokens/s", "output_tokens_per_second", significant),
    ("per GPU", "per_gpu_output_tokens_per_second", significant),
)
#: Names of quantities, terms and kinds of work in words.
WORDS: Final[dict[str, str]] = {
    "gpu_count": "GPUs",
    "weights_bytes": "weights",
    "kv_pool_bytes": "KV cache pool",
    "kv_bytes_per_token": "KV cache per token",
    "max_concurrency": "sequences that fit",
    "decode_step_ms": "decode step",
    "prefill_ms": "prefill",
    "tpot_ms": "TPOT",
    "ttft_ms": "TTFT",
    "output_tokens_per_second": "output tokens/s",
    "per_gpu_output_tokens_per_second": "output tokens/s per GPU",
    "usable_bytes": "budget",
    "activation_bytes": "activations",
    "runtime_bytes": "runtime",
    "graph_bytes": "graphs",
    "unused_bytes": "unused",
    "parameters": "parameters",
    "share_of_one_gpu": "share of one GPU",
    "bytes_per_parameter": "bytes per parameter",
    "bits": "bits per element",
    "elements": "cached elements",
    "sequences_per_byte": "sequences per byte of pool",
    "whole_blocks": "rounding to blocks",
    "decode_step": "decode step",
    "prefill_of_others": "waiting for others' prompts",
    "queue": "queue",
    "engine": "engine",
    "network": "network",
    "sequences_running": "sequences running",
    "requests_per_sequence_second": "pace of each",
    "output_tokens": "output tokens",
    "attention_gemm": "attention projections",
    "feed_forward_gemm": "feed-forward",
    "other_gemm": "other projections",
    "experts": "experts",
    "attention_decode": "attention over the cache",
    "attention_prefill": "attention of prompts",
    "recurrence": "recurrence",
    "elementwise": "norms and activations",
    "head": "output head",
    "allreduce": "all-reduce messages",
    "alltoall": "expert messages",
    "pipeline": "pipeline messages",
    "layer_overhead": "overhead per layer",
    "host": "host",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """A comparison, ready for every form."""

    comparison: Comparison

    def blocks(self) -> Sequence[Block]:
        """For people: capacity, speed, why."""
        return list(_blocks(self.comparison))

    def data(self) -> Any:  # noqa: ANN401 - a JSON document
        """The `kvplan.compare/1` document."""
        found = self.comparison.model_dump()
        return plain_data(found)

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One flat row per scenario: changes, status, values and changes against the first."""
        return [
            {
                "name": one.name,
                **one.changes,
                "status": one.status,
                "reason": one.reason,
                **one.values,
                **{f"{name}_change": value for name, value in one.change.items()},
            }
            for one in self.comparison.scenarios
        ]


def _blocks(comparison: Comparison) -> Iterator[Block]:
    scenarios = comparison.scenarios
    first = scenarios[comparison.reference]
    others = [one for one in scenarios if one is not first]
    which = ", the first that fits" if comparison.reference else ""
    yield Line(text=f"{len(scenarios)} scenarios, compared with {first.name}{which}", tone="title")
    shared = {key: value for key, value in comparison.base.items() if any(key not in one.changes for one in scenarios)}
    base = ", ".join(f"{name.replace('_', '-')} {_shown(value)}" for name, value in shared.items())
    if base:
        yield Line(text=base, tone="quiet")
    yield from _told(scenarios)
    yield _table("Memory of one GPU, capacity of one replica", _MEMORY, scenarios, first=first)
    if any(one.values["ttft_ms"] is not None for one in scenarios):
        yield _table("Speed", _SPEED, scenarios, first=first, bar="output_tokens_per_second")
    troubles = [f"{one.name}: {_trouble(one)}" for one in scenarios if one.status != "ok"]
    if troubles:
        yield Bullets(title="Not answered, or not as asked", items=tuple(troubles), tone="warning")
    short = tuple(_in_short(one, first) for one in others if _comparable(one, first))
    if short and _varies(scenarios, "gpu_count"):
        yield Bullets(title="In short", items=short)
    for one in others:
        why = tuple(cause_lines(one, first))
        if why:
            yield Bullets(title=f"Why {one.name} differs", items=why)
    if comparison.cautions:
        yield Bullets(title="Cautions", items=comparison.cautions, tone="warning")


def _told(scenarios: Sequence[Compared]) -> Iterator[Line]:
    """What the columns count, where they would be misread."""
    asked = [one.estimate.scenario for one in scenarios if one.estimate is not None]
    lengths = {(one.context, one.input_tokens + one.output_tokens) for one in asked}
    for context, length in lengths if len(lengths) == 1 else ():
        if context != length:
            text = f"sequences: as many as fit at {whole(context)} tokens each; running: at {whole(length)} (input + output)"
            yield Line(text=text, tone="quiet")
    if asked and all(one.concurrency == 1 for one in asked):
        yield Line(text="speed of a lone request; -c N compares under load", tone="quiet")


def _comparable(one: Compared, first: Compared) -> bool:
    return all(each.values["max_concurrency"] and each.values["ttft_ms"] is not None for each in (one, first))


def _in_short(one: Compared, first: Compared) -> str:
    """Throughput and capacity of a whole scenario and of each of its GPUs, against the first's."""

    def times(quantity: str, *, per_gpu: bool = False) -> str:
        values = [(each.values[quantity] or 0.0) * _replicas(each, quantity) for each in (one, first)]
        if per_gpu:
            values = [value / (each.values["gpu_count"] or 1) for value, each in zip(values, (one, first), strict=True)]
        return factor(values[0] / values[1])

    counts = one.values["gpu_count"], first.values["gpu_count"]
    rate, fits = times("output_tokens_per_second"), times("max_concurrency")
    words = f"{one.name}: tokens/s {rate}, sequences that fit {fits}"
    if counts[0] == counts[1]:
        return words
    per = times("output_tokens_per_second", per_gpu=True), times("max_concurrency", per_gpu=True)
    return (
        f"{words} on {whole(counts[0] or 0)} GPUs against {whole(counts[1] or 0)}; for each GPU {per[0]} and {per[1]}"
    )


def _replicas(one: Compared, quantity: str) -> int:
    """Data-parallel ranks that a figure of one replica stands for."""
    return one.estimate.scenario.dp if one.estimate is not None and quantity == "max_concurrency" else 1


def _shown(value: Any) -> str:  # noqa: ANN401 - any field
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _trouble(one: Compared) -> str:
    if one.status == "queues" and one.estimate is not None and one.estimate.latency is not None:
        running = significant(one.values["running"] or 0.0)
        return f"requests queue: {running} of {one.estimate.scenario.concurrency:,} run at once"
    if one.status == "does not fit" and one.estimate is not None:
        short = gib(one.estimate.capacity.short_by_bytes)
        return f"does not fit, {short} short on each GPU" + (f"; {one.reason}" if one.reason else "")
    return str(one.reason)


def _table(
    title: str,
    columns: Sequence[tuple[str, str, Callable[[float], str]]],
    scenarios: Sequence[Compared],
    *,
    first: Compared,
    bar: str | None = None,
) -> Table:
    shown = [column for column in columns if column[1] != "gpu_count" or _varies(scenarios, "gpu_count")]
    most = max((one.values[bar] or 0.0 for one in scenarios), default=0.0) if bar else 0.0
    rows: list[tuple[str, ...]] = []
    for one in scenarios:
        values = [_NONE if one.values[name] is None else write(one.values[name] or 0.0) for _, name, write in shown]
        drawn = "█" * round(_BAR * (one.values[bar] or 0.0) / most) if bar and most else ""
        rows.append((one.name, *values, *([drawn] if bar else [])))
        if one is not first and any(one.change[name] is not None for _, name, _ in shown):
            changes = [_NONE if one.change[name] is None else _percent(one.change[name] or 0.0) for _, name, _ in shown]
            rows.append(("", *changes, *([""] if bar else [])))
    heads = ["", *(head for head, _, _ in shown), *([""] if bar else [])]
    return Table(title=title, columns=tuple(heads), rows=tuple(rows), open_end=bar is not None)


def _varies(scenarios: Sequence[Compared], name: str) -> bool:
    return len({one.values[name] for one in scenarios}) > 1


def _percent(change: float) -> str:
    """A change in percent with its sign; below half a percent it is none.

    >>> _percent(-0.4567), _percent(3.11), _percent(0.004)
    ('−45.7 %', '+311 %', '0 %')
    """
    if abs(change) < _SEEN:
        return "0 %"
    number = significant(abs(change) * 100)
    return f"{'+' if change > 0 else _MINUS}{number} %"


def factor(value: float) -> str:
    """A factor as people say it.

    >>> factor(4.0), factor(0.25), factor(1.31)
    ('× 4.00', '÷ 4.00', '× 1.31')
    """
    return f"× {significant(value)}" if value >= 1 else f"÷ {significant(1 / value)}"


def cause_lines(one: Compared, first: Compared) -> Iterator[str]:
    """Why a scenario differs, one sentence for each quantity that changed by half a percent or more."""
    for cause in one.causes:
        if cause.before and abs(cause.after / cause.before - 1) < _SEEN:
            continue
        line = _product_line(cause) if cause.kind == "product" else _sum_line(cause)
        if line:
            yield line
    before, after = (part.estimate.latency if part.estimate else None for part in (first, one))
    if before is None or after is None:
        return
    bounds = []
    for phase in ("prefill", "decode"):
        was, now = getattr(before, f"bound_{phase}"), getattr(after, f"bound_{phase}")
        bounds.append(f"{phase} is bound by {now}" + (" in both" if was == now else f", not by {was}"))
    yield ", ".join(bounds)


def _product_line(cause: Cause) -> str:
    parts = [
        f"{WORDS.get(term.name, term.name)} {factor(term.after / term.before)}"
        for term in cause.terms
        if abs(term.after / term.before - 1) >= _SEEN
    ]
    name = WORDS.get(cause.quantity, cause.quantity)
    return f"{name} {factor(cause.after / cause.before)}: {', '.join(parts)}" if parts else ""


def _sum_line(cause: Cause) -> str:
    size_of = gib if cause.quantity.endswith("_bytes") else duration
    whole_change = max(abs(cause.after - cause.before), max((abs(term.share) for term in cause.terms), default=0.0))
    seen = [term for term in cause.terms if abs(term.share) >= 10 * _SEEN * whole_change][:_TERMS]
    if not seen:
        return ""
    parts = ", ".join(_summand(term, size_of) for term in seen)
    name = WORDS.get(cause.quantity, cause.quantity)
    return f"{name} {size_of(cause.before)} → {size_of(cause.after)}: {parts}"


def _summand(term: Term, size_of: Callable[[float], str]) -> str:
    sign = "+" if term.share > 0 else _MINUS
    text = f"{WORDS.get(term.name, term.name)} "
    if term.name.endswith("_bytes") and term.before < 0:  # a reserve: what it takes less, the pool gains
        sign = _MINUS if term.share > 0 else "+"
    text += f"{sign}{size_of(abs(term.share))}"
    return text + _work(term)


def _work(term: Term) -> str:
    """How much more a kind of work has to do, and how much faster it does it, where either is seen."""
    word, more = ("work", term.flops_factor) if term.bound == "compute" else ("traffic", term.bytes_factor)
    if more is None or not term.before or not term.after:
        return ""
    pace = more * term.before / term.after
    said = [f"{name} {factor(value)}" for name, value in ((word, more), ("pace", pace)) if abs(value - 1) >= 4 * _SEEN]
    return f" ({', '.join(said)})" if said else ""
