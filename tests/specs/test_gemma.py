"""Gemma 3, 3n and 4: windows, shared caches, full layers of another shape, per-layer inputs."""

from __future__ import annotations

import pytest

from kvplan.core.cache import kv_elements_per_token, window_layers
from kvplan.core.parameters import parameters_active, parameters_embedding, parameters_total
from kvplan.errors import SpecError, UnsupportedModelError
from kvplan.specs.huggingface import from_config

SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "image_size": 896,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "vision_use_head": False,
}
#: As google/gemma-3-4b-it publishes it: most sizes are left to the family's defaults.
GEMMA_3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 255999,
    "eoi_token_index": 256000,
    "eos_token_id": [1, 106],
    "image_token_index": 262144,
    "mm_tokens_per_image": 256,
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0",
    "vision_config": SIGLIP,
}
GEMMA_3N_E4B = {
    "architectures": ["Gemma3nForConditionalGeneration"],
    "model_type": "gemma3n",
    "torch_dtype": "bfloat16",
    "audio_config": {"model_type": "gemma3n_audio"},
    "vision_config": {
        "model_type": "gemma3n_vision",
        "architecture": "mobilenetv5_300m_enc",
        "do_pooling": False,
        "hidden_size": 2048,
        "label_names": ["LABEL_0", "LABEL_1"],
        "num_classes": 2,
        "vocab_offset": 262144,
        "vocab_size": 128,
    },
    "text_config": {
        "model_type": "gemma3n_text",
        "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 25,
        "altup_num_inputs": 4,
        "head_dim": 256,
        "hidden_size": 2048,
        "intermediate_size": [16384] * 35,
        "laurel_rank": 64,
        "num_attention_heads": 8,
        "num_hidden_layers": 35,
        "num_key_value_heads": 2,
        "num_kv_shared_layers": 15,
        "sliding_window": 512,
        "vocab_size": 262400,
    },
}
GEMMA_4 = {
    "model_type": "gemma4_text",
    "torch_dtype": "bfloat16",
    "attention_k_eq_v": True,
    "enable_moe_block": False,
    "global_head_dim": 32,
    "head_dim": 16,
    "hidden_size": 64,
    "hidden_size_per_layer_input": 0,
    "intermediate_size": 100,
    "num_attention_heads": 4,
    "num_global_key_value_heads": 1,
    "num_hidden_layers": 12,
    "num_key_value_heads": 2,
    "sliding_window": 64,
    "vocab_size": 300,
}


def test_gemma_3_4b_has_its_published_total():
    model = from_config(GEMMA_3_4B)
    assert parameters_total(model) == 4_300_079_472
    assert kv_elements_per_token(model) == 34 * 2 * 4 * 256
    assert window_layers(model) == 29
    assert kv_elements_per_token(model, full_only=True) == 5 * 2 * 4 * 256
    assert "text_config.vocab_size is not in config.json: 262208 assumed" in model.assumptions


@pytest.mark.parametrize("pattern", [1, 2, 6, 34])
def test_one_layer_in_the_pattern_is_full(pattern):
    text = {**GEMMA_3_4B["text_config"], "sliding_window_pattern": pattern}
    assert window_layers(from_config({**GEMMA_3_4B, "text_config": text})) == 34 - 34 // pattern


def test_a_bidirectional_gemma_is_an_encoder():
    text = {**GEMMA_3_4B["text_config"], "torch_dtype": "bfloat16", "use_bidirectional_attention": True}
    model = from_config(text)
    assert kv_elements_per_token(model) == 0
    assert window_layers(model) == 0


def test_gemma_3n_shares_caches_and_misses_the_published_total_by_unused_projections():
    model = from_config(GEMMA_3N_E4B)
    unused = 15 * (2 * 2 * 256 * 2048 + 256)
    assert parameters_total(model) == 7_849_978_192 - unused
    assert any("unused" in said for said in model.assumptions)
    assert kv_elements_per_token(model) == 20 * 2 * 2 * 256
    assert window_layers(model) == 16
    assert parameters_embedding(model) == 262_400 * 2048


def test_full_layers_have_their_own_heads_and_k_eq_v_still_caches_both():
    model = from_config(GEMMA_4)
    assert kv_elements_per_token(model, full_only=True) == 2 * 2 * 1 * 32
    assert kv_elements_per_token(model) == 2 * 2 * 1 * 32 + 10 * 2 * 2 * 16
    assert window_layers(model) == 10
    apart = from_config({**GEMMA_4, "attention_k_eq_v": False})
    # Two value projections more on full layers, which now have the windowed layers' two KV heads.
    assert parameters_total(apart) - parameters_total(model) == 2 * 64 * 32 * (2 * 2 - 1)


def test_shared_layers_of_gemma_4_have_no_cache_and_twice_the_feed_forward():
    model = from_config({**GEMMA_4, "num_kv_shared_layers": 3, "use_double_wide_mlp": True})
    assert kv_elements_per_token(model) == 2 * 1 * 32 + 8 * 2 * 2 * 16
    assert window_layers(model) == 8
    narrow = from_config({**GEMMA_4, "num_kv_shared_layers": 3})
    assert parameters_total(model) - parameters_total(narrow) == 3 * 3 * 64 * 100


def test_experts_of_gemma_4_stand_beside_the_dense_feed_forward():
    moe = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 24}
    model = from_config({**GEMMA_4, **moe})
    one = 3 * 64 * 24
    assert parameters_total(model) - parameters_active(model) == 12 * 6 * one


def test_layer_scalars_are_buffers():
    assert from_config(GEMMA_4).buffer_elements == 12


def test_a_table_of_layers_says_what_the_global_fields_say():
    plain = {k: v for k, v in GEMMA_4.items() if not k.startswith(("global_", "num_global_"))}
    table = {str(i): {"head_dim": 32, "num_key_value_heads": 1} for i in (5, 11)}
    ours, theirs = from_config(GEMMA_4), from_config({**plain, "per_layer_config": table})
    assert parameters_total(ours) == parameters_total(theirs)
    assert kv_elements_per_token(ours) == kv_elements_per_token(theirs)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"per_layer_config": {"5": {"head_dim": 32}}}, "per_layer_config"),
        ({"per_layer_config": {"5": {"head_dim": 32}, "11": {"head_dim": 64}}}, "different shapes"),
        ({"num_kv_shared_layers": 12}, "num_kv_shared_layers"),
        ({"num_kv_shared_layers": 8}, "leaves a layer type without a layer that has a cache"),
        ({"num_global_key_value_heads": 3}, "does not divide"),
        ({"layer_types": ["full_attention"]}, "must have 12 entries"),
        ({"layer_types": ["linear_attention"] * 12}, "'linear_attention' is not understood"),
        ({"enable_moe_block": True}, "num_experts: is missing"),
        ({"enable_moe_block": True, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 8}, "top_k_experts"),
        ({"use_bidirectional_attention": "vision", "kv_compression_rank": 8}, "kv_compression_rank"),
    ],
)
def test_what_is_refused(fields, message):
    with pytest.raises((SpecError, UnsupportedModelError)) as caught:
        from_config({**GEMMA_4, **fields})
    assert message in str(caught.value)


def test_another_mobile_network_is_refused():
    vision = {**GEMMA_3N_E4B["vision_config"], "architecture": "mobilenetv6"}
    with pytest.raises(SpecError, match=r"vision_config\.architecture"):
        from_config({**GEMMA_3N_E4B, "vision_config": vision})
