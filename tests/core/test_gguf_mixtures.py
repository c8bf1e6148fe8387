"""Mixtures of GGUF file types, read off `llama_tensor_get_type_impl` in llama.cpp's src/llama-quant.cpp (commit 007dbbf3).

What whole files weigh is in test_precision.py; here stands what each rule says, also for models that no published table
shows: eight experts, 80 layers, one KV head per query head, rows that no super-block divides.
"""

from dataclasses import replace

import pytest

from kvplan.core.gguf_mixtures import FILE_TYPES, Shape, model_shape, role, tensor_type, use_more_bits
from kvplan.core.tensors import Tensor, TensorClass, linear
from tests.core.builders import attention, experts, latent, layer, model, recurrent

GQA = Shape(layers=32, gqa=4, experts=0, has_output=True)
MHA = replace(GQA, gqa=1)
MIXTRAL = replace(GQA, experts=8)
LLAMA_70B = replace(GQA, layers=80, gqa=8)
TINY = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m")
NAMES = {
    "v": "self_attn.v_proj", "q": "self_attn.q_proj", "k": "self_attn.k_proj", "o": "self_attn.o_proj",
    "qkv": "self_attn.qkv_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip
EMBEDDING = Tensor(name="model.embed_tokens", tensor_class=TensorClass.EMBEDDING, shape=(1024, 4096))
[HEAD] = linear("lm_head", TensorClass.HEAD, out_features=1024, in_features=4096)


def named(short, *, columns=4096):
    kind = TensorClass.MLP if short in {"gate", "up", "down"} else TensorClass.ATTENTION
    [tensor] = linear(NAMES[short], kind, out_features=64, in_features=columns)
    return tensor


def given(file_type, short, *, index=5, shape=GQA):
    return tensor_type(file_type, named(short), index=index, shape=shape).id


def table(short, shape, *, index=5):
    """What differs from the file type's own type."""
    found = {name: given(name, short, index=index, shape=shape) for name in FILE_TYPES}
    return {name: kind for name, kind in found.items() if kind != FILE_TYPES[name]}


def test_the_first_and_last_eighth_and_every_third_between_get_more_bits():
    picked = [i for i in range(32) if use_more_bits(i, 32)]
    assert picked == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]


def test_values_under_grouped_heads():
    common = {
        "q2_k": "q4_k", "q2_k_s": "q4_k", "iq3_xs": "q4_k", "iq3_s": "q4_k", "iq3_xxs": "q4_k", "iq3_m": "q4_k",
        "q3_k_l": "q5_k", "iq4_nl": "q5_k", "iq4_xs": "q5_k", **dict.fromkeys(TINY, "q4_k"),
    }  # fmt: skip
    more = {"q4_k_m": "q6_k", "q5_k_m": "q6_k"}
    assert table("v", GQA, index=1) == {**common, **more, "q3_k_m": "q5_k", "q4_k_s": "q5_k"}
    assert table("v", GQA, index=3) == {**common, **more, "q3_k_m": "q4_k", "q4_k_s": "q5_k"}
    assert table("v", GQA, index=2) == table("v", GQA, index=3)
    assert table("v", GQA, index=4) == {**common, "q3_k_m": "q4_k"}
    assert table("v", GQA, index=6) == {**common, **more, "q3_k_m": "q4_k"}
    assert table("v", replace(GQA, gqa=3), index=4) == table("v", MHA, index=4)


def test_values_where_each_query_head_has_its_own():
    small = dict.fromkeys(TINY, "q2_k")
    assert table("v", MHA) == {
        "q2_k": "q3_k", "iq3_m": "q4_k", "q3_k_m": "q4_k", "q3_k_l": "q5_k", **small, "iq2_s": "iq3_s", "iq2_m": "iq3_s",
    }  # fmt: skip


def test_values_of_the_70b_rise_to_five_bits():
    raised = ("q2_k", "q2_k_s", "iq3_xs", "iq3_s", "iq3_xxs", "iq3_m", "q3_k_s", "q3_k_m", "q3_k_l", "iq4_nl", "iq4_xs",
              "q4_k_s", "q4_k_m")  # fmt: skip
    assert table("v", LLAMA_70B, index=11) == {**dict.fromkeys(raised, "q5_k"), **dict.fromkeys(TINY, "q4_k")}
    assert table("v", replace(LLAMA_70B, gqa=1), index=11) == table("v", MHA)


def test_mixtral_keeps_keys_and_values_in_eight_bits():
    large = {name for name in FILE_TYPES if name not in TINY} - {"q8_0", "mxfp4_moe"}
    assert table("v", MIXTRAL) == {**dict.fromkeys(large, "q8_0"), **dict.fromkeys(TINY, "q4_k")}
    assert table("k", MIXTRAL) == table("v", MIXTRAL)
    better = ("q2_k", "iq3_xs", "iq3_xxs", "q3_k_s", "q3_k_m", "iq4_nl", "q4_k_s", "q4_k_m", "iq3_s", "iq3_m", "iq4_xs")
    assert table("o", MIXTRAL) == dict.fromkeys((*better, *TINY), "q5_k")
    for index in (1, 6):
        assert table("down", MIXTRAL, index=index)["iq3_m"] == "q4_k"
    assert "iq3_m" not in table("down", MIXTRAL, index=4)
    assert "iq3_m" not in table("down", GQA, index=6)
    four = replace(MHA, experts=4)
    assert {table("v", four)[name] for name in TINY} == {"q4_k"}
    assert table("v", replace(MHA, experts=3)) == table("v", MHA)
    assert table("k", four) == table("k", MHA)


def test_queries_and_keys():
    assert table("q", GQA) == table("k", GQA) == table("q", MIXTRAL) == {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}


def test_outputs():
    assert table("o", GQA) == {
        "q2_k": "q3_k", "iq3_xxs": "iq3_s", "q3_k_m": "q4_k", "q3_k_l": "q5_k", "iq3_m": "q4_k",
        "iq1_s": "iq2_xxs", "iq1_m": "iq2_xxs", "iq2_s": "iq3_s", "iq2_m": "iq3_s",
    }  # fmt: skip


def test_fused_projections():
    assert table("qkv", GQA) == {
        "q3_k_m": "q4_k",
        "q3_k_l": "q4_k",
        "iq3_m": "q4_k",
        "q4_k_m": "q5_k",
        "q5_k_m": "q6_k",
    }


def test_down_projections():
    always = {"q2_k": "q3_k", "q3_k_l": "q5_k"}
    eighth = {
        "q2_k_s": "q4_k", "iq3_m": "q4_k", "q4_k_s": "q5_k", "iq4_nl": "q5_k", "iq4_xs": "q5_k",
        **dict.fromkeys(TINY, "q2_k"), "iq2_s": "iq3_s", "iq2_m": "iq3_s",
    }  # fmt: skip
    more = {"q4_k_m": "q6_k", "q5_k_m": "q6_k"}
    assert table("down", GQA, index=1) == {**always, **eighth, **more, "q3_k_m": "q5_k"}
    assert table("down", GQA, index=3) == {**always, **eighth, **more, "q3_k_m": "q4_k"}
    assert table("down", GQA, index=2) == table("down", GQA, index=3)
    assert table("down", GQA, index=4) == {**always, "q3_k_m": "q4_k"}
    of_60 = replace(GQA, layers=60)  # a sixteenth are three layers, an eighth seven
    assert [table("down", of_60, index=i)["q3_k_m"] for i in (2, 3)] == ["q5_k", "q4_k"]
    assert ["q4_k_s" in table("down", of_60, index=i) for i in (6, 7)] == [True, False]
    assert table("down", GQA, index=28) == {**always, **more, "q3_k_m": "q4_k"}


@pytest.mark.parametrize("short", ["gate", "up"])
def test_gates_lose_bits_in_the_middle(short):
    of_30 = replace(GQA, layers=30)
    assert ["iq3_xs" in table(short, of_30, index=i) for i in (2, 3, 25, 26)] == [False, True, True, False]
    assert [table(short, GQA, index=i) for i in (3, 4, 27, 28)] == [
        {},
        {"iq3_xs": "iq3_xxs"},
        {"iq3_xs": "iq3_xxs"},
        {},
    ]


def test_embedding_and_head():
    heads = {name: tensor_type(name, HEAD, index=0, shape=GQA).id for name in FILE_TYPES}
    five = {*TINY, "iq3_xxs"}
    assert heads == {
        name: "q8_0" if FILE_TYPES[name] == "q8_0" else "q5_k" if name in five else "q6_k" for name in FILE_TYPES
    }
    tied = {name: tensor_type(name, EMBEDDING, index=0, shape=replace(GQA, has_output=False)).id for name in FILE_TYPES}
    assert tied == heads
    looked_up = {name: tensor_type(name, EMBEDDING, index=0, shape=GQA).id for name in FILE_TYPES}
    assert {name: kind for name, kind in looked_up.items() if kind != FILE_TYPES[name]} == {
        **dict.fromkeys(("iq2_xxs", "iq2_xs", "iq1_s", "iq1_m"), "q2_k"),
        **dict.fromkeys(("iq2_s", "iq2_m", "iq3_xxs"), "iq3_s"),
        **dict.fromkeys(("tq1_0", "tq2_0"), "q4_k"),
    }


@pytest.mark.parametrize(
    ("file_type", "kind"),
    [("q4_k_s", "q5_0"), ("q5_k_s", "q5_1"), ("q6_k", "q8_0"), ("tq1_0", "q4_0"), ("iq4_xs", "iq4_nl"), ("iq2_xs", "iq4_nl"),
     ("q8_0", "q8_0"), ("q4_0", "q4_0")],
)  # fmt: skip
def test_rows_that_no_super_block_divides_take_small_blocks(file_type, kind):
    assert tensor_type(file_type, named("up", columns=2880), index=20, shape=GQA).id == kind
    assert tensor_type(file_type, named("up", columns=17 * 256), index=20, shape=GQA).id == FILE_TYPES[file_type]
    assert tensor_type(file_type, named("up", columns=2881), index=20, shape=GQA).id == "fp16"


def test_mxfp4_is_for_experts_and_eight_bits_for_the_rest():
    """Rows of 2,880 are no multiple of 256, which MXFP4 does not ask for."""
    [expert] = linear("experts.up_proj", TensorClass.EXPERTS, out_features=64, in_features=2880, copies=32)
    assert tensor_type("mxfp4_moe", expert, index=0, shape=GQA).id == "gguf_mxfp4"
    assert {
        tensor_type("mxfp4_moe", one, index=0, shape=GQA).id for one in (named("up"), named("q"), HEAD, EMBEDDING)
    } == {"q8_0"}


def test_what_a_tensor_is_to_the_rules():
    norm = Tensor(name="input_layernorm", tensor_class=TensorClass.OTHER, shape=(64,))
    full = tensor_type("q4_k_m", norm, index=0, shape=GQA)
    assert (full.id, full.element_bits, full.compute, full.quantised) == ("fp32", 32, None, False)
    [router] = linear("mlp.gate", TensorClass.OTHER, out_features=8, in_features=64, quantisable=False)
    scale = replace(EMBEDDING, shape=(64,))
    roles = [role(one).value for one in (EMBEDDING, HEAD, norm, router, scale, replace(HEAD, shape=(64,)))]
    assert roles == ["token_embd", "output", "full", "full", "full", "other"]
    assert [role(named(short)).value for short in NAMES] == [
        "attn_v", "attn_q", "attn_k", "attn_output", "attn_qkv", "ffn_gate", "ffn_up", "ffn_down",
    ]  # fmt: skip
    [shared] = linear("mlp.c_proj", TensorClass.SHARED, out_features=8, in_features=64)
    [merged] = linear("attn.c_proj", TensorClass.ATTENTION, out_features=8, in_features=64)
    [latent_up] = linear("self_attn.kv_b_proj", TensorClass.ATTENTION, out_features=8, in_features=64)
    assert [role(one).value for one in (shared, merged, latent_up)] == ["ffn_down", "attn_output", "other"]


def test_the_shape_of_a_model():
    assert model_shape(model()) == Shape(layers=4, gqa=4, experts=0, has_output=True)
    assert model_shape(model(tied=True)).has_output is False
    sparse = model(layer(recurrent()), layer(attention(kv_heads=8)), layer(attention(), experts(count=6)))
    assert model_shape(sparse) == Shape(layers=3, gqa=1, experts=6, has_output=True)
    assert model_shape(model(layer(latent()))).gqa == 1
