"""Engine profiles for people: one shown in full, many as a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvplan.core.dataclass import dataclass
from kvplan.core.engine import Engine
from kvplan.report.blocks import Block, Bullets, Line, Table, flat, plain_data
from kvplan.report.specs import NONE_FOUND
from kvplan.report.text import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """One engine at one version: its rules and how near it comes to the roofline."""

    engine: Engine

    def data(self) -> dict[str, Any]:
        """A `kvplan.engine/1` document."""
        return {"schema": "kvplan.engine/1", "name": self.engine.name, **plain_data(self.engine)}

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One flat row."""
        return (flat(self.data()),)

    def blocks(self) -> Sequence[Block]:
        """Memory rules, scheduling, efficiencies by family, provenance."""
        return list(_engine_blocks(self.engine))


def _engine_blocks(engine: Engine) -> Iterator[Block]:
    yield Line(text=engine.name, tone="title")
    if engine.vendors:
        yield Line(text=f"runs on devices of {', '.join(engine.vendors)}", tone="quiet")
    for title, part in (("Memory rules", engine.memory), ("Scheduling", engine.scheduling)):
        plain = flat(plain_data(part))
        if plain:
            rows = tuple((name, _value(value)) for name, value in plain.items() if value is not None)
            yield Table(title=title, columns=("", ""), rows=rows, left=1, open_end=True)
    measured = {name: value for name, value in engine.efficiencies.items() if value.measured}
    families = {**measured, "(any other)": engine.fallback}
    plain = {name: flat(plain_data(value)) for name, value in families.items()}
    fields = list(dict.fromkeys(name for row in plain.values() for name in row))
    rows = tuple((name, *(_value(row.get(name)) for row in plain.values())) for name in fields)
    yield Table(
        title="Efficiencies of measured device families (--json has the inherited ones)",
        columns=("", *plain),
        rows=rows,
    )
    if engine.notes:
        yield Bullets(title="Provenance", items=engine.notes)


def _value(value: Any) -> str:  # noqa: ANN401 - any YAML scalar
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return whole(value)
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineListReport:
    """Engine profiles, one line each.

    Attributes:
        engines: The newest profile of each.
        versions: Engine id → versions at which its rules change, oldest first.
    """

    engines: tuple[Engine, ...]
    versions: Mapping[str, tuple[str, ...]]

    def data(self) -> list[dict[str, Any]]:
        """Names, versions and the device families that the newest was measured on."""
        return [
            {
                "id": engine.id,
                "name": engine.name,
                "version": engine.version,
                "versions": list(self.versions.get(engine.id, ())),
                "measured": sorted(name for name, value in engine.efficiencies.items() if value.measured),
            }
            for engine in self.engines
        ]

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One row per profile."""
        return [flat(item) for item in self.data()]

    def blocks(self) -> Sequence[Block]:
        """A table."""
        if not self.engines:
            return (NONE_FOUND,)
        rows = tuple((item["id"], ", ".join(item["measured"]), ", ".join(item["versions"])) for item in self.data())
        columns = ("engine", "measured on", "versions whose rules differ")
        note = "ENGINE@VERSION takes the newest rules not above that version; without one, the newest of all."
        return (Table(title="", columns=columns, rows=rows, left=3, open_end=True), Line(text=note, tone="quiet"))
