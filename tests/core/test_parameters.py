from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.dtypes import FORMATS
from kvplan.core.layout import Layout
from kvplan.core.model import DenseFeedForward, LayerGroup, MixtureOfExperts, Tower
from kvplan.core.parameters import (
    parameters_active,
    parameters_embedding,
    parameters_total,
    tensor_bytes,
    tensor_format,
    weights_bytes_model,
    weights_bytes_per_rank,
)
from kvplan.core.precision import apply_dtype
from kvplan.core.tensors import Tensor, TensorClass, norm
from kvplan.specs.models import load_model
from tests.core.builders import attention, dense, experts, layer, model

ATTENTION, MLP, NORMS, EMBEDDING = 20_480, 49_152, 128, 64_000
LAYER = ATTENTION + MLP + NORMS
SMALL = 4 * LAYER + 2 * EMBEDDING + 64
TOWER = Tower(name="vision", tensors=(Tensor(name="v", tensor_class=TensorClass.OTHER, shape=(1000,)),))

#: Totals as the model cards and safetensors indexes of the repositories state them; active ones of Mixtral and DeepSeek-V3
#: as their papers round them (arXiv:2401.04088: 12.9 B; arXiv:2412.19437: 37 B, with the embedding, without the MTP layer).
KNOWN = {
    "gpt2": 124_439_808,
    "opt-125m": 125_239_296,
    "phi-2": 2_779_683_840,
    "llama-2-7b-hf": 6_738_415_616,
    "mistral-7b-v0.1": 7_241_732_096,
    "llama-3-8b": 8_030_261_248,
    "qwen3-32b": 32_762_123_264,
    "mixtral-8x7b-v0.1": 46_702_792_704,
    "llama-3-70b": 70_553_706_496,
    "deepseek-v3": 671_026_419_200 - 58 * 256,  # their index counts the routing biases, which are buffers
}


@pytest.mark.parametrize(("name", "total"), KNOWN.items())
def test_totals_of_well_known_models(name, total):
    assert parameters_total(load_model(name)) == total


def test_active_parameters_of_well_known_models():
    assert parameters_active(load_model("mixtral-8x7b-v0.1")) == 12_879_925_248
    assert parameters_active(load_model("deepseek-v3")) == pytest.approx(37e9, rel=0.02)
    assert parameters_active(load_model("llama-3-8b")) == KNOWN["llama-3-8b"]


def test_a_small_model_on_paper():
    small = model()
    assert parameters_total(small) == parameters_active(small) == SMALL == 407_104
    assert parameters_embedding(small) == EMBEDDING
    assert weights_bytes_model(small) == 2 * SMALL
    tied = model(tied=True)
    assert parameters_total(tied) == SMALL - EMBEDDING
    assert parameters_embedding(tied) == EMBEDDING
    assert weights_bytes_model(tied) == 2 * (SMALL - EMBEDDING)


def test_towers_and_encoders_count_and_mtp_layers_do_not():
    plain = layer()
    whole = model(
        towers=(TOWER,), encoder_groups=(LayerGroup(count=2, layer=plain),), mtp_layers=(plain,), mtp_tensors=norm("n", 64)
    )  # fmt: skip
    assert parameters_total(whole) == SMALL + 1000 + 2 * LAYER
    assert weights_bytes_model(whole) == 2 * (SMALL + 1000 + 2 * LAYER)
    routed = replace(whole, encoder_groups=(LayerGroup(count=2, layer=layer(attention(), experts())),))
    assert parameters_total(routed) - parameters_active(routed) == 2 * 6 * MLP


def test_a_token_passes_two_of_eight_experts():
    sparse = model(layer(attention(), experts()), layer())
    assert parameters_total(sparse) == SMALL - 2 * LAYER + 7 * MLP + 512
    assert parameters_total(sparse) - parameters_active(sparse) == 6 * MLP


def test_one_expert_is_a_dense_model():
    one = experts(count=1, top_k=1)
    unrouted = MixtureOfExperts(num_experts=1, top_k=1, tensors=one.tensors[1:])
    sparse, plain = model(layer(attention(), unrouted)), model(layer())
    for count in (parameters_total, parameters_active, weights_bytes_model):
        assert count(sparse) == count(plain)
    for tp in (1, 2, 4):
        assert weights_bytes_per_rank(sparse, Layout(tp=tp)) == weights_bytes_per_rank(plain, Layout(tp=tp))


def test_bytes_of_a_tensor_are_those_of_its_own_format():
    plain = Tensor(name="w", tensor_class=TensorClass.MLP, shape=(256, 64), copies=3)
    assert tensor_bytes(plain, "bf16") == 3 * 256 * 64 * 2
    assert tensor_format(plain, "bf16") is FORMATS["bf16"]
    scaled = replace(plain, format=FORMATS["int8"])
    assert tensor_format(scaled, "bf16") is FORMATS["int8"]
    assert tensor_bytes(scaled, "bf16") == 3 * (256 * 64 + 256 * 2)
    conv = Tensor(name="c", tensor_class=TensorClass.OTHER, shape=(4, 3, 2), copies=5, format=FORMATS["fp8"])
    assert tensor_bytes(conv, "bf16") == 5 * (24 + 4)
    assert tensor_bytes(conv, "bf16", divisor=3) == 47  # 46.7 rounded up
    assert tensor_bytes(replace(conv, stored=False), "bf16") == 0


def test_tensor_parallel_ranks_divide_matrices_and_copy_norms():
    assert weights_bytes_per_rank(model(), Layout()) == weights_bytes_model(model())
    two = 4 * (ATTENTION + MLP + 2 * NORMS) + 2 * EMBEDDING + 128
    assert weights_bytes_per_rank(model(), Layout(tp=2)) == two
    # Two KV heads divide over two of four ranks: k and v keep 32 / 2 rows each.
    four = 4 * ((2 * 8192 + MLP) // 2 + 2 * 16 * 64 * 2 + 2 * NORMS) + EMBEDDING + 128
    assert weights_bytes_per_rank(model(), Layout(tp=4)) == four


@pytest.mark.parametrize("tied", [True, False])
def test_the_fullest_stage_counts_with_the_end_that_it_holds(tied):
    # Head and final norm outweigh the embedding by the norm; a tied head is a second copy on the last stage.
    # Of four layers on three stages the middle one holds two, of five on two the first holds three.
    table, head = 2 * EMBEDDING, 2 * EMBEDDING + 128
    for layers, stages, fullest in (
        (4, 2, 2 * 2 * LAYER + head),
        (4, 3, max(2 * 2 * LAYER, 2 * LAYER + head)),
        (5, 2, 3 * 2 * LAYER + table),
        (4, 4, 2 * LAYER + head),
    ):
        deep = model(*[layer()] * layers, tied=tied)
        assert weights_bytes_per_rank(deep, Layout(pp=stages)) == fullest
    # A stage of its own layers: two dense ones before two of experts.
    mixed = model(layer(), layer(), layer(attention(), experts()), layer(attention(), experts()), tied=tied)
    assert weights_bytes_per_rank(mixed, Layout(pp=2)) == 2 * 2 * (ATTENTION + 8 * MLP + 512 + NORMS) + head
    four = weights_bytes_per_rank(model(*[layer()] * 2, tied=tied), Layout(pp=2, tp=2))
    assert four == ATTENTION + MLP + 2 * NORMS + EMBEDDING + 128


def test_towers_and_buffers_lie_on_the_first_stage():
    small = model(towers=(TOWER,), buffer_elements=500)
    assert weights_bytes_model(small) == 2 * (SMALL + 1000 + 500)
    assert weights_bytes_per_rank(small, Layout()) == 2 * (SMALL + 1000 + 500)
    assert weights_bytes_per_rank(small, Layout(pp=2)) == 2 * (2 * LAYER + EMBEDDING + 1000 + 500)
    assert weights_bytes_model(replace(small, quantization="fp8")) == 2 * (SMALL + 1000)


def test_an_encoder_lies_whole_on_the_first_stage():
    """Three encoder layers and the embedding beside the first half of four decoder layers."""
    spec = model(encoder_groups=(LayerGroup(count=3, layer=layer()),))
    assert weights_bytes_per_rank(spec, Layout()) == weights_bytes_model(spec)
    assert weights_bytes_per_rank(spec, Layout(pp=2)) == 2 * (EMBEDDING + (3 + 2) * LAYER)


def test_experts_divide_over_their_own_ranks():
    sparse = model(layer(attention(), experts()))
    rest = 2 * (ATTENTION + 512 + NORMS + 2 * EMBEDDING + 64)
    assert weights_bytes_per_rank(sparse, Layout(dp=4, ep=4)) == rest + 2 * 8 * MLP // 4
    assert weights_bytes_per_rank(sparse, Layout(dp=4)) == rest + 2 * 8 * MLP


def test_sizes_from_file_headers_win_and_divide_as_the_arithmetic_does():
    read = model(exact_weight_bytes=3 * SMALL)
    assert weights_bytes_model(read) == 3 * SMALL
    assert weights_bytes_per_rank(read, Layout()) == 3 * SMALL
    half = weights_bytes_per_rank(model(), Layout(tp=2))
    assert weights_bytes_per_rank(read, Layout(tp=2)) == -(-half * 3 // 2)
    assert weights_bytes_per_rank(replace(read, exact_weight_bytes=2 * SMALL + 1), Layout()) == 2 * SMALL + 1


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 4), st.sampled_from(["bf16", "fp8", "awq", "q4_k_m"]))
def test_ranks_together_hold_the_whole_and_more_ranks_never_more(tp, pp, dtype):
    small = apply_dtype(model(), dtype)
    here = weights_bytes_per_rank(small, Layout(tp=tp, pp=pp))
    assert here * tp * pp >= weights_bytes_model(small)
    assert weights_bytes_per_rank(small, Layout(tp=2 * tp, pp=pp)) <= here
    assert isinstance(here, int)


@given(st.integers(1, 16), st.integers(1, 16), st.integers(1, 6))
def test_experts_are_linear_and_active_ones_follow_top_k(count, top_k, layers):
    top_k = min(top_k, count)
    sparse = model(*[layer(attention(), experts(count=count, top_k=top_k))] * layers)
    routed = layers * count * MLP
    assert parameters_total(sparse) - parameters_active(sparse) == routed - layers * top_k * MLP
    wide = model(*[layer(attention(), dense(intermediate=512))] * layers)
    assert parameters_total(wide) - parameters_total(model(*[layer()] * layers)) == layers * MLP
    assert isinstance(wide.groups[0].layer.feed_forward, DenseFeedForward)
