"""Extreme but valid numbers keep every law: the ledger sums, ranges are ordered, all figures are finite, prints are sensible."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.errors import KvplanError, UsageError
from kvplan.report.estimate import EstimateReport
from kvplan.report.render import Form, render
from tests.fuzz.guard import check_shown
from tests.fuzz.reader import estimate_is_sound

#: A mixture of experts of ten million million parameters.
VAST = {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 32768, "num_hidden_layers": 200,
    "num_attention_heads": 256, "num_key_value_heads": 16, "intermediate_size": 16384, "num_local_experts": 32,
    "num_experts_per_tok": 4, "vocab_size": 500_000, "max_position_embeddings": 10_000_000, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}  # fmt: skip
MODELS = ["llama-3-8b", "deepseek-v3", "gpt-oss-120b", "gemma-3-27b", "qwen3-next-80b-a3b", VAST]
COUNTS = st.sampled_from([1, 2, 3, 5, 8, 16, 64, 100, 1000, 12_500, 100_000])
LOADS = st.sampled_from([1, 2, 7, 1000, 10**6, 10**7, 10**9, 10**12])


def test_the_vast_model_is_vast():
    assert 1e13 < kvplan.load_model(VAST).summary()["params_total"] < 1.2e13


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    model=st.sampled_from(MODELS),
    gpu=st.sampled_from(["h200", "l4", "mi300x", "rtx-4090"]),
    engine=st.sampled_from(["vllm", "sglang", "tensorrt-llm", "llama.cpp", "ideal"]),
    tp=COUNTS,
    pp=COUNTS,
    dp=COUNTS,
    ep=st.none() | COUNTS,
    input_tokens=LOADS,
    output_tokens=LOADS,
    concurrency=LOADS,
    memory=st.none() | st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_laws_hold_or_one_line_says_why_not(  # noqa: PLR0917 - hypothesis gives them by name
    model, gpu, engine, tp, pp, dp, ep, input_tokens, output_tokens, concurrency, memory
):
    try:
        answer = kvplan.estimate(
            model,
            gpu,
            engine=engine,
            tp=tp,
            pp=pp if tp * pp < 10**4 else 1,
            dp=dp,
            ep=ep,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            concurrency=concurrency,
            gpu_memory_gib=memory,
            allow_context_overflow=True,
        )
    except KvplanError as error:
        assert error.exit_code == 2  # noqa: PT017 - either an answer or this
        assert len(str(error).splitlines()) == 1  # noqa: PT017
        return
    estimate_is_sound(answer)
    for form in Form:
        text = render(EstimateReport(estimate=answer), form)
        check_shown(text)
        assert "nan" not in text.lower().split()
        assert "inf" not in text.lower().split()


@pytest.mark.parametrize("value", [0, -1.0, 1e300, float("inf"), float("nan")])
def test_memory_beyond_sense_is_refused(value):
    with pytest.raises(KvplanError, match="gpu_memory_gib: must be above 0 and at most"):
        kvplan.estimate("llama-3-8b", "l4", gpu_memory_gib=value)


COUNTS = (
    *("input_tokens", "output_tokens", "concurrency", "context", "benchmark_requests", "source_tokens", "network_ms"),
    *("tp", "pp", "dp", "ep", "dcp", "max_num_seqs", "max_num_batched_tokens", "max_loras", "max_lora_rank"),
)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [10**12 + 1, 10**308, 10**400, float("inf")])
def test_counts_beyond_all_measure_are_refused(name, value):
    """Their products would be infinite times, or integers that no float can hold."""
    with pytest.raises(UsageError, match=rf"{name}: must be at most 1,000,000,000,000\Z"):
        kvplan.estimate("llama-3-8b", "a100-80g", **{name: value})
    with pytest.raises(UsageError, match=rf"{name}: must be at most 1,000,000,000,000\Z"):
        kvplan.sweep("llama-3-8b", "a100-80g", **{name: [value, value]})
