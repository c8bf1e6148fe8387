"""Shell completion: names from file stems and tables of formats, nothing parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.specs.registry import Kind


def complete_model(incomplete: str) -> list[str]:
    """Bundled model ids that begin so."""
    return _bundled("model", incomplete)


def complete_gpu(incomplete: str) -> list[str]:
    """Bundled GPU ids that begin so."""
    return _bundled("gpu", incomplete)


def complete_engine(incomplete: str) -> list[str]:
    """Engine profiles that begin so."""
    return _bundled("engine", incomplete)


def complete_dtype(incomplete: str) -> list[str]:
    """Weight formats that begin so."""
    from kvplan.core.precision import DTYPES

    return _matching(DTYPES, incomplete)


def complete_kv_dtype(incomplete: str) -> list[str]:
    """Cache formats that begin so."""
    from kvplan.core.dtypes import KV_BITS

    return _matching(KV_BITS, incomplete)


def each(complete: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """The completion of the last name in a list with commas."""

    def run(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in complete(last)]

    return run


def _bundled(kind: Kind, incomplete: str) -> list[str]:
    from kvplan.specs.registry import ids

    return _matching(ids(kind), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete.lower())]
