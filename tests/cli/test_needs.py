"""`kvplan needs`: the reverse questions agree with the estimate they reverse."""

import json

import pytest

import kvplan

ARGS = ["needs", "--model", "llama-3.1-8b", "--gpu", "l40s"]


def test_json_has_the_contract_keys(invoke):
    done = invoke(*ARGS, "--concurrency", "8", "--context", "8192", "--json")
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    assert data["schema"] == "kvplan.needs/1"
    assert data["fits"] is True
    assert data["needed_bytes"] <= data["reserved_bytes"]


def test_the_fraction_found_is_the_smallest_that_fits():
    found = kvplan.needs("llama-3.1-8b", "l40s", concurrency=8, context=8192)

    def sequences(fraction):
        return kvplan.needs(
            "llama-3.1-8b", "l40s", concurrency=8, context=8192, gpu_memory_utilization=round(fraction, 2)
        ).fits

    assert sequences(found.gpu_memory_utilization)
    assert not sequences(found.gpu_memory_utilization - 0.01)


def test_the_tensor_parallel_size_found_fits_and_half_of_it_does_not():
    found = kvplan.needs("llama-3.1-70b", "h100", concurrency=16, context=16384)
    assert not found.fits
    assert kvplan.needs("llama-3.1-70b", "h100", tp=found.tp_needed, concurrency=16, context=16384).fits
    assert not kvplan.needs("llama-3.1-70b", "h100", tp=found.tp_needed // 2, concurrency=16, context=16384).fits


def test_the_context_found_is_the_longest_that_fits():
    found = kvplan.needs("llama-3.1-8b", "l40s", concurrency=32, context=8192)
    assert kvplan.needs("llama-3.1-8b", "l40s", concurrency=32, context=found.max_model_len).fits
    assert not kvplan.needs("llama-3.1-8b", "l40s", concurrency=32, context=found.max_model_len + 16).fits


def test_what_does_not_fit_exits_with_3_and_still_answers(invoke):
    done = invoke(*ARGS, "--concurrency", "512", "--context", "131072")
    assert done.exit_code == 3
    assert "DOES NOT FIT" in done.stdout


@pytest.mark.parametrize("option", ["--concurrency", "--context"])
def test_zero_is_refused(invoke, option):
    done = invoke(*ARGS, option, "0")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert option[2:] in done.stderr
