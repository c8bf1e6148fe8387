from hypothesis import given
from hypothesis import strategies as st

from kvplan.core import units
from kvplan.core.units import ceil_div, gib, round_up

WHOLE = st.integers(0, 10**15)
POSITIVE = st.integers(1, 10**6)


def test_decimal_and_binary_units_stay_apart():
    assert (units.KB, units.MB, units.GB, units.TB) == (1e3, 1e6, 1e9, 1e12)
    assert (units.KIB, units.MIB, units.GIB, units.TIB) == (1024, 1024**2, 1024**3, 1024**4)
    assert (units.TERA, units.MS_PER_S) == (1e12, 1e3)
    assert gib(80 * units.GB) < 75 < gib(80 * units.GIB) == 80


def test_small_letters_end_decimal_counts_and_capitals_binary_ones():
    """vLLM's `human_readable_int`: `--max-model-len 32k` is 32,000 and `32K` is 32,768."""
    assert units.ENDINGS == {"k": units.KB, "m": units.MB, "K": units.KIB, "M": units.MIB}


def test_one_token_more_than_whole_blocks_opens_a_block():
    assert [ceil_div(n, 16) for n in (0, 1, 16, 17, 32)] == [0, 1, 1, 2, 2]
    assert [round_up(n, 16) for n in (0, 1, 16, 17, 32)] == [0, 16, 16, 32, 32]


@given(WHOLE, POSITIVE)
def test_rounding_up_gives_the_smallest_multiple_that_is_not_below(value, multiple):
    rounded = round_up(value, multiple)
    assert rounded % multiple == 0
    assert value <= rounded < value + multiple
    assert ceil_div(value, multiple) * multiple == rounded
