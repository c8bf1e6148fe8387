"""A grid is many estimates: the same numbers, the full product of its axes, one error per deployment that can't be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.errors import UnknownNameError, UsageError
from kvplan.planning.axes import read_axis
from kvplan.planning.grid import _blocks
from kvplan.planning.sweep_result import STATUS

#: Arrays and plain numbers go through the same operations in the same order; powers may round differently.
SAME = 1e-12

DEPLOYMENTS = [
    {"model": "llama-3-8b", "gpu": "a100-80g"},
    {"model": "llama-3.1-70b", "gpu": "h100-sxm", "tp": 4, "dtype": "fp8", "kv_dtype": "fp8"},
    {"model": "qwen3-30b-a3b", "gpu": "l40s", "tp": 2, "engine": "sglang"},
    {"model": "deepseek-v3", "gpu": "h200", "tp": 8, "ep": 8, "engine": "tensorrt-llm"},
    {"model": "llama-3-8b", "gpu": "l4", "engine": "llama.cpp", "dtype": "q8_0"},
    {"model": "llama-3-8b", "gpu": "l4", "engine": "vllm@0.6"},
    {"model": "gemma-2-9b", "gpu": "h100-sxm", "pp": 2},
]
COUNTS = st.lists(st.integers(1, 3000), min_size=1, max_size=3, unique=True)


def scalar(fields, point):
    """The figures of `estimate` under the names of a sweep."""
    answer = kvplan.estimate(**fields, **point)
    found = {
        "weights_bytes": answer.memory.weights_bytes,
        "activation_bytes": answer.memory.activation_bytes,
        "kv_pool_bytes": answer.memory.kv_pool_bytes,
        "kv_bytes_per_token": answer.memory.kv_bytes_per_token,
        "sequence_bytes": answer.memory.sequence_bytes,
        "max_concurrency": answer.capacity.max_concurrency,
    }
    for part in (answer.latency, answer.throughput):
        for name in ("ttft_ms", "tpot_ms", "e2e_ms", "output_tokens_per_second", "requests_per_second"):
            if hasattr(part, name):
                value = getattr(part, name)
                found.update({name: value.mid, f"{name}_low": value.low, f"{name}_high": value.high})
                found[f"{name}_floor"] = value.floor
    return answer, found


@pytest.mark.parametrize(
    ("name", "values"),
    [("equal_lengths", [True, False]), ("benchmark_requests", [None, 100]), ("source_tokens", [None, 100]), ("context", [None, 4096])],
)  # fmt: skip
def test_switches_and_defaults_are_axes_too(name, values):
    fields = {
        "model": "whisper-large-v3" if name == "source_tokens" else "llama-3-8b",
        "gpu": "l40s",
        "output_tokens": 64,
    }
    sweep = kvplan.sweep(**fields, concurrency=[1, 8], **{name: values}, input_tokens=128)
    for index, concurrency in enumerate([1, 8]):
        for place, value in enumerate(values):
            answer = kvplan.estimate(**fields, concurrency=concurrency, input_tokens=128, **{name: value})
            assert sweep["ttft_ms"][index, place] == pytest.approx(answer.latency.ttft_ms.mid, rel=SAME)
            assert sweep["max_concurrency"][index, place] == answer.capacity.max_concurrency


@pytest.mark.parametrize("fields", DEPLOYMENTS, ids=lambda one: f"{one['model']} {one.get('engine', 'vllm')}")
@settings(max_examples=12, deadline=None)
@given(concurrency=COUNTS, inputs=COUNTS, outputs=COUNTS)
def test_arrays_equal_scalars(fields, concurrency, inputs, outputs):
    sweep = kvplan.sweep(**fields, concurrency=concurrency, input_tokens=inputs, output_tokens=outputs, ranges=True)
    assert sweep.shape == (len(concurrency), len(inputs), len(outputs))
    for index in np.ndindex(*sweep.shape):
        point = {
            "concurrency": concurrency[index[0]],
            "input_tokens": inputs[index[1]],
            "output_tokens": outputs[index[2]],
        }
        answer, expected = scalar(fields, point)
        state = STATUS[sweep.status[index]]
        assert (state in {"ok", "requests queue"}) == answer.capacity.fits
        assert (state == "requests queue") == bool(answer.latency and answer.latency.queued)
        for name, value in expected.items():
            assert math.isclose(sweep[name][index], value, rel_tol=SAME), name
        if answer.latency is None:
            assert math.isnan(sweep["tpot_ms"][index])


def test_axes_keep_the_order_of_the_call_and_lists_of_names_are_axes():
    sweep = kvplan.sweep(["llama-3-8b", "qwen3-8b"], "l40s", concurrency=[1, 2, 3], dtype=["bf16", "fp8"])
    assert list(sweep.axes) == ["model", "concurrency", "dtype"]
    assert sweep["tpot_ms"].shape == (2, 3, 2)
    assert len({row["weights_bytes"] for row in sweep.rows()}) == 4


def test_deployments_that_cannot_be_are_told_with_their_place():
    sweep = kvplan.sweep("llama-3-8b", "a100-80g", tp=[1, 3, 4])
    assert [STATUS[code] for code in sweep.status] == ["ok", "error", "ok"]
    assert sweep.errors[0].startswith("tp=3: ")
    with pytest.raises(UsageError, match="does not divide"):
        kvplan.sweep("llama-3-8b", "a100-80g", tp=[3, 5])


def test_what_does_not_fit_is_no_error_and_a_long_context_says_so():
    sweep = kvplan.sweep("llama-3-8b", ["l4", "a100-80g"], context=[4096, 16384], input_tokens=1000, output_tokens=100)
    assert [[STATUS[c] for c in row] for row in sweep.status] == [["ok", "above the model's context"]] * 2
    heavy = kvplan.sweep("llama-3.1-70b", ["l4", "mi300x"], concurrency=[1])
    assert [STATUS[code[0]] for code in heavy.status] == ["does not fit", "ok"]
    assert heavy.answered == 1


def test_what_ifs_on_the_model_are_axes():
    sweep = kvplan.sweep("llama-3-8b", "a100-80g", axes={"kv_heads": [8, 32]})
    assert list(sweep["kv_bytes_per_token"]) == [131072, 524288]


@given(st.lists(st.integers(1, 400), min_size=1, max_size=4))
def test_blocks_cover_the_grid_once(sizes):
    if math.prod(sizes) > 2_000_000:
        return
    seen = np.zeros(sizes, dtype=np.uint8)
    for block in _blocks(tuple(sizes)):
        assert 0 < seen[block].size <= 16_384
        seen[block] += 1
    assert (seen == 1).all()


def test_a_large_grid_in_blocks_is_the_same_as_its_parts():
    whole = kvplan.sweep("llama-3-8b", "a100-80g", concurrency=range(1, 301), input_tokens=range(10, 5000, 50))
    part = kvplan.sweep("llama-3-8b", "a100-80g", concurrency=[300], input_tokens=range(10, 5000, 50))
    assert np.array_equal(whole["ttft_ms"][299], part["ttft_ms"][0], equal_nan=True)


def test_dataframe_has_a_row_for_each_scenario():
    frame = kvplan.sweep("llama-3-8b", ["l4", "l40s"], concurrency=[1, 2]).to_dataframe()
    assert list(frame["gpu"]) == ["l4", "l4", "l40s", "l40s"]
    assert list(frame["concurrency"]) == [1, 2, 1, 2]
    assert frame["tpot_ms"].notna().all()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("concurrency=1:512:log2", tuple(2**n for n in range(10))),
        ("concurrency=1:100:log10", (1, 10, 100)),
        ("concurrency=1:100:log2", (1, 2, 4, 8, 16, 32, 64, 100)),
        ("context=4096:12288:4096", (4096, 8192, 12288)),
        ("tp=1,2,4", (1, 2, 4)),
        ("concurrency=2:4", (2, 3, 4)),
        ("gpu-memory-utilization=0.5:0.9:lin3", (0.5, 0.7, 0.9)),
        ("kv-cache-dtype=default,fp8", (None, "fp8")),
    ],
)
def test_axes_as_people_write_them(text, values):
    assert read_axis(text)[1] == pytest.approx(values) if "0.5" in text else read_axis(text)[1] == values


@pytest.mark.parametrize("text", ["tp", "tp=", "tp=a", "tp=4:1", "tp=1:9:log1", "tp=1:9:-1", "tp=1:1e9", "tp=1:9:wave"])
def test_axes_that_are_none(text):
    with pytest.raises(UsageError):
        read_axis(text)


def test_an_unknown_axis_names_the_nearest():
    with pytest.raises(UnknownNameError) as error:
        read_axis("concurency=1,2")
    assert "concurrency" in error.value.hint


@pytest.mark.parametrize("fields", [{"concurrency": [0, 1]}, {"input_tokens": [-1]}, {"context": [0, 5]}, {}])
def test_grids_that_make_no_sense(fields):
    with pytest.raises(UsageError):
        kvplan.sweep("llama-3-8b", "a100-80g", **fields)
