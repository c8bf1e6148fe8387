import json
from enum import Enum

import pytest

from kvplan.core.dataclass import dataclass
from kvplan.core.results import Dumpable, Range


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
