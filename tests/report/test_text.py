from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from kvplan.core.results import Range
from kvplan.report import text


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (0.5, "0.500"), (999.6, "1,000"), (-12.345, "-12.3"), (3_141_592.6, "3,141,593"), (9.9999, "10.00")],
)
def test_significant(value, expected):
    assert text.significant(value) == expected


#: What acts on a terminal, hides, or turns text around: Unicode's categories of it, and what no Unicode has a meaning for.
NOT_SHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
EVERY_CHARACTER = [chr(code) for code in range(sys.maxunicode + 1)]


def test_neutral_writes_out_what_is_not_shown_in_all_of_unicode_and_nothing_else():
    for char in EVERY_CHARACTER:
        shown = text.neutral(f"a{char}b")
        if unicodedata.category(char) not in NOT_SHOWN:
            assert shown == f"a{char}b"
            continue
        digits = shown[3:-1]
        assert shown == f"a\\{'xuU'[(len(digits) > 2) + (len(digits) > 4)]}{digits}b"
        assert int(digits, 16) == ord(char)
        assert shown.isascii()


def test_neutral_json_writes_the_same_characters_out_and_keeps_every_value():
    for start in range(0, len(EVERY_CHARACTER), 4096):
        value = "-".join(EVERY_CHARACTER[start : start + 4096])  # two surrogates side by side would be one character
        document = text.neutral_json(json.dumps({"v": value}, ensure_ascii=False, indent=2))
        assert json.loads(document) == {"v": value}
        assert {unicodedata.category(char) for char in document.replace("\n", "")}.isdisjoint(NOT_SHOWN)
        assert document.encode()


def test_width_counts_wide_and_combining_characters():
    assert text.width("模型a") == 5
    assert text.width("e\u0301") == 1


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0 bytes"), (1536, "1.50 KiB"), (160 * 2**20, "160 MiB"), (2**30, "1.00 GiB")]
)
def test_size(value, expected):
    assert text.size(value) == expected


def test_band_of_times_names_the_unit_once_where_it_is_one():
    value = Range(floor=5.0, low=8.0, mid=10.0, high=12.0)
    assert text.band(value, times=True) == ("10.0 ms", "8.00 – 12.0 ms", "5.00 ms")
    value = Range(floor=5.0, low=8000.0, mid=10_000.0, high=12_000.0)
    assert text.band(value, times=True)[1] == "8,000 ms – 12.0 s"


@pytest.mark.parametrize(
    ("value", "expected"), [(131_072.0, "131,072"), (288.25, "288.25"), (0, "0"), (1 / 3, "0.333333")]
)
def test_exact(value, expected):
    assert text.exact(value) == expected
