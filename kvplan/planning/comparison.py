"""The answer of `compare`: scenarios side by side, what changed against the first that fits, and the terms that made it change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kvplan.core.dataclass import dataclass
from kvplan.core.results import Dumpable, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Term(Dumpable):
    """One term of a quantity, before (the reference) and after.

    Attributes:
        name: What it is (`weights`, `feed_forward_gemm`, `kv_pool_bytes`, …).
        before, after: Its value in each, in the quantity's unit for a sum, in its own for a product.
        share: What it adds to the change: its difference in a sum, the logarithm of its factor in a product. Shares
            add up to the change of the quantity.
        bytes_factor: How much more memory traffic (or messages) it moves, or None.
        flops_factor: How much more arithmetic it does, or None.
        bound: What binds it after the change, or None.
    """

    name: str
    before: float
    after: float
    share: float
    bytes_factor: float | None = None
    flops_factor: float | None = None
    bound: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause(Dumpable):
    """Why one quantity changed.

    Attributes:
        quantity: Its name.
        kind: `sum` or `product` of the terms.
        before, after: Its values.
        terms: Largest share first.
    """

    quantity: str
    kind: str
    before: float
    after: float
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared(Dumpable):
    """One scenario of a comparison.

    Attributes:
        name: What it is called.
        changes: Fields that differ from the base.
        status: `ok`, `queues` (fits, but requests wait), `does not fit` or `error`.
        reason: Why there is no answer, or None.
        estimate: The whole answer, or None.
        values: Quantity → value, None where there is none.
        change: Quantity → change against the reference as a fraction, None where either is missing.
        causes: Why quantities differ from the reference's.
    """

    name: str
    changes: Mapping[str, Any]
    status: str
    reason: str | None
    estimate: Estimate | None
    values: Mapping[str, float | None]
    change: Mapping[str, float | None]
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Dumpable):
    """Scenarios side by side; the first that fits is what the others are compared with.

    Attributes:
        base: Fields that all share.
        scenarios: The scenarios in order.
        cautions: What the figures do not show (quality).
        reference: Place of the scenario that the others are compared with: the first that fits, or 0.
    """

    schema: ClassVar[str | None] = "kvplan.compare/1"
    base: Mapping[str, Any]
    scenarios: tuple[Compared, ...]
    cautions: tuple[str, ...]
    reference: int = 0

    @property
    def answered(self) -> int:
        """Scenarios that fit."""
        return sum(one.status in {"ok", "queues"} for one in self.scenarios)
