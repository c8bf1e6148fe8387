"""Why two estimates differ: each quantity as a sum or product of terms that the estimates themselves carry.

Nothing is modelled again here. A sum's shares are differences, a product's shares are logarithms of factors; either way
they add up to the whole change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from kvplan.core.dtypes import kv_bits
from kvplan.core.results import Estimate, Latency, Throughput
from kvplan.planning.comparison import Cause, Term

_POOL: Final = ("activation_bytes", "runtime_bytes", "graph_bytes", "unused_bytes")
_SAME: Final = 1e-9


def causes(before: Estimate, after: Estimate) -> tuple[Cause, ...]:
    """Why each quantity of `after` differs from that of `before`; quantities that do not change are left out."""
    found = [*_memory(before, after)]
    if before.latency and before.throughput and after.latency and after.throughput:
        found.extend(_speed(before, after, before.latency, after.latency))
        found.extend(_rate(before, after, before.throughput, after.throughput))
    return tuple(cause for cause in found if abs(cause.after - cause.before) > _SAME * abs(cause.before))


def _memory(before: Estimate, after: Estimate) -> Iterator[Cause]:
    first, second = before.memory, after.memory
    yield from _product(
        "weights_bytes",
        first.weights_bytes,
        second.weights_bytes,
        {
            "parameters": (before.model.params_total, after.model.params_total),
            "share_of_one_gpu": (1 / _ranks(before), 1 / _ranks(after)),
        },
        rest="bytes_per_parameter",
    )
    yield from _product(
        "kv_bytes_per_token",
        first.kv_bytes_per_token,
        second.kv_bytes_per_token,
        {
            "bits": (_bits(before), _bits(after)),
            "elements": (_elements(before), _elements(after)),
        },
        rest="share_of_one_gpu",
    )
    signs = {"usable_bytes": 1, "weights_bytes": -1, **dict.fromkeys(_POOL, -1)}
    yield _sum(
        "kv_pool_bytes",
        {name: (sign * getattr(first, name), sign * getattr(second, name)) for name, sign in signs.items()},
    )
    yield from _product(
        "max_concurrency",
        before.capacity.max_concurrency,
        after.capacity.max_concurrency,
        {
            "kv_pool_bytes": (first.kv_pool_bytes, second.kv_pool_bytes),
            "sequences_per_byte": (1 / max(first.sequence_bytes, 1), 1 / max(second.sequence_bytes, 1)),
        },
        rest="whole_blocks",
    )


def _speed(before: Estimate, after: Estimate, first: Latency, second: Latency) -> Iterator[Cause]:
    yield _ops("decode_step_ms", "decode", before, after, (first.decode_step_ms.mid, second.decode_step_ms.mid))
    yield _ops("prefill_ms", "prefill", before, after, (first.prefill_ms.mid, second.prefill_ms.mid))
    yield _sum(
        "tpot_ms",
        {
            "decode_step": (first.decode_step_ms.mid, second.decode_step_ms.mid),
            "prefill_of_others": (
                first.tpot_ms.mid - first.decode_step_ms.mid,
                second.tpot_ms.mid - second.decode_step_ms.mid,
            ),
        },
    )
    yield _sum(
        "ttft_ms", {part: (first.ttft_parts_ms[part], second.ttft_parts_ms[part]) for part in first.ttft_parts_ms}
    )


def _rate(before: Estimate, after: Estimate, first: Throughput, second: Throughput) -> Iterator[Cause]:
    running = [_running(one) for one in (before, after)]
    seconds = [_running(before) / first.requests_per_second.mid, _running(after) / second.requests_per_second.mid]
    return _product(
        "output_tokens_per_second",
        first.output_tokens_per_second.mid,
        second.output_tokens_per_second.mid,
        {
            "sequences_running": (running[0], running[1]),
            "requests_per_sequence_second": (1 / seconds[0], 1 / seconds[1]),
        },
        rest="output_tokens",
    )


def _ranks(estimate: Estimate) -> int:
    return estimate.scenario.tp * estimate.scenario.pp


def _bits(estimate: Estimate) -> float:
    return float(kv_bits(estimate.scenario.kv_dtype))


def _elements(estimate: Estimate) -> float:
    return estimate.model.kv_bytes_per_token_model * 8 / _bits(estimate)


def _running(estimate: Estimate) -> float:
    return estimate.latency.running * estimate.scenario.dp if estimate.latency else 0.0


def _sum(quantity: str, terms: Mapping[str, tuple[float, float]]) -> Cause:
    found = [Term(name=name, before=a, after=b, share=b - a) for name, (a, b) in terms.items() if a or b]
    return Cause(
        quantity=quantity,
        kind="sum",
        before=sum(term.before for term in found),
        after=sum(term.after for term in found),
        terms=_ordered(found),
    )


def _product(
    quantity: str, before: float, after: float, terms: Mapping[str, tuple[float, float]], *, rest: str
) -> Iterator[Cause]:
    """A product of known factors and one that is what remains; none where a side is zero (all layers run on the CPU)."""
    if not all((before, after, *(value for pair in terms.values() for value in pair))):
        return
    known_before, known_after = (math.prod(pair[side] for pair in terms.values()) for side in (0, 1))
    every = {**terms, rest: (before / known_before, after / known_after)}
    found = [Term(name=name, before=a, after=b, share=math.log(b / a)) for name, (a, b) in every.items()]
    yield Cause(quantity=quantity, kind="product", before=before, after=after, terms=_ordered(found))


def _ordered(terms: list[Term]) -> tuple[Term, ...]:
    return tuple(sorted(terms, key=lambda term: -abs(term.share)))


def _ops(quantity: str, phase: str, before: Estimate, after: Estimate, values: tuple[float, float]) -> Cause:
    """A step's time by kind of work; a prefill in several chunks is scaled to the whole."""
    rows = [{row.op: row for row in one.breakdown if row.phase == phase} for one in (before, after)]
    scales = [value / sum(row.ms for row in side.values()) for value, side in zip(values, rows, strict=True)]
    found = []
    for op in dict.fromkeys([*rows[0], *rows[1]]):
        a, b = rows[0].get(op), rows[1].get(op)
        then, now = (0.0 if row is None else row.ms * scale for row, scale in zip((a, b), scales, strict=True))
        found.append(
            Term(
                name=op,
                before=then,
                after=now,
                share=now - then,
                bytes_factor=None if a is None or b is None else _factor(a.bytes, b.bytes),
                flops_factor=None if a is None or b is None else _factor(a.flops, b.flops),
                bound=b.bound if b is not None else None,
            )
        )
    return Cause(quantity=quantity, kind="sum", before=values[0], after=values[1], terms=_ordered(found))


def _factor(before: float, after: float) -> float | None:
    return after / before if before and after else None
