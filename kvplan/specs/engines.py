"""Engine profiles → `Engine`: names with versions, files and mappings come in; layers of constants are merged in order.

Efficiencies merge from the general to the particular: shared physics, device family, engine, engine's family, engine
version. Memory rules and scheduling are the engine's base constants and the overrides of every version up to the wanted one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from kvplan.core.dataclass import dataclass
from kvplan.core.efficiency import Efficiency
from kvplan.core.engine import Engine, Scheduling
from kvplan.core.memory_rules import Budget, MemoryRules, Paging, StateMode, Tier, Windows
from kvplan.errors import SpecError, UnknownNameError
from kvplan.specs import registry
from kvplan.specs.bundled import load_bundled
from kvplan.specs.document import YamlDocument, closest
from kvplan.specs.files import located, named

_PHYSICS: Final = "_physics.yaml"
_DOTTED = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_WHOLE = re.compile(r"(\d+)()()")
_NAME = re.compile(r"(?P<id>.*?)(?:\s*[@=:]+\s*|\s+v?(?=\d))(?P<version>\S.*)\Z")
_SECTIONS: Final = ("id", "aliases", "vendors", "memory", "scheduling", "efficiency", "provenance", "notes")
_BUNDLES: Final = ("inherits", "shared", "families", "fallback", "versions")

Fields = Mapping[str, Any]
Built = TypeVar("Built")


def engine_versions(engine_id: str) -> tuple[str, ...]:
    """Versions at which an engine's rules change, oldest first."""
    document = _bundled(registry.resolve("engine", engine_id))
    return tuple(_text(version) for version in _versions(document.data))


def load_engine(engine: str | os.PathLike[str] | Mapping[str, Any] | Engine, *, version: str | None = None) -> Engine:
    """An engine at a version.

    Args:
        engine: A name (`vllm`, `vllm@0.19`, `vllm 0.11.2`), the path of a profile, its fields, or an `Engine`.
        version: Version in free text, whose leading number counts; the newest rules not above it are taken, the newest
            of all where there is none. A version outside those that have rules takes the nearest and is kept in
            `asked_version`, which every answer warns about.

    Raises:
        UnknownNameError: No such engine, or a version without a number.
        SpecError: A broken profile.
    """
    if isinstance(engine, Engine):
        return engine
    if isinstance(engine, Mapping):
        return _own(YamlDocument(path="<engine>", data=dict(engine), lines={}), version)
    name = named("engine", engine)
    if name.endswith((".yaml", ".yml")) or ((path := located(name)) is not None and path.is_file()):
        from kvplan.specs.yaml import load_yaml  # noqa: PLC0415 - bundled profiles need no yaml

        return _own(load_yaml(name), version)
    return bundled_engine(name, version=version)


def bundled_engine(name: str, *, version: str | None = None) -> Engine:
    """A bundled engine by its name, with or without a version; no path is looked at.

    Raises:
        UnknownNameError: No such engine, or a version without a number.
    """
    if registry.find("engine", name) is None and (match := _NAME.match(name)):
        name, version = match["id"], match["version"]
    return _load_bundled(registry.resolve("engine", name.strip()), _wanted(version))


def _own(document: YamlDocument, version: str | None) -> Engine:
    """A user's own profile; a test holds the bundled ones to the same rules."""
    from kvplan.specs.profile_schema import check_profile  # noqa: PLC0415 - bundled profiles need no check

    check_profile(document)
    return _build(document, wanted=_wanted(version))


@cache
def _load_bundled(path: Path, wanted: tuple[int, int, int] | None) -> Engine:
    return _build(_bundled(path), wanted=wanted)


@cache
def _bundled(path: Path) -> YamlDocument:
    return load_bundled(path)


def _wanted(version: str | None) -> tuple[int, int, int] | None:
    """Major, minor and patch number of free text; None is the newest."""
    if version is None or not version.strip() or version.strip().lower() in {"latest", "main", "nightly"}:
        return None
    match = _DOTTED.search(version) or _WHOLE.search(version)
    if match is None:
        msg = f"engine version {version!r} has no number"
        raise UnknownNameError(msg, hint="write it like vllm@0.19, or leave it out for the newest rules")
    return int(match[1]), int(match[2] or 0), int(match[3] or 0)


def _text(version: tuple[int, int, int]) -> str:
    major, minor, patch = version
    return f"{major}.{minor}.{patch}" if patch else f"{major}.{minor}"


def _key(version: str) -> tuple[int, int, int]:
    found = _wanted(version)
    return found if found is not None else (0, 0, 0)


def _versions(data: Fields) -> list[tuple[int, int, int]]:
    names = {name for key in ("memory", "scheduling", "efficiency") for name in data.get(key, {}).get("versions", {})}
    return sorted(_key(name) for name in names)


def _build(document: YamlDocument, *, wanted: tuple[int, int, int] | None) -> Engine:
    data = document.data
    _known(document, (), data, _SECTIONS)
    if not isinstance(data.get("id"), str):
        raise SpecError(document.problem(("id",), "missing"))
    for key in ("memory", "scheduling", "efficiency", "provenance"):
        if not isinstance(data.get(key, {}), dict):
            raise SpecError(document.problem((key,), "must hold fields of its own (`key: value`)"))
    known = _versions(data)
    applied = [one for one in known if wanted is None or one <= wanted] or known[:1]
    memory = _effective(data.get("memory", {}), applied)
    efficiencies, fallback = _efficiencies(document, data.get("efficiency", {}), applied)
    notes = tuple(f"{name}: {text}" for name, text in data.get("provenance", {}).items())
    return Engine(
        id=data["id"],
        version=_text(applied[-1]) if applied else None,
        memory=_memory_rules(document, memory),
        scheduling=_made(document, "scheduling", Scheduling, _effective(data.get("scheduling", {}), applied)),
        efficiencies=efficiencies,
        fallback=fallback,
        vendors=tuple(data.get("vendors", ())),
        notes=(*notes, *data.get("notes", ())),
        asked_version=None if wanted is None or _is_known(wanted, known) else _text(wanted),
    )


def _is_known(wanted: tuple[int, int, int], known: list[tuple[int, int, int]]) -> bool:
    """False for a version before the first that has rules, or of a later minor release than the last."""
    return not known or (known[0] <= wanted and wanted[:2] <= known[-1][:2])


def _effective(section: Fields, applied: list[tuple[int, int, int]]) -> dict[str, Any]:
    """Base constants with the overrides of all applied versions, oldest first."""
    merged = {key: value for key, value in section.items() if key != "versions"}
    for overrides in _overrides(section, applied):
        merged = _merge(merged, overrides)
    return merged


def _overrides(section: Fields, applied: list[tuple[int, int, int]]) -> Iterator[Fields]:
    by_version = {_key(name): overrides for name, overrides in section.get("versions", {}).items()}
    for version in applied:
        if by_version.get(version):
            yield by_version[version]


def _merge(base: Fields, over: Fields) -> dict[str, Any]:
    """Fields of `over` on top of those of `base`, mappings merged inside."""
    merged = dict(base)
    for key, value in over.items():
        inside = merged.get(key)
        merged[key] = _merge(inside, value) if isinstance(inside, Mapping) and isinstance(value, Mapping) else value
    return merged


def _memory_rules(document: YamlDocument, section: Fields) -> MemoryRules:
    converted: dict[str, Any] = dict(section)
    try:
        for name, kind in (("budget", Budget), ("paging", Paging), ("state_mode", StateMode), ("windows", Windows)):
            if name in converted:
                converted[name] = kind(converted[name])
        if "tiers" in converted:
            converted["tiers"] = tuple(Tier(**tier) for tier in converted["tiers"])
        for name in ("small_tier_cards", "compact_dtypes"):
            if name in converted:
                converted[name] = tuple(converted[name])
    except (TypeError, ValueError) as error:
        raise SpecError(document.problem(("memory",), str(error))) from None
    return _made(document, "memory", MemoryRules, converted)


def _made(document: YamlDocument, section: str, kind: type[Built], values: Fields) -> Built:
    names = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]
    _known(document, (section,), values, names)
    return kind(**values)


def _known(document: YamlDocument, place: tuple[str, ...], values: Fields, names: tuple[str, ...]) -> None:
    unknown = [name for name in values if name not in names]
    if unknown:
        problems = [document.problem((*place, name), f"unknown field{closest(str(name), names)}") for name in unknown]
        raise SpecError("\n".join(problems))


@dataclass(frozen=True, slots=True)
class _Layers:
    """One file's efficiencies: for all devices, by family, and what is laid over for unmeasured ones."""

    shared: Fields
    families: Mapping[str, Fields]
    fallback: Fields


def _layers(document: YamlDocument, place: tuple[str, ...], section: Fields) -> _Layers:
    """One section's layers, every name checked where it is written."""
    names = tuple(field.name for field in fields(Efficiency))
    found = _Layers(section.get("shared", {}), section.get("families", {}), section.get("fallback", {}))
    _known(document, (*place, "shared"), found.shared, names)
    _known(document, (*place, "fallback"), found.fallback, names)
    for family, values in found.families.items():
        _known(document, (*place, "families", family), values, names)
    return found


@cache
def _physics() -> _Layers:
    document = _bundled(registry.spec_folder("engine") / _PHYSICS)
    return _layers(document, (), document.data)


def _efficiencies(
    document: YamlDocument, section: Fields, applied: list[tuple[int, int, int]]
) -> tuple[dict[str, Efficiency], Efficiency]:
    _known(document, ("efficiency",), section, _BUNDLES)
    own = {key: value for key, value in section.items() if key != "versions"}
    stack = [_physics()] if own.get("inherits", True) else []
    stack.append(_layers(document, ("efficiency",), own))
    stack += [_layers(document, ("efficiency", "versions"), one) for one in _overrides(section, applied)]
    families = dict.fromkeys(name for layers in stack for name in layers.families)

    def merged(family: str | None) -> Efficiency:
        values: Fields = {}
        for layers in stack:
            values = _merge(values, layers.shared)
            values = _merge(values, layers.families.get(family, {}) if family is not None else layers.fallback)
        return Efficiency(**values)

    return {family: merged(family) for family in families}, merged(None)
