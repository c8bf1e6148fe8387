"""Comparisons: the terms of a change add up to it, and name what really moved."""

from __future__ import annotations

import inspect
import math

import pytest

import kvplan
from kvplan.errors import UsageError
from kvplan.planning.scenarios import FIELDS, crossed, field_value, read_scenario

LOAD = {"concurrency": 48, "input_tokens": 2000, "output_tokens": 300}
PAIRS = [
    {"kv_dtype": ["bf16", "fp8"]},
    {"dtype": ["bf16", "fp8"]},
    {"kv_heads": [32, 8]},
    {"gpu": ["a100-80g", "h100-sxm", "l40s"]},
    {"tp": [1, 2, 4, 8]},
    {"layers": [32, 16]},
    {"engine": ["vllm", "sglang"]},
    {"concurrency": [1, 400]},
]


def compare(vary, **base):
    return kvplan.compare(vary=vary, **{"model": "llama-3-8b", "gpu": "a100-80g", **LOAD, **base})


def cause(scenario, quantity):
    return next(one for one in scenario.causes if one.quantity == quantity)


@pytest.mark.parametrize("vary", PAIRS, ids=lambda vary: next(iter(vary)))
def test_shares_of_the_terms_add_up_to_the_change(vary):
    found = compare(vary)
    first = found.scenarios[0]
    assert not first.causes
    for one in found.scenarios[1:]:
        assert one.status in {"ok", "queues"}
        for part in one.causes:
            total = part.after - part.before if part.kind == "sum" else math.log(part.after / part.before)
            size = max(abs(term.before) + abs(term.after) for term in part.terms) if part.kind == "sum" else 1.0
            assert math.isclose(math.fsum(term.share for term in part.terms), total, abs_tol=1e-9 * size), part.quantity
            if part.quantity in one.values and part.quantity != "ttft_ms":
                assert math.isclose(part.after, one.values[part.quantity], rel_tol=1e-9)
                assert math.isclose(part.before, first.values[part.quantity], rel_tol=1e-9)


def test_grouped_queries_divide_the_cache_by_four_and_the_cause_says_so():
    one = compare({"kv_heads": [32, 8]}).scenarios[1]
    assert one.change["kv_bytes_per_token"] == pytest.approx(-0.75)
    tokens = cause(one, "kv_bytes_per_token")
    assert tokens.terms[0].name == "elements"
    assert tokens.terms[0].after / tokens.terms[0].before == pytest.approx(0.25)
    fits = cause(one, "max_concurrency")
    assert fits.terms[0].name == "sequences_per_byte"
    assert fits.after / fits.before > 4  # the weights shrink too


def test_narrow_cache_moves_bits_and_narrow_weights_move_the_pool():
    cache = compare({"kv_dtype": ["bf16", "fp8"]}).scenarios[1]
    assert cause(cache, "kv_bytes_per_token").terms[0].name == "bits"
    assert cause(cache, "decode_step_ms").terms[0].name == "attention_decode"
    weights = compare({"dtype": ["bf16", "fp8"]}).scenarios[1]
    assert cause(weights, "weights_bytes").terms[0].name == "bytes_per_parameter"
    assert cause(weights, "kv_pool_bytes").terms[0].name == "weights_bytes"


def test_tensor_parallelism_divides_the_share_of_one_gpu_and_adds_messages():
    one = compare({"tp": [1, 2]}).scenarios[1]
    assert cause(one, "weights_bytes").terms[0].name == "share_of_one_gpu"
    assert any(
        term.name == "allreduce" and term.before == 0 < term.after for term in cause(one, "decode_step_ms").terms
    )


def test_cautions_say_what_is_not_predicted():
    assert not compare({"tp": [1, 2]}).cautions
    assert "KV cache" in compare({"kv_dtype": ["bf16", "fp8"]}).cautions[0]
    assert any("narrower weights" in text for text in compare({"dtype": ["bf16", "fp8"]}).cautions)
    bf16_and_fp16 = compare({"model": ["llama-3-8b", "llama-2-7b"]}).cautions
    assert not any("narrower" in text for text in bf16_and_fp16)
    assert any("GQA" in text for text in compare({"kv_heads": [8, 32]}).cautions)


def test_rows_without_an_answer_say_so():
    found = compare({"gpu": ["a100-80g", "l4"], "tp": [1, 3]}, dtype="fp16", input_tokens=6000)
    assert [one.status for one in found.scenarios] == ["ok", "error", "queues", "error"]
    assert "does not divide" in found.scenarios[1].reason
    assert found.scenarios[1].estimate is None
    assert found.answered >= 1


def test_the_first_that_fits_is_the_reference():
    found = compare({"tp": [1, 2, 4, 8]}, model="llama-3.1-70b", gpu="h100-sxm")
    assert found.scenarios[0].status == "does not fit"
    assert found.reference == 1
    assert found.scenarios[3].change["weights_bytes"] == pytest.approx(-0.75, rel=1e-3)
    assert found.scenarios[3].change["tpot_ms"] is not None
    assert not found.scenarios[1].causes
    assert compare({"tp": [1, 2]}).reference == 0


def test_one_scenario_is_compared_with_the_base():
    found = kvplan.compare(["cheap:gpu=l40s,tp=2"], model="llama-3-8b", gpu="a100-80g")
    assert [one.name for one in found.scenarios] == ["base", "cheap"]
    assert found.scenarios[1].values["gpu_count"] == 2


def test_nothing_to_compare():
    with pytest.raises(UsageError, match="nothing to compare"):
        kvplan.compare(model="llama-3-8b", gpu="a100-80g")
    with pytest.raises(UsageError, match="no gpu"):
        kvplan.compare(vary={"tp": [1, 2]}, model="llama-3-8b")


def test_fields_are_those_of_estimate():
    keywords = set(inspect.signature(kvplan.estimate).parameters) - {"overrides"}
    assert keywords == set(FIELDS)


@pytest.mark.parametrize("text", ["tp=2", ":tp=2", "a:tp", "a:tp=x", "a:nonsense=1"])
def test_scenarios_that_are_none(text):
    with pytest.raises(UsageError):
        read_scenario(text)


def test_crossing_keeps_every_combination():
    assert len(crossed({"tp": [1, 2, 4], "dtype": ["bf16", "fp8"]})) == 6


@pytest.mark.parametrize(
    ("name", "value"), [("tp", "2.5"), ("tp", True), ("enforce_eager", "maybe"), ("network_ms", "nan")]
)
def test_values_of_the_wrong_kind(name, value):
    with pytest.raises(UsageError):
        field_value(name, value)


def test_scenarios_without_weights_on_the_card_have_no_factors():
    """All layers on the CPU: no weights and no cache there, and no cause that would divide by them."""
    found = kvplan.compare(
        model="llama-3-8b", gpu="l40s", engine="llama.cpp", n_gpu_layers=0, vary={"kv_dtype": ["bf16", "q8_0"]}
    )
    assert [one.estimate.memory.kv_bytes_per_token for one in found.scenarios] == [0, 0]
    assert "weights_bytes" not in {cause.quantity for one in found.scenarios for cause in one.causes}
