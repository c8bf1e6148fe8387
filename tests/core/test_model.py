from kvplan.core.model import Attention, Indexer, Layer, LayerGroup, Recurrent, group_layers
from kvplan.core.tensors import Tensor, TensorClass, linear, norm, vector
from tests.core.builders import attention, dense, experts, layer, model


def test_elements_of_all_copies_and_parameters_of_stored_ones():
    expert = Tensor(name="w", tensor_class=TensorClass.EXPERTS, shape=(3, 5), copies=7)
    assert expert.elements == expert.parameters == 105
    tied = Tensor(name="lm_head", tensor_class=TensorClass.HEAD, shape=(3, 5), stored=False)
    assert (tied.elements, tied.parameters) == (15, 0)


def test_what_a_tensor_is_unless_told_otherwise():
    plain = Tensor(name="x", tensor_class=TensorClass.OTHER, shape=(3,))
    assert (plain.copies, plain.matmul, plain.linear, plain.shards, plain.format, plain.stored) == (
        1, False, False, None, None, True,
    )  # fmt: skip


def test_a_linear_layer_is_a_matrix_and_perhaps_a_bias():
    weight, bias = linear("q", TensorClass.ATTENTION, out_features=8, in_features=4, bias=True, copies=3, shards=2)
    assert (weight.name, weight.shape, weight.copies, weight.shards) == ("q", (8, 4), 3, 2)
    assert weight.matmul
    assert weight.linear
    assert (bias.name, bias.shape, bias.copies, bias.shards) == ("q.bias", (8,), 3, 2)
    assert not bias.matmul
    assert not bias.linear
    [router] = linear("gate", TensorClass.OTHER, out_features=8, in_features=4, quantisable=False)
    assert router.matmul
    assert not router.linear
    assert (router.copies, router.shards) == (1, None)


def test_vectors_are_replicated_unless_told_otherwise():
    [scale] = vector("scale", TensorClass.OTHER, 6)
    assert (scale.shape, scale.copies, scale.shards, scale.matmul) == ((6,), 1, 1, False)
    [conv] = vector("conv", TensorClass.ATTENTION, 6, 1, 4, copies=2, shards=None)
    assert (conv.shape, conv.copies, conv.shards) == ((6, 1, 4), 2, None)
    assert [(t.name, t.shape) for t in norm("ln", 6, bias=True)] == [("ln", (6,)), ("ln.bias", (6,))]
    assert [t.name for t in norm("ln", 6)] == ["ln"]


def test_equal_layers_are_grouped_in_the_order_of_their_first_appearance():
    a, b = layer(), layer(attention(window=16))
    groups, order = group_layers([b, a, b, b])
    assert groups == (LayerGroup(count=3, layer=b), LayerGroup(count=1, layer=a))
    assert order == (0, 1, 0, 0)
    assert model(b, a, b, b).num_hidden_layers == 4


def test_all_tensors_of_a_layer_are_those_of_its_parts():
    one = layer(attention(), experts())
    parts = [*one.mixers[0].tensors, *one.feed_forward.tensors, *one.tensors]
    assert list(one.all_tensors()) == parts
    alone = Layer(mixers=(attention(),), feed_forward=None)
    assert list(alone.all_tensors()) == list(attention().tensors)
    side_by_side = Layer(mixers=(attention(), attention(kv_heads=8)), feed_forward=dense())
    assert len(list(side_by_side.all_tensors())) == 4 + 4 + 3


def test_what_a_mixer_is_unless_told_otherwise():
    plain = Attention(num_attention_heads=8, num_key_value_heads=2, head_dim=16, v_head_dim=16)
    assert (plain.window, plain.chunk, plain.cached, plain.causal, plain.indexer, plain.tensors) == (
        None, None, True, True, None, (),
    )  # fmt: skip
    assert Indexer(num_heads=1, head_dim=1, top_k=1).cached
    state = Recurrent(kind="mamba", state_elements=1, conv_elements=1, num_heads=1)
    assert (state.state_bits, state.tensors) == (32, ())


def test_what_a_model_is_unless_told_otherwise():
    plain = model()
    assert (plain.towers, plain.encoder_groups, plain.mtp_layers, plain.mtp_tensors) == ((), (), (), ())
    assert (plain.quantization, plain.kv_dtype, plain.exact_weight_bytes, plain.max_source_tokens) == (None,) * 4
    assert (plain.buffer_elements, plain.whole_item_tokens, plain.parallel_attention) == (0, 0, False)
    assert (plain.assumptions, plain.warnings) == ((), ())
