"""The parameters between specs and measurements: what they are where nobody measured, and which format has which."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kvplan.core.efficiency import IDEAL, Efficiency

#: Experts are drawn by a negative binomial of this shape; uniform routing is its limit at infinity.
SHAPES = {"expert_skew"}
#: Both say how the floor counts, none how far a machine stays from it.
OF_THE_FLOOR = {"overlap", "half_accumulate"}


def plain(efficiency: Efficiency) -> dict[str, object]:
    """Fields that are one number or a truth value."""
    values = {field.name: getattr(efficiency, field.name) for field in fields(Efficiency)}
    return {name: value for name, value in values.items() if name not in {"gemm_mfu", "expert_mfu"} | SHAPES}


@pytest.mark.parametrize("efficiency", [Efficiency(), IDEAL])
def test_what_no_profile_states_costs_nothing(efficiency):
    """Shares of a peak are 1; times, traffic, padding, exponents and spreads are 0."""
    for name, value in plain(efficiency).items():
        if name in OF_THE_FLOOR:
            assert value is (efficiency is IDEAL), name
        else:
            assert value == (1 if name.endswith("_bandwidth") or "_mfu" in name else 0), name


def test_the_shape_of_uniform_routing_is_as_good_as_infinite():
    """`(1 + m / r)^−r` differs from `e^−m` by the part `m² / 2r`: nobody sees it below 10⁻⁶."""
    assert 1 / (2 * Efficiency().expert_skew) < 1e-6


def test_each_format_has_its_share_of_the_peak():
    efficiency = Efficiency(
        gemm_mfu={"default": 0.7, "fp8": 0.6}, expert_mfu={"default": 0.5, "fp8": 0.4, "mxfp4": 0.3}
    )
    assert [efficiency.mfu(name) for name in ("bf16", "fp8", "mxfp4")] == [0.7, 0.6, 0.7]
    assert [efficiency.grouped_mfu(name) for name in ("bf16", "fp8", "mxfp4")] == [0.5, 0.4, 0.3]
    assert Efficiency(gemm_mfu={"fp8": 0.6}).mfu("bf16") == 1
    assert Efficiency(expert_mfu={"fp8": 0.6}).grouped_mfu("bf16") == 1
