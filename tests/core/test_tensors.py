from kvplan.core.tensors import Tensor, TensorClass, linear, norm, vector


def test_elements_of_all_copies_and_parameters_of_stored_ones():
    expert = Tensor(name="w", tensor_class=TensorClass.EXPERTS, shape=(3, 5), copies=7)
    assert expert.elements == expert.parameters == 105
    tied = Tensor(name="lm_head", tensor_class=TensorClass.HEAD, shape=(3, 5), stored=False)
    assert (tied.elements, tied.parameters) == (15, 0)


def test_what_a_tensor_is_unless_told_otherwise():
    plain = Tensor(name="x", tensor_class=TensorClass.OTHER, shape=(3,))
    assert (plain.copies, plain.matmul, plain.linear, plain.shards, plain.format, plain.stored, plain.of_source) == (
        1, False, False, None, None, True, False,
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
