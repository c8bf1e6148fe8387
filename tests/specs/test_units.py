"""Printed quantities: exact, reversible, and refused with the form that is wanted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.specs.units import UNITS, format_quantity, parse_quantity

KIND_AND_UNIT = [(kind, unit) for kind, units in UNITS.items() for unit in units]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("2039 GB/s", "rate", 2_039_000_000_000),
        ("80 GB", "size", 80_000_000_000),
        ("80 GiB", "size", 85_899_345_920),
        ("81920 MiB", "size", 85_899_345_920),
        ("989.4 TFLOPS", "compute", 989_400_000_000_000),
        ("13.5 PFLOPS", "compute", 13_500_000_000_000_000),
        ("400 Gbit/s", "rate", 50_000_000_000),
        ("0.7 kW", "power", 700),
        ("1.98 GHz", "frequency", 1_980_000_000),
    ],
)
def test_whole_results_are_integers(text: str, kind: str, value: int) -> None:
    result = parse_quantity(text, kind)
    assert result == value
    assert isinstance(result, int)


def test_a_remainder_makes_one_rounded_float() -> None:
    assert parse_quantity("22.04 GiB", "size") == 22.04 * 2**30


@given(value=st.integers(min_value=0, max_value=10**30), choice=st.sampled_from(KIND_AND_UNIT))
def test_format_and_parse_invert_each_other(value: int, choice: tuple[str, str]) -> None:
    kind, unit = choice
    assert parse_quantity(format_quantity(value, unit), kind) == value


@given(value=st.integers(min_value=0, max_value=10**15))
def test_a_gib_is_more_than_a_gb_by_the_known_factor(value: int) -> None:
    gib, gb = parse_quantity(f"{value} GiB", "size"), parse_quantity(f"{value} GB", "size")
    assert gib * 10**9 == gb * 2**30


@pytest.mark.parametrize(
    ("text", "kind", "rule"),
    [
        (80, "size", "80 has no unit; write it like '80 GB'"),
        (None, "rate", "None has no unit; write it like '2039 GB/s'"),
        ("80GB", "size", "'80GB' is not a size; write it like '80 GB'"),
        ("-80 GB", "size", "'-80 GB' is not a size; write it like '80 GB'"),
        ("1e3 GB", "size", "'1e3 GB' is not a size; write it like '80 GB'"),
        ("nan GB", "size", "'nan GB' is not a size; write it like '80 GB'"),
        ("80 GB\n", "size", "'80 GB\\n' is not a size; write it like '80 GB'"),
        ("٣ GB", "size", "'٣ GB' is not a size; write it like '80 GB'"),
        ("700 w", "power", "'w' is not a unit of power; use one of W, kW"),
        ("80 GB/s", "size", "'GB/s' is not a unit of size; use one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"),
    ],
)
def test_refused_with_the_wanted_form(text: object, kind: str, rule: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(rule)}$"):
        parse_quantity(text, kind)
