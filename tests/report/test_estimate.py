from __future__ import annotations

from dataclasses import replace

import pytest

import kvplan
from kvplan.report.as_plain import render_plain
from kvplan.report.estimate import EstimateReport, memory_parts, verdict


def shown(estimate):
    return render_plain(EstimateReport(estimate=estimate).blocks())


def test_a_reader_sees_at_once_that_it_fits(estimate):
    text, tone = verdict(estimate)
    assert text == "FITS: 54.86 GiB of KV cache on each GPU holds 351 sequences of 1,280 tokens."
    assert tone == "good"


def test_what_does_not_fit_says_by_how_much_and_what_would(too_big):
    text = shown(too_big)
    assert "DOES NOT FIT: 3.00 GiB short on each GPU" in text
    assert "Smallest change that fits, then others\n  - --tensor-parallel-size 2" in text
    assert "  - --dtype fp8" in text
    assert "Speed" not in text


def test_a_sequence_that_is_too_long_names_the_longest(too_big):
    capacity = replace(too_big.capacity, limited_by="kv_pool", max_context=900)
    text, _ = verdict(replace(too_big, capacity=capacity))
    assert "for one sequence of 1,280 tokens; the longest that fits is 900 tokens" in text


def test_waiting_requests_are_told(estimate):
    latency = replace(estimate.latency, queued=True, running=351.0)
    asked = replace(estimate.scenario, concurrency=500)
    text, tone = verdict(replace(estimate, latency=latency, scenario=asked))
    assert "351 of 500 run at once" in text
    assert tone == "warning"
    text, _ = verdict(replace(estimate, latency=latency, scenario=replace(asked, dp=2, concurrency=1000)))
    assert text.endswith("in each of 2 replicas; 351 of 500 run at once in each.")


def test_parts_of_the_card_sum_to_it(estimate):
    memory = replace(estimate.memory, unused_bytes=2**30, kv_pool_bytes=estimate.memory.kv_pool_bytes - 2**30)
    shown_bytes = sum(value for _, _, value in memory_parts(memory))
    assert abs(shown_bytes - memory.gpu_bytes) < 2**30 // 100


def test_overfull_cards_say_so(too_big):
    assert any(
        line.split()[-3:-2] == ["3.00"] for line in shown(too_big).splitlines() if "more than the budget" in line
    )


def test_every_part_of_the_answer_is_shown(estimate):
    text = shown(estimate)
    for words in (
        "llama-3-8b on 1 × a100-80g-sxm with vllm@0.21",
        "Memory of one GPU: 79.25 GiB, of which the engine budgets 71.33 GiB",
        "tokens in the KV cache pool",
        "449,424",
        "first token (TTFT)",
        "81.0 – 108 ms",
        "Prefill is bound by compute, decode by memory.",
        "the range is wide",
        "context = input + output",
    ):
        assert words in text


def test_layout_and_active_parameters_are_named_where_they_matter(estimate):
    asked = replace(estimate.scenario, tp=4, dp=2, gpu_count=8)
    model = replace(estimate.model, params_active=3_000_000_000)
    text = shown(replace(estimate, scenario=asked, model=model))
    assert "3.00 B active" in text
    assert "; tp 4, dp 2" in text
    assert "in each of 2 replicas" in text
    assert "Capacity of one replica" in text


def test_explain_is_added_to_json_only_when_asked(estimate, model):
    assert "explain" not in EstimateReport(estimate=estimate).data()
    data = EstimateReport(estimate=estimate, explain=True, model=model).data()
    assert set(data["explain"]) == {"weights", "memory", "cache", "capacity", "times"}


def test_one_that_fits_is_not_all_that_were_asked(estimate):
    asked = replace(estimate.scenario, concurrency=4)
    some = replace(
        estimate, scenario=asked, capacity=replace(estimate.capacity, max_concurrency=1.7, suggestions=("x",))
    )
    text = shown(some)
    assert "FITS, BUT NOT ALL 4 AT FULL LENGTH" in text
    assert "For all 4 at once\n  - x" in text
    none = replace(some, capacity=replace(some.capacity, fits=False, max_concurrency=0.5))
    assert "Smallest change that fits one\n  - x" in shown(none)
    assert "kvplan needs --concurrency 4 --context" in shown(none)


def test_an_engine_that_allocates_what_was_asked_for_is_not_said_to_hold_more_in_it():
    """llama.cpp allocates `-c` tokens: 0.16 GiB hold one sequence of 1,280 tokens, the card has room for many."""
    found = kvplan.estimate("llama-3-8b", "rtx-4090", engine="llama.cpp", dtype="q4_k_m")
    assert found.memory.kv_pool_bytes < 2 * found.memory.sequence_bytes < found.memory.unused_bytes
    text, _ = verdict(found)
    assert "0.16 GiB of KV cache is allocated on each GPU, which has room for " in text
    assert " holds " not in text


@pytest.mark.parametrize(
    ("engine", "words"), [("llama.cpp", "is allocated"), ("tensorrt-llm", "holds"), ("vllm", "holds")]
)
def test_a_pool_that_grows_with_what_was_asked_is_told_apart(engine, words):
    """llama.cpp allocates the slots that were asked for; TensorRT-LLM leaves a tenth free, and its pool is what fits."""
    text, _ = verdict(kvplan.estimate("llama-3.1-8b", "h100-sxm", engine=engine))
    assert words in text
