"""The work of a step read off a model's tensors: each kind of layer by hand, layouts, laws."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.dtypes import FORMATS
from kvplan.core.layout import Layout
from kvplan.core.model import CrossAttention, DenseFeedForward, Layer, LayerGroup
from kvplan.core.parameters import parameters_embedding, parameters_total
from kvplan.core.tensors import TensorClass, linear, norm, vector
from kvplan.core.work import ExpertWork, GemmWork, compile_work
from tests.core import builders

ROUTED = builders.layer(feed_forward=builders.experts())


def work_of(*layers, layout=None, kv_dtype="bf16", **more):
    return compile_work(builders.model(*layers, **more), layout or Layout(), kv_dtype=kv_dtype)


def products(work, op):
    return [gemm for _, gemm in work.gemms if gemm.op == op]


def forward(*tensors):
    """A layer whose feed-forward is these matrices."""
    return Layer(mixers=(), feed_forward=DenseFeedForward(tensors=tensors))


def matrix(kind=TensorClass.MLP, *, out_features=32, in_features=64, **more):
    return linear("w", kind, out_features=out_features, in_features=in_features, **more)[0]


def test_matrices_that_share_their_input_are_one_product():
    """Q, K, V: 128 + 32 + 32 rows of 64. Gate, up: 2 · 256 rows of 64. A token's inputs and outputs have 2 bytes each."""

    def product(op, outputs, inputs, **more):
        elements = outputs * inputs
        return GemmWork(
            op=op, elements=elements, inputs=inputs, weight_bytes=2 * elements, activation_bytes=2 * (outputs + inputs),
            compute="bf16", dequantised=False, **more,
        )  # fmt: skip

    assert work_of().gemms == (
        (4, product("attention_gemm", 192, 64)),
        (4, product("attention_gemm", 64, 128)),
        (4, product("feed_forward_gemm", 512, 64)),
        (4, product("feed_forward_gemm", 64, 256)),
        (1, product("head", 1000, 64, sampled=True)),
    )


@pytest.mark.parametrize(
    ("second", "kernels"),
    [
        (matrix(), 1),
        (matrix(out_features=8), 1),
        (matrix(in_features=128), 2),
        (matrix(TensorClass.SHARED), 2),
        (matrix(quantisable=False), 2),
        (replace(matrix(), format=FORMATS["fp8"]), 2),
        (matrix(shards=1), 2),
        (matrix(shards=4), 1),
    ],
)
def test_one_kernel_takes_one_input_format_and_division(second, kernels):
    work = work_of(forward(matrix(), second))
    found = [(count, gemm.elements) for count, gemm in work.gemms if gemm.op == "feed_forward_gemm"]
    assert sum(count for count, _ in found) == kernels
    assert sum(count * elements for count, elements in found) == matrix().elements + second.elements


def test_replicated_neighbours_run_together():
    """The latents of queries and of keys and values: every rank computes both whole."""
    [both] = products(work_of(forward(matrix(shards=1), matrix(shards=1)), layout=Layout(tp=4)), "feed_forward_gemm")
    assert both.elements == 2 * 2048


def test_only_neighbours_run_together():
    work = work_of(forward(matrix(), matrix(in_features=128), matrix(out_features=8)))
    found = [(gemm.inputs, gemm.elements) for gemm in products(work, "feed_forward_gemm")]
    assert found == [(64, 2048), (128, 4096), (64, 512)]


def test_biases_between_do_not_part_a_product():
    biased = linear("w", TensorClass.MLP, out_features=32, in_features=64, bias=True)
    [both] = products(work_of(forward(*biased, *biased)), "feed_forward_gemm")
    assert both.elements == 2 * 2048


def test_a_block_diagonal_matrix_is_one_product_with_short_inputs():
    """RG-LRU gates: four blocks of 32 × 64 make 128 outputs, each a dot product of 64."""
    [gates] = products(work_of(forward(matrix(copies=4))), "feed_forward_gemm")
    assert (gates.elements, gates.inputs, gates.activation_bytes) == (4 * 2048, 64, 2 * (64 + 128))


def test_what_no_token_is_multiplied_with_is_no_product():
    plain = Layer(
        mixers=(), feed_forward=None, tensors=(matrix(), *norm("norm", 64), *vector("b", TensorClass.OTHER, 64))
    )
    assert [(gemm.op, gemm.elements) for _, gemm in work_of(plain).gemms] == [("other_gemm", 2048), ("head", 64000)]


def test_a_tied_head_is_read_and_multiplied_all_the_same():
    [head] = products(work_of(tied=True), "head")
    assert head.weight_bytes == 2 * 1000 * 64


@pytest.mark.parametrize(
    ("name", "compute", "dequantised", "blockwise", "bits"),
    [
        ("fp8", "fp8", False, False, 8 + 32 / 128**2),
        ("fp8_block", "fp8", False, True, 8 + 32 / 128**2),
        ("mxfp8", "fp8", False, False, 8 + 8 / 32),
        ("w8a8", "int8", False, False, 8 + 32 / 128),
        ("nvfp4", "fp4", False, False, 4 + 8 / 16 + 64 / 128**2),
        ("mxfp4", "mxfp4", False, False, 4 + 8 / 32),
        ("int4", "bf16", True, False, 4 + 16 / 128),
    ],
)
def test_a_format_says_which_units_multiply_and_what_is_read(name, compute, dequantised, blockwise, bits):
    """One matrix of 128 × 128: a block of fp8_block, a group of int4 per row, eight groups of nvfp4 per row."""
    square = replace(matrix(out_features=128, in_features=128), format=FORMATS[name])
    [found] = products(work_of(forward(square)), "feed_forward_gemm")
    assert (found.compute, found.dequantised, found.blockwise) == (compute, dequantised, blockwise)
    assert found.weight_bytes == pytest.approx(128 * 128 * bits / 8)
    [expert] = [work for _, work in work_of(ROUTED_IN[name]).experts]
    assert (expert.compute, expert.dequantised) == (compute, dequantised)


def routed_in(name):
    """Routed experts stored in a format."""
    whole = builders.experts()
    stored = [replace(t, format=FORMATS[name]) if t.tensor_class is TensorClass.EXPERTS else t for t in whole.tensors]
    return builders.layer(feed_forward=replace(whole, tensors=tuple(stored)))


ROUTED_IN = {name: routed_in(name) for name in ("fp8", "fp8_block", "mxfp8", "w8a8", "nvfp4", "mxfp4", "int4")}


def test_eight_ranks_hold_an_eighth_of_q_and_one_kv_head_each():
    """Two KV heads divide in two: 16 of 128 query rows and 16 + 16 of 64 key and value rows lie on a rank."""
    first, output = products(work_of(layout=Layout(tp=8)), "attention_gemm")
    assert (first.elements, first.inputs, first.weight_bytes) == (48 * 64, 64, 2 * 48 * 64)
    assert first.activation_bytes == 2 * (64 + 48)
    assert output.elements == 64 * 128 // 8


def test_experts_of_one_rank():
    """An expert is three matrices of 256 × 64; between them a token has 768 values, around them twice 64."""
    work = work_of(ROUTED, ROUTED, builders.layer())
    assert work.experts == (
        (
            2,
            ExpertWork(
                num_experts=8, top_k=2, ranks=1, elements=49152, weight_bytes=98304, activation_bytes=2 * (128 + 768),
                hidden_bytes=128, compute="bf16", dequantised=False,
            ),
        ),
    )  # fmt: skip
    assert (work.layers, work.moe_layers, work.hidden_bytes) == (3, 2, 128)
    assert [gemm.elements for gemm in products(work, "feed_forward_gemm")] == [8 * 64, 512 * 64, 256 * 64]


def test_experts_divide_by_slices_over_tp_and_whole_over_ep():
    [(_, slices)] = work_of(ROUTED, layout=Layout(tp=4)).experts
    assert (slices.num_experts, slices.ranks, slices.elements, slices.weight_bytes) == (8, 1, 12288, 24576)
    assert slices.activation_bytes == 2 * (128 + 192)
    [(_, whole)] = work_of(ROUTED, layout=Layout(tp=4, ep=4)).experts
    assert (whole.num_experts, whole.ranks, whole.elements, whole.weight_bytes) == (2, 4, 49152, 98304)
    assert whole.activation_bytes == 2 * (128 + 768)


def test_experts_are_dispatched_and_combined_where_data_parallel_ranks_share_them():
    layouts = [Layout(), Layout(tp=4, ep=4), Layout(dp=4), Layout(dp=4, ep=4)]
    works = [work_of(ROUTED, ROUTED, ROUTED, builders.layer(), layout=layout) for layout in layouts]
    assert [work.alltoalls for work in works] == [0, 0, 0, 6]
    assert [(work.tp, work.pp, work.dp, work.ep) for work in works] == [
        (1, 1, 1, 1), (4, 1, 1, 4), (1, 1, 4, 1), (1, 1, 4, 4),
    ]  # fmt: skip
    assert work_of(layout=Layout(pp=2)).pp == 2


CROSS = CrossAttention(num_attention_heads=8, num_key_value_heads=2, head_dim=16)
MIXER, STATE, FORWARD = builders.attention(), builders.recurrent(), builders.dense()


@pytest.mark.parametrize(
    ("mixers", "feed_forward", "parallel", "messages"),
    [
        ((MIXER,), FORWARD, False, 2),
        ((MIXER,), FORWARD, True, 1),
        ((MIXER,), None, False, 1),
        ((), FORWARD, False, 1),
        ((MIXER, STATE), FORWARD, False, 2),  # side by side: their outputs are added before they are reduced
        ((MIXER, CROSS), FORWARD, False, 3),  # one after the other
        ((CROSS,), FORWARD, False, 2),
        ((MIXER, CROSS), FORWARD, True, 2),
    ],
)
def test_each_part_that_adds_to_the_residual_stream_is_reduced(mixers, feed_forward, parallel, messages):
    layer = Layer(mixers=mixers, feed_forward=feed_forward)
    assert work_of(*[layer] * 3, parallel_attention=parallel).allreduces == 3 * messages


def test_mixers_side_by_side_both_work():
    work = work_of(*[Layer(mixers=(MIXER, STATE), feed_forward=FORWARD)] * 3)
    assert [count for count, _ in (*work.attention, *work.recurrent)] == [3, 3]


def test_an_encoder_is_work_of_its_own_without_a_head():
    encoder = builders.layer(builders.attention(heads=4, causal=False))
    model = builders.model(encoder_groups=(LayerGroup(count=3, layer=encoder),))
    work = compile_work(model, Layout(), kv_dtype="bf16")
    assert work.encoder is not None
    assert (work.layers, work.encoder.layers, work.encoder.allreduces) == (4, 3, 6)
    assert replace(work, encoder=None) == work_of()
    assert not products(work.encoder, "head")
    assert work_of().encoder is None


def test_equal_layers_are_merged_wherever_they_stand():
    other = builders.layer(feed_forward=builders.dense(intermediate=128))
    work = work_of(builders.layer(), other, builders.layer(), other)
    assert [count for count, _ in work.attention] == [4]
    assert [(count, gemm.elements) for count, gemm in work.gemms if gemm.op == "feed_forward_gemm"] == [
        (2, 32768), (2, 16384), (2, 16384), (2, 8192),
    ]  # fmt: skip


LAYERS = st.lists(
    st.sampled_from([builders.layer(), ROUTED, builders.layer(STATE), forward(matrix())]), min_size=1, max_size=6
)


@given(LAYERS)
def test_each_stored_matrix_is_multiplied_exactly_once(layers):
    """Elements of all products are the parameters, without embeddings and norms."""
    model = builders.model(*layers)
    work = compile_work(model, Layout(), kv_dtype="bf16")
    dense = sum(count * gemm.elements for count, gemm in work.gemms)
    routed = sum(count * one.elements * one.num_experts for count, one in work.experts)
    norms = 64 + sum(tensor.elements for layer in layers for tensor in layer.tensors)
    assert dense + routed == parameters_total(model) - parameters_embedding(model) - norms


@given(LAYERS, st.sampled_from([2, 4, 8]))
def test_ranks_together_hold_at_least_the_whole_work(layers, tp):
    one, many = work_of(*layers), work_of(*layers, layout=Layout(tp=tp))
    for kind in ("gemms", "experts"):
        whole, rank = (sum(count * part.elements for count, part in getattr(work, kind)) for work in (one, many))
        assert whole <= rank * tp <= whole * tp
    for name in ("decode_flops", "heads"):
        whole, rank = (sum(count * getattr(part, name) for count, part in work.attention) for work in (one, many))
        assert rank * tp == whole
