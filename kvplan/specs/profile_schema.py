"""What a user's own engine profile may say: every value of its kind and within sense, all errors told in one run.

The kinds are those of the dataclasses that the values end in, so a new constant is checked from the day it is added.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from typing import Any, Final

from kvplan.core.efficiency import Efficiency
from kvplan.core.engine import Scheduling
from kvplan.core.memory_rules import Budget, MemoryRules, Paging, StateMode, Tier, Windows
from kvplan.errors import SpecError
from kvplan.specs.document import YamlDocument, closest
from kvplan.specs.yaml import told_together

_MOST: Final = 10**15
#: Of what something is divided by: a millionth of a data sheet is no measurement.
_LEAST: Final = 1e-6
_LARGEST_SPREAD: Final = 100
_ENUMS: Final = {"Budget": Budget, "Paging": Paging, "StateMode": StateMode, "Windows": Windows}
#: Constants that something is divided by.
_POSITIVE: Final = re.compile(
    r"bandwidth|mfu|dequantise|expert_skew|block_tokens|batches_in_flight|max_num_|ratio$|factor$"
)
#: Constants that are a share of something; `fp4_…` and `dequantise_…` are factors.
_SHARE: Final = re.compile(r"utilization$|(?<!fp4)(?<!dequantise)_bandwidth$|(?<!dequantise)_mfu")
_ZERO_IS_NONE: Final = frozenset({"state_pool_ratio", "window_pool_ratio"})
#: Compute formats that have constants of their own; mxfp4 is fp4 in kernels that take its blocks as they are.
_FORMATS: Final = ("bf16", "fp16", "fp32", "tf32", "fp8", "int8", "fp4", "int4", "mxfp4", "default")
_ID: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}\Z")
_NO_FIELDS: Final = "must hold fields of its own (`key: value`)"

Place = tuple[str | int, ...]


def check_profile(document: YamlDocument) -> None:
    """Refuse a profile whose values are of another kind, or make no sense.

    Raises:
        SpecError: All of its errors.
    """
    found = _Check(document)
    found.profile()
    if found.problems:
        raise SpecError(told_together(found.problems))


class _Check:
    """One profile, and what is wrong with it."""

    def __init__(self, document: YamlDocument) -> None:
        self.document = document
        self.problems: list[str] = []

    def refuse(self, place: Place, rule: str) -> None:
        self.problems.append(self.document.problem(place, rule))

    def profile(self) -> None:
        data = self.document.data
        if not isinstance(data.get("id"), str) or not _ID.match(data["id"]):
            self.refuse(("id",), "must be a word of a-z, 0-9, '.', '_' and '-'")
        for name in ("aliases", "vendors", "notes"):
            self.words((name,), data.get(name, []))
        self.texts(("provenance",), data.get("provenance", {}))
        self.section("memory", lambda place, part: self.constants(place, part, MemoryRules))
        self.section("scheduling", lambda place, part: self.constants(place, part, Scheduling))
        self.section("efficiency", self.efficiencies)

    def section(self, name: str, check: Callable[[Place, Mapping[str, Any]], None]) -> None:
        """A section and what its versions change."""
        part = self.mapping((name,), self.document.data.get(name, {}))
        check((name,), {key: value for key, value in part.items() if key != "versions"})
        for version, changes in self.mapping((name, "versions"), part.get("versions", {})).items():
            place = (name, "versions", version)
            if not isinstance(version, str) or not re.search(r"\d", version) or len(version) > len("0.000.000"):
                self.refuse(place, "a version must be quoted text with a number, like '0.19'")
            check(place, self.mapping(place, changes))

    def efficiencies(self, place: Place, part: Mapping[str, Any]) -> None:
        if not isinstance(part.get("inherits", True), bool):
            self.refuse((*place, "inherits"), "must be true or false")
        for name in ("shared", "fallback"):
            inside = (*place, name)
            self.constants(inside, self.mapping(inside, part.get(name, {})), Efficiency)
        families = (*place, "families")
        for family, values in self.mapping(families, part.get("families", {})).items():
            self.constants((*families, family), self.mapping((*families, family), values), Efficiency)

    def constants(self, place: Place, values: Mapping[str, Any], kind: type) -> None:
        """Values of the fields of a dataclass; unknown names are told by who makes it."""
        known: dict[str, Field[Any]] = {field.name: field for field in fields(kind)}
        for name, value in values.items():
            if name in known:
                self.constant((*place, name), value, str(known[name].type))

    def constant(self, place: Place, value: Any, kind: str) -> None:  # noqa: ANN401 - whatever the file holds
        """One value, by the annotation of the field that it ends in."""
        if kind.endswith(" | None"):
            if value is None:
                return
            kind = kind.removesuffix(" | None")
        if kind in _ENUMS:
            known = [member.value for member in _ENUMS[kind]]
            if value not in known:
                self.refuse(place, f"must be one of {', '.join(known)}")
            return
        checks: dict[str, Callable[[Place, Any], None]] = {
            "int": lambda at, given: self.number(at, given, whole=True),
            "float": lambda at, given: self.number(at, given, whole=False),
            "bool": lambda at, given: self.of_type(at, given, bool, "true or false"),
            "str": lambda at, given: self.of_type(at, given, str, "text"),
            "Mapping[str, float]": self.shares,
            "Mapping[str, int]": self.multiples,
            "Mapping[str, str]": self.texts,
            "tuple[str, ...]": self.words,
            "tuple[Tier, ...]": self.tiers,
        }
        checks[kind](place, value)

    def of_type(self, place: Place, value: Any, kind: type, words: str) -> None:  # noqa: ANN401 - as above
        if not isinstance(value, kind):
            self.refuse(place, f"must be {words}")

    def shares(self, place: Place, value: Any) -> None:  # noqa: ANN401 - as above
        for name, share in self.mapping(place, value).items():
            if name not in _FORMATS:
                self.refuse((*place, name), f"is no compute format{closest(str(name), _FORMATS)}")
            self.number((*place, name), share, whole=False)

    def multiples(self, place: Place, value: Any) -> None:  # noqa: ANN401 - as above
        for name, multiple in self.mapping(place, value).items():
            self.number((*place, name), multiple, whole=True)
            if multiple == 0:
                self.refuse((*place, name), "must be above 0")

    def number(self, place: Place, value: Any, *, whole: bool) -> None:  # noqa: ANN401 - as above
        name = next((str(part) for part in reversed(place) if not _is_format(part)), "")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            self.refuse(place, f"must be a {'whole ' if whole else ''}number")
        elif not 0 <= value <= _MOST or not math.isfinite(value):
            self.refuse(place, f"must lie between 0 and {_MOST:.0e}")
        elif value == 0 and _POSITIVE.search(name) and name not in _ZERO_IS_NONE:
            self.refuse(place, "must be above 0")
        elif 0 < value < _LEAST and _POSITIVE.search(name):
            self.refuse(place, f"must be at least {_LEAST:g}")
        elif value > 1 and _SHARE.search(name):
            self.refuse(place, "must not be above 1")
        elif value > _LARGEST_SPREAD and name.startswith("spread"):
            self.refuse(place, f"must not be above {_LARGEST_SPREAD}")

    def tiers(self, place: Place, value: Any) -> None:  # noqa: ANN401 - as above
        if not isinstance(value, list) or not value:
            self.refuse(place, "must be a list of limits by card")
            return
        needed = {field.name for field in fields(Tier)}
        for index, tier in enumerate(value):
            inside = (*place, index)
            given = self.mapping(inside, tier)
            missing = {"min_gib", "max_num_seqs", "max_num_batched_tokens"} - given.keys()
            for name in sorted(missing):
                self.refuse((*inside, name), "missing")
            for name in given:
                if name not in needed:
                    self.refuse((*inside, name), "unknown field")
            self.constants(inside, given, Tier)

    def mapping(self, place: Place, value: Any) -> Mapping[Any, Any]:  # noqa: ANN401 - as above
        if isinstance(value, Mapping):
            return value
        self.refuse(place, _NO_FIELDS)
        return {}

    def texts(self, place: Place, value: Any) -> None:  # noqa: ANN401 - as above
        for name, text in self.mapping(place, value).items():
            if not isinstance(text, str) or not isinstance(name, str):
                self.refuse((*place, name), "must be text")

    def words(self, place: Place, value: Any) -> None:  # noqa: ANN401 - as above
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.refuse(place, "must be a list of texts")


def _is_format(part: str | int) -> bool:
    """True for the key of a compute format, whose constant is the mapping that it stands in."""
    return isinstance(part, int) or part in _FORMATS
