"""What engines set aside, on paper: round constants on a small model, and what they are on the machines they were read on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.engine import Settings
from kvplan.core.layout import Layout
from kvplan.core.memory_rules import MemoryRules, Tier
from kvplan.core.model import Tower
from kvplan.core.reservations import (
    Amount,
    Limits,
    activation,
    activation_bytes_per_element,
    captures,
    computed_fraction,
    forward_elements,
    fraction_factor,
    gib_text,
    graphs,
    limits_for,
    runtime,
)
from kvplan.core.tensors import Tensor, TensorClass, linear
from kvplan.core.units import GIB, MIB
from tests.core.builders import HIDDEN, INTERMEDIATE, VOCAB, attention, experts, gpu, indexer, latent, layer, model

SMALL, LARGE = (
    Tier(min_gib=0, max_num_seqs=256, max_num_batched_tokens=2048, graph_sequences=8, graph_sequences_tp4=16),
    Tier(min_gib=70, max_num_seqs=1024, max_num_batched_tokens=8192, graph_sequences=256, graph_sequences_tp4=512),
)
TIERS = MemoryRules(tiers=(SMALL, LARGE), small_tier_cards=("a100",), batched_tokens_follow_context=32768)
NOTHING = Amount(0, "")
TOWER = Tower(name="vision", tensors=(Tensor(name="v", tensor_class=TensorClass.OTHER, shape=(1000,), copies=3),))


def limits(sequences=16, batched=100, tier=SMALL):
    return Limits(max_num_seqs=sequences, max_num_batched_tokens=batched, tier=tier)


def resolved(gib=80, *, card="h100", context=10**6, **settings):
    return limits_for(TIERS, gpu(id=card), Settings(**settings), total_bytes=gib * GIB, context=context)


def test_defaults_follow_the_card():
    assert (resolved(80).max_num_seqs, resolved(80).max_num_batched_tokens, resolved(80).tier) == (1024, 8192, LARGE)
    assert resolved(70).tier is LARGE
    assert resolved(69).tier is SMALL
    assert resolved(80, card="a100-80g-sxm").tier is SMALL
    assert resolved(80).defaulted == ("max_num_seqs", "max_num_batched_tokens")
    lonely = limits_for(MemoryRules(tiers=(LARGE,)), gpu(), Settings(), total_bytes=GIB, context=1)
    assert lonely.tier is LARGE


def test_given_limits_win():
    both = resolved(max_num_seqs=5, max_num_batched_tokens=7)
    assert (both.max_num_seqs, both.max_num_batched_tokens, both.defaulted) == (5, 7, ())
    assert resolved(max_num_seqs=5).defaulted == ("max_num_batched_tokens",)


def test_a_batch_follows_short_contexts_without_chunked_prefill():
    assert resolved(24, context=32768).max_num_batched_tokens == 32768
    assert resolved(24, context=32769).max_num_batched_tokens == 2048
    assert resolved(24, context=100).max_num_batched_tokens == 2048
    tiny = MemoryRules(tiers=(replace(SMALL, max_num_batched_tokens=512),), batched_tokens_follow_context=32768)
    asked = limits_for(tiny, gpu(), Settings(), total_bytes=GIB, context=100)
    assert asked.max_num_batched_tokens == 2048


def test_a_batch_grows_to_media_that_a_model_takes_whole():
    def batched(tokens, *, whole=True, **given_):
        rules, spec = replace(TIERS, whole_items=whole), model(whole_item_tokens=tokens)
        found = limits_for(rules, gpu(), Settings(**given_), total_bytes=GIB, context=10**6, model=spec)
        return found.max_num_batched_tokens

    assert (batched(2047), batched(2496)) == (2048, 2496)
    assert batched(2496, max_num_batched_tokens=5) == 5
    assert batched(2496, whole=False) == 2048


def test_a_batch_of_an_encoder_holds_a_prompt():
    def batched(causal, **given_):
        spec = model(layer(attention(causal=causal)))
        found = limits_for(TIERS, gpu(), Settings(**given_), total_bytes=GIB, context=40_000, model=spec)
        return found.max_num_batched_tokens

    assert (batched(causal=True), batched(causal=False)) == (2048, 40_000)
    assert batched(causal=False, max_num_batched_tokens=512) == 512


def test_activations_are_16_bit_or_wider():
    assert [activation_bytes_per_element(model(dtype=name)) for name in ("bf16", "fp32", "fp8", "int4")] == [2, 4, 2, 2]
    assert gib_text(1.5 * GIB) == "1.50 GiB"


def test_the_widest_rows_of_a_layer():
    rules = MemoryRules(dense_hidden_rows=3, expert_hidden_rows=9)
    one = {"hidden_size": HIDDEN, "tp": 1}
    assert forward_elements(rules, layer(), **one) == 3 * INTERMEDIATE + 3 * HIDDEN
    assert forward_elements(rules, layer(), hidden_size=HIDDEN, tp=4) == 3 * INTERMEDIATE / 4 + 3 * HIDDEN
    sparse = layer(attention(), experts())
    assert forward_elements(rules, sparse, **one) == 2 * 3 * INTERMEDIATE + 9 * HIDDEN
    # three of seven experts of 3 · 640 elements, against a width of 100: 57.6, no whole number
    odd = layer(attention(), experts(count=7, top_k=3, intermediate=10))
    assert forward_elements(rules, odd, hidden_size=100, tp=1) == 3 * 7 * 640 * 3 / 700 + 900
    assert forward_elements(rules, sparse, hidden_size=HIDDEN, tp=4) == 2 * 3 * INTERMEDIATE / 4 + 9 * HIDDEN
    assert forward_elements(rules, replace(layer(), feed_forward=None), **one) == 3 * HIDDEN
    with_bias = linear("up", TensorClass.MLP, out_features=INTERMEDIATE, in_features=HIDDEN, bias=True)
    plain = replace(layer(), feed_forward=replace(layer().feed_forward, tensors=with_bias))
    assert forward_elements(rules, plain, **one) == INTERMEDIATE + 3 * HIDDEN


@given(st.integers(1, 8))
def test_one_expert_is_a_dense_feed_forward(tp):
    rules = MemoryRules(dense_hidden_rows=3, expert_hidden_rows=3)
    one = layer(attention(), experts(count=1, top_k=1))
    sizes = {"hidden_size": HIDDEN, "tp": tp}
    assert forward_elements(rules, one, **sizes) == forward_elements(rules, layer(), **sizes)


SAMPLER = MemoryRules(sampler_bytes_per_logit=10, residual_rows=1.5, activation_fixed_bytes=77)


def test_the_sampler_sees_the_whole_vocabulary_of_every_sequence():
    found = activation(SAMPLER, model(), layout=Layout(), limits=limits(16, 100))
    assert found.bytes == 12 * 16 * VOCAB + int(1.5 * 100 * HIDDEN * 2) + 77
    assert found.formula == "sampler 12 B × 16 sequences × 1000 vocabulary + 1.5 × 100 tokens × 64 × 2 B"
    assert activation(SAMPLER, model(), layout=Layout(tp=2), limits=limits(16, 100)) == found
    assert activation(SAMPLER, model(), layout=Layout(), limits=limits(500, 100)).bytes == 12 * 100 * VOCAB + 19200 + 77
    assert (
        activation(SAMPLER, model(dtype="fp32"), layout=Layout(), limits=limits(1, 1)).bytes
        == 14 * VOCAB + 1.5 * HIDDEN * 4 + 77
    )


def test_the_forward_pass_of_the_widest_layer():
    rules = MemoryRules(dense_hidden_rows=3, expert_hidden_rows=9)
    dense, sparse = 3 * INTERMEDIATE + 3 * HIDDEN, 6 * INTERMEDIATE + 9 * HIDDEN
    found = activation(rules, model(), layout=Layout(), limits=limits(16, 100))
    assert found == Amount(100 * 2 * dense, f"forward 100 tokens × 2 B × {dense} elements")
    mixed = model(layer(), layer(attention(), experts()))
    assert activation(rules, mixed, layout=Layout(), limits=limits(16, 100)).bytes == 100 * 2 * sparse
    stage = activation(rules, model(), layout=Layout(pp=2), limits=limits(16, 100))
    assert stage == Amount(100 * 2 * dense + 2 * 100 * HIDDEN * 2, f"{found.formula} + stage input 0.00 GiB")
    encoder = activation(
        replace(rules, multimodal_bytes=GIB), model(towers=(TOWER,)), layout=Layout(), limits=limits(16, 100)
    )
    assert encoder == Amount(100 * 2 * dense + GIB, f"{found.formula} + encoder 1.00 GiB")
    assert activation(replace(rules, multimodal_bytes=GIB), model(), layout=Layout(), limits=limits(16, 100)) == found
    both = replace(SAMPLER, dense_hidden_rows=3)
    assert activation(both, model(), layout=Layout(), limits=limits(1, 100)).bytes == found.bytes
    assert activation(both, model(), layout=Layout(), limits=limits(100, 100)).bytes == 12 * 100 * VOCAB + 19200 + 77
    assert activation(MemoryRules(), model(), layout=Layout(), limits=limits()) == NOTHING


def test_encoders_have_no_logits():
    def peak(rules, **more):
        return activation(rules, model(layer(attention(**more))), layout=Layout(), limits=limits(16, 100)).bytes

    assert peak(SAMPLER) - peak(SAMPLER, causal=False) == 12 * 16 * VOCAB
    buffer = MemoryRules(compute_bytes_per_logit=4, compute_hidden_bytes=20)
    assert peak(buffer, causal=False) == 100 * 20 * HIDDEN


def test_a_compute_buffer_per_batched_token():
    rules = MemoryRules(compute_bytes_per_logit=4, compute_hidden_bytes=20)
    found = activation(rules, model(), layout=Layout(tp=8), limits=limits(1, 512))
    assert found == Amount(512 * (4 * VOCAB + 20 * HIDDEN), "512 tokens × (4 B × 1000 + 20 B × 64)")


RUNTIME = MemoryRules(runtime_bytes=GIB, runtime_link_bytes=2 * GIB, runtime_pcie_bytes=3 * GIB, runtime_stage_bytes=4 * GIB,
                      runtime_unified_bytes=5 * GIB)  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "card", "gib", "told"),
    [
        (Layout(), {}, 1, "one rank: 1.00 GiB"),
        (Layout(tp=2), {}, 2, "one of several ranks over Link: 2.00 GiB"),
        (Layout(tp=2), {"link_name": None}, 2, "one of several ranks over its link: 2.00 GiB"),
        (Layout(tp=2), {"link_bytes_per_s": None}, 3, "one of several ranks over PCIe: 3.00 GiB"),
        (Layout(dp=2, ep=2), {}, 2, "one of several ranks over Link: 2.00 GiB"),
        (Layout(dp=2), {}, 1, "one rank: 1.00 GiB"),
        (Layout(pp=2), {}, 4, "pipeline stage: 4.00 GiB"),
        (Layout(tp=2, pp=2), {}, 2, "one of several ranks over Link: 2.00 GiB"),
        (Layout(), {"unified_memory": True}, 6, "one rank: 1.00 GiB + memory shared with the CPU: 5.00 GiB"),
        (Layout(tp=2), {"unified_memory": True}, 8,
         "one of several ranks over PCIe: 3.00 GiB + memory shared with the CPU: 5.00 GiB"),
    ],
)  # fmt: skip
def test_runtime_follows_the_ranks_and_their_link(layout, card, gib, told):
    assert runtime(RUNTIME, gpu(**card), layout) == Amount(gib * GIB, told)


def test_engines_that_see_only_free_memory_charge_the_context():
    rules = MemoryRules(context_bytes=GIB, collectives_bytes=2 * GIB)
    assert runtime(rules, gpu(), Layout()) == Amount(GIB, "device context 1.00 GiB")
    for layout in (Layout(tp=2), Layout(dp=2, ep=2)):
        assert runtime(rules, gpu(), layout) == Amount(3 * GIB, "device context 1.00 GiB + collectives 2.00 GiB")
    assert runtime(rules, gpu(), Layout(pp=2)).bytes == GIB
    assert runtime(rules, gpu(link_bytes_per_s=None), Layout(tp=2)) == Amount(GIB, "device context 1.00 GiB")
    assert runtime(rules, gpu(unified_memory=True), Layout(tp=2)).bytes == GIB
    assert runtime(MemoryRules(), gpu(), Layout()) == NOTHING
    assert runtime(MemoryRules(), gpu(unified_memory=True), Layout()) == NOTHING


def test_captured_batch_sizes():
    # vLLM's default list: 1, 2, 4, 8, 16, …, 248, 256, 272, …, 512
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
    for largest in range(1, 513):
        assert captures(largest) == sum(1 for size in sizes if size <= largest)


def test_graphs_grow_with_layers_and_captures():
    rules = MemoryRules(graph_fixed_bytes=GIB, graph_bytes_per_layer=102 * MIB)
    # 256 sequences: piecewise graphs to 512 tokens (51) and full ones to 256 (35)
    found = graphs(rules, model(), layout=Layout(), limits=limits(256), eager=False)
    assert found.bytes == GIB + 4 * 86 * MIB
    assert found.formula == "1.00 GiB + 102.0 MiB × 4 layers × 86 captures / 102"
    assert graphs(rules, model(), layout=Layout(), limits=limits(1000), eager=False).bytes == GIB + 4 * 102 * MIB
    assert graphs(rules, model(), layout=Layout(), limits=limits(1), eager=False).bytes == GIB + 4 * 3 * MIB
    assert (
        graphs(rules, model(*[layer()] * 5), layout=Layout(pp=2), limits=limits(1), eager=False).bytes
        == GIB + 3 * 3 * MIB
    )
    assert graphs(rules, model(), layout=Layout(), limits=limits(), eager=True) == Amount(0, "eager: no graphs")
    assert graphs(MemoryRules(graph_fixed_bytes=GIB), model(), layout=Layout(), limits=limits(), eager=False) == NOTHING
    odd = MemoryRules(graph_fixed_bytes=10, graph_bytes_per_layer=103)
    assert graphs(odd, model(), layout=Layout(), limits=limits(1), eager=False).bytes == 10 + 103 * 4 * 3 // 102


RESERVE = MemoryRules(
    reserve_fixed_mib=512,
    reserve_mib_per_batched_token=1.5,
    reserve_mib_per_graph_sequence=2,
    reserve_mib_per_rank=1024,
)


def fraction(rules=RESERVE, *, gib=40, batched=4096, tier=SMALL, spec=None, **layout):
    given_ = Limits(max_num_seqs=1, max_num_batched_tokens=batched, tier=tier)
    return computed_fraction(rules, spec or model(), layout=Layout(**layout), limits=given_, total_bytes=gib * GIB)


def test_a_fraction_is_what_the_reserve_leaves():
    def left(reserve_mib, gib=40):
        return round(1 - reserve_mib / (gib * 1024), 3)

    assert fraction() == left(512 + 1.5 * 4096 + 2 * 8 + 1024 / 8)
    assert fraction(batched=1) == left(512 + 1.5 * 2048 + 2 * 8 + 1024 / 8)
    assert fraction(tp=2, pp=3) == left(512 + 1.5 * 4096 + 2 * 8 + 1024 * 6 / 8)
    assert fraction(tp=3) == left(512 + 1.5 * 4096 + 2 * 8 + 1024 * 3 / 8)
    assert fraction(tp=4) == left(512 + 1.5 * 4096 + 2 * 16 + 1024 * 4 / 8)


@pytest.mark.parametrize(
    ("mixer", "vendor", "context", "tp", "factor"),
    [
        (attention(), "AMD", 8193, 8, 0.85),
        (attention(), "AMD", 8192, 8, 1),
        (attention(), "NVIDIA", 8193, 8, 1),
        (latent(), "AMD", 8193, 8, 0.85),
        (latent(), "AMD", 8193, 1, 0.85),
        (replace(latent(), num_attention_heads=64), "AMD", 8193, 8, 1),
        (latent(indexer=indexer()), "AMD", 8193, 8, 1),
    ],
)
def test_a_backend_of_amd_cards_takes_a_part_of_the_fraction(mixer, vendor, context, tp, factor):
    rules, spec = MemoryRules(amd_long_context_factor=0.85), model(layer(mixer), max_context=context)
    assert fraction_factor(rules, gpu(vendor=vendor), spec, layout=Layout(tp=tp)) == factor


def test_large_cards_reserve_ten_gib_and_towers_a_part_more():
    rules = replace(RESERVE, reserve_large_card_mib=10240, reserve_multimodal_factor=0.95)
    assert fraction(rules, gib=60) == fraction(RESERVE, gib=60)
    assert fraction(rules, gib=80) == round(1 - 10240 / 81920, 3)
    assert fraction(rules, gib=80, batched=16384) == fraction(RESERVE, gib=80, batched=16384)
    assert fraction(rules, gib=40, spec=model(towers=(TOWER,))) == fraction() * 0.95
    assert fraction(gib=1) == 0.05


@given(st.integers(1, 2048), st.integers(1, 512), st.integers(1, 4096), st.integers(0, 512))
def test_a_larger_batch_or_more_sequences_never_reserve_less(sequences, batched, more_tokens, more_sequences):
    rules = replace(SAMPLER, dense_hidden_rows=3)
    here = activation(rules, model(), layout=Layout(), limits=limits(sequences, batched)).bytes
    assert (
        activation(
            rules, model(), layout=Layout(), limits=limits(sequences + more_sequences, batched + more_tokens)
        ).bytes
        >= here
    )
