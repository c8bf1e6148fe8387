from __future__ import annotations

import json

import pytest

from kvplan.core.results import Range
from kvplan.report import text


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (0.5, "0.500"), (999.6, "1,000"), (-12.345, "-12.3"), (3_141_592.6, "3,141,593"), (9.9999, "10.00")],
)
def test_significant(value, expected):
    assert text.significant(value) == expected


@pytest.mark.parametrize("char", ["\x1b", "\x07", "\r", "\x7f", "\x9b", "\u202e", "\ud800", "\n", "\u200b"])
def test_neutral_writes_control_characters_out(char):
    shown = text.neutral(f"a{char}b")
    assert char not in shown
    assert shown.isprintable()
    assert shown.encode()


def test_neutral_keeps_other_scripts():
    assert text.neutral("模型 × µ –") == "模型 × µ –"


def test_neutral_json_stays_the_same_document():
    data = {"name": "a\x1b\x9b\ud800\u202eb", "n": 1}
    document = text.neutral_json(json.dumps(data, ensure_ascii=False, indent=2))
    assert json.loads(document) == data
    assert document.encode()
    assert not any(char in document for char in "\x1b\x9b\u202e")


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
