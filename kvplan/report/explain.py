"""Each formula with the numbers put in, line by line, so that a pocket calculator can check it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kvplan.core.dataclass import dataclass
from kvplan.core.engine import Settings
from kvplan.core.model import LayerGroup, Model
from kvplan.core.parameters import model_tensors, parameters_total, tensor_bytes, tensor_format, weights_bytes_model
from kvplan.core.results import Estimate, Latency, OpTime, Throughput
from kvplan.core.tensors import Tensor
from kvplan.core.units import GB, MS_PER_S, TERA
from kvplan.report.blocks import Block, Listing, Table
from kvplan.report.explain_cache import cache_lines
from kvplan.report.layers import layer_numbers
from kvplan.report.text import exact, gib, significant, whole

_TOLERANCE = 1e-3
_EXACT = 1e-6
_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Lines of arithmetic about one thing."""

    key: str
    title: str
    lines: tuple[str, ...]


def explain(model: Model | None, estimate: Estimate, *, settings: Settings | None = None) -> Iterator[Block]:
    """The arithmetic behind an estimate as blocks for people."""
    for section in sections(model, estimate, settings=settings):
        yield Listing(title=section.title, lines=section.lines)
    for phase, title in (
        ("prefill", "One prefill step (a chunk beside the running decodes), by operation"),
        ("decode", "One decode step, by operation"),
    ):
        rows = [row for row in estimate.breakdown if row.phase == phase]
        if rows:
            yield _breakdown(title, rows)


def explain_data(model: Model | None, estimate: Estimate, *, settings: Settings | None = None) -> dict[str, list[str]]:
    """The same as lines under a key for each section (the operations are in `breakdown`)."""
    return {section.key: list(section.lines) for section in sections(model, estimate, settings=settings)}


def sections(model: Model | None, estimate: Estimate, *, settings: Settings | None = None) -> Iterator[Section]:
    """Weights, ledger, cache, capacity and times; sections about layers need the model, and the settings it runs with."""
    if model is not None:
        yield Section(key="weights", title="Weights of the whole model", lines=tuple(weight_lines(model)))
    yield Section(key="memory", title="Memory of one GPU", lines=tuple(ledger_lines(estimate)))
    if model is not None:
        yield Section(key="cache", title="KV cache", lines=tuple(cache_lines(model, estimate, settings=settings)))
    yield Section(key="capacity", title="Capacity", lines=tuple(capacity_lines(estimate)))
    if estimate.latency is not None and estimate.throughput is not None:
        lines = tuple(time_lines(estimate, estimate.latency, estimate.throughput))
        yield Section(key="times", title="Times and rates", lines=lines)


# --- weights ---------------------------------------------------------------------------------------------------------


def weight_lines(model: Model) -> Iterator[str]:
    """Parameters tensor by tensor, and bytes by format."""
    for index, group in enumerate(model.groups):
        yield from _group_lines(group, f"layers {layer_numbers(model, index)}")
    for group in model.encoder_groups:
        yield from _group_lines(group, "encoder layers")
    outside = [*model.tensors, *(tensor for tower in model.towers for tensor in tower.tensors)]
    if outside:
        yield "outside the layers:"
        yield from (f"  {_tensor_line(tensor)}" for tensor in model.tensors)
        for tower in model.towers:
            yield from (f"  {tower.name} tower, {_tensor_line(tensor)}" for tensor in tower.tensors)
    yield f"parameters, all together = {whole(parameters_total(model))}"
    yield from _byte_lines(model)


def _group_lines(group: LayerGroup, name: str) -> Iterator[str]:
    tensors = list(group.layer.all_tensors())
    one = sum(tensor.parameters for tensor in tensors)
    yield f"{name}, each:"
    yield from (f"  {_tensor_line(tensor)}" for tensor in tensors)
    yield f"  {group.count} layers × {whole(one)} = {whole(group.count * one)}"


def _tensor_line(tensor: Tensor) -> str:
    factors = [whole(size) for size in tensor.shape]
    if tensor.copies > 1:
        factors.insert(0, f"{tensor.copies} copies")
    if not tensor.stored:
        return f"{tensor.name}: {' × '.join(factors)}, another tensor's weights = 0"
    if len(factors) == 1:
        return f"{tensor.name}: {factors[0]}"
    return f"{tensor.name}: {' × '.join(factors)} = {whole(tensor.elements)}"


def _byte_lines(model: Model) -> Iterator[str]:
    elements: dict[str, int] = {}
    stored: dict[str, int] = {}
    for count, tensor in model_tensors(model):
        name = tensor_format(tensor, model.dtype).id
        elements[name] = elements.get(name, 0) + count * tensor.parameters
        stored[name] = stored.get(name, 0) + count * tensor_bytes(tensor, model.dtype)
    for name, count in elements.items():
        if not count:
            continue
        bits = stored[name] * 8 / count
        scales = "" if bits == int(bits) else " with its scales"
        yield f"{name}{scales}: {whole(count)} × {exact(round(bits, 6))} bits ÷ 8 = {whole(stored[name])} bytes"
    total = weights_bytes_model(model)
    source = " (read from the file headers)" if model.exact_weight_bytes is not None else ""
    yield f"weights{source} = {whole(total)} bytes = {gib(total)}"


# --- memory ----------------------------------------------------------------------------------------------------------


def ledger_lines(estimate: Estimate) -> Iterator[str]:
    """The ledger with its formulas, and the sum that it keeps."""
    memory = estimate.memory
    for line in memory.ledger:
        formula = line.formula.strip()
        yield f"{line.name} = {formula + ' = ' if formula else ''}{_bytes(line.bytes)}"
        if line.log_line:
            yield f"  in the engine's log: {line.log_line}"
    parts = (
        ("weights", memory.weights_bytes),
        ("activation", memory.activation_bytes),
        ("runtime", memory.runtime_bytes),
        ("graph", memory.graph_bytes),
        ("kv_pool", memory.kv_pool_bytes),
        ("unused", memory.unused_bytes),
    )
    names = " + ".join(name for name, _ in parts)
    numbers = " + ".join(whole(value) if value >= 0 else f"({whole(value)})" for _, value in parts)
    yield f"usable = {names}"
    yield f"       = {numbers}"
    yield f"       = {_bytes(memory.usable_bytes)}"


def _bytes(value: int) -> str:
    return f"{whole(value)} bytes = {gib(value)}"


# --- capacity --------------------------------------------------------------------------------------------------------


def capacity_lines(estimate: Estimate) -> Iterator[str]:
    """Pool, sequences and contexts; a formula is written only where it gives the figure exactly."""
    memory, capacity, asked = estimate.memory, estimate.capacity, estimate.scenario
    context, block, per_token = asked.context, max(memory.kv_block_tokens, 1), memory.kv_bytes_per_token_reserved
    blocks = -(-context // block)
    sequence = f"one sequence of {whole(context)} tokens"
    if blocks * block * per_token == memory.sequence_bytes:
        yield f"{sequence}: ⌈{whole(context)} ÷ {block}⌉ = {whole(blocks)} blocks of {block} tokens"
        numbers = f"{whole(blocks)} × {block} tokens × {whole(per_token)} bytes"
        yield f"{sequence}: {numbers} = {_bytes(memory.sequence_bytes)}"
    else:
        yield f"{sequence}: {_bytes(memory.sequence_bytes)} (windows, states and the engine's pages counted)"
    pool = memory.kv_pool_bytes
    if memory.sequence_bytes > 0:
        ratio = pool / memory.sequence_bytes
        rounded = f"{whole(pool)} ÷ {whole(memory.sequence_bytes)}"
        if math.isclose(ratio, capacity.max_concurrency, rel_tol=_EXACT):
            yield f"max_concurrency = pool ÷ sequence = {rounded} = {significant(capacity.max_concurrency, _DIGITS)}"
        else:
            yield f"max_concurrency = {significant(capacity.max_concurrency, _DIGITS)} (pool in whole blocks)"
    product = f"⌊{significant(capacity.max_concurrency, _DIGITS)} × {whole(context)}⌋"
    yield f"kv_pool_tokens = ⌊max_concurrency × context⌋ = {product} ≈ {whole(memory.kv_pool_tokens)} tokens"
    longest = pool // (per_token * block) * block if per_token else 0
    limit = estimate.model.max_context
    if longest and longest == capacity.max_context:
        formula = f"⌊{whole(pool)} ÷ ({whole(per_token)} × {block})⌋ × {block}"
        yield f"max_context = {formula} = {whole(longest)} tokens"
    elif limit is not None and capacity.max_context == limit:
        yield f"max_context = {whole(limit)} tokens, the model's own limit (the pool alone would hold {_more(longest)})"
    else:
        yield f"max_context = {whole(capacity.max_context)} tokens"


def _more(longest: int) -> str:
    return f"{whole(longest)}" if longest else "more"


# --- times -----------------------------------------------------------------------------------------------------------


def time_lines(estimate: Estimate, latency: Latency, throughput: Throughput) -> Iterator[str]:
    """How the times of one request and the rates hang together; mid values."""
    asked = estimate.scenario
    parts = latency.ttft_parts_ms
    numbers = " + ".join(_ms(value) for value in parts.values())
    yield f"TTFT = {' + '.join(parts)} = {numbers} = {_ms(latency.ttft_ms.mid)} ms"
    gaps = asked.output_tokens - 1
    yield from _identity(
        "e2e = TTFT + (output − 1) × TPOT",
        f"{_ms(latency.ttft_ms.mid)} + {whole(gaps)} × {_ms(latency.tpot_ms.mid)}",
        latency.ttft_ms.mid + gaps * latency.tpot_ms.mid,
        latency.e2e_ms.mid,
        "ms",
    )
    requests = throughput.requests_per_second.mid
    network = parts.get("network", 0.0)
    inside = latency.e2e_ms.mid - network
    shown = f"({_ms(latency.e2e_ms.mid)} − {_ms(network)})" if network else _ms(latency.e2e_ms.mid)
    yield from _identity(
        "requests/s = concurrency ÷ (e2e − network)" if network else "requests/s = concurrency ÷ e2e",
        f"{whole(asked.concurrency)} ÷ {shown} ms × 1000",
        asked.concurrency / inside * MS_PER_S if inside else 0.0,
        requests,
        "per second",
    )
    output = throughput.output_tokens_per_second.mid
    yield from _identity(
        "output tokens/s = requests/s × output",
        f"{_rate(requests)} × {whole(asked.output_tokens)}",
        requests * asked.output_tokens,
        output,
        "per second",
    )
    yield from _identity(
        "all tokens/s = requests/s × (input + output)",
        f"{_rate(requests)} × ({whole(asked.input_tokens)} + {whole(asked.output_tokens)})",
        requests * (asked.input_tokens + asked.output_tokens),
        throughput.total_tokens_per_second.mid,
        "per second",
    )
    per_gpu = throughput.per_gpu_output_tokens_per_second.mid
    yield from _identity(
        "output tokens/s per GPU = output tokens/s ÷ GPUs",
        f"{_rate(output)} ÷ {asked.gpu_count}",
        output / asked.gpu_count,
        per_gpu,
        "per second",
    )


def _identity(formula: str, numbers: str, computed: float, value: float, unit: str) -> Iterator[str]:
    """`formula = numbers = value`, or nothing where the figures do not obey it."""
    if math.isclose(computed, value, rel_tol=_TOLERANCE):
        yield f"{formula} = {numbers} = {_rate(value)} {unit}"


def _ms(value: float) -> str:
    return significant(value, _DIGITS)


def _rate(value: float) -> str:
    return significant(value, _DIGITS)


def _breakdown(title: str, rows: Sequence[OpTime]) -> Table:
    total = sum(row.ms for row in rows)
    lines = [
        (
            row.op.replace("_", " "),
            significant(row.flops / GB, 4),
            significant(row.bytes / GB, 4),
            significant(row.ms, 4),
            significant(row.flops / row.ms * MS_PER_S / TERA) if row.ms else "0",
            significant(row.bytes / row.ms * MS_PER_S / GB) if row.ms else "0",
            row.bound,
        )
        for row in rows
    ]
    lines.append(("sum", "", "", significant(total, 4), "", "", ""))
    columns = ("operation", "GFLOP", "GB", "ms", "TFLOP/s", "GB/s", "bound by")
    return Table(title=title, columns=columns, rows=tuple(lines), left=1, open_end=True)
