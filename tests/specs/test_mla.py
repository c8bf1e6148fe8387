"""Latent, sparse and compressed attention: DeepSeek, Kimi K2, GLM-5, LongCat."""

from __future__ import annotations

import pytest

from kvplan.core.cache import elements_at, elements_per_token, kv_elements_per_token, kv_shards, window_layers
from kvplan.core.model import CompressedAttention, Indexer, LatentAttention
from kvplan.core.parameters import parameters_active, parameters_total, weights_bytes_model
from kvplan.core.tensors import TensorClass
from kvplan.errors import SpecError, UnsupportedModelError
from kvplan.specs.huggingface import from_config
from kvplan.specs.models import load_model

V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "intermediate_size": 160,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "vocab_size": 100,
    "num_nextn_predict_layers": 0,
    "torch_dtype": "bfloat16",
}
INDEX = {"index_topk": 8, "index_head_dim": 16, "index_n_heads": 2}
V4 = {
    "model_type": "deepseek_v4",
    "hidden_size": 64,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "q_lora_rank": 24,
    "o_groups": 2,
    "o_lora_rank": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "num_hash_layers": 1,
    "index_n_heads": 4,
    "index_head_dim": 16,
    "index_topk": 8,
    "hc_mult": 2,
    "sliding_window": 16,
    "compress_ratios": [0, 4, 128, 4, 0],
    "vocab_size": 100,
    "num_nextn_predict_layers": 1,
}


def test_deepseek_v3_by_hand():
    """61 layers keep one latent of 512 and one rotary key of 64; 1 B per weight and 4 B per 128 × 128 block."""
    model = load_model("deepseek-v3")
    assert parameters_total(model) == 671_026_404_352
    assert parameters_active(model) == 37_552_282_624
    assert kv_elements_per_token(model) == 61 * (512 + 64)
    assert weights_bytes_model(model) == 673_150_545_584
    assert len(model.mtp_layers) == 1
    shared = [t.name for t in model.mtp_tensors if t.tensor_class in {TensorClass.EMBEDDING, TensorClass.HEAD}]
    assert shared == ["embed_tokens", "shared_head.head"]


def test_each_prediction_layer_has_its_own_projection():
    model = load_model("minimax-m2.5")
    projections = [one.shape for one in model.mtp_tensors if one.name == "eh_proj"]
    assert projections == [(3072, 2 * 3072)] * len(model.mtp_layers) == [(3072, 6144)] * 3


def test_prediction_layers_have_a_head_each_and_one_embedding():
    def named(layers):
        model = from_config(V3 | {"num_nextn_predict_layers": layers})
        return [one.name for one in model.mtp_tensors if one.tensor_class in {TensorClass.EMBEDDING, TensorClass.HEAD}]

    assert named(0) == []
    assert named(1) == ["embed_tokens", "shared_head.head"]
    assert named(3) == ["embed_tokens", *["shared_head.head"] * 3]


def test_the_latent_does_not_grow_with_heads_and_is_copied_on_every_rank():
    four, eight = from_config(V3), from_config(V3 | {"num_attention_heads": 8})
    assert kv_elements_per_token(four) == kv_elements_per_token(eight) == 4 * (32 + 8)
    mixer = four.groups[0].layer.mixers[0]
    assert isinstance(mixer, LatentAttention)
    assert kv_shards(mixer, 8) == 1


def test_queries_without_a_latent_of_their_own():
    """DeepSeek-V2-Lite says `q_lora_rank: null`; a missing field is the family's default instead."""
    names = [t.name for t in from_config(V3 | {"q_lora_rank": None}).groups[0].layer.all_tensors()]
    assert "self_attn.q_proj" in names
    assert "self_attn.q_a_proj" not in names
    model = from_config({name: value for name, value in V3.items() if name != "q_lora_rank"})
    assert "q_lora_rank is not in config.json: 1536 assumed" in model.assumptions


def test_an_indexer_adds_one_key_per_token_and_layer():
    plain, sparse = from_config(V3), from_config(V3 | INDEX | {"model_type": "deepseek_v32"})
    assert kv_elements_per_token(sparse) - kv_elements_per_token(plain) == 4 * 16
    hidden, rank = 64, 24
    indexer = 2 * 16 * rank + 16 * hidden + 2 * 16 + 2 * hidden
    assert parameters_total(sparse) - parameters_total(plain) == 4 * indexer


@pytest.mark.parametrize(
    "schedule",
    [
        {"indexer_types": ["full", "full", "shared", "full"]},
        {"index_topk_pattern": "FFSF"},
        {"index_topk_freq": 2, "index_skip_topk_offset": 2},
    ],
)
def test_layers_that_reuse_the_picks_of_another_have_no_indexer(schedule):
    model = from_config(V3 | INDEX | schedule | {"model_type": "glm_moe_dsa"})
    own = [mixer.indexer.cached for group in model.groups for mixer in group.layer.mixers for _ in range(group.count)]
    assert sorted(own) == [False, True, True, True]
    assert kv_elements_per_token(model) == 4 * (32 + 8) + 3 * 16


def test_glm_5_2_has_21_indexers():
    model = load_model("glm-5.2")
    assert kv_elements_per_token(model) == 78 * 576 + 21 * 128


def test_deepseek_v4_by_hand():
    """43 raw entries of 512; 21 layers add a quarter entry and key, 20 a 128th of an entry."""
    model = load_model("deepseek-v4-flash")
    assert kv_elements_per_token(model) == 43 * 512 + 21 * (512 + 128) // 4 + 20 * 512 // 128 == 25_456
    assert kv_elements_per_token(model, full_only=True) == 3_440
    assert window_layers(model) == 43
    assert parameters_total(model) == 284_332_230_231


def test_compressed_attention_keeps_a_window_and_all_entries():
    indexer = Indexer(num_heads=4, head_dim=16, top_k=8)
    both = CompressedAttention(num_attention_heads=4, head_dim=32, window=16, ratio=4, indexer=indexer)
    window = CompressedAttention(num_attention_heads=4, head_dim=32, window=16, ratio=None)
    assert elements_per_token(both) == 32 + (32 + 16) / 4
    assert elements_at(both, 100) == 16 * 32 + 25 * (32 + 16)
    assert elements_per_token(window) == 32
    assert elements_at(window, 1000) == elements_at(window, 16) == 16 * 32


def test_hash_routed_layers_keep_a_table_per_token():
    assert from_config(V4).buffer_elements == 100 * 2 + 3 * 8


def test_longcat_has_two_caches_per_layer_and_no_weights_for_zero_experts():
    fields = {
        **{name: V3[name] for name in ("hidden_size", "num_attention_heads", "kv_lora_rank", "q_lora_rank")},
        **{name: V3[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "vocab_size")},
        "model_type": "longcat_flash",
        "num_layers": 3,
        "ffn_hidden_size": 96,
        "expert_ffn_hidden_size": 48,
        "n_routed_experts": 8,
        "moe_topk": 2,
    }
    none, some = (from_config(fields | {"zero_expert_num": n}) for n in (0, 4))
    assert kv_elements_per_token(none) == 3 * 2 * (32 + 8)
    assert parameters_total(some) - parameters_total(none) == 3 * 4 * 64
    assert some.buffer_elements == 3 * 12


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (V3 | {"kv_lora_rank": -1}, "kv_lora_rank"),
        (V3 | {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        (V3 | {"mlp_bias": True}, "mlp_bias"),
        (V3 | {"mlp_layer_types": ["dense", "sparse"]}, "mlp_layer_types"),
        (V3 | INDEX | {"model_type": "glm_moe_dsa", "index_topk_pattern": "FFXF"}, "index_topk_pattern"),
        (V3 | INDEX | {"model_type": "deepseek_v32", "layer_types": ["full_attention"] * 4}, "layer_types"),
        (V4 | {"compress_ratios": [0, 4, 16, 4]}, "compress_ratios"),
        (V4 | {"compress_ratios": [0, 4]}, "compress_ratios"),
        (V4 | {"num_key_value_heads": 2}, "num_key_value_heads"),
        (V4 | {"n_shared_experts": 2}, "n_shared_experts"),
    ],
)
def test_refused_by_field(config, field):
    with pytest.raises(SpecError, match=field):
        from_config(config)


def test_a_new_cache_field_is_never_ignored():
    with pytest.raises(UnsupportedModelError, match="index_kpool"):
        from_config(V3 | {"index_kpool": 16})
