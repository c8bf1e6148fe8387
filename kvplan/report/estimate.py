"""One estimate for people: fits or not, where the memory goes, how much fits, how fast, and what binds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kvplan.core.dataclass import dataclass
from kvplan.core.engine import Settings
from kvplan.core.model import Model
from kvplan.core.results import Estimate, Latency, Memory, Range, Throughput
from kvplan.core.units import GIB
from kvplan.report.blocks import Bar, Block, Bullets, Line, Segment, Table, Tone, flat
from kvplan.report.text import band, billions, gib, percent, plural, significant, size, whole

#: Sign, words and field of each part of the card, in the order of the bar.
_PARTS: Final = (
    ("█", "weights", "weights_bytes"),
    ("▓", "activations (peak)", "activation_bytes"),
    ("#", "runtime", "runtime_bytes"),
    ("+", "graphs", "graph_bytes"),
    ("▒", "KV cache pool", "kv_pool_bytes"),
    ("·", "unused inside the budget", "unused_bytes"),
    ("+", "graphs, outside the budget", "graph_outside_bytes"),
)
_ALWAYS: Final = frozenset({"weights_bytes", "kv_pool_bytes"})
_SEEN_BYTES: Final = GIB // 200  # less rounds to 0.00 GiB
_OVER: Final = "!"
_LIMITS: Final = {
    "weights": "weights leave no room",
    "kv_pool": "KV cache pool",
    "max_num_seqs": "max_num_seqs (the engine's limit on running sequences)",
    "model_max_context": "the model's own context limit",
    "state_blocks": "blocks for recurrent state",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateReport:
    """An estimate, ready for every form.

    Attributes:
        estimate: The answer.
        explain: True to write each formula with its numbers.
        model: The model as it is deployed, which the explanation reads layer by layer, or None.
        settings: What it is deployed with, or None for the engine's own.
    """

    estimate: Estimate
    explain: bool = False
    model: Model | None = None
    settings: Settings | None = None

    def blocks(self) -> Sequence[Block]:
        """For people: verdict first."""
        blocks = list(estimate_blocks(self.estimate))
        if self.explain:
            from kvplan.report.explain import explain  # noqa: PLC0415 - only where it is asked for

            blocks.extend(explain(self.model, self.estimate, settings=self.settings))
        return blocks

    def data(self) -> dict[str, Any]:
        """The `kvplan.estimate/1` document; with `explain`, the formulas under that key."""
        data = self.estimate.model_dump()
        if not self.explain:
            return data
        from kvplan.report.explain import explain_data  # noqa: PLC0415 - only where it is asked for

        return {**data, "explain": explain_data(self.model, self.estimate, settings=self.settings)}

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One flat row with dotted names; times are left out where it does not fit."""
        data = self.estimate.model_dump()
        return (flat({key: value for key, value in data.items() if value is not None and key != "breakdown"}),)


def estimate_blocks(estimate: Estimate) -> Iterator[Block]:
    """The blocks of one estimate."""
    yield from _heading(estimate)
    yield from _verdict(estimate)
    yield from _memory(estimate)
    yield _capacity(estimate)
    if estimate.latency is not None and estimate.throughput is not None:
        yield _speed(estimate.latency, estimate.throughput)
        yield Line(text=_bounds(estimate.latency))
    if estimate.warnings:
        yield Bullets(title="Warnings", items=estimate.warnings, tone="warning")
    if estimate.assumptions:
        yield Bullets(title="Assumptions", items=estimate.assumptions)


def _heading(estimate: Estimate) -> Iterator[Block]:
    asked, model = estimate.scenario, estimate.model
    yield Line(text=f"{asked.model} on {asked.gpu_count} × {asked.gpu} with {asked.engine}", tone="title")
    active = "" if model.params_active == model.params_total else f", {billions(model.params_active)} active"
    ranks = [f"{name} {value}" for name, value in _ranks(estimate) if value not in {None, 1}]
    precision = f"weights {asked.dtype}, KV cache {asked.kv_dtype}"
    yield Line(text=f"{billions(model.params_total)} parameters{active}; {precision}{_list(ranks)}", tone="quiet")
    load = f"{plural(asked.concurrency, 'sequence')} at once, {whole(asked.input_tokens)} tokens in + "
    load += f"{whole(asked.output_tokens)} out; context {plural(asked.context, 'token')}"
    yield Line(text=load, tone="quiet")


def _ranks(estimate: Estimate) -> tuple[tuple[str, int | None], ...]:
    asked = estimate.scenario
    return (("tp", asked.tp), ("pp", asked.pp), ("dp", asked.dp), ("ep", asked.ep))


def _list(words: Sequence[str]) -> str:
    return "; " + ", ".join(words) if words else ""


def _verdict(estimate: Estimate) -> Iterator[Block]:
    text, tone = verdict(estimate)
    yield Line(text="")
    yield Line(text=text, tone=tone)
    suggestions, asked = estimate.capacity.suggestions, estimate.scenario
    if not suggestions:
        return
    if estimate.capacity.fits:
        yield Bullets(title=f"For all {whole(asked.concurrency)} at once", items=suggestions)
        return
    many = asked.concurrency > asked.dp
    options = f"--concurrency {asked.concurrency} --context {asked.context}"
    more = (f"for all {whole(asked.concurrency)} at once: kvplan needs {options}, and your other options",)
    goal = f"Smallest change that fits{' one' if many else ''}"
    title = f"{goal}, then others" if len(suggestions) > 1 else goal
    yield Bullets(title=title, items=(*suggestions, *(more if many else ())))


def verdict(estimate: Estimate) -> tuple[str, Tone]:
    """Fits or not and by how much, in one sentence."""
    capacity, memory, asked = estimate.capacity, estimate.memory, estimate.scenario
    if not capacity.fits:
        short = f"{gib(capacity.short_by_bytes)} short on each GPU"
        if capacity.limited_by == "weights":
            return f"DOES NOT FIT: {short}; the weights and the engine's own memory leave no KV cache.", "bad"
        longest = f"; the longest that fits is {plural(capacity.max_context, 'token')}" if capacity.max_context else ""
        return f"DOES NOT FIT: {short} for one sequence of {plural(asked.context, 'token')}{longest}.", "bad"
    held = f"{significant(capacity.max_concurrency)} sequences of {whole(asked.context)} tokens"
    room = f"{gib(memory.kv_pool_bytes)} of KV cache on each GPU holds {held}"
    if capacity.max_concurrency * memory.sequence_bytes >= memory.kv_pool_bytes + memory.sequence_bytes:
        # llama.cpp allocates what was asked for, not what there is
        room = f"{gib(memory.kv_pool_bytes)} of KV cache is allocated on each GPU, which has room for {held}"
    if not memory.sequence_bytes:
        room = f"nothing is cached, {held} run at once"
    replicas = f" in each of {asked.dp} replicas" if asked.dp > 1 else ""
    if estimate.latency is not None and estimate.latency.queued:
        running = f"{significant(estimate.latency.running)} of {significant(asked.concurrency / asked.dp)} run at once"
        each = " in each" if asked.dp > 1 else ""
        return f"FITS, BUT REQUESTS QUEUE: {room}{replicas}; {running}{each}.", "warning"
    if asked.concurrency / asked.dp > capacity.max_concurrency:
        return f"FITS, BUT NOT ALL {whole(asked.concurrency)} AT FULL LENGTH: {room}{replicas}.", "warning"
    return f"FITS: {room}{replicas}.", "good"


def _memory(estimate: Estimate) -> Iterator[Block]:
    memory = estimate.memory
    parts = list(memory_parts(memory))
    yield Bar(
        title=f"Memory of one GPU: {gib(memory.gpu_bytes)}, of which the engine budgets {gib(memory.usable_bytes)}",
        segments=tuple(Segment(sign=sign, share=value) for sign, _, value in parts if sign != _OVER),
    )
    yield Table(
        title="",
        columns=("", "", "GiB", "of the GPU"),
        rows=tuple(
            (sign, name, f"{value / GIB:,.2f}", percent(value / memory.gpu_bytes)) for sign, name, value in parts
        ),
        left=2,
    )


def memory_parts(memory: Memory) -> Iterator[tuple[str, str, int]]:
    """Sign, words and bytes of each part of the card; they sum to its memory unless it is overfull."""
    for sign, name, field in _PARTS:
        value: int = getattr(memory, field)
        if field in _ALWAYS or value >= _SEEN_BYTES:
            yield sign, name, value
    rest = memory.gpu_bytes - memory.usable_bytes - memory.graph_outside_bytes
    if rest >= _SEEN_BYTES:
        yield "░", "outside the budget", rest
    if memory.unused_bytes < 0:
        yield _OVER, "more than the budget holds", -memory.unused_bytes


def _capacity(estimate: Estimate) -> Table:
    capacity, memory, asked = estimate.capacity, estimate.memory, estimate.scenario
    per_replica = asked.concurrency if asked.dp == 1 else -(-asked.concurrency // asked.dp)
    rows = [
        (f"sequences of {whole(asked.context)} tokens", significant(capacity.max_concurrency, 4)),
        ("tokens in the KV cache pool", whole(memory.kv_pool_tokens)),
        ("longest context, one sequence", f"{whole(capacity.max_context)} tokens"),
    ]
    if per_replica > 1:
        longest = f"{whole(capacity.max_context_at_concurrency)} tokens"
        rows.append((f"longest context, {plural(per_replica, 'sequence')}", longest))
    rows.append(("KV cache per token", size(memory.kv_bytes_per_token)))
    if memory.kv_bytes_per_token_reserved != memory.kv_bytes_per_token:
        rows.append(("  reserved by the engine", size(memory.kv_bytes_per_token_reserved)))
    if memory.kv_logged_tokens is not None:
        rows.append(("tokens that the engine's log prints", whole(memory.kv_logged_tokens)))
    if memory.state_bytes_per_sequence:
        rows.append(("fixed state per sequence", size(memory.state_bytes_per_sequence)))
    rows.append(("one sequence reserves", size(memory.sequence_bytes)))
    rows.append(("limited by", _LIMITS.get(capacity.limited_by, capacity.limited_by)))
    title = "Capacity of one replica" if asked.dp > 1 else "Capacity"
    return Table(title=title, columns=("", ""), rows=tuple(rows), left=1, open_end=True)


def _speed(latency: Latency, throughput: Throughput) -> Table:
    def row(name: str, value: Range, *, times: bool) -> tuple[str, str, str, str]:
        return (name, *band(value, times=times))

    return Table(
        title="Speed",
        columns=("", "expected", "90 % within", "ideal"),
        rows=(
            row("first token (TTFT)", latency.ttft_ms, times=True),
            row("each token (TPOT)", latency.tpot_ms, times=True),
            row("end to end", latency.e2e_ms, times=True),
            row("prefill", latency.prefill_ms, times=True),
            row("decode step", latency.decode_step_ms, times=True),
            row("output tokens/s", throughput.output_tokens_per_second, times=False),
            row("  per GPU", throughput.per_gpu_output_tokens_per_second, times=False),
            row("all tokens/s", throughput.total_tokens_per_second, times=False),
            row("requests/s", throughput.requests_per_second, times=False),
        ),
    )


def _bounds(latency: Latency) -> str:
    return f"Prefill is bound by {latency.bound_prefill}, decode by {latency.bound_decode}."
