"""Room of a running sequence: what a queue of requests with lengths of their own really holds."""

from __future__ import annotations

import random

import pytest

from kvplan.planning.demand import read_demand
from kvplan.planning.lengths import from_samples
from kvplan.planning.operating import held_tokens


def demand(answers):
    return read_demand(
        rate=1.0, users=None, think_s=None, input_tokens=1000, output_tokens=answers, trace=None, context=None,
        shared_prefix_tokens=0, prefix_hit_rate=1.0, max_context=None,
    )  # fmt: skip


def looked_at(answers, *, steps=30_000):
    """Mean made and whole answer of the sequence that runs, at every step of a server that is never idle."""
    draw = random.Random(7)  # noqa: S311 - lengths, not secrets
    made, whole, sums = 0, draw.choice(answers), [0, 0]
    for _ in range(steps * len(answers)):
        if made == whole:
            made, whole = 0, draw.choice(answers)
        made += 1
        sums = [sums[0] + made, sums[1] + whole]
    return [one / (steps * len(answers)) for one in sums]


@pytest.mark.parametrize("answers", [[100, 100], [10, 20, 30, 300], [5, 5, 5, 5, 5, 5, 5, 400]])
def test_long_answers_are_met_more_often(answers):
    """Half made of what is under way where that is above a whole mean answer, else the whole mean answer."""
    half, whole = looked_at(answers)
    mean = sum(answers) / len(answers)
    asked = demand(from_samples("seen", answers))
    assert held_tokens(asked, reserves=True) == pytest.approx(1000 + whole, rel=0.01)
    assert held_tokens(asked, reserves=False) == pytest.approx(1000 + max(mean, half), rel=0.01)
