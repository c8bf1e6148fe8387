from kvplan.core.model import Attention, Indexer, Layer, LayerGroup, Recurrent, group_layers
from tests.core.builders import attention, dense, experts, layer, model


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
