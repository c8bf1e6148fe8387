"""Lengths of prompts and answers: a number, a distribution, percentiles, or what a trace holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import Any, Final

from kvplan.core.dataclass import dataclass
from kvplan.core.numeric import MOST
from kvplan.errors import UsageError
from kvplan.planning.scenarios import with_ending

_POINTS: Final = 1000
_LONGEST: Final = 0.999
_SHOWN: Final = 80
_FORMS: Final = "a number, uniform:LOW:HIGH, lognormal:MEDIAN:SIGMA, or p50=500,p95=4000,p99=8000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A distribution of lengths by its quantiles [token].

    Attributes:
        text: As it was written.
        quantiles: Length at evenly spaced probabilities `(i + ½) / n`; one entry for a fixed length.
        longest: The longest that is planned for.
    """

    text: str
    quantiles: tuple[float, ...]
    longest: int

    @property
    def mean(self) -> float:
        """Mean length [token]."""
        return math.fsum(self.quantiles) / len(self.quantiles)

    @property
    def variation(self) -> float:
        """Squared coefficient of variation, `variance / mean²`."""
        mean = self.mean
        return math.fsum((one - mean) ** 2 for one in self.quantiles) / len(self.quantiles) / mean**2

    def quantile(self, probability: float) -> float:
        """Length that a share of requests does not exceed [token].

        >>> read_lengths("uniform:100:200").quantile(0.5)
        150.0
        """
        place = probability * len(self.quantiles) - 0.5
        low = min(max(math.floor(place), 0), len(self.quantiles) - 1)
        high = min(low + 1, len(self.quantiles) - 1)
        share = min(max(place - low, 0.0), 1.0)
        return self.quantiles[low] + share * (self.quantiles[high] - self.quantiles[low])


def read_lengths(given: Any) -> Lengths:  # noqa: ANN401 - a number, text, or lengths
    """Lengths from a number or text.

    >>> read_lengths(1024).mean, read_lengths("4k").mean, read_lengths("lognormal:500:1").longest
    (1024.0, 4000.0, 10992)

    Raises:
        UsageError: Not of a known form, or below one token.
    """
    if isinstance(given, Lengths):
        return given
    text = str(given).strip()
    kind, _, rest = text.partition(":")
    try:
        if "=" in text:
            return _by_percentiles(text)
        if kind == "uniform":
            low, high = (with_ending(part) for part in rest.split(":"))
            return _by_quantile(text, lambda p: low + (high - low) * p, longest=high)
        if kind == "lognormal":
            middle, spread = rest.split(":")
            median, sigma = with_ending(middle), float(spread)
            normal = NormalDist()
            return _by_quantile(text, lambda p: median * math.exp(sigma * normal.inv_cdf(p)))
        value = with_ending(text)
    except (ValueError, OverflowError):
        message = f"{text[:_SHOWN]!r} is not a length"
        raise UsageError(message, hint=_FORMS) from None
    return _checked(text, (value,), longest=value)


def from_samples(text: str, samples: Sequence[float]) -> Lengths:
    """Lengths as they were seen."""
    ordered = sorted(samples)
    if len(ordered) <= _POINTS:
        return _checked(text, tuple(float(one) for one in ordered), longest=ordered[-1])
    step = len(ordered) / _POINTS
    points = tuple(
        math.fsum(ordered[round(i * step) : max(round((i + 1) * step), round(i * step) + 1)])
        / max(round((i + 1) * step) - round(i * step), 1)
        for i in range(_POINTS)
    )
    return _checked(text, points, longest=ordered[-1])


def _by_quantile(text: str, quantile: Callable[[float], float], *, longest: float | None = None) -> Lengths:
    points = tuple(quantile((i + 0.5) / _POINTS) for i in range(_POINTS))
    return _checked(text, points, longest=quantile(_LONGEST) if longest is None else longest)


def _by_percentiles(text: str) -> Lengths:
    """Straight lines in the logarithm between given percentiles, level beyond them."""
    known: list[tuple[float, float]] = []
    for part in text.split(","):
        name, _, value = part.partition("=")
        known.append((float(name.strip().lower().removeprefix("p")) / 100, with_ending(value.strip())))
    known.sort()
    if any(not 0 <= p <= 1 or value < 1 for p, value in known) or any(a[1] > b[1] for a, b in pairwise(known)):
        raise ValueError

    def quantile(probability: float) -> float:
        before = max((one for one in known if one[0] <= probability), default=known[0])
        after = min((one for one in known if one[0] >= probability), default=known[-1])
        if after[0] <= before[0]:
            return before[1]
        share = (probability - before[0]) / (after[0] - before[0])
        return float(before[1] * (after[1] / before[1]) ** min(max(share, 0.0), 1.0))

    return _by_quantile(text, quantile, longest=known[-1][1])


def _checked(text: str, quantiles: tuple[float, ...], *, longest: float) -> Lengths:
    if not quantiles or not all(0 <= one <= MOST for one in quantiles) or not 1 <= longest <= MOST:
        message = f"{text[:_SHOWN]!r}: lengths must be from 1 to {MOST:,} tokens, in rising order"
        raise UsageError(message, hint=_FORMS)
    if list(quantiles) != sorted(quantiles):
        message = f"{text[:_SHOWN]!r}: the low end lies above the high one"
        raise UsageError(message, hint=_FORMS)
    return Lengths(text=text, quantiles=tuple(max(one, 1.0) for one in quantiles), longest=math.ceil(longest))
