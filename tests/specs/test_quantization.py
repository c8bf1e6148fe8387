"""Dialects of `quantization_config`: which tensors are stored in which format, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.core.model import Model
from kvplan.core.parameters import weights_bytes_model
from kvplan.core.precision import display_dtype
from kvplan.errors import KvplanError, SpecError, UnsupportedModelError
from kvplan.specs.huggingface import from_config
from kvplan.specs.quantization.names import NameList, canonical

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
MIXTURE = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}


def read(quantization: dict[str, Any], base: dict[str, Any] = LLAMA, sidecar: dict[str, Any] | None = None) -> Model:
    return from_config({**base, "quantization_config": quantization}, sidecar=sidecar, model_id="test")


def formats(model: Model, layer: int = 0) -> dict[str, str | None]:
    tensors = list(model.groups[model.layer_order[layer]].layer.all_tensors())
    return {t.name: t.format.id if t.format else None for t in (*tensors, *model.tensors)}


@pytest.mark.parametrize(
    ("quantization", "linear", "kv_dtype", "display"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", None, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}, "fp8_block_e8m0", None, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"}, "fp8_static", None, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [64, 32]}, "fp8_block_64x32", None, "fp8"),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8_channel", None, "fp8"),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
            "awq",
            None,
            "awq",
        ),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": True}, "awq4_g64", None, "awq"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "gptq", None, "gptq"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": True}, "gptq8_channel", None, "gptq"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}, "gptq", None, "gptq"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4", None, "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "llm_int8", None, "int8"),
        ({"quant_method": "eetq", "weights": "int8"}, "int8", None, "int8"),
        ({"quant_method": "hqq", "nbits": 4, "group_size": 64}, "hqq4_g64", None, "int4"),
        (
            {
                "quant_method": "aqlm",
                "num_codebooks": 1,
                "nbits_per_codebook": 16,
                "in_group_size": 8,
                "out_group_size": 1,
            },
            "aqlm_1x16",
            None,
            "aqlm_1x16",
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": "FP8"}, "fp8_static", "fp8", "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4", None, "nvfp4"),
        ({"quant_method": "mxfp8"}, "mxfp8", None, "mxfp8"),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": INT4}},
                "ignore": ["lm_head"],
                "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False},
            },
            "int4_g128",
            "fp8",
            "int4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
                        "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
                    }
                },
                "ignore": ["lm_head"],
            },
            "fp8_channel16",
            None,
            "fp8",
        ),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
                "exclude": ["lm_head"],
            },
            "fp8",
            None,
            "fp8",
        ),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}},
            },
            "torchao4_g128",
            None,
            "int4",
        ),
    ],
)
def test_linear_layers_are_quantised_and_the_rest_stays(quantization, linear, kv_dtype, display):
    model = read(quantization)
    found = formats(model)
    assert found["self_attn.q_proj"] == found["mlp.down_proj"] == linear
    for name in ("model.embed_tokens", "model.norm", "lm_head", "input_layernorm"):
        assert found[name] is None
    assert model.kv_dtype == kv_dtype
    assert display_dtype(model) == display


def test_head_and_layers_that_a_list_names():
    everywhere = read({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "model.layers.1.self_attn.q_proj"]})
    assert formats(everywhere, 0)["self_attn.q_proj"] == "fp8"
    assert formats(everywhere, 1)["self_attn.q_proj"] is None
    assert formats(everywhere, 1)["self_attn.k_proj"] == "fp8"
    head = read({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True})
    assert formats(head)["lm_head"] == "gptq"


def test_globs_regexes_and_names_of_modelopt_and_compressed_tensors():
    model = read(
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.0*", "*.mlp.up_proj"]}
    )
    assert set(formats(model, 0).values()) == {None}
    assert formats(model, 1)["mlp.up_proj"] is None
    assert formats(model, 1)["mlp.gate_proj"] == "nvfp4"
    groups = {
        "group_0": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}},
        "group_1": {"targets": ["Linear"], "weights": INT4},
    }
    mixed = read(
        {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["re:.*down_proj$", "lm_head"]}
    )
    found = formats(mixed)
    assert found["self_attn.o_proj"] == "fp8_w8a16"
    assert found["mlp.gate_proj"] == "int4_g128"
    assert found["mlp.down_proj"] is None


def test_experts_are_matched_under_every_spelling():
    listed = {
        f"model.layers.{layer}.block_sparse_moe.experts.{i}.{part}": {"quant_algo": "NVFP4", "group_size": 16}
        for layer in range(2)
        for i in range(4)
        for part in ("w1", "w2", "w3")
    }
    model = read({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed}, MIXTURE)
    found = formats(model, 1)
    assert found["mlp.experts.gate_proj"] == found["mlp.experts.down_proj"] == "nvfp4"
    assert found["self_attn.q_proj"] is None
    assert found["mlp.gate"] is None
    kimi = ["lm_head", "re:.*self_attn.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]
    groups = {"group_0": {"targets": ["Linear"], "weights": {**INT4, "group_size": 32}}}
    model = read({"quant_method": "compressed-tensors", "config_groups": groups, "ignore": kimi}, MIXTURE)
    assert formats(model)["mlp.experts.up_proj"] == "int4_g32"
    assert formats(model)["self_attn.q_proj"] is None


def test_mxfp4_is_for_routed_experts_only():
    model = read({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, MIXTURE)
    found = formats(model)
    assert found["mlp.experts.gate_proj"] == "mxfp4"
    assert found["self_attn.q_proj"] is None


def test_sidecar_is_read_where_the_config_says_nothing():
    inner = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}
    sidecar = {"producer": {"name": "modelopt", "version": "0.22"}, "quantization": inner}
    model = from_config(LLAMA, sidecar=sidecar, model_id="test")
    assert formats(model)["self_attn.q_proj"] == "nvfp4"
    assert model.kv_dtype == "fp8"
    said = read({"quant_method": "modelopt", "quant_algo": "NVFP4"}, sidecar=sidecar)
    assert said.kv_dtype is None
    assert any("hf_quant_config.json" in warning for warning in said.warnings)


def test_gptqmodel_rules_except_and_change_modules():
    dynamic = {r"-:model\.layers\.0\..*": {}, r"+:.*\.down_proj": {"bits": 8, "group_size": 32}}
    model = read({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": dynamic})
    assert formats(model, 0)["self_attn.q_proj"] is None
    assert formats(model, 1)["self_attn.q_proj"] == "gptq"
    assert formats(model, 1)["mlp.down_proj"] == "gptq8_g32"


def test_auto_round_exceptions():
    extra = {"model.layers.1.mlp.up_proj": {"bits": 16}, ".*k_proj.*": {"bits": 8}}
    model = read({"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": extra})
    assert formats(model, 1)["mlp.up_proj"] is None
    assert formats(model, 0)["mlp.up_proj"] == "gptq"
    assert formats(model, 0)["self_attn.k_proj"] == "gptq8_g128"


#: (config, bytes, how they were read). Sources: config.json of the repositories; bytes of the exact repository from
#: `transformers` 5.24 on the meta device with the storage rule of the dialect; gpt-oss also from its index file.
GOLDEN = [
    (
        {
            "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880,
            "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
            "num_local_experts": 32, "num_experts_per_tok": 4, "experts_per_token": 4, "vocab_size": 201088,
            "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12, "attention_bias": True,
            "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "quantization_config": {
                "quant_method": "mxfp4",
                "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"],
            },
        },
        13_761_264_768,
    ),
    (
        {
            "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 8192, "intermediate_size": 29696,
            "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 152064,
            "max_position_embeddings": 32768, "tie_word_embeddings": False, "torch_dtype": "float16",
            "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
        },
        41_595_518_976,
    ),
    (
        {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
            "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "quantization_config": {
                "quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4",
                "bnb_4bit_use_double_quant": True,
            },
        },
        5_702_295_552,
    ),
    (
        {
            "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
            "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
            "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_group": 8, "topk_group": 4,
            "num_nextn_predict_layers": 1, "vocab_size": 129280, "max_position_embeddings": 163840,
            "tie_word_embeddings": False, "attention_bias": False, "torch_dtype": "bfloat16",
            "quantization_config": {
                "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
            },
        },
        673_150_545_584,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "expected"), GOLDEN, ids=["gpt-oss-20b", "qwen2-72b-gptq", "llama-bnb", "deepseek-v3"]
)
def test_bytes_of_real_checkpoints(config, expected):
    assert weights_bytes_model(from_config(config, model_id="test")) == expected


@pytest.mark.parametrize(
    ("quantization", "named"),
    [
        ({"quant_method": "exl3", "bits": 4}, "quant_method"),
        ({"bits": 4}, "quant_method"),
        ({"quant_method": "fp8", "new_block_layout": 7}, "new_block_layout"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": "128"}, "weight_block_size"),
        ({"quant_method": "fp8", "expert_dtype": "fp2"}, "expert_dtype"),
        ({"quant_method": "awq", "bits": 5, "group_size": 128}, "bits"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "quant_algo"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quantized_layers"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": "FP3"}, "kv_cache_scheme"),
        ({"quant_method": "compressed-tensors", "format": "marlin-24"}, "format"),
        ({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config"),
        ({"quant_method": "compressed-tensors", "ignore": ["re:(a+)+$"]}, "ignore"),
        ({"quant_method": "compressed-tensors", "ignore": ["re:("]}, "ignore"),
        ({"quant_method": "torchao", "quant_type": "int3_weight_only"}, "quant_type"),
        ({"quant_method": "fp8", "modules_to_not_convert": "lm_head"}, "modules_to_not_convert"),
        (["fp8"], "quantization_config"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(quantization, named):
    with pytest.raises(SpecError, match=named):
        read(quantization)


def test_notes_of_the_producer_pass_with_a_warning():
    model = read({"quant_method": "awq", "bits": 4, "group_size": 128, "calibration_seed": 7})
    assert any("calibration_seed" in warning for warning in model.warnings)


def test_schemes_by_glob():
    scheme = {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "symmetric": None}}
    quark = {
        "quant_method": "quark",
        "global_quant_config": {},
        "layer_quant_config": {"*block_sparse_moe.experts": scheme},
    }
    found = formats(read(quark, MIXTURE))
    assert found["mlp.experts.down_proj"] == "mxfp4"
    assert found["self_attn.q_proj"] is None


def test_experts_that_differ_are_refused():
    ignore = ["model.layers.0.mlp.experts.1.up_proj"]
    with pytest.raises(UnsupportedModelError, match="1 of the 4 experts"):
        read({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ignore}, MIXTURE)


def test_names_stand_for_modules_not_for_beginnings():
    names = NameList(["gate", "model.layers.1", "lm_head"], where="x")
    assert names.matches("model.layers.0.mlp.gate")
    assert not names.matches("model.layers.0.mlp.gate_proj")
    assert names.matches("model.language_model.layers.1.mlp.up_proj")
    assert not names.matches("model.layers.11.mlp.up_proj")
    assert not names.matches("model.visual.blocks.1.mlp.up_proj")
    assert canonical("transformer.h.3.attn.c_attn") == "layers.3.self_attn.c_attn"


def test_towers_and_heads_are_known_by_every_name():
    names = NameList(["model.visual.blocks.0.attn.qkv", "lm_head"], where="x")
    assert names.matches("model.visual.blocks.*.attn.qkv")
    assert not names.matches("model.visual.blocks.*.attn.proj")
    neox = {
        "model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 64, "intermediate_size": 256,
        "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 128,
        "torch_dtype": "float16", "tie_word_embeddings": False, "hidden_act": "gelu", "use_parallel_residual": True,
    }  # fmt: skip
    groups = {"group_0": {"targets": ["Linear"], "weights": INT4}}
    found = formats(read({"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}, neox))
    assert found["embed_out"] is None
    assert found["attention.dense"] == "int4_g128"


@pytest.mark.parametrize(
    "regex",
    [r"(a+)+$", r"(a|a)*b", r".*.*.*.*x", r"(.*)*x", r"(.*)(.*)(.*)x", r"(?:a|aa)+$", "(a", ".*x" * 20],
)
def test_regexes_that_may_take_for_ages_are_refused(regex):
    with pytest.raises(SpecError, match="regex"):
        NameList([f"re:{regex}"], where="x")


def test_regexes_of_published_checkpoints_are_accepted():
    names = NameList(
        [
            r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", r"re:model\.layers\.(0|1|2)\..*\.(q|k)_proj$",
            r"re:.*vision_tower.*|.*multi_modal.*", r"re:^model\.layers\.\d+\.mlp\.gate$", "re:.*block_sparse_moe.gate$",
            r"re:model.layers.[0-9]+.mlp.experts.[0-9]+.(gate|up|down)_proj",
        ],
        where="x",
    )  # fmt: skip
    assert names.matches("model.layers.1.self_attn.q_proj")
    assert not names.matches("model.layers.3.self_attn.q_proj")
    assert names.matches("model.layers.3.mlp.experts.up_proj", copies=8)


def test_fused_matrices_follow_their_parts():
    names = NameList(["model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"], where="x")
    assert names.matches("model.layers.0.mlp.gate_up_proj")
    with pytest.raises(UnsupportedModelError, match="differently"):
        NameList(["model.layers.0.mlp.gate_proj"], where="x").matches("model.layers.0.mlp.gate_up_proj")
    assert NameList(["model.layers.0.self_attn.qkv_proj"], where="x").matches("model.layers.0.self_attn.q_proj")


_METHODS = ["fp8", "awq", "gptq", "bitsandbytes", "compressed-tensors", "modelopt", "quark", "mxfp4", "torchao", "auto-round",
            "hqq", "aqlm", "gemma", "fbgemm_fp8", "metal"]  # fmt: skip
_FIELDS = ["bits", "group_size", "weight_block_size", "ignore", "config_groups", "quantized_layers", "quant_algo", "exclude",
           "kv_cache_scheme", "modules_to_not_convert", "global_quant_config", "extra_config", "dynamic", "quant_type",
           "load_in_4bit", "load_in_8bit", "quantization", "nbits", "quant_config", "num_bits", "zero_point"]  # fmt: skip
_SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=20)
_JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
)


@settings(max_examples=300, deadline=2000)
@given(st.sampled_from(_METHODS), st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=6))
def test_any_config_is_read_or_refused(method, fields):
    try:
        model = read({"quant_method": method, **fields})
    except KvplanError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most examples are refused, some are not
    else:
        assert weights_bytes_model(model) > 0
        json.dumps(model.quantization)
