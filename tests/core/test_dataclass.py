"""The house's decorator beside the standard one: every behaviour that a reader of `@dataclass` counts on."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from kvplan.core import model, results
from kvplan.core.dataclass import dataclass
from kvplan.core.layout import Layout


class Base:
    """What results inherit from."""

    __slots__ = ()
    schema: ClassVar[str | None] = None


class Written(Base):
    """One class body for both decorators.

    Attributes:
        bytes: A name that Python knows too.
    """

    schema: ClassVar[str | None] = "x/1"
    bytes: int
    ratio: float = 0.5
    names: tuple[str, ...] = ()
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    hidden: str = dataclasses.field(default="h", repr=False)

    def __post_init__(self):
        if self.bytes < 0:
            message = "bytes"
            raise ValueError(message)

    def twice(self):
        return 2 * self.bytes


def body():
    """A new class with the same body: a decorator takes its annotations and defaults away."""
    return type("Written", (Base,), {k: v for k, v in vars(Written).items() if k not in {"__dict__", "__weakref__"}})


House = dataclass(frozen=True, slots=True, kw_only=True)(body())
Standard = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(body())
#: Pickle looks for classes under their own names.
House.__qualname__, Standard.__qualname__ = "House", "Standard"
BOTH = pytest.mark.parametrize("kind", [House, Standard], ids=["house", "standard"])


@BOTH
def test_values_defaults_and_factories(kind):
    one, other = kind(bytes=3), kind(bytes=3, ratio=2.0, fields={"a": 1})
    assert (one.bytes, one.ratio, one.names, one.fields, one.hidden) == (3, 0.5, (), {}, "h")
    assert (other.ratio, other.fields, other.twice(), kind.schema) == (2.0, {"a": 1}, 6, "x/1")
    assert one.fields is not kind(bytes=3).fields


@BOTH
def test_frozen_with_slots_only(kind):
    one = kind(bytes=3)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'bytes'"):
        one.bytes = 4
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'bytes'"):
        del one.bytes
    with pytest.raises((AttributeError, TypeError)):  # the standard one trips over its own `super()` here
        one.new = 4
    assert not hasattr(one, "__dict__")
    assert one.bytes == 3


@BOTH
def test_wrong_arguments_are_refused(kind):
    for call in (kind, lambda: kind(3), lambda: kind(bytes=3, new=1)):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            call()
    with pytest.raises(ValueError, match="bytes"):
        kind(bytes=-1)


@BOTH
def test_equal_and_hashed_by_value_and_class(kind):
    one, same, other = kind(bytes=3, fields=()), kind(bytes=3, fields=()), kind(bytes=4, fields=())
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != (3, 0.5, (), (), "h")
    assert one not in {House(bytes=4, fields=()), Standard(bytes=4, fields=())}
    assert House(bytes=3) != Standard(bytes=3)
    with pytest.raises(TypeError, match="unhashable"):
        hash(kind(bytes=3, fields={}))


@BOTH
def test_tools_of_the_standard_library_take_it(kind):
    one = kind(bytes=3, names=("a",))
    assert dataclasses.replace(one, bytes=4) == kind(bytes=4, names=("a",))
    with pytest.raises(ValueError, match="bytes"):
        dataclasses.replace(one, bytes=-4)
    assert dataclasses.asdict(one) == {"bytes": 3, "ratio": 0.5, "names": ("a",), "fields": {}, "hidden": "h"}
    assert copy.copy(one) == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one  # noqa: S301 - our own bytes


def test_both_look_alike_from_outside():
    assert repr(House(bytes=3)).replace("House", "") == repr(Standard(bytes=3)).replace("Standard", "")
    assert repr(House(bytes=3)) == "House(bytes=3, ratio=0.5, names=(), fields={})"
    assert House.__doc__ == Standard.__doc__
    assert House.__slots__ == Standard.__slots__
    assert typing.get_type_hints(House.__init__) == typing.get_type_hints(Standard.__init__)
    assert [
        (p.name, p.kind, p.annotation, p.default is p.empty) for p in inspect.signature(House).parameters.values()
    ] == [(p.name, p.kind, p.annotation, p.default is p.empty) for p in inspect.signature(Standard).parameters.values()]


def test_by_position_without_kw_only():
    @dataclass(frozen=True, slots=True)
    class Pair:
        first: int
        second: int = 2

        def __add__(self, other):
            return Pair(self.first + other.first, self.second + other.second)

    assert Pair(1) + Pair(1, 3) == Pair(first=2, second=5)
    match Pair(1):
        case Pair(first, second):
            assert (first, second) == (1, 2)


def test_a_class_without_fields():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Nothing:
        """No fields."""

    assert Nothing() == Nothing()
    assert repr(Nothing()).endswith("Nothing()")
    assert len({Nothing(), Nothing()}) == 1


def test_a_class_that_changes_is_the_standard_one():
    @dataclass(frozen=False, slots=True, kw_only=True)
    class Counter:
        count: int = 0

    counter = Counter()
    counter.count += 1
    assert counter == Counter(count=1)


@pytest.mark.parametrize("module", [model, results], ids=lambda module: module.__name__)
def test_the_house_uses_it(module):
    """Each class of a module that start-up loads costs one compiled method, not six."""
    kinds = [
        kind for kind in vars(module).values() if dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
    ]
    assert kinds
    assert all(kind.__setattr__ is Layout.__setattr__ for kind in kinds)
