"""How far predictions are from measurements: one set of statistics for every quantity and group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from kvplan.core.dataclass import dataclass
from kvplan.core.results import Dumpable

P90 = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Dumpable):
    """Errors of one quantity over some rows; errors are fractions.

    Attributes:
        n: Rows with a prediction and a measurement.
        median_ape, mean_ape, p90_ape: Of `|predicted ÷ measured − 1|`.
        bias: Geometric mean of `predicted ÷ measured`; above 1 predicts too much.
        inside_range: Share of measurements between low and high, None for quantities without a range.
    """

    n: int
    median_ape: float
    mean_ape: float
    p90_ape: float
    bias: float
    inside_range: float | None


def score(ratios: Sequence[float], inside: Sequence[bool]) -> Score:
    """Statistics of ratios `predicted ÷ measured`, at least one of them.

    >>> found = score([1.0, 1.1, 0.8], [True, True, False])
    >>> round(found.median_ape, 3), round(found.p90_ape, 3), round(found.bias, 3), round(found.inside_range, 3)
    (0.1, 0.18, 0.958, 0.667)
    """
    errors = [abs(ratio - 1) for ratio in ratios]
    logs = [math.log(ratio) for ratio in ratios if ratio > 0]
    return Score(
        n=len(ratios),
        median_ape=median(errors),
        mean_ape=fmean(errors),
        p90_ape=quantile(errors, P90),
        bias=math.exp(fmean(logs)) if len(logs) == len(ratios) else 0.0,
        inside_range=sum(inside) / len(inside) if inside else None,
    )


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the others lies, between neighbours in proportion (NumPy's default).

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.9)
    3.7
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
