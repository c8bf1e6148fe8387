"""Which fields of which family `check_transformers.py` varies: data, no logic.

A bundle is a list of alternatives, each a set of fields that belong together; a trial takes one of each bundle. The
generic bundles are used for a family as far as its config class has all the fields; `FAMILIES` adds what is particular
to one, and `base` is always set. Sizes are small, so that a trial builds fast.
"""

from __future__ import annotations

GENERIC = [
    [{"vocab_size": 512}, {"vocab_size": 1000}],
    [{"tie_word_embeddings": True}, {"tie_word_embeddings": False}],
    [{"attention_bias": True}, {"attention_bias": False}],
    [{"mlp_bias": True}, {"mlp_bias": False}],
    [{"hidden_size": 128}, {"hidden_size": 192}, {"hidden_size": 256}],
    [{"intermediate_size": 160}, {"intermediate_size": 352}],
    [
        {"num_attention_heads": 4, "num_key_value_heads": 4},
        {"num_attention_heads": 8, "num_key_value_heads": 2},
        {"num_attention_heads": 4, "num_key_value_heads": 1},
    ],
    [{"num_hidden_layers": 3}, {"num_hidden_layers": 5}],
]

LATENT = [
    {"kv_lora_rank": 48, "q_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 20},
    {"kv_lora_rank": 64, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 32},
]
LATENT_WITH_QUERY = [
    {"kv_lora_rank": 48, "q_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 20},
    {"kv_lora_rank": 64, "q_lora_rank": 80, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 32},
]
ROUTED = [
    {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_shared_experts": 1},
    {"n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 64, "n_shared_experts": 2},
]
DENSE_FIRST = [{"first_k_dense_replace": 0}, {"first_k_dense_replace": 1}, {"first_k_dense_replace": 2}]
DENSE_FIRST_TYPES = [
    {"num_hidden_layers": 3, "mlp_layer_types": ["dense", "sparse", "sparse"]},
    {"num_hidden_layers": 4, "mlp_layer_types": ["dense", "dense", "sparse", "dense"]},
]
GROUPS = {"n_group": 1, "topk_group": 1}
INDEXER = [
    {"index_topk": 16, "index_head_dim": 16, "index_n_heads": 4},
    {"index_topk": 8, "index_head_dim": 32, "index_n_heads": 2},
]
DELTA_NET = [
    {
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 24,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
    },
    {
        "linear_conv_kernel_dim": 3,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
    },
]
DELTA_KINDS = [
    {
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    },
    {"num_hidden_layers": 3, "layer_types": ["full_attention", "linear_attention", "full_attention"]},
]
MAMBA_2 = [
    {"mamba_n_heads": 8, "mamba_d_head": "auto", "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_d_conv": 4},
    {"mamba_n_heads": 4, "mamba_d_head": "auto", "mamba_n_groups": 2, "mamba_d_state": 32, "mamba_d_conv": 3},
]
MAMBA_BIASES = [
    {"mamba_conv_bias": True, "mamba_proj_bias": False},
    {"mamba_conv_bias": False, "mamba_proj_bias": True},
]
STATES = [{"state_size": 8, "conv_kernel": 4}, {"state_size": 16, "conv_kernel": 3}]
QWEN_EXPERTS = [
    {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 64,
    },
    {
        "num_experts": 4,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    },
]

FAMILIES = {
    "deepseek_v2": {"base": {}, "bundles": [LATENT, ROUTED, DENSE_FIRST]},
    "deepseek_v3": {"base": GROUPS, "bundles": [LATENT, ROUTED, DENSE_FIRST]},
    "sarvam_mla": {"base": GROUPS, "bundles": [LATENT, ROUTED, DENSE_FIRST]},
    "mistral4": {"base": GROUPS, "bundles": [LATENT, ROUTED, DENSE_FIRST]},
    "deepseek_v32": {
        "base": {**GROUPS, "mlp_bias": False},
        "bundles": [LATENT_WITH_QUERY, ROUTED, DENSE_FIRST, INDEXER],
    },
    "glm_moe_dsa": {
        "base": {**GROUPS, "mlp_bias": False, "num_hidden_layers": 6},
        "bundles": [
            LATENT_WITH_QUERY,
            ROUTED,
            DENSE_FIRST,
            INDEXER,
            [
                {"index_topk_freq": 2, "index_skip_topk_offset": 3},
                {"index_topk_pattern": "FSFSSF"},
                {"indexer_types": ["full", "full", "shared", "shared", "full", "shared"]},
                {},
            ],
        ],
    },
    "glm4_moe_lite": {"base": GROUPS, "bundles": [LATENT, ROUTED, DENSE_FIRST_TYPES]},
    "axk1": {"base": GROUPS, "bundles": [LATENT_WITH_QUERY, ROUTED, DENSE_FIRST_TYPES]},
    "axk2": {
        "base": {},
        "bundles": [
            LATENT_WITH_QUERY,
            ROUTED,
            DENSE_FIRST_TYPES,
            INDEXER,
            [{"gated_norm_rank": 8}, {"gated_norm_rank": 16}],
        ],
    },
    "minicpm3": {"base": {}, "bundles": [LATENT]},
    "youtu": {"base": {}, "bundles": [LATENT]},
    "deepseek_v4": {
        "base": {"mlp_bias": False, "attention_bias": False, "num_key_value_heads": 1, "num_attention_heads": 4},
        "bundles": [
            [{**ROUTED[0], "n_shared_experts": 1}, {**ROUTED[1], "n_shared_experts": 1}],
            [{"head_dim": 32, "q_lora_rank": 24}, {"head_dim": 64, "q_lora_rank": 40}],
            [{"o_groups": 2, "o_lora_rank": 16}, {"o_groups": 4, "o_lora_rank": 24}],
            [{"index_n_heads": 4, "index_head_dim": 16, "index_topk": 8}],
            [{"hc_mult": 4}, {"hc_mult": 2}],
            [{"sliding_window": 16}, {"sliding_window": 24}],
            [
                {"num_hidden_layers": 5, "compress_ratios": [0, 4, 128, 4, 0], "num_hash_layers": 1},
                {"num_hidden_layers": 4, "compress_ratios": [128, 128, 4, 4, 0], "num_hash_layers": 3},
                {"num_hidden_layers": 3},
            ],
        ],
    },
    "qwen3_next": {
        "base": {"head_dim": 32},
        "bundles": [
            DELTA_NET,
            DELTA_KINDS,
            QWEN_EXPERTS,
            [{"mlp_only_layers": [1]}, {"decoder_sparse_step": 2}, {}],
        ],
    },
    "qwen3_5_text": {"base": {"head_dim": 32}, "bundles": [DELTA_NET, DELTA_KINDS]},
    "qwen3_5_moe_text": {"base": {"head_dim": 32}, "bundles": [DELTA_NET, DELTA_KINDS, QWEN_EXPERTS]},
    "olmo_hybrid": {"base": {}, "bundles": [DELTA_NET, DELTA_KINDS]},
    "kimi_linear": {
        "base": {"attention_bias": False},
        "bundles": [
            LATENT,
            [
                {"num_experts": 8, "num_experts_per_token": 2, "moe_intermediate_size": 48, "num_shared_experts": 1},
                {"num_experts": 4, "num_experts_per_token": 1, "moe_intermediate_size": 32, "num_shared_experts": 2},
            ],
            [
                {
                    "num_hidden_layers": 4,
                    "linear_attn_config": {
                        "full_attn_layers": [4],
                        "kda_layers": [1, 2, 3],
                        "head_dim": 16,
                        "num_heads": 4,
                        "short_conv_kernel_size": 3,
                    },
                },
                {"num_hidden_layers": 5, "linear_head_dim": 24, "linear_num_heads": 2, "linear_conv_kernel_dim": 4},
            ],
        ],
    },
    "bailing_hybrid": {
        "base": {"num_expert_group": 1, "topk_group": 1},
        "bundles": [
            LATENT,
            DENSE_FIRST,
            [
                {"num_experts": 8, "num_experts_per_token": 2, "moe_intermediate_size": 48, "num_shared_experts": 1},
                {"num_experts": 4, "num_experts_per_token": 1, "moe_intermediate_size": 32, "num_shared_experts": 2},
            ],
            [{"head_dim": 32, "short_conv_kernel_size": 4}, {"head_dim": 16, "short_conv_kernel_size": 3}],
            [{"layer_group_size": 2}, {"layer_group_size": 3}],
        ],
    },
    "glm5_next": {
        "base": GROUPS,
        "bundles": [
            [
                {
                    "kv_lora_rank": 48,
                    "q_lora_rank": 32,
                    "qk_nope_head_dim": 24,
                    "qk_rope_head_dim": 0,
                    "v_head_dim": 20,
                },
                {
                    "kv_lora_rank": 64,
                    "q_lora_rank": 80,
                    "qk_nope_head_dim": 16,
                    "qk_rope_head_dim": 0,
                    "v_head_dim": 32,
                },
            ],
            ROUTED,
            [{"index_topk": 16, "index_head_dim": 16, "index_n_heads": 4, "index_kpool": 4}],
            [{"hc_mult": 4}, {"hc_mult": 2}],
            [{"linear_num_heads": 4, "linear_head_dim": 16}, {"linear_conv_kernel_dim": 3, "linear_num_heads": 2}],
            [{"num_hidden_layers": 8, "index_topk_freq": 2}, {"num_hidden_layers": 5}],
        ],
    },
    "minimax": {
        "base": {"head_dim": 32},
        "bundles": [
            DELTA_KINDS,
            [{"num_local_experts": 8, "num_experts_per_tok": 2}, {"num_local_experts": 4, "num_experts_per_tok": 1}],
            [{"block_size": 16}, {"block_size": 32}],
        ],
    },
    "minimax_m3_vl_text": {
        "base": {"head_dim": 32, "index_block_size": 8},
        "bundles": [
            [{"num_local_experts": 8, "num_experts_per_tok": 2}, {"num_local_experts": 4, "num_experts_per_tok": 1}],
            [{"dense_intermediate_size": 96, "shared_intermediate_size": 48}],
            [
                {
                    "num_hidden_layers": 3,
                    "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
                    "mlp_layer_types": ["dense", "sparse", "sparse"],
                    "index_n_heads": 4,
                    "index_head_dim": 16,
                },
                {"num_hidden_layers": 2},
            ],
        ],
    },
    "mamba": {
        "base": {},
        "bundles": [STATES, [{"use_bias": True}, {"use_conv_bias": False}], [{"expand": 2}, {"time_step_rank": 7}]],
    },
    "falcon_mamba": {
        "base": {},
        "bundles": [STATES, [{"use_bias": True}, {"use_conv_bias": False}], [{"expand": 2}, {"time_step_rank": 7}]],
    },
    "mamba2": {
        "base": {},
        "bundles": [
            STATES,
            [{"use_bias": True}, {"use_conv_bias": False}],
            [
                {"hidden_size": 128, "num_heads": 8, "head_dim": 32, "n_groups": 2},
                {"hidden_size": 64, "num_heads": 4, "head_dim": 32, "n_groups": 1},
            ],
        ],
    },
    "jamba": {
        "base": {"num_hidden_layers": 6},
        "bundles": [
            [{"mamba_d_state": 8, "mamba_d_conv": 4}, {"mamba_d_state": 16, "mamba_d_conv": 3, "mamba_dt_rank": 5}],
            [{"num_experts": 4, "num_experts_per_tok": 2}, {"num_experts": 1, "num_experts_per_tok": 1}],
            [{"attn_layer_period": 3, "attn_layer_offset": 1}, {"attn_layer_period": 2, "attn_layer_offset": 0}],
            [
                {"expert_layer_period": 2, "expert_layer_offset": 1},
                {"expert_layer_period": 3, "expert_layer_offset": 0},
            ],
            MAMBA_BIASES,
        ],
    },
    "bamba": {
        "base": {"num_hidden_layers": 4},
        "bundles": [MAMBA_2, MAMBA_BIASES, [{"attn_layer_indices": [1, 3]}, {}]],
    },
    "granitemoehybrid": {
        "base": {},
        "bundles": [
            MAMBA_2,
            MAMBA_BIASES,
            [{"num_local_experts": 4, "num_experts_per_tok": 2}, {"num_local_experts": 0}],
            [{"shared_intermediate_size": 96}, {"shared_intermediate_size": 64}],
            [
                {"num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"]},
                {"num_hidden_layers": 2, "layer_types": ["attention", "attention"]},
                {"num_hidden_layers": 3},
            ],
        ],
    },
    "falcon_h1": {
        "base": {},
        "bundles": [
            MAMBA_2,
            MAMBA_BIASES,
            [{"mamba_d_ssm": 96}, {"mamba_d_ssm": None}, {"mamba_d_ssm": 64}],
            [{"mamba_rms_norm": True}, {"mamba_rms_norm": False}],
            [{"projectors_bias": True}, {}],
        ],
    },
    "nemotron_h": {
        "base": {"attention_bias": False, "n_group": 1, "topk_group": 1},
        "bundles": [
            [
                {"layers_block_type": ["mamba", "moe", "attention", "mlp", "mamba", "moe"]},
                {"hybrid_override_pattern": "M-M*-"},
                {"hybrid_override_pattern": "MEM*E"},
            ],
            [{"head_dim": 32}, {"head_dim": 16}],
            [
                {"mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "conv_kernel": 4},
                {"mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 8, "n_groups": 1, "conv_kernel": 3},
            ],
            [{"use_bias": True}, {"use_conv_bias": False}],
            [
                {
                    "n_routed_experts": 8,
                    "num_experts_per_tok": 2,
                    "moe_intermediate_size": 48,
                    "moe_shared_expert_intermediate_size": 64,
                },
                {
                    "n_routed_experts": 4,
                    "num_experts_per_tok": 1,
                    "moe_intermediate_size": 32,
                    "moe_shared_expert_intermediate_size": 40,
                    "moe_latent_size": 56,
                },
            ],
        ],
    },
    # transformers 5.24 unties the shared blocks, too, where the head is untied; engines never do
    "zamba": {
        "base": {"num_hidden_layers": 9, "tie_word_embeddings": True},
        "bundles": [
            [{"mamba_d_state": 8, "n_mamba_heads": 2}, {"mamba_d_state": 16, "n_mamba_heads": 4, "mamba_d_conv": 3}],
            MAMBA_BIASES,
            [{"attn_layer_period": 3, "attn_layer_offset": 1}, {}],
        ],
    },
    "zamba2": {
        "base": {"tie_word_embeddings": True},
        "bundles": [
            [{"mamba_d_state": 8, "n_mamba_heads": 2}, {"mamba_d_state": 16, "n_mamba_heads": 4, "mamba_ngroups": 2}],
            [{"use_shared_attention_adapter": True, "adapter_rank": 8}, {"adapter_rank": 4}],
            [{"add_bias_linear": True}, {}],
            [{"num_mem_blocks": 1}, {"num_mem_blocks": 2}],
            [
                {
                    "num_hidden_layers": 7,
                    "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "hybrid", "mamba", "hybrid"],
                },
                {"num_hidden_layers": 3, "layers_block_type": ["mamba", "hybrid", "mamba"]},
            ],
        ],
    },
    "recurrent_gemma": {
        "base": {"num_hidden_layers": 5},
        "bundles": [
            [{"lru_width": 64}, {"lru_width": None}],
            [{"conv1d_width": 4}, {"conv1d_width": 3}],
            [{"attention_window_size": 12}, {"attention_window_size": 16}],
            [{"block_types": ["recurrent", "attention"]}, {}],
        ],
    },
    "lfm2": {
        "base": {"num_hidden_layers": 4},
        "bundles": [
            [{"conv_bias": True}, {"conv_L_cache": 4}],
            [{"full_attn_idxs": [1]}, {"layer_types": ["conv", "full_attention", "conv", "conv"]}],
            [
                {"block_auto_adjust_ff_dim": False},
                {"block_multiple_of": 16, "block_ffn_dim_multiplier": 1.3},
                {"block_ff_dim": 500},
            ],
        ],
    },
    "lfm2_moe": {
        "base": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "full_attention"]},
        "bundles": [
            [{"conv_bias": True}, {"conv_L_cache": 4}],
            [
                {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
                {"num_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 32, "use_expert_bias": False},
            ],
            [{"num_dense_layers": 1}, {"num_dense_layers": 3}],
        ],
    },
    "lfm3": {
        "base": {"head_dim": 32, "sliding_window": 12, "num_hidden_layers": 6},
        "bundles": [
            [{"conv_bias": True}, {"conv_L_cache": 4}],
            [{"use_sandwich_norm": False}, {"use_attention_gate": False}],
        ],
    },
    "rwkv": {"base": {}, "bundles": [[{"attention_hidden_size": 96}, {"attention_hidden_size": None}]]},
    "step3p7": {
        "base": {"head_dim": 32, "sliding_window": 12},
        "bundles": [
            [
                {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "share_expert_dim": 64},
                {"n_routed_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 32, "share_expert_dim": 32},
            ],
            [
                {
                    "num_hidden_layers": 3,
                    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
                    "mlp_layer_types": ["dense", "sparse", "sparse"],
                },
                {"num_hidden_layers": 4, "moe_layers_enum": "2,3"},
            ],
            [{"num_attention_heads": 4, "num_key_value_heads": 2, "num_sliding_attention_heads": 6}, {}],
        ],
    },
    "longcat_flash": {
        "base": {"num_layers": 2, "zero_expert_num": 0},
        "bundles": [
            LATENT_WITH_QUERY,
            [
                {"n_routed_experts": 8, "moe_topk": 2, "expert_ffn_hidden_size": 48, "ffn_hidden_size": 96},
                {"n_routed_experts": 4, "moe_topk": 1, "expert_ffn_hidden_size": 32, "ffn_hidden_size": 64},
            ],
        ],
    },
    # encoders and encoder–decoders whose heads must divide the width
    "bert": {"base": {"num_attention_heads": 4}},
    "camembert": {"base": {"num_attention_heads": 4, "hidden_size": 128}},
    "deberta-v2": {"base": {"num_attention_heads": 4}},
    "electra": {"base": {"num_attention_heads": 4}},
    "falcon": {
        "base": {"num_attention_heads": 4},
        # with the new architecture transformers broadcasts K and V to all heads before it caches them: engines do not
        "bundles": [
            [
                {"multi_query": True, "new_decoder_architecture": False},
                {"multi_query": False, "new_decoder_architecture": False},
                {"new_decoder_architecture": True, "num_kv_heads": 4},
            ],
            [{"bias": True}, {"bias": False}],
            [{"parallel_attn": True}, {"parallel_attn": False}],
        ],
    },
    "dots1": {
        "base": {"n_group": 1, "topk_group": 1, "pad_token_id": 0},
        "bundles": [ROUTED, DENSE_FIRST],
    },
    # heads and widths that the class's own defaults would not fit
    "hunyuan_v1_dense": {"base": {"head_dim": 32}},
    "hunyuan_v1_moe": {"base": {"head_dim": 32, "num_experts": 4, "moe_topk": 2}},
    "ministral": {"base": {"head_dim": 32}},
    "internlm3": {"bundles": [[{"qkv_bias": True, "bias": True}, {"qkv_bias": False, "bias": False}]]},
    "modernbert": {"base": {"num_attention_heads": 4}},
    "modernbert-decoder": {
        "base": {"num_attention_heads": 4, "max_position_embeddings": 64},
        "bundles": [
            [{"norm_bias": True}, {"norm_bias": False}],
            [{"decoder_bias": True}, {"decoder_bias": False}],
            [{"classifier_bias": True}, {"classifier_bias": False}],
            [{"local_attention": 32}, {"local_attention": 64}],
        ],
    },
    "mpnet": {"base": {"num_attention_heads": 4}},
    "nomic_bert": {"base": {"num_attention_heads": 4}},
    "opt": {"base": {"num_attention_heads": 4}},
    "persimmon": {"base": {"num_attention_heads": 4}},
    "diffllama": {"base": {"num_attention_heads": 4, "num_key_value_heads": 2}},
}
