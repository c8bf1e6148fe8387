"""Quirks of single families, each with a count that was published or worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.core.cache import elements_at, kv_elements_per_token, window_layers
from kvplan.core.model import Attention, MixtureOfExperts
from kvplan.core.parameters import parameters_active, parameters_total
from kvplan.errors import SpecError, UnsupportedModelError
from kvplan.specs.huggingface import from_config
from kvplan.specs.models import load_model

TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
    "dtype": "bfloat16",
}

HUNYUAN = TINY | {
    "model_type": "hunyuan_v1_moe",
    "num_experts": 4,
    "moe_topk": [2, 2, 2, 2],
    "num_shared_expert": [1, 1, 1, 1],
    "moe_intermediate_size": [32, 32, 32, 32],
    "use_qk_norm": True,
    "use_cla": False,
    "cla_share_factor": 2,
    "use_mla": False,
    "kv_lora_rank": None,
    "dense_list": [4096, 0],
    "org_vocab_size": 100,
    "anyres_pooling_size": 2,
    "position_embedding_xdrope": False,
    "moe_layer_num_skipped": 0,
    "num_media_embeds": 257,
}
LING = TINY | {
    "model_type": "bailing_moe",
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_shared_experts": 2,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 0,
    "norm_head": False,
    "norm_softmax": False,
    "use_bias": False,
    "use_qkv_bias": False,
    "max_window_layers": 28,
    "sliding_window": 32768,
    "use_sliding_window": False,
}
COMMAND_R7B = TINY | {
    "model_type": "cohere2",
    "sliding_window": 512,
    "sliding_window_pattern": 4,
    "layer_switch": 4,
    "order_of_interleaved_layers": "local_attn_first",
    "use_embedding_sharing": True,
    "use_gated_activation": True,
    "use_parallel_block": True,
    "use_parallel_embedding": False,
    "rotary_pct": 1.0,
    "position_embedding_type": "rope_gptj",
}
ERNIE = TINY | {
    "model_type": "ernie4_5_moe",
    "moe_intermediate_size": 32,
    "moe_num_experts": 4,
    "moe_k": 2,
    "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1,
    "moe_layer_end_index": 3,
    "moe_capacity": [64, 64, 64],
    "moe_gate": "topk",
    "moe_use_aux_free": True,
    "compression_ratio": 1.0,
    "fuse_rms_norm": True,
    "sinkhorn_2gate": True,
    "weight_share_add_bias": True,
}


@pytest.mark.parametrize("config", [HUNYUAN, LING, COMMAND_R7B, ERNIE], ids=lambda config: config["model_type"])
def test_published_files_are_read_without_warnings(config):
    model = from_config(config)
    assert model.num_hidden_layers == 4
    assert model.warnings == ()


def test_cohere2_windows_all_but_each_fourth_layer():
    assert window_layers(from_config(COMMAND_R7B)) == 3


def test_active_parameters_leave_idle_experts_out():
    model = from_config(LING)
    idle = 4 * (8 - 2) * 3 * 64 * 32
    assert parameters_total(model) - parameters_active(model) == idle


def test_grok_and_arctic_by_arithmetic():
    grok = from_config(
        {
            "model_type": "grok-1",
            "hidden_size": 6144,
            "intermediate_size": 32768,
            "num_hidden_layers": 64,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "vocab_size": 131072,
            "dtype": "bfloat16",
        }
    )
    per_layer = 2 * 6144 * 6144 + 2 * 6144 * 1024 + 8 * 3 * 6144 * 32768 + 8 * 6144 + 4 * 6144
    assert parameters_total(grok) == 64 * per_layer + 131072 * 6144 + 6144
    arctic = from_config(
        {
            "model_type": "arctic",
            "hidden_size": 7168,
            "intermediate_size": 4864,
            "num_hidden_layers": 35,
            "num_attention_heads": 56,
            "num_key_value_heads": 8,
            "num_local_experts": 128,
            "num_experts_per_tok": 2,
            "moe_layer_frequency": 1,
            "parallel_attn_mlp_res": True,
            "use_residual": True,
            "vocab_size": 32000,
            "dtype": "bfloat16",
        }
    )
    assert round(parameters_total(arctic) / 1e9) == 479
    assert round(parameters_active(arctic) / 1e9) == 17


def test_a_window_no_shorter_than_the_longest_sequence_is_full_attention():
    config = TINY | {"model_type": "mistral", "sliding_window": 4096}
    assert window_layers(from_config(config)) == 0
    assert window_layers(from_config(config | {"sliding_window": 4095})) == 4


@pytest.mark.parametrize("value", [None, 0])
def test_mistral_without_window(value):
    assert window_layers(from_config(TINY | {"model_type": "mistral", "sliding_window": value})) == 0


def test_mistral_that_leaves_its_window_out_takes_the_familys_and_says_so():
    model = from_config(TINY | {"model_type": "mistral", "max_position_embeddings": 32768})
    assert window_layers(model) == 4
    assert model.assumptions == ("sliding_window is not in config.json: 4096 assumed",)


def test_falcon_7b_has_one_kv_head_and_40b_eight():
    assert kv_elements_per_token(load_model("falcon-7b")) == 32 * 2 * 64
    assert kv_elements_per_token(load_model("falcon-40b")) == 60 * 2 * 8 * 64


def test_keys_and_values_of_different_width():
    model = load_model("mimo-v2-flash")
    mixers = {mixer for group in model.groups for mixer in group.layer.mixers}
    assert {(m.head_dim, m.v_head_dim) for m in mixers if isinstance(m, Attention)} == {(192, 128)}


def test_one_expert_equals_dense():
    dense = from_config(TINY | {"model_type": "llama"})
    sparse = from_config(
        TINY | {"model_type": "mixtral", "sliding_window": None, "num_local_experts": 1, "num_experts_per_tok": 1}
    )
    router = 4 * 64
    assert parameters_total(sparse) == parameters_total(dense) + router
    assert parameters_active(sparse) == parameters_total(sparse)


def test_gqa_with_all_heads_is_mha():
    config = TINY | {"model_type": "llama"}
    left_out = {key: value for key, value in config.items() if key != "num_key_value_heads"}
    grouped = from_config(config | {"num_key_value_heads": 4})
    assert replace(from_config(left_out), assumptions=()) == grouped


def test_window_as_long_as_the_context_holds_what_full_attention_holds():
    mixer = from_config(TINY | {"model_type": "mistral", "sliding_window": 100}).groups[0].layer.mixers[0]
    assert isinstance(mixer, Attention)
    assert elements_at(mixer, 100) == elements_at(replace(mixer, window=None), 100)
    assert elements_at(mixer, 1000) == elements_at(mixer, 100)


def test_experts_are_never_fewer_than_a_token_is_sent_to():
    with pytest.raises(SpecError, match="num_experts_per_tok: must be at most 2, not 4"):
        from_config(TINY | {"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 4})


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"model_type": "llama", "sliding_window": 512}, "sliding_window"),
        ({"model_type": "llama", "num_experts": 8}, "num_experts"),
        ({"model_type": "qwen3", "kv_lora_rank": 512}, "kv_lora_rank"),
        ({"model_type": "phi3", "mlp_bias": True}, "mlp_bias"),
        ({"model_type": "gpt2", "n_positions": 64, "add_cross_attention": True}, "add_cross_attention"),
        ({"model_type": "hunyuan_v1_dense", "use_cla": True}, "use_cla"),
        ({"model_type": "mpt", "attn_config": {"attn_type": "grouped_query_attention"}}, "attn_config.attn_type"),
        ({"model_type": "qwen2", "layer_types": ["chunked_attention"] * 4}, "layer_types"),
        ({"model_type": "llama", "quantization": {"bits": 4}}, "quantization"),
    ],
)
def test_what_changes_memory_and_is_not_understood_is_refused_by_name(config, name):
    with pytest.raises(UnsupportedModelError) as caught:
        from_config(TINY | config)
    assert f"config.json: {name}: " in str(caught.value)


def test_layer_lists_must_have_one_entry_per_layer():
    with pytest.raises(SpecError, match="layer_types: must have 4 entries, one per layer, not 3"):
        from_config(TINY | {"model_type": "qwen3", "layer_types": ["full_attention"] * 3})


def test_mixture_is_found_under_its_class():
    model = load_model("qwen3-30b-a3b")
    assert all(isinstance(group.layer.feed_forward, MixtureOfExperts) for group in model.groups)
    assert round(parameters_active(model) / 1e9, 2) == 3.35


def test_minicpm_without_experts_is_its_dense_model():
    """No experts is no mixture, whatever the router's other fields would need."""
    dense, none, some = (
        from_config(TINY | {"model_type": "minicpm"} | more)
        for more in ({}, {"num_experts": 0}, {"num_experts": 4, "num_experts_per_tok": 2})
    )
    assert parameters_total(none) == parameters_total(dense) == parameters_active(dense)
    assert parameters_total(some) > parameters_active(some)
