import json
from dataclasses import fields
from enum import Enum

import pytest

from kvplan.core.dataclass import dataclass
from kvplan.core.results import Capacity, Dumpable, LedgerLine, Memory, Range


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Dumpable):
    schema = "kvplan.answer/1"
    inner: Range
    parts: tuple[Range, ...] = ()
    named: object = None
    colour: Colour = Colour.RED


RANGE = Range(floor=1, low=2, mid=3, high=4)
PLAIN = {"floor": 1, "low": 2, "mid": 3, "high": 4}


def test_a_result_as_plain_data_with_its_schema_first():
    found = Answer(inner=RANGE, parts=(RANGE,), named={1: [RANGE], "é": None}).model_dump()
    assert found == {
        "schema": "kvplan.answer/1", "inner": PLAIN, "parts": [PLAIN], "named": {"1": [PLAIN], "é": None}, "colour": "red",
    }  # fmt: skip
    assert next(iter(found)) == "schema"
    assert RANGE.model_dump() == PLAIN


def test_a_long_result_is_printed_in_lines_that_are_cut():
    assert str(RANGE) == repr(RANGE)
    long = Answer(inner=RANGE, parts=(RANGE,) * 20, named="x" * 200)
    assert len(repr(long)) > 1000
    first, *lines, last = str(long).splitlines()
    assert (first, last) == ("Answer(", ")")
    assert [line.partition("=")[0].strip() for line in lines] == ["inner", "parts", "named", "colour"]
    assert max(map(len, lines)) < 120
    assert lines[0] == f"  inner={RANGE!r}"
    assert lines[1].endswith("…")


def test_a_type_is_no_result():
    assert Answer(inner=RANGE, named=Range).model_dump()["named"] is Range


def test_json_is_one_document_of_the_same_data():
    answer = Answer(inner=RANGE, named={"é": 1})
    assert json.loads(answer.model_dump_json()) == answer.model_dump()
    assert "é" in answer.model_dump_json()
    assert answer.model_dump_json().count("\n") == 0
    assert answer.model_dump_json(indent=2).startswith('{\n  "schema"')


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_numbers_that_are_not_finite_are_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        Range(floor=0, low=0, mid=value, high=0).model_dump_json()


def test_nothing_is_missing_unless_told():
    plain = Capacity(fits=True, max_concurrency=1, max_context=1, max_context_at_concurrency=1, limited_by="kv_pool")
    assert (plain.short_by_bytes, plain.suggestions) == (0, ())
    assert LedgerLine(name="weights", bytes=1, formula="").log_line is None


def test_the_peak_of_a_log_is_activations_with_graphs_inside():
    counts = {field.name: 0 for field in fields(Memory) if field.name != "ledger"}
    memory = Memory(**{**counts, "activation_bytes": 7, "graph_bytes": 3}, ledger=())
    assert memory.peak_logged_bytes == 10
    assert "peak_logged_bytes" not in memory.model_dump()
