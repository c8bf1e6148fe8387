"""Hybrids of attention and recurrences, pure recurrences, models of unequal layers."""

from __future__ import annotations

import pytest

from kvplan.core.cache import kv_elements_per_token, state_elements_per_sequence, window_layers
from kvplan.core.model import Attention, Recurrent
from kvplan.core.parameters import parameters_active, parameters_total
from kvplan.errors import SpecError, UnsupportedModelError
from kvplan.specs.huggingface import from_config
from kvplan.specs.models import load_model

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}
DELTA = {
    "head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
QWEN = {**SIZES, **DELTA, "model_type": "qwen3_5_text"}
NEMOTRON = {
    **SIZES,
    "model_type": "nemotron_h",
    "num_hidden_layers": 5,
    "hybrid_override_pattern": "ME*M-",
    "head_dim": 16,
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "ssm_state_size": 8,
    "n_groups": 2,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "moe_shared_expert_intermediate_size": 64,
}
ZAMBA = {
    **SIZES,
    "model_type": "zamba2",
    "num_key_value_heads": 4,
    "layers_block_type": ["mamba", "hybrid", "hybrid", "hybrid"],
    "n_mamba_heads": 4,
    "mamba_d_state": 8,
    "num_mem_blocks": 2,
    "adapter_rank": 4,
}
ATTENTION = {"attention": {"n_heads_in_group": 2, "no_op": False}, "ffn": {"ffn_mult": 2.0, "no_op": False}}


@pytest.mark.parametrize(
    ("name", "parameters", "kv", "state"),
    [
        # 12 of 48 layers attend; state 32 × 128 × 128 and three columns of 8192 channels on the others
        ("qwen3-next-80b-a3b", 79_674_391_296, 12 * 2 * 2 * 256, 36 * (32 * 128 * 128 + 3 * 8192)),
        ("qwen3.5-27b", 27_356_728_560, 16 * 2 * 4 * 256, 48 * (48 * 128 * 128 + 3 * 10_240)),
        ("kimi-linear-48b-a3b", 49_122_675_072, 7 * 576, 20 * (32 * 128 * 128 + 3 * 3 * 4096)),
        ("minimax-text-01", 456_089_655_296, 10 * 2 * 8 * 128, 70 * 64 * 128 * 128),
        ("jamba-v0.1", 51_570_323_328, 4 * 2 * 8 * 128, 28 * (8192 * 16 + 3 * 8192)),
        ("granite-4.0-h-small", 32_207_337_984, 4 * 2 * 8 * 128, 36 * (128 * 64 * 128 + 3 * (8192 + 256))),
        ("nvidia-nemotron-3-nano-30b-a3b-bf16", 31_577_937_344, 6 * 2 * 2 * 128, 23 * (64 * 64 * 128 + 3 * 6144)),
        ("nvidia-nemotron-nano-9b-v2", 8_888_227_328, 4 * 2 * 8 * 128, 27 * (128 * 80 * 128 + 3 * (10_240 + 2048))),
        ("falcon-mamba-7b", 7_272_665_088, 0, 64 * (8192 * 16 + 3 * 8192)),
        ("mamba-codestral-7b-v0.1", 7_285_403_648, 0, 64 * (8192 * 128 + 3 * (8192 + 2048))),
        ("lfm2-1.2b", 1_170_340_608, 6 * 2 * 8 * 64, 10 * 2 * 2048),
        ("zamba2-7b", 7_356_749_648, 13 * 2 * 32 * 224, 81 * (7168 * 64 + 3 * (7168 + 256))),
        ("llama-3_3-nemotron-super-49b-v1", 49_867_145_216, 49 * 2 * 8 * 128, 0),
    ],
)
def test_released_models(name, parameters, kv, state):
    model = load_model(name)
    assert parameters_total(model) == parameters
    assert kv_elements_per_token(model) == kv
    assert state_elements_per_sequence(model) == state


def test_only_attention_layers_cache_tokens():
    linear, full = "linear_attention", "full_attention"
    one, two = (from_config(QWEN | {"layer_types": [*kinds, full]}) for kinds in ([linear] * 3, [linear, linear, full]))
    assert kv_elements_per_token(one) * 2 == kv_elements_per_token(two)
    assert state_elements_per_sequence(one) * 2 == state_elements_per_sequence(two) * 3


def test_an_interval_is_a_pattern_of_layers():
    by_interval = from_config(QWEN | {"full_attention_interval": 2})
    by_types = from_config(QWEN | {"layer_types": ["linear_attention", "full_attention"] * 2})
    assert by_interval.groups == by_types.groups
    assert by_interval.layer_order == by_types.layer_order


def test_the_convolution_keeps_one_column_less_than_its_kernel():
    wide, narrow = (from_config(QWEN | {"linear_conv_kernel_dim": kernel}) for kernel in (4, 3))
    channels = 2 * 2 * 8 + 4 * 12
    assert state_elements_per_sequence(wide) - state_elements_per_sequence(narrow) == 3 * channels


def test_the_state_has_the_precision_that_the_config_says():
    bits = [
        mixer.state_bits
        for dtype in ("float32", "bfloat16")
        for group in from_config(QWEN | {"mamba_ssm_dtype": dtype}).groups
        for mixer in group.layer.mixers
        if isinstance(mixer, Recurrent)
    ]
    assert bits == [32, 16]


def test_a_config_that_says_nothing_gets_the_precision_of_its_weights():
    """vLLM's `auto`; Qwen3-Next's blocks of 544 tokens in a log of vLLM 0.11 on two H200 come from a bf16 state."""
    model = load_model("qwen3-next-80b-a3b")
    state = next(mixer for group in model.groups for mixer in group.layer.mixers if isinstance(mixer, Recurrent))
    page = (state.state_elements * state.state_bits + state.conv_elements * 16) // 8 // 2
    token = 2 * 256 * 2
    assert -(-page // token) <= 544 < -(-page // token) + 16
    single = from_config(QWEN | {"torch_dtype": "float32"}).groups[0].layer.mixers[0]
    assert isinstance(single, Recurrent)
    assert single.state_bits == 32


def test_nemotron_layers_hold_a_mixer_or_a_feed_forward():
    model = from_config(NEMOTRON)
    assert [bool(group.layer.mixers) for group in model.groups] == [True, False, True, False]
    assert model.layer_order == (0, 1, 2, 0, 3)
    types = ["mamba", "moe", "attention", "mamba", "mlp"]
    named = {name: value for name, value in NEMOTRON.items() if name != "hybrid_override_pattern"}
    assert from_config(named | {"layers_block_type": types}).groups == model.groups


def test_latent_experts_are_smaller():
    plain, latent = from_config(NEMOTRON), from_config(NEMOTRON | {"moe_latent_size": 32})
    assert parameters_total(plain) - parameters_total(latent) == 8 * 2 * 48 * 32 - 2 * 64 * 32
    assert parameters_active(latent) < parameters_active(plain)


def test_shared_blocks_are_stored_once_but_cache_per_layer():
    """Three hybrid layers, two blocks: the third reads the first block again."""
    one, two = (from_config(ZAMBA | {"num_mem_blocks": blocks}) for blocks in (1, 2))
    attention = 3 * 128 * 128 + 64 * 128
    feed_forward = 3 * 64 * 160
    assert parameters_total(two) - parameters_total(one) == attention + feed_forward + 128 + 64
    assert kv_elements_per_token(one) == kv_elements_per_token(two) == 3 * 2 * 4 * 32


def test_both_mixers_of_a_parallel_layer_count():
    fields = {
        **SIZES,
        "model_type": "falcon_h1",
        "mamba_d_ssm": 64,
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
    }
    model = from_config(fields)
    assert kv_elements_per_token(model) == 4 * 2 * 2 * 16
    assert state_elements_per_sequence(model) == 4 * (64 * 8 + 3 * (64 + 16))


def test_recurrent_gemma_keeps_windows_only():
    fields = {**SIZES, "model_type": "recurrent_gemma", "attention_window_size": 12, "num_key_value_heads": 1}
    model = from_config(fields)
    assert window_layers(model) == 1
    assert kv_elements_per_token(model, full_only=True) == 0
    assert kv_elements_per_token(model) == 2 * 16


def test_searched_layers_differ():
    fields = {name: value for name, value in SIZES.items() if name != "intermediate_size"}
    skipped = {"attention": {"no_op": True}, "ffn": {"ffn_mult": 2.0}}
    linear = {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}}
    narrow = {"attention": {"n_heads_in_group": 4}, "ffn": {"replace_with_linear": True}}
    model = from_config(fields | {"model_type": "nemotron-nas", "block_configs": [ATTENTION, skipped, linear, narrow]})
    assert kv_elements_per_token(model) == 2 * 2 * 16 + 2 * 1 * 16
    hidden, ffn = 64, 3 * 64 * 256
    attention = [hidden * (64 + 2 * 32 + 64), 0, hidden * hidden, hidden * (64 + 2 * 16 + 64)]
    assert (
        parameters_total(model) == sum(attention) + 2 * ffn + hidden * hidden + 6 * hidden + 2 * 100 * hidden + hidden
    )


def test_kv_heads_of_decilm_differ_from_layer_to_layer():
    fields = SIZES | {"model_type": "deci", "num_key_value_heads_per_layer": [4, 2, 1, 1]}
    model = from_config({name: value for name, value in fields.items() if name != "num_key_value_heads"})
    assert kv_elements_per_token(model) == 2 * 16 * 8
    heads = [group.layer.mixers[0].num_key_value_heads for group in model.groups]
    assert heads == [4, 2, 1]
    assert all(isinstance(group.layer.mixers[0], Attention) for group in model.groups)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (QWEN | {"layer_types": ["linear_attention"] * 3 + ["window"]}, "layer_types"),
        (QWEN | {"linear_num_value_heads": 3}, "linear_num_value_heads"),
        (QWEN | {"attn_output_gate": False}, "attn_output_gate"),
        (QWEN | {"mamba_ssm_dtype": "int8"}, "mamba_ssm_dtype"),
        (NEMOTRON | {"hybrid_override_pattern": "MEXM-"}, "hybrid_override_pattern"),
        (NEMOTRON | {"num_hidden_layers": 6}, "num_hidden_layers"),
        (NEMOTRON | {"n_shared_experts": 2}, "n_shared_experts"),
        (NEMOTRON | {"sliding_window": 128}, "sliding_window"),
        (ZAMBA | {"layers_block_type": ["mamba", "hybrid"]}, "layers_block_type"),
        (ZAMBA | {"mamba_headdim": 5}, "n_mamba_heads"),
        (SIZES | {"model_type": "nemotron-nas", "block_configs": [ATTENTION] * 3}, "block_configs"),
        (SIZES | {"model_type": "minimax_text_01", "num_local_experts": 4}, "attn_type_list"),
        (SIZES | {"model_type": "bamba", "mamba_n_heads": 4, "attn_layer_indices": [9]}, "attn_layer_indices"),
        (SIZES | {"model_type": "jamba", "num_experts_per_tok": 99}, "num_experts_per_tok"),
        (SIZES | {"model_type": "lfm2_moe", "moe_intermediate_size": 48}, "layer_types"),
        (SIZES | {"model_type": "lfm2", "conv_dim": 32, "full_attn_idxs": [1]}, "conv_dim"),
    ],
)
def test_refused_by_field(config, field):
    with pytest.raises(SpecError, match=field):
        from_config(config)


def test_an_unknown_part_of_a_searched_layer_is_refused():
    block = {"attention": ATTENTION["attention"] | {"num_sink_tokens": 4}, "ffn": ATTENTION["ffn"]}
    with pytest.raises(SpecError, match=r"block_configs.1.attention.num_sink_tokens"):
        from_config(SIZES | {"model_type": "nemotron-nas", "block_configs": [ATTENTION, block, ATTENTION, ATTENTION]})


def test_later_rwkv_is_refused_by_name():
    with pytest.raises(UnsupportedModelError, match="rwkv5"):
        from_config({"model_type": "rwkv5", "hidden_size": 64})


def test_wider_kimi_linear_variants_are_refused_by_field():
    fields = SIZES | {"model_type": "kimi_linear", "moe_intermediate_size": 48, "num_experts": 8}
    with pytest.raises(UnsupportedModelError, match="routed_expert_hidden_size"):
        from_config(fields | {"routed_expert_hidden_size": 32})
