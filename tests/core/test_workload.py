import re

import numpy as np
import pytest

from kvplan.core.workload import Workload
from kvplan.errors import UsageError


def test_what_is_asked_unless_told_otherwise():
    plain = Workload()
    assert (plain.input_tokens, plain.output_tokens, plain.concurrency) == (1024, 256, 1)
    assert (plain.shared_prefix_tokens, plain.prefix_hit_rate, plain.network_ms) == (0, 1.0, 0.0)
    assert plain.benchmark_requests is None
    assert plain.equal_lengths is False
    assert plain.source_tokens is None
    assert plain.cached_prefix_tokens == 0


def test_a_hit_prefix_is_not_computed_again():
    assert Workload(input_tokens=1000, shared_prefix_tokens=800, prefix_hit_rate=0.25).cached_prefix_tokens == 200
    assert Workload(input_tokens=1000, shared_prefix_tokens=1000).cached_prefix_tokens == 1000
    assert Workload(input_tokens=1000, shared_prefix_tokens=800, prefix_hit_rate=0).cached_prefix_tokens == 0


@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "concurrency", "benchmark_requests"])
@pytest.mark.parametrize(("value", "told"), [(0, 0), (-1, -1), (np.array([1, 0]), 0)])
def test_nothing_below_one(name, value, told):
    with pytest.raises(UsageError, match=rf"{name}: must be at least 1, not {told}\Z"):
        Workload(**{name: value})
    assert getattr(Workload(**{name: 1}), name) == 1
    assert getattr(Workload(**{name: np.array([1, 2])}), name).tolist() == [1, 2]


@pytest.mark.parametrize("name", ["source_tokens", "network_ms"])
def test_no_source_and_no_network_but_not_less(name):
    assert getattr(Workload(**{name: 0}), name) == 0
    with pytest.raises(UsageError, match=rf"{name}: must be at least 0, not -0.5\Z"):
        Workload(**{name: -0.5})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"shared_prefix_tokens": -1}, "shared_prefix_tokens: must lie between 0 and input_tokens (1024)"),
        ({"shared_prefix_tokens": 1025}, "shared_prefix_tokens: must lie between 0 and input_tokens (1024)"),
        ({"prefix_hit_rate": -0.01}, "prefix_hit_rate: must lie between 0 and 1, not -0.01"),
        ({"prefix_hit_rate": 1.01}, "prefix_hit_rate: must lie between 0 and 1, not 1.01"),
    ],
)
def test_a_prefix_lies_inside_the_prompt(given, told):
    with pytest.raises(UsageError, match=re.escape(told)):
        Workload(**given)
