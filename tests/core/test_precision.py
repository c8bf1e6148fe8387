"""What-if precision: sizes of every override, GGUF mixtures against llama.cpp's own table, what stays 16-bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.core.cache import state_bytes_per_sequence_model
from kvplan.core.dtypes import FORMATS, integer_format
from kvplan.core.gguf_mixtures import FILE_TYPES, FULL_PRECISION, use_more_bits
from kvplan.core.model import DenseFeedForward, LayerGroup, Tower
from kvplan.core.parameters import parameters_total, weights_bytes_model
from kvplan.core.precision import (
    DTYPES,
    apply_dtype,
    canonical_dtype,
    display_dtype,
    is_quantisable,
    narrowed,
    precision_by_class,
    with_conv_dtype,
    with_state_dtype,
)
from kvplan.core.tensors import TensorClass, linear, norm
from kvplan.errors import UnknownNameError
from kvplan.specs.huggingface import from_config
from tests.core.builders import attention, dense, experts, layer, model, recurrent

LLAMA_31_8B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
LINEAR = 6_979_321_856
REST = 8_030_261_248 - LINEAR


@pytest.fixture(scope="module")
def llama():
    return from_config(LLAMA_31_8B, model_id="llama-3.1-8b")


#: Bits per weight of whole files of Llama-3.1-8B. Source: llama.cpp tools/quantize/README.md, commit 311c2c9f.
LLAMA_CPP = {
    "iq1_s": 2.0042, "iq1_m": 2.1460, "iq2_xxs": 2.3824, "iq2_xs": 2.5882, "iq2_s": 2.7403, "iq2_m": 2.9294,
    "iq3_xxs": 3.2548, "iq3_xs": 3.4977, "iq3_s": 3.6606, "iq3_m": 3.7628, "iq4_xs": 4.4597, "iq4_nl": 4.6818,
    "q2_k_s": 2.9697, "q2_k": 3.1593, "q3_k_s": 3.6429, "q3_k_l": 4.2979, "q4_k_s": 4.6672, "q4_k_m": 4.8944,
    "q5_k_s": 5.5704, "q5_k_m": 5.7036, "q6_k": 6.5633, "q8_0": 8.5008,
}  # fmt: skip


@pytest.mark.parametrize(("name", "bits"), LLAMA_CPP.items())
def test_gguf_files_have_the_size_that_llama_cpp_prints(llama, name, bits):
    model = apply_dtype(llama, name)
    # The table has four decimals: half of the last one is 0.0025 % of the smallest entry.
    assert weights_bytes_model(model) * 8 / parameters_total(model) == pytest.approx(bits, rel=5e-5)
    assert display_dtype(model) == name


def test_q4_k_m_of_llama_8b_and_70b(llama):
    assert weights_bytes_model(apply_dtype(llama, "Q4_K_M")) / 2**30 == pytest.approx(4.58, rel=0.005)
    large = {**LLAMA_31_8B, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
             "num_attention_heads": 64}  # fmt: skip
    model = from_config(large, model_id="llama-3.1-70b")
    # Source: size of bartowski/Meta-Llama-3.1-70B-Instruct Q4_K_M, 42.52 GB.
    assert weights_bytes_model(apply_dtype(model, "q4_k_m")) == pytest.approx(42.52e9, rel=0.001)


#: Bytes beside the 16-bit tensors, from the layouts: payload + scales + zero points of the linear layers.
@pytest.mark.parametrize(
    ("name", "linear_bits"),
    [
        ("fp8", 8.0), ("int8", 8 + 16 / 5120), ("w8a8", 8 + 32 / 5120), ("int4", 4.125), ("awq", 4.15625), ("gptq", 4.15625),
        ("nvfp4", 4.5), ("mxfp4", 4.25), ("nf4", 4.5),
    ],
)  # fmt: skip
def test_overrides_quantise_linear_layers_and_leave_the_rest(llama, name, linear_bits):
    model = apply_dtype(llama, name)
    # Row scales depend on the row length (4096 to 14336): half a thousandth of the linear layers covers them.
    assert weights_bytes_model(model) == pytest.approx(LINEAR * linear_bits / 8 + REST * 2, rel=5e-4)
    classes = precision_by_class(model)
    for kind in (TensorClass.EMBEDDING, TensorClass.HEAD, TensorClass.OTHER):
        assert classes[kind].bits == 16
        assert classes[kind].compute == "bf16"
    assert classes[TensorClass.MLP].formats == (name,)
    assert display_dtype(model) == name


def test_compute_format_is_that_of_the_multiplication(llama):
    def compute(name):
        return precision_by_class(apply_dtype(llama, name))[TensorClass.MLP].compute

    assert [compute(n) for n in ("fp8", "w8a8", "nvfp4", "awq", "int4", "nf4", "q4_k_m")] == [
        "fp8", "int8", "fp4", "bf16", "bf16", "bf16", "bf16",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["fp32", "tf32", "bf16", "fp16"])
def test_plain_overrides(llama, name):
    model = apply_dtype(apply_dtype(llama, "fp8"), name)
    assert weights_bytes_model(model) == parameters_total(llama) * FORMATS[name].element_bits // 8
    assert model.quantization is None


def test_the_checkpoints_own_format_changes_nothing(llama):
    assert apply_dtype(llama, "bf16") is llama
    native = from_config(
        {**LLAMA_31_8B, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, model_id="x"
    )
    assert apply_dtype(native, "fp8") is native
    assert weights_bytes_model(apply_dtype(native, "bf16")) == weights_bytes_model(llama)


def test_every_name_works_and_parameters_never_change(llama):
    for name in DTYPES:
        model = apply_dtype(llama, name)
        assert parameters_total(model) == parameters_total(llama)
        assert model.num_hidden_layers == 32


def test_wide_checkpoints_become_16_bit_beside_their_linear_layers(llama):
    wide = apply_dtype(apply_dtype(llama, "fp32"), "awq")
    assert weights_bytes_model(wide) == weights_bytes_model(apply_dtype(llama, "awq"))


def test_mxfp4_experts_stay_in_every_gguf_file():
    config = {
        "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880,
        "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
        "num_local_experts": 32, "num_experts_per_tok": 4, "vocab_size": 201088, "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 12, "max_position_embeddings": 131072,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "mxfp4"},
    }  # fmt: skip
    model = apply_dtype(from_config(config, model_id="gpt-oss-20b"), "q8_0")
    assert precision_by_class(model)[TensorClass.EXPERTS].formats[0] == "gguf_mxfp4"
    assert precision_by_class(model)[TensorClass.EMBEDDING].formats == ("q8_0",)


def test_names_are_forgiving_and_unknown_ones_are_refused():
    assert canonical_dtype("Q4_K") == "q4_k_m"
    assert canonical_dtype("IQ4-XS") == "iq4_xs"
    with pytest.raises(UnknownNameError, match="q4_k_x") as caught:
        canonical_dtype("q4_k_x")
    assert "q4_k" in str(caught.value.hint)


def test_layout_of_formats():
    assert FORMATS["awq"].bits_per_element() == 4.15625
    assert FORMATS["nf4_double"].bits_per_element() == pytest.approx(4.127, abs=5e-4)
    assert FORMATS["fp8_block"].bits_per_element() == 8 + 32 / 128**2
    assert integer_format("gptq", bits=3, group_size=128, zero_bits=3).bits_per_element() == pytest.approx(
        3.148, abs=1e-3
    )
    assert FORMATS["mxfp4"].stored_bytes(1, 32) == 17
    assert [i for i in range(32) if use_more_bits(i, 32)][:5] == [0, 1, 2, 3, 6]
    assert set(FILE_TYPES.values()) <= set(FORMATS)


PARTS = model(
    layer(attention(), experts()),
    towers=(Tower(name="vision", tensors=linear("v", TensorClass.OTHER, out_features=64, in_features=64)),),
    encoder_groups=(LayerGroup(count=2, layer=layer()),),
    mtp_layers=(layer(),),
)


def formats(tensors):
    return {tensor.format.id for tensor in tensors if tensor.format is not None}


@pytest.mark.parametrize("name", ["int8", "q8_0"])
def test_an_override_reaches_every_layer_and_leaves_towers(name):
    changed = apply_dtype(PARTS, name)
    assert [group.count for group in changed.encoder_groups] == [2]
    for inside in (changed.groups[0].layer, changed.encoder_groups[0].layer, changed.mtp_layers[0]):
        assert name in formats(inside.feed_forward.tensors)
        assert name in formats(inside.mixers[0].tensors)
    assert formats(changed.towers[0].tensors) == set()
    [router, *_] = changed.groups[0].layer.feed_forward.tensors
    assert router.format in (None, FULL_PRECISION)


def test_an_override_drops_what_belonged_to_the_other_checkpoint():
    read = replace(PARTS, quantization="fp8", kv_dtype="fp8", exact_weight_bytes=5, dtype="fp32")
    for name, dtype in (("awq", "bf16"), ("q4_k_m", "fp16"), ("fp16", "fp16")):
        changed = apply_dtype(read, name)
        assert (changed.kv_dtype, changed.exact_weight_bytes, changed.dtype) == (None, None, dtype)
    assert apply_dtype(replace(read, dtype="fp16"), "awq").dtype == "fp16"
    assert apply_dtype(replace(read, dtype="fp16"), "q4_k_m").dtype == "fp16"
    assert apply_dtype(read, "awq").quantization == "awq"
    towers = replace(
        PARTS, quantization="fp8", towers=tuple(replace(t, tensors=fp8_tensors(t.tensors)) for t in PARTS.towers)
    )
    assert formats(apply_dtype(towers, "bf16").towers[0].tensors) == set()
    assert formats(apply_dtype(towers, "int8").towers[0].tensors) == set()


def fp8_tensors(tensors):
    return tuple(replace(tensor, format=FORMATS["fp8_block"]) for tensor in tensors)


def test_a_layer_without_feed_forward_is_mapped_too():
    bare = model(replace(layer(), feed_forward=None))
    assert formats(apply_dtype(bare, "int8").groups[0].layer.all_tensors()) == {"int8"}


def test_precision_of_a_class_is_weighted_by_its_parameters():
    kind = TensorClass.MLP
    wide = linear("up", kind, out_features=256, in_features=64)
    narrow = [replace(t, format=FORMATS["int8"]) for t in linear("down", kind, out_features=64, in_features=128)]
    found = precision_by_class(model(*[layer(feed_forward=DenseFeedForward(tensors=(*wide, *narrow)))] * 3))[kind]
    stored = 3 * (256 * 64 * 2 + 64 * 128 + 64 * 2)
    assert (found.parameters, found.stored_bytes) == (3 * (16384 + 8192), stored)
    assert found.bits == 8 * stored / found.parameters
    assert found.formats == ("bf16", "int8")
    assert found.compute == "bf16"
    assert TensorClass.HEAD not in precision_by_class(model(tied=True))


def as_checkpoint(fmt, *, quantization="compressed-tensors"):
    quantised = tuple(replace(t, format=fmt) for t in dense().tensors)
    return model(layer(feed_forward=DenseFeedForward(tensors=quantised)), quantization=quantization)


@pytest.mark.parametrize(
    ("fmt", "shown"),
    [
        (FORMATS["fp8_block"], "fp8"), (FORMATS["mxfp8"], "fp8"), (FORMATS["nvfp4_w4a16"], "nvfp4"),
        (FORMATS["gguf_mxfp4"], "gguf_mxfp4"), (FORMATS["llm_int8"], "int8"), (FORMATS["nf4_double"], "nf4"),
        (integer_format("awq", bits=4, group_size=64), "awq"), (integer_format("gptq", bits=4, group_size=32), "gptq"),
        (integer_format("gptq", bits=3, group_size=128), "int3"), (integer_format("int", bits=8), "int8"),
        (integer_format("int", bits=6, group_size=32), "int6"),
    ],
)  # fmt: skip
def test_the_name_that_people_use_is_that_of_most_quantised_parameters(fmt, shown):
    assert display_dtype(as_checkpoint(fmt)) == shown


def test_the_larger_share_names_a_mixed_checkpoint():
    both = linear("up", TensorClass.MLP, out_features=256, in_features=64)
    small = linear("down", TensorClass.MLP, out_features=64, in_features=64)
    mixed = DenseFeedForward(
        tensors=(
            *(replace(t, format=FORMATS["mxfp4"]) for t in small),
            *(replace(t, format=FORMATS["fp8_block"]) for t in both),
        )
    )
    assert display_dtype(model(layer(feed_forward=mixed), quantization="quark")) == "fp8"
    deep = [layer(feed_forward=DenseFeedForward(tensors=tuple(replace(t, format=FORMATS["mxfp4"]) for t in small)))] * 5
    assert display_dtype(model(layer(feed_forward=mixed), *deep, quantization="quark")) == "mxfp4"
    assert display_dtype(model(quantization="quark")) == "bf16"  # nothing is quantised
    assert display_dtype(as_checkpoint(FORMATS["nvfp4"], quantization="fp8")) == "nvfp4"
    assert display_dtype(as_checkpoint(FORMATS["nvfp4"], quantization="awq")) == "awq"
    assert display_dtype(model(quantization=None, dtype="fp16")) == "fp16"


def test_what_a_quantiser_takes():
    [up] = linear("up", TensorClass.MLP, out_features=8, in_features=8)
    assert is_quantisable(up)
    assert not is_quantisable(replace(up, linear=False))
    for kind in (TensorClass.HEAD, TensorClass.EMBEDDING):
        assert not is_quantisable(replace(up, tensor_class=kind))


def test_a_strange_name_brings_the_nearest_ones():
    with pytest.raises(UnknownNameError) as caught:
        canonical_dtype("xyzzy")
    assert "q4_k_m" in str(caught.value.hint)
    with pytest.raises(UnknownNameError) as caught:
        canonical_dtype("awqq")
    assert "awq" in str(caught.value.hint)
    with pytest.raises(UnknownNameError):
        canonical_dtype("llm_int8")  # a format of checkpoints, not an override


def test_equal_shares_add_up():
    halves = [
        replace(t, format=FORMATS["fp8_block"]) for t in linear("up", TensorClass.MLP, out_features=64, in_features=64)
    ] * 2
    between = [
        replace(t, format=FORMATS["mxfp4"]) for t in linear("down", TensorClass.MLP, out_features=96, in_features=64)
    ]
    both = DenseFeedForward(tensors=(*between, *halves))
    assert display_dtype(model(layer(feed_forward=both), quantization="quark")) == "fp8"


def test_states_in_the_engines_format_where_the_config_names_none():
    hybrid = model(layer(recurrent(state_bits=16)), layer())
    wide = with_state_dtype(hybrid, "fp32")
    assert [group.layer.mixers[0] for group in wide.groups] == [recurrent(state_bits=32), attention()]
    assert replace(wide, groups=hybrid.groups) == hybrid
    assert with_state_dtype(wide, "bf16") == hybrid
    assert with_state_dtype(wide, "fp32") is wide
    side_by_side = replace(layer(), mixers=(attention(), recurrent(state_bits=16)))
    [group] = with_state_dtype(model(side_by_side), "fp32").groups
    assert group.layer.mixers == (attention(), recurrent(state_bits=32))
    named = replace(hybrid, state_dtype="bf16")
    assert with_state_dtype(named, "fp32") is named
    plain = model(layer())
    assert with_state_dtype(plain, "fp32") is plain


def test_fp32_checkpoints_are_narrowed_unless_fp32_was_asked_for():
    """What follows the model's dtype halves, states among it; quantised tensors and named state formats stay."""
    wide = model(layer(recurrent(state_bits=32)), dtype="fp32", exact_weight_bytes=5)
    half = narrowed(wide, "bf16")
    assert (half.dtype, half.exact_weight_bytes) == ("bf16", None)
    assert weights_bytes_model(half) * 2 == weights_bytes_model(replace(wide, exact_weight_bytes=None))
    assert [m.state_bits for g in half.groups for m in g.layer.mixers] == [16]
    named = narrowed(replace(wide, state_dtype="fp32"), "fp16")
    assert [m.state_bits for g in named.groups for m in g.layer.mixers] == [32]
    for asked in (apply_dtype(wide, "fp32"), apply_dtype(model(dtype="bf16"), "fp32")):
        assert narrowed(asked, "bf16") is asked
    assert narrowed(wide, None) is wide
    assert narrowed(apply_dtype(apply_dtype(wide, "fp32"), "bf16"), "fp16").dtype == "bf16"
    plain = model(dtype="fp16")
    assert narrowed(plain, "bf16") is plain


def test_convolution_states_have_a_format_of_their_own():
    hybrid = model(layer(), layer(recurrent()))
    wide = with_conv_dtype(hybrid, "fp32")
    assert state_bytes_per_sequence_model(wide) - state_bytes_per_sequence_model(hybrid) == 300 * 2
    assert with_conv_dtype(wide, "fp16") == hybrid
    assert with_conv_dtype(plain := model(), "fp32") is plain


def test_projections_of_prediction_layers_follow_the_format():
    projection, beside = linear("eh_proj", TensorClass.OTHER, out_features=64, in_features=128), norm("enorm", 64)
    asked = model(mtp_layers=(layer(),), mtp_tensors=(*projection, *beside))
    eight = apply_dtype(asked, "fp8")
    assert [one.format and one.format.id for one in eight.mtp_tensors] == ["fp8", None]
    assert apply_dtype(eight, "bf16").mtp_tensors == asked.mtp_tensors
