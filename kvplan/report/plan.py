"""A plan for people: the cheapest and the fastest way, what lies between, and why the others are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kvplan.planning.plan_result import Cost, Growth, Option, Plan, Rejected
from kvplan.report.blocks import Block, Bullets, Line, Listing, Table, flat, plain_data
from kvplan.report.text import TIMES, duration, gib, percent, plural, significant, whole

#: What is said of one layout, and of several.
_REASONS: Final = {
    "does not fit": ("does not fit", "do not fit"),
    "TTFT": ("fits, misses the TTFT target", "fit, miss the TTFT target"),
    "TPOT": ("fits, misses the TPOT target", "fit, miss the TPOT target"),
    "end to end": ("fits, misses the end-to-end target", "fit, miss the end-to-end target"),
    "capacity": (
        "fits and meets the targets, takes more GPUs than allowed",
        "fit and meet the targets, take more GPUs than allowed",
    ),
    "engine": ("the engine does not run there", "the engine does not run there"),
    "layout": ("no such layout", "are no layouts of this model"),
    "no price": ("no price is given", "no price is given"),
}
_ROWS: Final = 12
_SHORT: Final = {**TIMES, "e2e_ms": "e2e"}
#: Times and statistics of the front.
_SHOWN: Final = (("ttft_ms", "p95"), ("tpot_ms", "p95"), ("e2e_ms", "mean"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """A plan, ready for every form.

    Attributes:
        plan: The answer.
        deploy: Lines of the chosen plan's serve command, or none.
        energy: True to show the bound on energy.
        every: True to list every rejected kind instead of one line for each GPU.
    """

    plan: Plan
    deploy: tuple[str, ...] = ()
    energy: bool = False
    every: bool = False

    def blocks(self) -> Sequence[Block]:
        """For people: the answer first."""
        return list(_blocks(self))

    def data(self) -> Any:  # noqa: ANN401 - a JSON document
        """The `kvplan.plan/1` document."""
        return plain_data(self.plan.model_dump())

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One flat row per plan of the front, cheapest first."""
        rows = []
        for one in self.plan.front:
            found = one.model_dump()
            found.pop("estimate")
            rows.append(flat(found))
        return rows


def _blocks(report: PlanReport) -> Iterator[Block]:
    plan = report.plan
    yield Line(text=f"{plan.model}: {_load(plan)}", tone="title")
    yield Line(text=_lengths(plan), tone="quiet")
    targets = ", ".join(f"{TIMES[one.time]} {duration(one.limit_ms)} at {one.at}" for one in plan.targets)
    yield Line(text=f"targets: {targets or 'none'}", tone="quiet")
    yield Line(text="")
    best, fast = plan.cheapest, plan.fastest
    if best is None or fast is None:
        yield Line(text=f"NOTHING SERVES THIS LOAD: {plural(plan.searched, 'layout')} looked at.", tone="bad")
    else:
        ranked = "carried by" if plan.demand.most else "cheapest" if plan.priced else "fewest GPUs"
        yield Line(text=f"{ranked.upper()}: {_sentence(best, plan)}", tone="good")
        if fast is not best:
            yield Line(text=f"FASTEST: {_sentence(fast, plan)}", tone="good")
        yield from _chosen(best, plan, energy=report.energy)
        yield _front(plan)
        yield Bullets(
            title="As the load grows (fewest GPUs)" if not plan.priced else "As the load grows (cheapest)",
            items=tuple(_growth(plan, best)),
        )
    if report.deploy:
        yield Listing(title="Serve each replica", lines=report.deploy)
    if plan.rejected:
        yield _rejected(plan, every=report.every)
    if plan.warnings:
        yield Bullets(title="Warnings", items=plan.warnings, tone="warning")
    yield Bullets(title="Assumptions", items=plan.assumptions)


def _load(plan: Plan) -> str:
    demand = plan.demand
    if demand.most and plan.cheapest is None:
        return "the most that can be carried"
    most = "the most carried is " if demand.most else ""
    if demand.rate_per_s is not None:
        best = plan.cheapest if demand.most else None
        inside = f", {significant(best.concurrency * best.replicas)} users at once" if best is not None else ""
        return f"{most}{_amount(demand.rate_per_s)} requests/s{inside}"
    pause = f"who think for {demand.think_s:,g} s" if demand.think_s else "who never pause"
    return f"{most}{_amount(demand.users or 0.0)} users {pause}"


def _amount(value: float) -> str:
    """A load; whole ones as such.

    >>> _amount(60), _amount(60.0), _amount(9.0512)
    ('60', '60', '9.05')
    """
    return whole(int(value)) if value == int(value) else significant(value)


def _lengths(plan: Plan) -> str:
    demand = plan.demand

    def said(text: str, mean: float, quantiles: Mapping[str, float]) -> str:
        return f"{significant(mean, 4)} ({text})" if len(set(quantiles.values())) > 1 else whole(mean)

    prompts = said(demand.input_text, demand.input_tokens, demand.input_quantiles)
    answers = said(demand.output_text, demand.output_tokens, demand.output_quantiles)
    words = f"{prompts} tokens in, {answers} out"
    words += f"; context {whole(demand.context)}"
    if demand.shared_prefix_tokens and demand.prefix_hit_rate:
        words += f"; {whole(demand.shared_prefix_tokens)} shared, cached {percent(demand.prefix_hit_rate)} of the time"
    return words


def _ranks(one: Option) -> str:
    parts = [f"{name} {value}" for name, value in (("tp", one.tp), ("pp", one.pp), ("dp", one.dp)) if value > 1]
    return ", ".join([*parts, *([f"ep {one.ep}"] if one.ep is not None else [])]) or "tp 1"


def _sentence(one: Option, plan: Plan) -> str:
    spare = f" + {one.spare_replicas} spare" if one.spare_replicas else ""
    words = f"{one.gpu_count} × {one.gpu}: {plural(one.replicas, 'replica')}{spare} of {_ranks(one)}, {one.dtype}"
    if _engines(plan) > 1:
        words += f", {one.engine}"
    if plan.priced and one.cost.per_hour is not None:
        words += f", {significant(one.cost.per_hour)} an hour"
    return words


def _engines(plan: Plan) -> int:
    return len({one.engine for one in plan.front} | {one.engine for one in plan.rejected})


def _chosen(one: Option, plan: Plan, *, energy: bool) -> Iterator[Block]:
    rows = []
    for name, label in TIMES.items():
        target = next((item for item in plan.targets if item.time == name), None)
        limit = "" if target is None else f"{duration(target.limit_ms)} at {target.at}"
        times = one.times[name]
        rows.append((label, *(duration(times[at]) for at in ("mean", "p50", "p95", "p99")), limit))
    yield Table(
        title=f"Times on {one.gpu}", columns=("", "mean", "p50", "p95", "p99", "target"), rows=tuple(rows), left=1
    )
    beyond = list(_beyond(one, plan))
    if beyond:
        yield Bullets(title="At the upper end of the 90 % band a target is missed", items=tuple(beyond), tone="warning")
    cost = one.cost
    facts = [
        (
            "sequences in service, each replica",
            f"{significant(one.concurrency)} of at most {whole(one.max_num_seqs * one.dp)}",
        ),
        ("share of the full rate", percent(one.utilization)),
        ("room before a target or the full rate", f"× {significant(one.room)}, then {one.first_to_break}"),
        *_costs(cost, energy=energy),
    ]
    yield Table(title="", columns=("", ""), rows=tuple(facts), left=1, open_end=True)


def _beyond(one: Option, plan: Plan) -> Iterator[str]:
    """Targets that the plan meets as expected and misses where measurements come out at the upper end of the band."""
    latency = one.estimate.latency if one.estimate is not None else None
    if latency is None:
        return
    bands = {"ttft_ms": latency.ttft_ms, "tpot_ms": latency.tpot_ms, "e2e_ms": latency.e2e_ms}
    for target in plan.targets:
        band = bands[target.time]
        expected = one.times[target.time][target.at]
        highest = expected * band.high / band.mid
        if highest > target.limit_ms:
            sure = duration(target.limit_ms * band.mid / band.high)
            yield (
                f"{TIMES[target.time]} at {target.at}: {duration(expected)} expected, up to {duration(highest)} "
                f"against {duration(target.limit_ms)}; to be sure, ask for {sure}"
            )


def _costs(cost: Cost, *, energy: bool) -> Iterator[tuple[str, str]]:
    at_load, at_full = cost.gpu_hours_per_million_output_tokens, cost.gpu_hours_per_million_output_tokens_full
    yield "GPU-hours per million output tokens", f"{significant(at_load)}; {significant(at_full)} at full load"
    for label, here, full in (
        ("cost per million input tokens", cost.per_million_input_tokens, cost.per_million_input_tokens_full),
        ("cost per million output tokens", cost.per_million_output_tokens, cost.per_million_output_tokens_full),
    ):
        if here is not None and full is not None:
            yield label, f"{significant(here)}; {significant(full)} at full load"
    if energy:
        value = cost.energy_kwh_per_million_output_tokens
        words = (
            "board power is not known"
            if value is None
            else f"{significant(value)} kWh at most: all GPUs at board power"
        )
        yield "energy per million output tokens", words


def _front(plan: Plan) -> Table:
    """Plans between the cheapest and the fastest."""
    rows = []
    for one in plan.front[:_ROWS]:
        hourly = [significant(one.cost.per_hour)] if plan.priced and one.cost.per_hour is not None else []
        rows.append(
            (
                f"{one.gpu} {one.dtype}" + (f" {one.engine}" if _engines(plan) > 1 else ""),
                f"{one.replicas + one.spare_replicas} × {_ranks(one).replace(' ', '').replace(',', ' ')}",
                whole(one.gpu_count),
                *hourly,
                *(duration(one.times[name][at]) for name, at in _SHOWN),
            )
        )
    times = (f"{_SHORT[name]} {at}" for name, at in _SHOWN)
    heads = ("", "", "GPUs", *(["an hour"] if plan.priced else []), *times)
    title = "No plan is both cheaper and faster than one of these"
    return Table(title=title, columns=heads, rows=tuple(rows), left=2)


def _growth(plan: Plan, best: Option) -> Iterator[str]:
    for one in plan.growth:
        words = f"× {significant(one.factor)}: "
        words += "holds" if one.breaks is None else f"{_breaks(one)}"
        if one.gpu_count is None:
            words += "; more GPUs of this kind than allowed"
        elif one.breaks is not None:
            words += f"; {whole(one.gpu_count)} × {best.gpu} would carry it"
        yield words


def _breaks(one: Growth) -> str:
    words = f"{one.breaks} breaks first"
    if one.value is None or one.limit is None:
        return words
    if one.unit.startswith("ms of "):
        return f"{words}; {one.unit.removeprefix('ms of ')} is {duration(one.value)} at {one.at} against {duration(one.limit)}"
    return f"{words}; {significant(one.value)} {one.unit} against {significant(one.limit)} that can be served at all"


def _miss(one: Rejected) -> str:
    if one.value is None:
        return one.note
    if one.unit == "byte":
        return f"{gib(one.value)} short on each GPU"
    if one.limit is None:
        return one.note
    if one.unit == "ms":
        return f"{duration(one.value)} at {one.at} against {duration(one.limit)} even at a small load"
    return f"{whole(one.value)} GPUs, {whole(one.limit)} are allowed"


def _rejected(plan: Plan, *, every: bool) -> Block:
    """One line for each kind, or counts by reason where there are many; what else these GPUs can do stands above."""
    rejected = plan.rejected
    if every or len(rejected) <= _ROWS:
        items = [f"{_kind(one)}: {_share(one)}{_nearest(one, of=one.of)}" for one in rejected]
        return Bullets(title="Layouts that are no answer", items=tuple(items))
    items = []
    for reason, (_, words) in _REASONS.items():
        here = [one for one in rejected if one.reason == reason]
        if here:
            gpus = plural(len({one.gpu for one in here}), "GPU")
            if not here[0].nearest:
                items.append(f"{gpus}: {words}")
                continue
            best = min(here, key=lambda one: (one.value or 0.0) / (one.limit or 1.0))
            near = f"; nearest {_kind(best)}{_nearest(best)}" if best.value is not None else ""
            items.append(f"{plural(sum(one.layouts for one in here), 'layout')} on {gpus} {words}{near}")
    return Bullets(title="Layouts that are no answer (--all lists each kind)", items=tuple(items))


def _share(one: Rejected) -> str:
    """How many of a kind's layouts a reason holds for; only the reason where it was not laid out at all."""
    single, several = _REASONS[one.reason]
    if not one.nearest:
        return single
    if one.of == 1:
        return f"its one layout {single}"
    count = "all" if one.layouts == one.of else f"{one.layouts} of"
    return f"{count} {one.of} layouts {several if one.layouts > 1 else single}"


def _kind(one: Rejected) -> str:
    return f"{one.gpu}, {one.engine}, {one.dtype}"


def _nearest(one: Rejected, *, of: int = 1) -> str:
    miss = _miss(one)
    if not miss:
        return ""
    if not one.nearest:
        return f": {miss}"
    return f"; nearest {one.nearest}: {miss}" if of > 1 else f", {one.nearest}: {miss}"
