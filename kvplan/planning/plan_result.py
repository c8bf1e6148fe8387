"""The question and the answer of `plan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from statistics import NormalDist
from typing import ClassVar, Final

from kvplan.core.dataclass import dataclass
from kvplan.core.results import Dumpable, Estimate

#: Statistics that a target may be set at, with the share of requests that lie below; the mean has none.
PROBABILITIES: Final[dict[str, float | None]] = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
#: The same with the normal quantile of each.
STATISTICS: Final = {
    name: None if share is None else round(NormalDist().inv_cdf(share), 4) for name, share in PROBABILITIES.items()
}
#: Times that a target may be set for.
TIMES: Final = ("ttft_ms", "tpot_ms", "e2e_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Dumpable):
    """One service level: a time at a statistic that must not be exceeded [ms]."""

    time: str
    at: str
    limit_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand(Dumpable):
    """What has to be served.

    Attributes:
        rate_per_s: Requests per second, or None where users are given.
        users: Users who each send a request, wait for its end and think, or None.
        think_s: Pause of a user between an answer and the next request [s].
        input_tokens, output_tokens: Mean lengths [token].
        input_text, output_text: Lengths as they were written.
        input_quantiles, output_quantiles: Length at each statistic [token].
        service_variation: Squared coefficient of variation of the output length.
        burstiness: Variance ÷ mean of arrivals; 1 for independent ones.
        peak_rate_per_s: Requests per second in the busiest minute of the trace whose mean rate is planned for, or None.
        context: Longest sequence to plan for [token].
        shared_prefix_tokens, prefix_hit_rate: Leading prompt tokens that requests share, and how often they are cached.
        most: True where no load was given: it is the most that the GPUs allowed (or one replica) carry.
    """

    rate_per_s: float | None
    users: float | None
    think_s: float
    input_tokens: float
    output_tokens: float
    input_text: str
    output_text: str
    input_quantiles: Mapping[str, float]
    output_quantiles: Mapping[str, float]
    service_variation: float
    burstiness: float
    context: int
    shared_prefix_tokens: int = 0
    prefix_hit_rate: float = 1.0
    most: bool = False
    peak_rate_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(Dumpable):
    """What a plan costs, spares included.

    Attributes:
        gpu_hours_per_million_output_tokens: At the planned load.
        gpu_hours_per_million_output_tokens_full: With every replica at its full rate.
        per_hour: In the user's currency, or None without a price.
        per_million_input_tokens, per_million_output_tokens: The hour divided over tokens by the GPU time that prompts and
            answers take, at the planned load.
        per_million_input_tokens_full, per_million_output_tokens_full: The same at the full rate.
        energy_kwh_per_million_output_tokens: All GPUs at board power all the time: an upper bound, without hosts and
            cooling; None where the card's power is not known.
    """

    gpu_hours_per_million_output_tokens: float
    gpu_hours_per_million_output_tokens_full: float
    per_hour: float | None = None
    per_million_input_tokens: float | None = None
    per_million_output_tokens: float | None = None
    per_million_input_tokens_full: float | None = None
    per_million_output_tokens_full: float | None = None
    energy_kwh_per_million_output_tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(Dumpable):
    """One way to serve the demand.

    Attributes:
        gpu, engine, dtype, kv_dtype: What runs; canonical ids.
        tp, pp, dp, ep: Layout of one replica.
        replicas: Independent replicas that carry the load.
        spare_replicas: More of them, for failures.
        gpu_count: GPUs in all, spares included.
        max_num_seqs: Limit on running sequences of each replica that the plan sets.
        engine_limit: The limit that the engine would take by itself.
        context: `max_model_len`.
        concurrency: Sequences in service on each replica on average.
        utilization: Load as a share of a replica's full rate.
        rate_per_s: Requests that are served in all.
        full_rate_per_s: Requests that all carrying replicas serve at most.
        room: Load that the targets allow, as a multiple of the demand.
        first_to_break: What gives way when the load grows beyond `room`.
        times: Time → statistic → value [ms].
        cost: What it costs.
        estimate: The full answer for one replica at its mean load, for the plans that are shown.
    """

    gpu: str
    engine: str
    dtype: str
    kv_dtype: str
    tp: int
    pp: int
    dp: int
    ep: int | None
    replicas: int
    spare_replicas: int
    gpu_count: int
    max_num_seqs: int
    engine_limit: int
    context: int
    concurrency: float
    utilization: float
    rate_per_s: float
    full_rate_per_s: float
    room: float
    first_to_break: str
    times: Mapping[str, Mapping[str, float]]
    cost: Cost
    estimate: Estimate | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Dumpable):
    """Layouts of one kind that are no answer, and why.

    Attributes:
        gpu, engine, dtype: The kind.
        reason: `does not fit`, `TTFT`, `TPOT`, `end to end`, `capacity` (fits and meets the targets, but takes more GPUs
            than allowed), `engine` (it does not run on this maker's devices), `layout` or `no price`.
        layouts: How many layouts it holds for.
        of: How many layouts of this GPU, engine and format were looked at.
        nearest: The layout that came nearest.
        value, limit, unit, at: By how much that one missed: bytes short, the time against its limit and the statistic, or
            GPUs against those allowed.
        note: More in words, or empty.
    """

    gpu: str
    engine: str
    dtype: str
    reason: str
    layouts: int
    of: int
    nearest: str
    value: float | None
    limit: float | None
    unit: str
    at: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth(Dumpable):
    """What happens to the cheapest plan when the load grows.

    Attributes:
        factor: Load as a multiple of the demand.
        breaks: What gives way first on the way there, or None where it holds.
        value, limit, unit, at: Where it stands at this load: the worst time against its target, or the load against what
            the replicas can carry at all.
        gpu_count: GPUs of the same kind that would carry it, spares included, or None where none do.
    """

    factor: float
    breaks: str | None
    value: float | None
    limit: float | None
    unit: str
    at: str
    gpu_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Dumpable):
    """The answer to a demand under targets.

    Attributes:
        model: Model id.
        demand, targets: The question.
        searched: Layouts that were looked at.
        cheapest, fastest: Ends of the front: best by cost and by mean end-to-end time, or None where nothing serves the demand.
        front: Plans that no other beats in both cost and end-to-end time and that gain for what they cost, cheapest first.
        priced: True where cost is money, False where it is the number of GPUs.
        rejected: Why the others are no answer.
        growth: The cheapest plan under more load.
        assumptions, warnings: As with an estimate.
    """

    schema: ClassVar[str | None] = "kvplan.plan/1"
    model: str
    demand: Demand
    targets: tuple[Target, ...]
    searched: int
    cheapest: Option | None
    fastest: Option | None
    front: tuple[Option, ...]
    priced: bool
    rejected: tuple[Rejected, ...]
    growth: tuple[Growth, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
