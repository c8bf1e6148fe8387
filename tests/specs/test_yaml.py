"""Strict YAML: what is a number, what is text, and every refusal with its file, line and field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from kvplan.errors import SpecError
from kvplan.specs.yaml import dump_yaml, load_yaml, parse_yaml, validate

if TYPE_CHECKING:
    from pathlib import Path

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


class Inner(BaseModel):
    """A nested schema."""

    model_config = ConfigDict(extra="forbid")
    capacity: int
    kind: Literal["hbm", "gddr"] = "hbm"


class Outer(BaseModel):
    """A schema with a nested one, alone and in a list."""

    model_config = ConfigDict(extra="forbid")
    name: str
    memory: Inner
    parts: list[Inner] | None = None


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_yaml(text, path="f.yaml")
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("1e12", 1e12),
        ("-2.5E-3", -2.5e-3),
        ("42", 42),
        ("9007199254740993", 9007199254740993),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("y", "y"),
        ("2026-11-29", "2026-11-29"),
        ("12:30:45", "12:30:45"),
        ("0o17", "0o17"),
        ("017", "017"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("'1e12'", "1e12"),
        ("2039 GB/s", "2039 GB/s"),
    ],
)
def test_scalars(scalar: str, value: object) -> None:
    read = parse_yaml(f"x: {scalar}").data["x"]
    assert read == value
    assert type(read) is type(value)


def test_keys_are_text_as_in_json() -> None:
    assert parse_yaml("a:\n  128: x\n  0128: y\n").data == {"a": {"128": "x", "0128": "y"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n", ["f.yaml:4: b.c: duplicate key, first on line 3"]),
        ("a: !!python/object:os.system x\n", ["f.yaml:1: a: tag !!python/object:os.system is not allowed"]),
        ("a: !mine 1\n", ["f.yaml:1: a: tag !mine is not allowed"]),
        (BOMB, ["f.yaml:1: anchors and aliases are not allowed; write the value out"]),
        ("a: &a\n  b: *a\n", ["f.yaml:1: anchors and aliases are not allowed; write the value out"]),
        ("a: " + "[" * 40 + "]" * 40, ["f.yaml:1: nested deeper than 32 levels"]),
        ("- " * 40 + "x", ["f.yaml:1: nested deeper than 32 levels"]),
        ("a:\n  - x: 1e999\n", ["f.yaml:2: a.0.x: number 1e999 is out of range"]),
        (f"a: {'9' * 5000}", [f"f.yaml:1: a: number {'9' * 20} is out of range"]),
        ("? [a]\n: 1\n", ["f.yaml:1: a key must be a word, not a list or a mapping"]),
        ("true: 1\n", ["f.yaml:1: key 'true' must be text or a whole number; quote it"]),
        ("!!python/name:os.system x: 1\n", ["f.yaml:1: key 'x' must be text or a whole number; quote it"]),
        ("a:\n  128: 1\n  '128': 2\n", ["f.yaml:3: a.128: duplicate key, first on line 2"]),
        ("- a\n- b\n", ["f.yaml:1: expected fields (`key: value` lines)"]),
        ("", ["f.yaml:1: expected fields (`key: value` lines)"]),
        ("just text", ["f.yaml:1: expected fields (`key: value` lines)"]),
    ],
)
def test_refused(text: str, expected: list[str]) -> None:
    found = problems(text)
    assert found == expected or found[: len(expected)] == expected


def test_all_problems_come_in_one_run() -> None:
    assert problems("a: 1\na: 2\nb: !x y\nc: 1e999\n") == [
        "f.yaml:2: a: duplicate key, first on line 1",
        "f.yaml:3: b: tag !x is not allowed",
        "f.yaml:4: c: number 1e999 is out of range",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: 1\nb: [1, 2\n", 3), ("a: 1\n\tb: 2\n", 2), ("a: 1\n---\nb: 2\n", 2), ("a: 1\nb: \x07\n", 2), ("a: 'x\n", 2)],
)
def test_broken_syntax_names_the_line(text: str, line: int) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"f.yaml:{line}: not valid YAML: ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing, large, binary = tmp_path / "no.yaml", tmp_path / "large.yaml", tmp_path / "binary.yaml"
    large.write_text("a: " + "x" * 100)
    binary.write_bytes(b"a: 1\nb: \xff\n")
    for path, rule in (
        (missing, f"{missing}: can't be read: No such file or directory"),
        (tmp_path, f"{tmp_path}: can't be read: Is a directory"),
        (large, f"{large}: larger than 64 bytes, too large for a spec"),
        (binary, f"{binary}:2: not UTF-8: byte 0xff"),
    ):
        with pytest.raises(SpecError) as caught:
            load_yaml(path, max_bytes=64)
        assert str(caught.value) == rule
        assert caught.value.exit_code == 4


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    document = load_yaml(path)
    assert document.data == {"a": 1, "b": 2}
    assert document.line_of(("b",)) == 2


def test_lines_of_fields_and_of_missing_ones() -> None:
    document = parse_yaml("a: 1\nb:\n  - c: x\n    d: y\n")
    assert document.line_of(("b", 0, "d")) == 4
    assert document.line_of(("b", 0, "missing")) == 3
    assert document.line_of(("nowhere",)) == 1


def test_schema_problems_have_lines_and_suggestions(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(
        "memory:\n  capasity: 3\n  kind: hbn\nparts:\n- capacity: 1\n- capacity: two\n  knd: hbm\nnaem: x\n"
    )
    with pytest.raises(SpecError) as caught:
        validate(load_yaml(path), Outer)
    assert str(caught.value).splitlines() == [
        f"{path}:1: memory.capacity: missing",
        f"{path}:1: name: missing",
        f"{path}:2: memory.capasity: unknown field (did you mean capacity?)",
        f"{path}:3: memory.kind: 'hbn' is not one of hbm, gddr (did you mean hbm?)",
        f"{path}:6: parts.1.capacity: must be a valid integer, unable to parse string as an integer",
        f"{path}:7: parts.1.knd: unknown field (did you mean kind?)",
        f"{path}:8: naem: unknown field (did you mean name?)",
    ]


def test_a_scalar_where_fields_belong_says_so(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text("name: x\nmemory: 80 GB\n")
    with pytest.raises(SpecError) as caught:
        validate(load_yaml(path), Outer)
    assert str(caught.value) == f"{path}:2: memory: must hold fields of its own (`key: value`)"


WORDS = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=12
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), WORDS,
    st.sampled_from(["no", "1e12", "1E5", "12:30", "2026-11-29", "~", "null", "true", "0x1", "- a", "a: b", "#", "&a"]),
)  # fmt: skip
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3))


@given(data=st.dictionaries(WORDS, VALUES, max_size=4))
def test_dump_and_parse_invert_each_other(data: dict[str, object]) -> None:
    text = dump_yaml(data)
    assert parse_yaml(text).data == data
    assert dump_yaml(parse_yaml(text).data) == text
