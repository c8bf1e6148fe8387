"""Shell completion: names from file stems, nothing parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.specs.registry import Kind


def complete_model(incomplete: str) -> list[str]:
    """Bundled model ids that begin so."""
    return _matching("model", incomplete)


def complete_gpu(incomplete: str) -> list[str]:
    """Bundled GPU ids that begin so."""
    return _matching("gpu", incomplete)


def complete_engine(incomplete: str) -> list[str]:
    """Engine profiles that begin so."""
    return _matching("engine", incomplete)


def _matching(kind: Kind, incomplete: str) -> list[str]:
    from kvplan.specs.registry import ids

    return [name for name in ids(kind) if name.startswith(incomplete.lower())]
