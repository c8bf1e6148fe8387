"""What a plan takes for granted and what it doubts, on small cards."""

from dataclasses import replace

import pytest

from kvplan.core.layout import Layout
from kvplan.core.ledger import account
from kvplan.core.memory_notes import assumptions, warnings
from kvplan.core.memory_rules import Budget, Paging, StateMode, Tier
from kvplan.core.model import CompressedAttention
from tests.core.builders import attention, experts, gpu, latent, layer, model, question, recurrent

TOTAL = {"budget": Budget.TOTAL, "utilization": 0.9, "paging": Paging.GROUPS, "block_tokens": 16}
HYBRID = model(layer(), layer(recurrent()))
SMALL_LATENT = replace(latent(), num_attention_heads=8)


def told(*args, **more):
    asked = question(*args, **more)
    return assumptions(asked, account(asked)), warnings(asked, account(asked))


def test_the_floor_assumes_nothing():
    assert told({}, max_num_seqs=None) == ((), ())


def test_defaults_that_the_engine_chose():
    assumed, _ = told(TOTAL, max_num_seqs=None, max_num_batched_tokens=None)
    assert assumed == (
        "max_num_seqs 1048576: the default of engine@1 on this card",
        "max_num_batched_tokens 1048576: the default of engine@1 on this card",
        "memory fraction 0.9: the default of engine@1",
    )
    assert told(TOTAL, gpu_memory_utilization=0.5)[0] == ()


def test_slots_of_engines_that_allocate_up_front():
    rules = {"budget": Budget.UP_FRONT, "flags": {"context": "-c {}", "max_num_seqs": "-np {}"}}
    assert told(rules, max_num_seqs=None, concurrency=3, context=100)[0] == (
        "3 slots for the asked sequences: -c 300 -np 3",
    )
    batched = told(rules, max_num_batched_tokens=None)[0]
    assert batched == ("max_num_batched_tokens 1048576: the default of engine@1 on this card",)


def test_states_are_kept_as_the_engine_does():
    words = "recurrent state kept as `align` (prefix caching of hybrids): the default of engine@1"
    rules = {**TOTAL, "state_mode": StateMode.ALIGN}
    assert words in told(rules, spec=HYBRID)[0]
    assert words not in told(rules, spec=HYBRID, state_mode=StateMode.ALIGN)[0]
    assert words not in told(rules)[0]
    assert words not in told({**rules, "paging": Paging.PER_LAYER}, spec=HYBRID)[0]


def test_headroom_outside_the_fraction():
    assumed, _ = told({**TOTAL, "budget": Budget.FREE_BEFORE, "utilization": 0.8})
    assert assumed[-1] == "activations and graphs live in the 20% headroom outside the fraction"
    assert not any("headroom" in text for text in told(TOTAL)[0])
    rules = {**TOTAL, "budget": Budget.FREE_BEFORE, "utilization": 0.8, "amd_long_context_factor": 0.5}
    assumed, _ = told(rules, card=gpu(vendor="AMD"), spec=model(max_context=10_000))
    assert assumed[-1] == "activations and graphs live in the 60% headroom outside the fraction"


def test_state_slots_of_separate_pools():
    rules = {"paging": Paging.POOLS, "state_pool_ratio": 0.5}
    slots = account(question(rules, spec=HYBRID)).pool.parts[0].units
    assert told(rules, spec=HYBRID, concurrency=slots // 3)[1] == ()
    assert told(rules, spec=HYBRID, concurrency=slots // 3 + 1)[1][0] == (
        f"with its prefix cache on, the engine keeps three to five state slots for each sequence: of {slots} slots "
        f"{slots // 5} to {slots // 3} sequences run at once"
    )
    assert not any("slots" in text for text in told(rules, spec=HYBRID, total=100, concurrency=9)[1])
    assert not any("slots" in text for text in told(rules, concurrency=10**6)[1])


def test_rules_that_rest_on_little():
    assert told({**TOTAL, "confidence": "low"})[1] == (
        "the memory rules of engine@1 were not checked against start-up logs",
    )
    assert told({**TOTAL, "confidence": "low", "caution": "fit two logs"})[1] == (
        "the memory rules of engine@1 fit two logs",
    )
    assert told({**TOTAL, "caution": "fit two logs"})[1] == ()
    shared = gpu(unified_memory=True)
    assert "shared with the CPU" in told({**TOTAL, "runtime_unified_bytes": 5}, card=shared)[1][0]
    assert told(TOTAL, card=shared)[1] == ()
    assert told({**TOTAL, "runtime_unified_bytes": 5})[1] == ()


def test_experts_on_blackwell():
    sparse = {"spec": model(layer(attention(), experts())), "card": gpu(family="blackwell-dc")}
    inside = {**TOTAL, "graph_inside": True}
    assert "mixture of experts on Blackwell" in told(inside, **sparse)[1][0]
    assert "mixture of experts on Blackwell" in told(inside, **{**sparse, "card": gpu(family="gb10")})[1][0]
    assert told(TOTAL, **sparse)[1] == ()
    assert told(inside, **sparse, enforce_eager=True)[1] == ()
    assert told(inside, **{**sparse, "card": gpu()})[1] == ()
    assert told(inside, card=gpu(family="blackwell-dc"))[1] == ()


def test_compressed_attention_and_stages():
    entries = CompressedAttention(num_attention_heads=8, head_dim=16, window=128, ratio=4)
    spec = model(layer(entries), layer(replace(entries, ratio=128)))
    assert told(TOTAL, spec=spec, context=1000)[1][0].startswith("compressed attention: workspaces")
    assert told({}, spec=spec)[1] == ()
    assert told(TOTAL, layout=Layout(pp=2))[1] == (
        "with pipeline stages the log's pool is that of rank 0; this ledger is that of the fullest rank",
    )


def test_shared_heads():
    assert told(TOTAL, layout=Layout(tp=8))[1] == ("8 ranks share 2 KV heads: each head is kept 4 times",)
    assert told(TOTAL, layout=Layout(tp=2))[1] == ()
    unshared = model(layer(attention(kv_heads=8)), layer(attention(kv_heads=1, cached=False)))
    assert told(TOTAL, spec=unshared, layout=Layout(tp=8))[1] == ()
    narrowest = model(layer(attention(kv_heads=8)), layer(attention(kv_heads=4)))
    assert told(TOTAL, spec=narrowest, layout=Layout(tp=8))[1][0].startswith("8 ranks share 4 KV heads")


def test_copied_latents():
    dense = {"spec": model(layer(SMALL_LATENT)), "context": 100}
    assert told({}, **dense)[1] == ()
    [words] = told({}, **dense, layout=Layout(tp=8))[1]
    assert words.startswith("the latent cache is copied on all 8 tensor-parallel ranks, which hold")
    assert words.endswith("sequences of 100 tokens")  # nothing to divide over data-parallel ranks
    assert told({}, **dense, layout=Layout(tp=8), total=1000)[1] == ()


def test_data_parallel_attention_would_hold_more():
    spec = model(layer(SMALL_LATENT, experts()))
    layout = Layout(tp=4)
    asked = question({}, spec=spec, context=100, layout=layout)
    [words] = warnings(asked, account(asked))
    apart = replace(asked, layout=Layout(dp=4, ep=4))
    now, then = (account(one).pool.sequences(100) for one in (asked, apart))
    assert words == (
        f"the latent cache is copied on all 4 tensor-parallel ranks, which hold {now:.4g} sequences of 100 tokens; "
        f"data-parallel attention (dp=4) would hold {4 * then:.4g}"
    )
    both = replace(asked, layout=Layout(tp=2, dp=2))
    assert "data-parallel attention (dp=2) would hold" in warnings(both, account(both))[0]
    four = account(replace(both, layout=Layout(dp=4, ep=4))).pool.sequences(100)
    assert warnings(both, account(both))[0].endswith(f"would hold {2 * four:.4g}")
    uneven = replace(asked, model=model(layer(SMALL_LATENT, experts(count=6))))
    assert "data-parallel" not in warnings(uneven, account(uneven))[0]
    little = account(asked).weights.bytes + 20_000
    full = question({}, spec=spec, context=100, layout=layout, total=little)
    assert account(replace(full, layout=Layout(dp=4, ep=4))).room_bytes <= 0
    assert warnings(full, account(full))[0].endswith("would hold 0")


@pytest.mark.parametrize(("sequences", "warned"), [(10**4, True), (1, False)])
def test_more_sequences_than_state_blocks(sequences, warned):
    asked = question(TOTAL, spec=HYBRID, max_num_seqs=sequences)
    blocks = account(asked).pool.parts[0].units
    words = (
        f"recent versions refuse to start with more sequences than state blocks: use max_num_seqs={blocks} or less "
        f"(now {sequences})"
    )
    assert (words in warnings(asked, account(asked))) is warned
    assert told(TOTAL, spec=HYBRID, max_num_seqs=blocks)[1] == ()
    assert told({**TOTAL, "paging": Paging.PER_LAYER}, spec=HYBRID, max_num_seqs=10**4)[1] == ()
    assert told(TOTAL, max_num_seqs=10**4)[1] == ()
    assert told(TOTAL, spec=HYBRID, max_num_seqs=10**4, total=1000)[1] == ()


def test_windows_that_save_nothing():
    mixed = model(layer(), layer(attention(window=64)))
    words = "windows save nothing at {} tokens: the engine reserves window + tokens in flight (163)"
    assert told(TOTAL, spec=mixed, context=163)[1] == (words.format(163),)
    assert told(TOTAL, spec=mixed, context=164)[1] == ()
    assert told(TOTAL, spec=model(layer(attention(window=64))), context=10)[1] == ()
    two = model(layer(), layer(attention(window=64)), layer(attention(window=32)))
    assert told(TOTAL, spec=two, context=150)[1] == ()
    assert told(TOTAL, spec=two, context=100)[1] == (words.format(100),)
    encoder = model(layer(attention(causal=False)))
    assert told(TOTAL, spec=encoder)[1] == ()
    assert told(TOTAL, spec=model(layer(attention(window=64))), max_num_seqs=10**6)[1] == ()


def test_nothing_is_told_of_a_pool_without_room():
    rules = {**TOTAL, "utilization": 1.0}
    bare = account(question(rules, spec=HYBRID)).weights.bytes
    assert told(rules, spec=HYBRID, max_num_seqs=10**4, total=bare)[1] == ()
    assert told(rules, spec=model(layer(SMALL_LATENT)), layout=Layout(tp=8), total=1000)[1] == ()


def test_media_that_a_model_takes_whole():
    video = {"spec": model(whole_item_tokens=2000), "max_num_batched_tokens": None}
    rules = {**TOTAL, "whole_items": True, "tiers": (Tier(min_gib=0, max_num_seqs=9, max_num_batched_tokens=512),)}
    words = "max_num_batched_tokens 2000: the longest media item, which small takes whole"
    assert told(rules, **video)[0][0] == words
    assert told({**rules, "whole_items": False}, **video)[0][0].startswith("max_num_batched_tokens 512: the default")
    longer = {**rules, "tiers": (Tier(min_gib=0, max_num_seqs=9, max_num_batched_tokens=4096),)}
    assert told(longer, **video)[0][0].startswith("max_num_batched_tokens 4096: the default")
    sequences = {"spec": model(whole_item_tokens=9), "max_num_seqs": None}
    assert told(rules, **sequences)[0][0] == "max_num_seqs 9: the default of engine@1 on this card"
    short = told(rules, spec=video["spec"], max_num_batched_tokens=1999)[1]
    assert len(short) == 1
    assert told(rules, spec=video["spec"], max_num_batched_tokens=2000)[1] == ()
    assert told({**rules, "whole_items": False}, spec=video["spec"], max_num_batched_tokens=1999)[1] == ()
