"""What every record of the core promises, whichever module it is in."""

import dataclasses
import importlib
import inspect
import pkgutil
from enum import Enum
from typing import Protocol

import pytest

from kvplan import core
from kvplan.core.results import Dumpable

#: Small pairs that read better without names.
POSITIONAL = {"Amount", "Cost", "Term"}
NO_RECORDS = (Enum, Protocol)


def records():
    """Classes with fields: all but enumerations, protocols and the base of results."""
    for found in pkgutil.iter_modules(core.__path__, "kvplan.core."):
        module = importlib.import_module(found.name)
        for name, kind in inspect.getmembers(module, inspect.isclass):
            written_here = kind.__module__ == module.__name__ and kind is not Dumpable
            if written_here and not any(base in kind.__mro__ for base in NO_RECORDS):
                yield pytest.param(kind, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("kind", list(records()))
def test_records_are_frozen_have_slots_and_are_made_by_name(kind):
    assert dataclasses.is_dataclass(kind)
    assert "__slots__" in vars(kind)
    assert not hasattr(object.__new__(kind), "__dict__")
    first = dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(object.__new__(kind), first, None)
    if kind.__name__ not in POSITIONAL:
        assert all(field.kw_only for field in dataclasses.fields(kind))
        with pytest.raises(TypeError):
            kind(None)
