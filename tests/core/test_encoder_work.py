"""Encoders and cross attention: who multiplies what, how often, and which tokens see each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.core.efficiency import IDEAL
from kvplan.core.layout import Layout
from kvplan.core.model import CrossAttention, LayerGroup
from kvplan.core.roofline import Machine
from kvplan.core.serving import Load, steady_state
from kvplan.core.step import StepLoad, step_terms
from kvplan.core.work import compile_work
from tests.core.builders import attention, gpu, layer, model

SELF = attention()
CROSS = CrossAttention(
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=16,
    tensors=tuple(replace(t, of_source=t.name.endswith(("k_proj", "v_proj"))) for t in SELF.tensors),
)
DECODER = replace(layer(), mixers=(SELF, CROSS))
PAIR = model(
    DECODER, encoder_groups=(LayerGroup(count=3, layer=layer(attention(causal=False))),), max_source_tokens=1500
)
WORK = compile_work(PAIR, Layout(), kv_dtype="bf16")
MACHINE = Machine(gpu=gpu(), efficiency=IDEAL)
ALL, Q_AND_O, K_AND_V, MLP = 20480, 16384, 4096, 49152


def flops(load, op):
    return sum(term.cost.flops for term in step_terms(WORK, load, MACHINE) if term.op == op)


def test_decoding_never_multiplies_the_source_again():
    """Self attention 20,480 elements and Q and O of cross attention 16,384: K and V of the source lie in the cache."""
    load = StepLoad(sequences=3, context_start=10, context_end=10, source_tokens=1500)
    assert flops(load, "attention_gemm") == 2 * 3 * (ALL + Q_AND_O)
    assert sum(t.cost.bytes for t in step_terms(WORK, load, MACHINE) if t.op == "attention_gemm") == pytest.approx(
        2 * (ALL + Q_AND_O), rel=0.08
    )


def test_a_prompt_brings_its_source_through_the_encoder_once():
    """Pairs: 7 causal tokens, 7 × 1500 across, 1500² in each of three encoder layers, at 4 · 8 heads · 16 FLOPs."""
    load = StepLoad(
        sequences=0, context_start=0, context_end=0, prefill_tokens=7, prefill_sequences=1, source_tokens=1500
    )
    encoder = 3 * 1500 * (ALL + MLP)
    assert flops(load, "attention_gemm") + flops(load, "feed_forward_gemm") == 2 * (
        7 * (ALL + Q_AND_O + MLP) + 1500 * K_AND_V + encoder
    )
    assert flops(load, "attention_prefill") == 4 * 8 * 16 * (7 * 3.5 + 7 * 1500 + 3 * 1500**2)


@given(st.integers(1, 64), st.integers(2, 128))
def test_the_encoder_takes_time_from_the_sequences_that_run(running, output):
    """Each token of the others waits for its share of their encoder runs, so that a longer source never hurts less."""

    def asked(source):
        load = Load(
            input_tokens=4, output_tokens=output, concurrency=running, capacity=64, max_num_seqs=64, budget_tokens=512,
            source_tokens=source,
        )  # fmt: skip
        return steady_state(WORK, load, MACHINE)

    short, long = asked(100), asked(1500)
    assert long.ttft_s > short.ttft_s
    assert long.tpot_s > short.tpot_s or running == 1
    assert long.requests_per_s < short.requests_per_s


@pytest.mark.parametrize(("window", "seen"), [(None, 600), (128, 128), (900, 600)])
def test_tokens_of_an_encoder_see_each_other_both_ways(window, seen):
    work = compile_work(model(layer(attention(causal=False, window=window))), Layout(), kv_dtype="bf16")
    load = StepLoad(sequences=0, context_start=0, context_end=0, prefill_tokens=1200, prefill_sequences=2)
    found = sum(t.cost.flops for t in step_terms(work, load, MACHINE) if t.op == "attention_prefill")
    assert found == 4 * 8 * 16 * 1200 * seen


@pytest.mark.parametrize("tokens", [500, 2000, 8000])
@pytest.mark.parametrize("batch", [None, 1024])
def test_an_encoder_is_given_its_prompt_whole(tokens, batch):
    """Pairs of BGE-M3: 24 layers, 16 heads of 64, every token with every other one, whatever the batch."""

    def pairs(concurrency):
        answer = kvplan.estimate(
            "bge-m3", "a100-80g", input_tokens=tokens, output_tokens=1, concurrency=concurrency, max_num_batched_tokens=batch
        )  # fmt: skip
        return sum(row.flops for row in answer.breakdown if row.op == "attention_prefill") / (24 * 4 * 16 * 64)

    assert pairs(1) == tokens**2
    assert pairs(32) >= tokens**2
