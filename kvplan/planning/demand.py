"""From a load as people describe it to a demand: rate or users, lengths, targets."""

from __future__ import annotations

from typing import Any, Final

from kvplan.core.numeric import check_count
from kvplan.errors import UsageError
from kvplan.planning.lengths import Lengths, from_samples, read_lengths
from kvplan.planning.plan_result import PROBABILITIES, STATISTICS, TIMES, Demand, Target
from kvplan.planning.trace import Trace

#: Loads between which times and costs are numbers [request/s, users], and the longest pause [s].
_LEAST_LOAD: Final = 1e-9
_MOST_LOAD: Final = 1e12
#: A load that every replica carries, until the most is known.
_ANY_LOAD: Final = 1e-6


def read_target(time: str, given: Any, *, at: str) -> Target | None:  # noqa: ANN401 - a number, text or None
    """A target from a number of milliseconds, or with its own statistic, `500@p99`.

    >>> read_target("ttft_ms", "500@p99", at="p95")
    Target(time='ttft_ms', at='p99', limit_ms=500.0)

    Raises:
        UsageError: Not a positive number, or an unknown statistic.
    """
    if at.strip().lower() not in STATISTICS:
        message = f"slo_at: {at!r} is none of {', '.join(STATISTICS)}"
        raise UsageError(message)
    if given is None:
        return None
    value, _, statistic = str(given).partition("@")
    statistic = (statistic or at).strip().lower()
    try:
        limit = float(value)
    except ValueError:
        limit = -1.0
    if time not in TIMES or statistic not in STATISTICS or not 0 < limit < float("inf"):
        message = f"slo_{time}: {given!r} is not a time above 0 at one of {', '.join(STATISTICS)}"
        raise UsageError(message, hint="for example 500 or 500@p99")
    return Target(time=time, at=statistic, limit_ms=limit)


def read_demand(
    *,
    rate: float | None,
    users: float | None,
    think_s: float | None,
    input_tokens: Any,  # noqa: ANN401 - a number, text or lengths
    output_tokens: Any,  # noqa: ANN401 - the same
    trace: Trace | None,
    context: int | None,
    shared_prefix_tokens: int,
    prefix_hit_rate: float,
    max_context: int | None,
) -> Demand:
    """One demand from what was given; a trace fills in what was not.

    Args:
        rate: Requests per second; or
        users: Users who wait, think and ask again; or neither, to ask for the most that can be carried.
        think_s: Their pause [s]; None is none.
        input_tokens: Lengths of prompts, or None for those of the trace.
        output_tokens: Lengths of answers, or None for those of the trace.
        trace: A trace, or None.
        context: Longest sequence to plan for, or None for the longest prompt and answer together.
        shared_prefix_tokens: Leading prompt tokens that requests share [token].
        prefix_hit_rate: How often they are cached.
        max_context: The model's own limit, above which nothing is planned without being asked for.

    Raises:
        UsageError: Both of rate and users, no lengths, or values that make no sense.
    """
    peak = None
    if rate is None and users is None and trace is not None:
        rate, peak = trace.rate_per_s, trace.peak_rate_per_s
    if rate is not None and users is not None:
        message = "plan: give either a rate (requests per second) or users"
        raise UsageError(message, hint="--rate 20, or --users 500 --think-s 30, or a trace with times")
    for name, value in (("rate", rate), ("users", users)):
        if value is not None and not _LEAST_LOAD <= value <= _MOST_LOAD:
            message = f"{name}: must be above 0, and from {_LEAST_LOAD:g} to {_MOST_LOAD:g}"
            raise UsageError(message)
    prompts = _lengths("input_tokens", input_tokens, trace.inputs if trace else None, trace)
    answers = _lengths("output_tokens", output_tokens, trace.outputs if trace else None, trace)
    pause = think_s or 0.0
    if not 0 <= pause <= _MOST_LOAD or not 0 <= prefix_hit_rate <= 1 or shared_prefix_tokens < 0:
        message = "think_s and shared_prefix_tokens must not be negative, prefix_hit_rate lies between 0 and 1"
        raise UsageError(message)
    longest = prompts.longest + answers.longest
    if context is not None:
        check_count("context", context)
    planned = context if context is not None else longest if max_context is None else min(longest, max_context)
    if planned < prompts.mean + answers.mean:
        message = f"context: {planned} is below the mean request of {prompts.mean + answers.mean:.0f} tokens"
        limit = f"the model is made for {max_context} tokens: " if context is None else ""
        raise UsageError(message, hint=f"{limit}shorten the requests, or give a longer --context")
    if trace is not None and trace.prefix_share is not None and not shared_prefix_tokens:
        shared_prefix_tokens, prefix_hit_rate = int(prompts.mean), trace.prefix_share
    most = rate is None and users is None
    counts_users = users is not None or (most and think_s is not None)
    return Demand(
        rate_per_s=_ANY_LOAD if most and not counts_users else rate,
        users=_ANY_LOAD if most and counts_users else users,
        most=most,
        think_s=0.0 if rate is not None else pause,
        input_tokens=prompts.mean,
        output_tokens=answers.mean,
        input_text=prompts.text,
        output_text=answers.text,
        input_quantiles=_quantiles(prompts),
        output_quantiles=_quantiles(answers),
        service_variation=answers.variation,
        burstiness=trace.burstiness if trace is not None and users is None else 1.0,
        context=planned,
        shared_prefix_tokens=min(shared_prefix_tokens, int(prompts.mean)),
        prefix_hit_rate=prefix_hit_rate,
        peak_rate_per_s=peak,
    )


def _lengths(name: str, given: Any, samples: tuple[float, ...] | None, trace: Trace | None) -> Lengths:  # noqa: ANN401 - as above
    if given is not None:
        try:
            return read_lengths(given)
        except UsageError as error:
            message = f"{name}: {error}"
            raise UsageError(message, hint=error.hint) from None
    if samples is None or trace is None:
        message = f"{name}: no lengths are given"
        raise UsageError(message, hint=f"--{name.replace('_', '-')} 1024, a distribution, or --trace FILE")
    return from_samples(f"from {trace.name}", samples)


def _quantiles(lengths: Lengths) -> dict[str, float]:
    return {name: lengths.mean if p is None else lengths.quantile(p) for name, p in PROBABILITIES.items()}
