from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.layout import Layout, stage_sizes
from kvplan.core.model import CompressedAttention, CrossAttention
from kvplan.core.tensors import Tensor, TensorClass
from kvplan.errors import UsageError
from tests.core.builders import attention, experts, latent, layer, model, recurrent

SPARSE = model(layer(), layer(attention(), experts()))


def tensor(kind=TensorClass.MLP, **more):
    return Tensor(name="w", tensor_class=kind, shape=(8, 8), **more)


def test_ranks():
    plain = Layout()
    assert (plain.tp, plain.pp, plain.dp, plain.ep, plain.gpu_count, plain.expert_ranks) == (1, 1, 1, None, 1, None)
    assert Layout(tp=2, pp=3, dp=5).gpu_count == 30
    assert Layout(dp=4, ep=1).expert_ranks is None
    assert Layout(dp=4, ep=4).expert_ranks == 4


@pytest.mark.parametrize("name", ["tp", "pp", "dp", "ep"])
def test_no_rank_below_one(name):
    with pytest.raises(UsageError, match=f"{name}: must be at least 1, not 0"):
        Layout(**{name: 0})


def test_data_parallel_ranks_share_experts_only_with_expert_parallelism():
    assert Layout(dp=2, ep=2).shared_experts_over_dp
    assert not Layout(dp=2).shared_experts_over_dp
    assert not Layout(dp=2, ep=1).shared_experts_over_dp
    assert not Layout(tp=2, ep=2).shared_experts_over_dp


@given(st.integers(1, 64), st.integers(1, 64), st.integers(2, 64))
def test_what_a_tensor_is_divided_over(tp, shards, ep):
    plain, with_experts = Layout(tp=tp), Layout(tp=tp, ep=ep)
    assert plain.divisor(tensor()) == tp
    assert plain.divisor(tensor(shards=1)) == 1
    assert plain.divisor(tensor(shards=shards)) == min(tp, shards)
    assert plain.divisor(tensor(TensorClass.EXPERTS)) == tp
    assert with_experts.divisor(tensor(TensorClass.EXPERTS)) == ep
    assert with_experts.divisor(tensor()) == tp


def test_layouts_that_a_model_can_have():
    for layout in (Layout(), Layout(tp=8), Layout(pp=2), Layout(tp=2, dp=2, ep=4), Layout(dp=8, ep=8), Layout(ep=1)):
        layout.check(SPARSE)
    Layout(tp=3).check(model(layer(recurrent(num_heads=4))))  # no attention heads to divide
    Layout(tp=64).check(model(layer(latent())))


@pytest.mark.parametrize(
    ("layout", "told", "hint"),
    [
        (Layout(tp=3), "tp: 3 does not divide the 8 attention heads of small", "use one of 1, 2, 4, 8"),
        (Layout(tp=16), "tp: 16 does not divide the 8 attention heads of small", "use one of 1, 2, 4, 8"),
        (Layout(pp=3), "pp: 3 stages are more than the 2 layers of small", None),
        (Layout(tp=2, dp=5, ep=3), "ep: 3 does not divide the tp × dp = 10 ranks", "use ep=10, or leave it out"),
        (Layout(dp=16, ep=16), "ep: 16 does not divide the 8 routed experts of small", None),
    ],
)
def test_layouts_that_a_model_cannot_have(layout, told, hint):
    with pytest.raises(UsageError) as caught:
        layout.check(SPARSE)
    assert str(caught.value).startswith(told)
    assert caught.value.hint == hint


def test_a_dense_model_has_no_experts_to_divide():
    with pytest.raises(UsageError, match="ep: small has no routed experts to divide over 2 ranks") as caught:
        Layout(tp=2, ep=2).check(model())
    assert caught.value.hint == "leave ep out"
    with pytest.raises(UsageError, match="tp: 3"):
        Layout(tp=3).check(model(layer(latent())))
    with pytest.raises(UsageError) as caught:
        Layout(tp=2).check(model(layer(attention(heads=9, kv_heads=3))))
    assert caught.value.hint == "use one of 1, 3, 9"


def test_every_width_of_heads_and_experts_must_divide():
    mixed = model(layer(attention(heads=8)), layer(attention(heads=12, kv_heads=4)))
    Layout(tp=4).check(mixed)
    with pytest.raises(UsageError, match="12 attention heads"):
        Layout(tp=8).check(mixed)
    uneven = model(layer(attention(), experts(count=8)), layer(attention(), experts(count=12)))
    Layout(dp=4, ep=4).check(uneven)
    with pytest.raises(UsageError, match="routed experts"):
        Layout(dp=8, ep=8).check(uneven)
    assert replace(Layout(tp=4), pp=2).gpu_count == 8


@given(st.integers(1, 200), st.integers(1, 64))
def test_stages_hold_all_layers_and_differ_by_one(layers, stages):
    sizes = stage_sizes(layers, stages)
    assert sum(sizes) == layers
    assert len(sizes) == stages
    assert max(sizes) - min(sizes) <= 1


def test_what_does_not_divide_goes_to_the_middle_from_the_back():
    # vLLM's rule (vllm/distributed/utils.py, get_pp_indices): the last stage, which has the head, gets none of the rest
    assert stage_sizes(32, 4) == (8, 8, 8, 8)
    assert stage_sizes(61, 4) == (15, 15, 16, 15)
    assert stage_sizes(62, 4) == (15, 16, 16, 15)
    assert stage_sizes(63, 4) == (16, 16, 16, 15)
    assert stage_sizes(7, 4) == (2, 2, 2, 1)
    assert stage_sizes(5, 2) == (3, 2)
    assert stage_sizes(5, 1) == (5,)


def test_heads_of_every_attention_divide_and_states_as_they_can():
    cross = CrossAttention(num_attention_heads=6, num_key_value_heads=6, head_dim=64)
    compressed = CompressedAttention(num_attention_heads=6, head_dim=512, window=128, ratio=4)
    for mixer in (cross, compressed):
        Layout(tp=3).check(model(layer(mixer)))
        with pytest.raises(UsageError, match="tp: 4 does not divide the 6 attention heads of small"):
            Layout(tp=4).check(model(layer(mixer)))
    Layout(tp=4).check(model(layer(recurrent(num_heads=6))))
