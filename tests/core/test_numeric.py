import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.numeric import MOST, ceil, check_count, everywhere, floor, maximum, minimum, select, smooth_maximum
from kvplan.errors import UsageError

NUMBERS = st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6))


@given(NUMBERS, NUMBERS)
def test_numbers_and_arrays_agree(a, b):
    for function in (minimum, maximum):
        one = function(a, b)
        assert one == {minimum: min, maximum: max}[function](a, b)
        assert function(np.array([a]), b).tolist() == [one]
        assert function(a, np.array([b])).tolist() == [one]
        assert function(np.array([a]), np.array([b])).tolist() == [one]


@given(st.floats(-1e6, 1e6))
def test_rounding_is_that_of_the_standard_library(value):
    assert floor(value) == math.floor(value)
    assert ceil(value) == math.ceil(value)
    assert isinstance(floor(value), int)
    assert isinstance(ceil(value), int)
    assert floor(np.array([value])).tolist() == [math.floor(value)]
    assert ceil(np.array([value])).tolist() == [math.ceil(value)]
    assert (floor(3), ceil(3), ceil(-2.5), floor(-2.5)) == (3, 3, -2, -3)


def test_select_and_everywhere():
    assert select(True, 1, 2) == 1
    assert select(False, 1, 2) == 2
    assert select(np.array([True, False]), 1, np.array([3, 4])).tolist() == [1, 4]
    assert everywhere(True)
    assert not everywhere(False)
    assert everywhere(np.array([1, 2]) > 0) is True
    assert everywhere(np.array([1, 2]) > 1) is False


@pytest.mark.parametrize("value", [1, 1.0, MOST, np.array([1, MOST]), np.array(1)])
def test_counts_from_one_to_a_million_millions_are_counts(value):
    assert MOST == 10**12
    check_count("tp", value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0, "must be at least 1, not 0"),
        (-3, "must be at least 1, not -3"),
        (0.5, "must be at least 1, not 0.5"),
        (math.nan, "must be at least 1, not nan"),
        (np.array(0), "must be at least 1, not 0"),
        (np.array([4, 0, 5, -1]), "must be at least 1, not 0"),
        (MOST + 1, "must be at most 1,000,000,000,000"),
        (math.inf, "must be at most 1,000,000,000,000"),
        (np.array([4, MOST * 2]), "must be at most 1,000,000,000,000"),
    ],
)
def test_a_count_that_is_none_is_refused_and_told_alone(value, told):
    with pytest.raises(UsageError) as caught:
        check_count("tp", value)
    assert str(caught.value) == f"tp: {told}"


def test_some_counts_may_be_zero():
    check_count("ngl", 0, least=0)
    with pytest.raises(UsageError, match="ngl: must be at least 0, not -1"):
        check_count("ngl", -1, least=0)


@given(st.floats(1e-9, 1e6), st.floats(1e-9, 1e6))
def test_smooth_maximum_lies_between_the_maximum_and_a_fifth_more(a, b):
    found = smooth_maximum(a, b)
    assert max(a, b) * (1 - 1e-12) <= found <= max(a, b) * 2**0.25 * (1 + 1e-12)
    assert found == pytest.approx(smooth_maximum(b, a))
    assert found == pytest.approx((a**4 + b**4) ** 0.25, rel=1e-12)


def test_smooth_maximum_far_from_balance_is_the_maximum():
    assert smooth_maximum(1.0, 1e-4) == pytest.approx(1.0, rel=1e-12)
    assert smooth_maximum(0.0, 3.0) == 3.0
    assert smooth_maximum(np.array([0.0, 4.0]), np.array([3.0, 0.0])).tolist() == [3.0, 4.0]
