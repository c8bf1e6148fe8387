"""`@dataclass` for frozen records with slots: the standard decorator in all but the time it takes at import.

The standard one compiles six methods from source for every class, about half a millisecond whenever Python starts, and
eighty such classes stand behind one estimate: a sixth of the whole command. Here `__init__` alone is compiled and the
other methods are closures over the names of the fields. Type checkers see the standard decorator, `dataclasses.fields`,
`replace` and `asdict` take the classes as their own, and a test holds that both kinds of class behave alike.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, kw_only: bool = False) -> Callable[[type], type]:
        """Make a frozen dataclass with slots, as `dataclasses.dataclass` does with the same arguments.

        Fields may have defaults, factories, `repr=False` and `kw_only`; what nobody here asks for (ordering, `InitVar`,
        fields outside the comparison) is left to the standard decorator, and so are classes that change.
        """
        if not (frozen and slots):
            return dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only)
        bare = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)
        return lambda cls: _furnished(bare(cls))


_Class = TypeVar("_Class", bound=type)


def _furnished(cls: _Class) -> _Class:
    """Give a bare dataclass its methods."""
    fields = dataclasses.fields(cls)
    shown = tuple(field.name for field in fields if field.repr)
    values = attrgetter("__class__", *(field.name for field in fields))

    def __repr__(self: object) -> str:  # noqa: N807 - becomes the method
        return f"{cls.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def __eq__(self: object, other: object) -> bool:  # noqa: N807 - becomes the method
        return values(self) == values(other) if other.__class__ is cls else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807 - becomes the method
        return hash(values(self))

    methods = {
        "__init__": _init(cls, fields),
        "__repr__": __repr__,
        "__eq__": __eq__,
        "__hash__": __hash__,
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "__getstate__": _state,
        "__setstate__": _restore,
    }
    for name, method in methods.items():
        setattr(cls, name, method)
    return cls


def _init(cls: type, fields: tuple[Field[Any], ...]) -> Callable[..., None]:
    """Compile `__init__`: every slot is filled through its descriptor, which passes the refusing `__setattr__` by."""
    positional = [field for field in fields if not field.kw_only]
    named = [field for field in fields if field.kw_only]
    signature = ["self", *(field.name for field in positional), *["*"][: len(named)], *(field.name for field in named)]
    known: dict[str, Any] = {f"__set_{field.name}": getattr(cls, field.name).__set__ for field in fields}
    body = []
    for field in fields:
        value = field.name
        if field.default_factory is not MISSING:
            known[f"__make_{field.name}"] = field.default_factory
            value = f"__make_{field.name}() if {field.name} is __make_{field.name} else {field.name}"
        body.append(f"__set_{field.name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    source = f"def make({', '.join(known)}):\n def __init__({', '.join(signature)}):\n  "
    source += "\n  ".join(body or ["pass"]) + "\n return __init__"
    made: dict[str, Any] = {}
    exec(source, vars(sys.modules[cls.__module__]), made)  # noqa: S102 - names of fields only, as `dataclasses` does
    init: Any = made["make"](**known)
    init.__defaults__ = tuple(_default(field) for field in positional if _is_optional(field))
    init.__kwdefaults__ = {field.name: _default(field) for field in named if _is_optional(field)}
    init.__annotations__ = {**{field.name: field.type for field in fields}, "return": None}
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    compiled: Callable[..., None] = init
    return compiled


def _is_optional(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _default(field: Field[Any]) -> Any:  # noqa: ANN401 - of any type
    """The default of a parameter; a factory stands for the value that it makes."""
    return field.default if field.default_factory is MISSING else field.default_factory


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:  # noqa: ARG001 - Python's signature
    message = f"cannot assign to field {name!r}"
    raise FrozenInstanceError(message)


def _refuse_to_delete(self: object, name: str) -> NoReturn:  # noqa: ARG001 - Python's signature
    message = f"cannot delete field {name!r}"
    raise FrozenInstanceError(message)


def _state(self: Any) -> list[Any]:  # noqa: ANN401 - an instance of any class made here
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:  # noqa: ANN401 - as above
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
