"""What to change on a small card, and that each change does what it says."""

from dataclasses import replace

import pytest

import kvplan
from kvplan.core.layout import Layout
from kvplan.core.ledger import account
from kvplan.core.memory_rules import Budget, Paging
from kvplan.core.reverse import holds
from kvplan.core.suggestions import suggestions
from tests.core.builders import attention, latent, layer, model, question

WEIGHTS, TOKEN = 814_208, 4 * 128
VLLM = {"budget": Budget.TOTAL, "utilization": 0.5, "paging": Paging.GROUPS, "compact_kv_dtype": "fp8"}


def told(rules=None, *, fits=None, **more):
    asked = question(rules, **more)
    found = account(asked)
    one = replace(asked, concurrency=asked.layout.dp)
    return suggestions(asked, found, fits=holds(found, one) if fits is None else fits)


def test_nothing_to_change_where_all_fit():
    assert told(concurrency=1) == ()


def test_a_wider_scheduler_comes_first_and_alone():
    assert told(concurrency=8, max_num_seqs=4) == ("max_num_seqs=8 (now 4): holds 179.4 sequences of 100 tokens",)
    both = told(concurrency=8, max_num_seqs=4, total=WEIGHTS + 7 * 100 * TOKEN)
    assert not any(text.startswith("max_num_seqs") for text in both)


def test_a_higher_fraction_and_a_smaller_cache_each_alone():
    # half of 1,700,000 B leaves 35,792 B, a third short of 100 tokens; 0.51 leaves 52,792 B
    higher, smaller, shorter, *_ = told(VLLM, total=1_700_000)
    assert higher == "utilization=0.51 (now 0.5): holds 1.03 sequences of 100 tokens"
    assert smaller == "kv_dtype=fp8 (now bf16): holds 1.39 sequences of 100 tokens"
    assert shorter == "context=69 (now 100): holds 1 sequence of 69 tokens"


def test_no_higher_fraction_where_none_is_needed_or_known():
    for budget in (Budget.UP_FRONT, Budget.EVERYTHING):
        found = told({**VLLM, "budget": budget}, total=850_000)
        assert not any(text.startswith("utilization") for text in found)
    # half of 1,640,000 B are too few, and so is half of the 60,000 B that the weights leave
    for budget, total, fraction in ((Budget.FREE_BEFORE, 1_640_000, 0.53), (Budget.FREE_AFTER, WEIGHTS + 60_000, 0.86)):
        found = told({**VLLM, "budget": budget}, total=total)
        assert found[0].startswith(f"utilization={fraction} (now 0.5)")


def test_no_smaller_cache_where_it_is_none():
    eight = {**VLLM, "compact_kv_dtype": "bf16"}
    assert not any("kv_dtype" in text for text in told(eight, total=1_700_000))
    assert not any("kv_dtype" in text for text in told({**VLLM, "compact_kv_dtype": None}, total=1_700_000))


def test_both_together_where_neither_is_enough():
    # 0.97 of 900,000 B leaves 58,792 B: 1.15 sequences in bf16, 2.29 in fp8
    asked = {"total": 900_000, "concurrency": 2, "max_num_seqs": 2, "fits": True}
    found = told(VLLM, **asked)
    assert found[0] == "utilization=0.97 with kv_dtype=fp8 (now 0.5 and bf16): holds 2.29 sequences of 100 tokens"
    assert not any("utilization" in text for text in told({**VLLM, "compact_kv_dtype": None}, **asked))
    assert not any("with" in text for text in told(VLLM, total=1_700_000))


def test_smaller_batches_shrink_the_activation_peak():
    # 10 + 2 B per logit: each sequence's 1000 logits cost 12,000 B, 100 more leave no room
    rules = {**VLLM, "utilization": 0.97, "compact_kv_dtype": None, "sampler_bytes_per_logit": 10}
    total = 2_000_000
    found = told(rules, total=total, max_num_seqs=100, max_num_batched_tokens=4096)
    fewer = next(text for text in found if text.startswith("max_num_seqs"))
    assert fewer.startswith("max_num_seqs=64 (now 100)")
    asked = question(rules, total=total, max_num_seqs=64, max_num_batched_tokens=4096)
    assert holds(account(asked), asked)


def test_fewer_sequences_never_below_those_asked():
    rules = {**VLLM, "utilization": 0.97, "compact_kv_dtype": None, "sampler_bytes_per_logit": 10}
    found = told(rules, total=2_700_000, max_num_seqs=120, max_num_batched_tokens=4096, concurrency=100, fits=True)
    assert not any(text.startswith("max_num_seqs") for text in found)


def test_fewer_batched_tokens():
    # residual rows: 10 · tokens · 64 · 2 B; at 2048 tokens 2.6 MB, at 1024 tokens 1.3 MB
    rules = {
        **VLLM,
        "utilization": 0.97,
        "compact_kv_dtype": None,
        "sampler_bytes_per_logit": 1e-9,
        "residual_rows": 10,
    }
    found = told(rules, total=2_500_000, max_num_seqs=1, max_num_batched_tokens=2048)
    assert next(text for text in found if "batched" in text).startswith("max_num_batched_tokens=1024 (now 2048): holds")
    assert not any("batched" in text for text in told({**rules, "sampler_bytes_per_logit": 0}, total=850_000))


def test_a_shorter_context_is_told_where_a_quarter_or_one_sequence_is_left():
    five = {"total": WEIGHTS + 5 * 50 * TOKEN, "concurrency": 5, "max_num_seqs": 5}
    assert "context=50 (now 64): holds 5 sequences of 50 tokens" in told(context=64, **five)
    assert "context=50 (now 200): holds 5 sequences of 50 tokens" in told(context=200, **five)
    assert not any(text.startswith("context=") for text in told(context=201, **five))
    assert "context=1 (now 4000): holds 1 sequence of 1 tokens" in told(total=WEIGHTS + TOKEN, context=4000)


def test_slots_are_told_with_their_sum():
    found = told(
        {"budget": Budget.UP_FRONT}, total=WEIGHTS - 128_000 + 2 * 50 * TOKEN, concurrency=2, max_num_seqs=None
    )
    assert "context=100 (now 200): holds 2 sequences of 50 tokens" in found


def test_more_ranks():
    # two ranks: 407,680 B of weights, 256 B per token
    found = told(total=500_000)
    assert found == (f"tp=2 (now 1): holds {(500_000 - 407_680) / 25_600:.4g} sequences of 100 tokens",)
    assert told(total=250_000)[0].startswith("tp=4 (now 1)")


def test_more_replicas_hold_the_asked_sequences_together():
    # one replica holds 3 of 10: four replicas; a latent cache does not divide over ranks
    spec = model(*[layer(replace(latent(), num_attention_heads=1))] * 2)
    weights = account(question(spec=spec)).weights.bytes
    total = weights + 3 * 100 * 2 * 576 * 2 + 5
    found = told(spec=spec, total=total, concurrency=10, max_num_seqs=10)
    assert found[-1] == "replicas=4 (now 1): each replica holds 3 sequences of 100 tokens"
    two = told(spec=spec, total=total, concurrency=10, max_num_seqs=10, layout=Layout(dp=2))
    assert two[-1] == "replicas=4 (now 2): each replica holds 3 sequences of 100 tokens"
    few = told(spec=spec, total=total, concurrency=10, max_num_seqs=2)
    assert few[-1] == "replicas=5 (now 1): each replica holds 2 sequences of 100 tokens"
    encoder = {"spec": model(layer(attention(causal=False))), "concurrency": 10, "max_num_seqs": 2}
    weights = account(question(spec=encoder["spec"])).weights.bytes
    assert told(total=weights + 1, **encoder)[-1].startswith("max_num_seqs=10 (now 2)")
    for total in (weights, weights - 1):
        assert not any("replicas" in text for text in told(total=total, fits=True, **encoder))


def test_one_sequence_is_the_goal_where_none_fits():
    found = told(VLLM, total=1_700_000, concurrency=50, max_num_seqs=50)
    assert found[0].startswith("utilization=0.51")


@pytest.mark.parametrize("total", [500_000, 860_000, 1_000_000, 1_700_000])
@pytest.mark.parametrize("concurrency", [1, 5])
def test_every_change_holds_what_it_says(total, concurrency):
    for text in told(VLLM, total=total, concurrency=concurrency, max_num_seqs=5):
        held = float(text.split("holds ")[1].split()[0])
        assert held >= 1


@pytest.mark.parametrize("sequences", [512, 256, 128, 64, 32, 16, 8, 4, 2, 1])
def test_the_most_sequences_whose_activations_leave_room(sequences):
    # 12 B per logit, 1000 logits each; the rest is one sequence of 100 tokens
    total = WEIGHTS + 12_000 * sequences + 100 * TOKEN
    found = told({"sampler_bytes_per_logit": 10}, total=total, max_num_seqs=1000, max_num_batched_tokens=4096)
    assert found[0] == f"max_num_seqs={sequences} (now 1000): holds 1 sequence of 100 tokens"


@pytest.mark.parametrize("tokens", [8192, 4096, 2048, 1024, 512])
def test_the_largest_batch_whose_activations_leave_room(tokens):
    rules = {"sampler_bytes_per_logit": 1, "residual_rows": 10}
    total = WEIGHTS + 3 * 1000 + 10 * 64 * 2 * tokens + 100 * TOKEN
    found = told(rules, total=total, max_num_batched_tokens=10**4)
    assert found[0] == f"max_num_batched_tokens={tokens} (now 10000): holds 1 sequence of 100 tokens"


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "expected"),
    [
        ("llama-3.1-70b", "h100-sxm", "vllm", "fp8"),  # 131 GiB in 16 bits, 67 in 8, of 73 that are budgeted
        ("qwen3-32b", "a100-40g", "vllm", "int8"),  # no FP8 units: weights are expanded, which needs none
        ("qwen3-32b", "rtx-4090", "sglang", "int4"),  # 61 GiB, 32 in 8 bits, 18 in 4, of 24
        ("qwen3-32b", "l40s", "llama.cpp", "q8_0"),
    ],
)
def test_smaller_weights_hold_what_the_same_estimate_says(model, gpu, engine, expected):
    refused = kvplan.estimate(model, gpu, engine=engine)
    assert refused.capacity.limited_by == "weights"
    told = next(text for text in refused.capacity.suggestions if "--dtype" in text)
    assert told.startswith(f"weights in {expected}, --dtype {expected} (now bf16): holds ")
    smaller = kvplan.estimate(model, gpu, engine=engine, dtype=expected)
    assert smaller.capacity.fits
    assert f"holds {smaller.capacity.max_concurrency:.4g} sequence" in told


def test_no_smaller_weights_where_they_are_small_already_or_would_not_be_enough():
    quantised = kvplan.estimate("deepseek-v3", "h200")
    tiny = kvplan.estimate("llama-3.1-70b", "l4")
    for refused in (quantised, tiny):
        assert not refused.capacity.fits
        assert not any("--dtype" in text for text in refused.capacity.suggestions)
    queued = kvplan.estimate("llama-3.1-8b", "l4", concurrency=64, context=8192)
    assert queued.capacity.fits
    assert not any("--dtype" in text for text in queued.capacity.suggestions)
