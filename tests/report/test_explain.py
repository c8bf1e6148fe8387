"""A reader with a pocket calculator: every line of arithmetic is worked out again from its own text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import kvplan
from kvplan import api
from kvplan.core.model import Attention, Indexer, LatentAttention, Layer, Model, Recurrent, group_layers
from kvplan.report.explain import capacity_lines, sections, weight_lines
from kvplan.report.explain_cache import cache_lines
from kvplan.report.layers import cache_formula, layer_numbers, mixer_words

_TOLERANCE = 1e-4  # figures are shown to five digits


def pocket_calculator(side):
    """Work out one side of an equation: numbers, ×, ÷, + and brackets; words are dropped."""
    text = (
        side.split(";")[0].replace(",", "").replace("×", "*").replace("÷", "/").replace("⌊", "int(").replace("⌋", ")")
    )
    text = re.sub(r"\bint\(", "\0", text)
    text = re.sub(r"[A-Za-z_.]*[A-Za-z_]+[A-Za-z_.]*", "", text).replace("\0", "int(")
    return eval(text, {"int": int})  # noqa: S307 - our own text, in a test


@pytest.mark.parametrize(
    "line",
    [
        "32 layers × 8 KV heads × (K 128 + V 128) × 16 bits ÷ 8 = 131,072 bytes per token",
        "⌊58,906,902,528 ÷ (131,072 × 16)⌋ × 16 = 449,424 tokens",
    ],
)
def test_the_pocket_calculator_works(line):
    left, right = line.split(" = ")
    assert pocket_calculator(left) == pocket_calculator(right)


SYMBOLIC = re.compile(
    r"\b(TTFT|queue|requests|concurrency|output|pool|weights|max_concurrency|max_context|log|blocks of|e2e)\b|⌈|≈"
)


def test_every_product_is_right(model, estimate):
    checked = 0
    for section in sections(model, estimate):
        for line in section.lines:
            if " = " not in line:
                continue
            sides = [side for side in line.split(": ", 1)[-1].split(" = ") if not SYMBOLIC.search(side)]
            numbers = [pocket_calculator(side) for side in sides if re.search(r"\d", side) and "GiB" not in side]
            if len(numbers) > 1:
                assert numbers[1:] == pytest.approx([numbers[0]] * (len(numbers) - 1), rel=_TOLERANCE), line
                checked += 1
    assert checked >= 20


def test_weights_name_every_tensor_and_the_sum(model):
    lines = list(weight_lines(model))
    assert "layers 0–31, each:" in lines
    assert "  self_attn.k_proj: 1,024 × 4,096 = 4,194,304" in lines
    assert "parameters, all together = 8,030,261,248" in lines
    assert lines[-1] == "weights = 16,060,522,496 bytes = 14.96 GiB"


def test_tensor_parallel_cache_is_divided_by_kv_heads(model, estimate):
    asked = replace(estimate.scenario, tp=4, gpu_count=4)
    memory = replace(estimate.memory, kv_bytes_per_token=32_768, kv_bytes_per_token_reserved=32_768)
    lines = list(cache_lines(model, replace(estimate, scenario=asked, memory=memory)))
    assert "  on one of 4 tp ranks: 131,072 ÷ 4 = 32,768 bytes" in lines
    assert "one GPU = 32,768 bytes per token" in lines


def latent(*, indexer=None):
    return LatentAttention(
        num_attention_heads=128,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        indexer=indexer,
    )


def of_layers(model, layers):
    groups, order = group_layers(layers)
    return replace(model, groups=groups, layer_order=order)


def test_a_latent_cache_is_copied_not_divided(model, estimate):
    mla = of_layers(model, [Layer(mixers=(latent(),), feed_forward=None)] * 61)
    asked = replace(estimate.scenario, tp=8, gpu_count=8)
    lines = list(cache_lines(mla, replace(estimate, scenario=asked)))
    assert lines[0].endswith("(latent 512 + rotary key 64) × 16 bits ÷ 8 = 70,272 bytes per token")
    assert lines[1] == "  on one of 8 tp ranks: copied on each"


@pytest.mark.parametrize(
    ("name", "gpu", "asked", "lines"),
    [
        ("deepseek-v3", "h200", {"tp": 8, "dcp": 8}, ["3,456 ÷ 8 = 432 bytes, a share of the tokens (dcp)"]),
        (
            "llama-3.1-8b",
            "h100-sxm",
            {"tp": 32, "dcp": 2},
            ["131,072 ÷ 8 ÷ 2 = 8,192 bytes, a share of the tokens (dcp)"],
        ),
        (
            "deepseek-v3",
            "h200",
            {"tp": 8, "speculative_tokens": 1},
            [
                "prediction layers: 1 layer × (latent 512 + rotary key 64) × 16 bits ÷ 8 = 1,152 bytes per token",
                "with the layers that guess = 70,272 + 1,152 = 71,424 bytes per token",
            ],
        ),
        (
            "llama-3.1-8b",
            "h100-sxm",
            {"tp": 2, "draft_model": "llama-3.2-1b"},
            [
                "draft model, layers 0–15: 16 layers × 8 KV heads × (K 64 + V 64) × 16 bits ÷ 8 = 32,768 bytes per token",
                "with the layers that guess = 131,072 + 32,768 = 163,840 bytes per token",
            ],
        ),
    ],
)
def test_what_one_gpu_keeps_is_the_sum_of_its_lines(name, gpu, asked, lines):
    """Decode context parallelism divides by tokens what heads leave copied; whoever guesses caches too."""
    found = kvplan.estimate(name, gpu, **asked)
    deployed = api.deployment_of({"model": name, "gpu": gpu, **asked})
    told = list(cache_lines(deployed.model, found, settings=deployed.settings))
    text = "\n".join(told)
    assert all(line in text for line in lines)
    whole_layers = [line.split("per token")[0] for line in told if " bytes per token" in line and ": " in line]
    kept = [line.split(": ")[1] for line in told if line.startswith("  on one of")]
    ranks = [
        float(mine.split(" = ")[1].split()[0].replace(",", ""))
        if " = " in mine
        else float(line.rsplit(" = ", 1)[1].split()[0].replace(",", ""))
        for line, mine in zip(whole_layers, kept, strict=True)
    ]
    assert sum(ranks) == found.memory.kv_bytes_per_token


def test_windows_and_fixed_states_are_told(model, estimate):
    window = Attention(num_attention_heads=8, num_key_value_heads=4, head_dim=64, v_head_dim=64, window=1024)
    state = Recurrent(kind="gated_delta_net", state_elements=1000, conv_elements=30, num_heads=4)
    mixed = of_layers(model, [Layer(mixers=(mixer,), feed_forward=None) for mixer in (window, state, state)])
    lines = list(cache_lines(mixed, estimate))
    assert lines[0].endswith("; none once 1,024 tokens are held")
    assert lines[-1].endswith("(1,000 × 32 + 30 × 16) bits ÷ 8 = 8,120 bytes per sequence, at any length")


def test_capacity_shows_only_formulas_that_hold(estimate):
    lines = list(capacity_lines(estimate))
    assert "80 × 16 tokens × 131,072 bytes = 167,772,160 bytes" in lines[1]
    assert "= 351.11" in lines[2]
    odd = replace(estimate, memory=replace(estimate.memory, sequence_bytes=123_456_789))
    assert "windows, states and the engine's pages counted" in next(iter(capacity_lines(odd)))


def test_index_keys_count_in_the_formula():
    indexer = Indexer(num_heads=64, head_dim=128, top_k=2048)
    assert cache_formula(latent(indexer=indexer)) == "(latent 512 + rotary key 64 + index key 128)"
    assert "sparse, top 2,048 tokens" in mixer_words(latent(indexer=indexer))


def test_layer_numbers_are_ranges(model):
    a, b = (Layer(mixers=(), feed_forward=None, tensors=model.tensors[:n]) for n in (1, 2))
    mixed: Model = of_layers(model, [a, a, b, a, b, b, a, b, a, b, a])
    assert layer_numbers(mixed, 0) == "0–1, 3, 6, …"
    assert layer_numbers(mixed, 1) == "2, 4–5, 7, …"


def test_an_answer_without_times_explains_memory(model, too_big):
    assert [section.key for section in sections(model, too_big)] == ["weights", "memory", "cache", "capacity"]
    assert [section.key for section in sections(None, too_big)] == ["memory", "capacity"]


def test_network_time_is_left_out_of_the_rate(model, estimate):
    latency = estimate.latency
    parts = {**latency.ttft_parts_ms, "network": 20.0}
    moved = replace(
        latency,
        ttft_parts_ms=parts,
        ttft_ms=replace(latency.ttft_ms, mid=latency.ttft_ms.mid + 20),
        e2e_ms=replace(latency.e2e_ms, mid=latency.e2e_ms.mid + 20),
    )
    lines = [line for section in sections(model, replace(estimate, latency=moved)) for line in section.lines]
    assert any("concurrency ÷ (e2e − network) = 1 ÷ (2,660.0 − 20.000) ms × 1000 = 0.37879" in line for line in lines)
