"""How one replica behaves at any load: curves over the sequences in service, and times with their percentiles.

A replica is a queue whose servers slow each other down. With `C` sequences in service the step model gives TTFT, TPOT
and the rate `X(C)`; Little's law finds the `C` that a load `λ` brings, `X(C) = λ`. Around it:

- the number in service spreads like arrivals do, with variance `v · C` (`v` = 1 for independent arrivals), so the
  percentile `p` of TTFT and TPOT is read at `C_p = min(L, C + z_p · √(v · C))`, with `L` the limit on running sequences;
- beyond `L` requests wait as in a queue of `L` servers: with `ρ = λ / X(L)` and `s = L / X(L)`, they wait with probability
  `ρ^(√(2(L + 1)) − 1)` and then, exponentially, `s / (L (1 − ρ)) · (v + c²) / 2` on average (Sakasegawa 1977,
  doi:10.1007/BF02532240; `c²` is the squared variation of output lengths);
- a prompt longer than the mean prefills longer in proportion; an answer of the percentile's length makes its end-to-end time.

Users who think are a closed loop: `X(C) · (think + T(C)) = users`, the number in service spreads binomially, and whoever
is above `L` waits for a place. Curves are made monotone (running maxima), so that more load is never faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvplan.core.dataclass import dataclass
from kvplan.core.deployment import Deployment
from kvplan.core.estimate import Room, rank_load
from kvplan.core.serving import Load, steady_state
from kvplan.core.units import MS_PER_S
from kvplan.core.workload import Workload
from kvplan.planning.plan_result import PROBABILITIES, STATISTICS, TIMES, Demand, Target

Array = npt.NDArray[Any]

_POINTS: Final = 40
_LEAST_LOAD: Final = 0.005
_UNIT: Final = np.linspace(0.0, 1.0, _POINTS)
#: Loads of a replica that are looked at, as shares of the most that is planned with.
_SHARES: Final = np.concatenate([np.geomspace(_LEAST_LOAD, 0.1, 12), np.linspace(0.1, 1.0, 91)[1:]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One replica over the sequences in service, from 1 to as many as fit and may run.

    Attributes:
        sequences: The points, rising.
        ttft_s, tpot_s: Times there, without waiting for a place [s].
        prefill_s: Prefill of a mean prompt [s].
        rate_per_s: Requests per second.
        prefill_share: Share of the GPUs' time that prompts take.
    """

    sequences: Array
    ttft_s: Array
    tpot_s: Array
    prefill_s: Array
    rate_per_s: Array
    prefill_share: Array

    @property
    def most(self) -> float:
        """Sequences that fit and may run."""
        return float(self.sequences[-1])

    def at(self, values: Array, sequences: Array) -> Array:
        """A curve's value at some number of sequences."""
        return np.interp(sequences, self.sequences, values)


def curve(deployment: Deployment, room: Room, demand: Demand) -> Curve:
    """Ask the step model for one replica at a range of concurrencies."""
    ranks = deployment.layout.dp
    holds = float(room.pool.sequences(held_tokens(demand, reserves=deployment.engine.scheduling.reserves_output)))
    most = max(float(min(room.max_num_seqs, math.floor(holds))), 1.0) * ranks
    points = np.round(most**_UNIT)
    points = points[np.append(True, points[1:] > points[:-1])]
    load = _load(deployment, room, demand, np.maximum(points, ranks))
    state = steady_state(deployment.work, load, deployment.machine)
    ones = np.ones_like(points)
    step = (1.0 - state.mixed_share) * state.decode_step_s + state.mixed_share * state.mixed_step_s
    prefill = state.mixed_share * np.maximum(state.mixed_step_s - state.decode_step_s, 0.0)
    return Curve(
        sequences=points,
        ttft_s=np.maximum.accumulate(state.ttft_s * ones),
        tpot_s=np.maximum.accumulate(state.tpot_s * ones),
        prefill_s=np.maximum.accumulate(state.prefill_s * ones),
        rate_per_s=np.maximum.accumulate(state.requests_per_s * ranks * np.minimum(points / ranks, 1.0)),
        prefill_share=np.minimum(prefill / step, 1.0) * ones,
    )


def held_tokens(demand: Demand, *, reserves: bool) -> float:
    """Tokens of cache that a running sequence is given on average [token].

    Long answers run longer, so of those under way the mean answer is `O · (1 + c²)` and half of it has been made
    (renewal theory: a request met at a random moment is met in proportion to its length). Engines that reserve the
    whole output hold all of it. For the others a plan allows for whole mean answers at least, though only half of one
    is held where all are of one length: then no sequence is ever set back for want of room.
    """
    under_way = demand.output_tokens * (1.0 + demand.service_variation)
    return demand.input_tokens + (under_way if reserves else max(demand.output_tokens, under_way / 2.0))


def too_slow(
    deployment: Deployment, room: Room, demand: Demand, targets: tuple[Target, ...]
) -> tuple[Target, float] | None:
    """The target that even a lone sequence misses most, with its time there [ms]; None where it meets all of them.

    Curves rise from here, so that no load can meet it either; plain numbers say so in a fraction of a curve's time.
    """
    if not targets:
        return None
    state = steady_state(deployment.work, _load(deployment, room, demand, deployment.layout.dp), deployment.machine)
    missed: list[tuple[float, Target, float]] = []
    for one in targets:
        longer = max(demand.input_quantiles[one.at] / demand.input_tokens - 1.0, 0.0)
        ttft = state.ttft_s + state.prefill_s * longer
        whole = ttft + _gaps(demand, one.at) * state.tpot_s
        value = {"ttft_ms": ttft, "tpot_ms": state.tpot_s, "e2e_ms": whole}[one.time] * MS_PER_S
        if value > one.limit_ms:
            missed.append((value / one.limit_ms, one, value))
    if not missed:
        return None
    _, target, value = max(missed, key=lambda item: item[0])
    return target, value


def _gaps(demand: Demand, statistic: str) -> float:
    """Tokens after the first of an answer at a statistic; never fewer than the mean beyond the median."""
    mean = max(demand.output_tokens - 1.0, 0.0)
    z = STATISTICS[statistic]
    if z is None:
        return mean
    return max(demand.output_quantiles[statistic] - 1.0, mean if z > 0 else 0.0)


def _load(deployment: Deployment, room: Room, demand: Demand, sequences: Any) -> Load:  # noqa: ANN401 - a number or an array
    workload = Workload(
        input_tokens=demand.input_tokens,
        output_tokens=demand.output_tokens,
        concurrency=sequences,
        shared_prefix_tokens=min(demand.shared_prefix_tokens, demand.input_tokens),
        prefix_hit_rate=demand.prefix_hit_rate,
    )
    return rank_load(deployment, workload, room, concurrency=sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """A replica under loads, with a limit on its running sequences.

    Attributes:
        limit: Sequences that run at most.
        full_rate_per_s: Requests per second at the limit.
        load: Requests per second, or users, of each point.
        rate_per_s: Requests per second that are served.
        sequences: Mean number in service.
        times: (time, statistic) → values [ms].
    """

    limit: Array
    full_rate_per_s: Array
    load: Array
    rate_per_s: Array
    sequences: Array
    times: Mapping[tuple[str, str], Array]


def behaviour(curve: Curve, demand: Demand, *, limit: Array, load: Array, statistics: tuple[str, ...]) -> Behaviour:
    """Times of a replica under loads; infinite where requests arrive faster than it can serve them.

    Args:
        curve: The replica.
        demand: Lengths and kind of load.
        limit: Sequences that run at most; several give a row each.
        load: Requests per second of the replica, or its users.
        statistics: Which of `STATISTICS`.
    """
    full = curve.at(curve.rate_per_s, limit)
    rate, inside, spread, in_system = _in_service(curve, demand, limit=limit, load=load, full=full)
    times: dict[tuple[str, str], Array] = {}
    for statistic in statistics:
        z = STATISTICS[statistic]
        here = inside if z is None else np.minimum(inside + z * spread, limit)
        wait = _wait(demand, statistic, limit=limit, rate=rate, full=full, in_system=in_system, spread=spread)
        longer = demand.input_quantiles[statistic] / demand.input_tokens - 1.0
        own = curve.at(curve.prefill_s, here) * max(longer, 0.0)
        ttft = wait + curve.at(curve.ttft_s, here) + own
        tpot = curve.at(curve.tpot_s, here)
        made = _gaps(demand, statistic)
        for name, values in zip(TIMES, (ttft, tpot, ttft + made * tpot), strict=True):
            times[name, statistic] = values * MS_PER_S
    return Behaviour(limit=limit, full_rate_per_s=full, load=load, rate_per_s=rate, sequences=inside, times=times)


def _in_service(
    curve: Curve, demand: Demand, *, limit: Array, load: Array, full: Array
) -> tuple[Array, Array, Array, Array]:
    """Rate, mean number in service, its spread, and mean number in the replica with those that wait."""
    points = np.concatenate([[0.0], curve.sequences])
    rates = np.concatenate([[0.0], curve.rate_per_s])
    if demand.users is None:
        inside = np.minimum(np.interp(load, rates, points), limit)
        return load, inside, np.sqrt(demand.burstiness * inside), inside
    seconds = curve.ttft_s + max(demand.output_tokens - 1.0, 0.0) * curve.tpot_s
    users = np.concatenate([[0.0], np.maximum.accumulate(curve.rate_per_s * (demand.think_s + seconds))])
    inside = np.minimum(np.interp(load, users, points), limit)
    rate = np.minimum(np.interp(inside, points, rates), full)
    most = np.interp(limit, points, users)
    in_system = np.where(load <= most, inside, np.maximum(load - full * demand.think_s, inside))
    share = np.minimum(in_system / np.maximum(load, 1e-12), 1.0)
    return rate, inside, np.sqrt(in_system * (1.0 - share)), in_system


def _wait(
    demand: Demand, statistic: str, *, limit: Array, rate: Array, full: Array, in_system: Array, spread: Array
) -> Array:
    """Wait for a place among the running sequences [s]."""
    z = STATISTICS[statistic]
    if demand.users is not None:
        if z is not None:
            return np.maximum(in_system + z * spread - limit, 0.0) / full
        return _above(in_system, spread, limit) / full
    busy = np.minimum(rate / full, 1.0)
    chance = busy ** (np.sqrt(2.0 * (limit + 1.0)) - 1.0)
    with np.errstate(divide="ignore"):
        mean = (demand.burstiness + demand.service_variation) / 2.0 / (full * (1.0 - busy))
    if z is None:
        return chance * mean
    above = 1.0 - (PROBABILITIES[statistic] or 0.0)
    return np.where(chance > above, mean * np.log(np.maximum(chance / above, 1.0)), 0.0)


def _above(mean: Array, spread: Array, limit: Array) -> Array:
    """Mean number above a limit of a normal number, `σ (φ(k) − k (1 − Φ(k)))` with `k = (L − mean) / σ`."""
    sigma = np.maximum(spread, 1e-9)
    k = (limit - mean) / sigma
    density = np.exp(-0.5 * np.minimum(k * k, 1e4)) / math.sqrt(2.0 * math.pi)
    tail = np.array([0.5 * math.erfc(one / math.sqrt(2.0)) for one in np.ravel(k)]).reshape(np.shape(k))
    return np.asarray(np.maximum(sigma * (density - k * tail), np.maximum(mean - limit, 0.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The most that a replica serves within the targets, and at which limit.

    Attributes:
        limit: Limit on running sequences.
        load: Requests per second, or users, of one replica; 0 where even a small load misses a target.
        breaks: Target that gives way first beyond it, `full rate` where none does.
        least: Times at the smallest load, worst target first to look at.
    """

    limit: float
    load: float
    breaks: str
    least: Mapping[tuple[str, str], float]


def best_limit(
    curve: Curve, demand: Demand, targets: tuple[Target, ...], *, most_busy: float, limit: int | None
) -> Best:
    """The limit on running sequences under which the replica carries most within all targets.

    Without targets that is the largest limit. Loads go up to `most_busy` of the full rate.
    """
    statistics = tuple(dict.fromkeys(one.at for one in targets)) or ("mean",)
    limits = _limits(curve, demand, targets, limit=limit)
    top = curve.at(curve.rate_per_s, limits) if demand.users is None else users_at(curve, demand, limits)
    load = most_busy * _SHARES * top
    seen = behaviour(curve, demand, limit=limits, load=load, statistics=statistics)
    held = np.ones(load.shape, dtype=bool)
    for one in targets:
        held &= seen.times[one.time, one.at] <= one.limit_ms
    counts = np.where(held.all(axis=1), _SHARES.size, np.argmin(held, axis=1))
    carried = np.where(counts > 0, load[np.arange(len(load)), counts - 1], 0.0)
    row = int(np.argmax(carried))
    count = int(counts[row])
    late = [one for one in targets if count < _SHARES.size and seen.times[one.time, one.at][row, count] > one.limit_ms]
    return Best(
        limit=float(limits[row, 0]),
        load=float(carried[row]),
        breaks=late[0].time if late else "full rate",
        least={key: float(values[row, 0]) for key, values in seen.times.items()},
    )


def _limits(curve: Curve, demand: Demand, targets: tuple[Target, ...], *, limit: int | None) -> Array:
    """Limits to try, a row each, largest first: powers of two where a target may ask for fewer sequences at once."""
    top = curve.most if limit is None else min(curve.most, float(limit))
    if not any(one.time != "ttft_ms" for one in targets) and demand.users is None:
        return np.array([[top]])
    powers = [2.0**exponent for exponent in range(int(math.log2(top)) + 1)]
    return np.array(sorted({top, *powers}, reverse=True))[:, None]


def users_at(curve: Curve, demand: Demand, limit: Array) -> Array:
    """Users that keep a replica at its limit [user]."""
    seconds = curve.ttft_s + max(demand.output_tokens - 1.0, 0.0) * curve.tpot_s
    users = np.maximum.accumulate(curve.rate_per_s * (demand.think_s + seconds))
    return np.interp(limit, curve.sequences, users)
