"""Which configs `check_towers.py` draws: data, no logic.

`OneOf` stands for a random choice; under the key `"*"` it chooses among sets of fields that belong together. Sizes are
small, so that a trial builds fast.
"""

from __future__ import annotations

from typing import Any, Self


class OneOf(tuple[Any, ...]):
    """A choice among values."""

    __slots__ = ()

    def __new__(cls, *options: Any) -> Self:
        return super().__new__(cls, options)


BOOL = OneOf(True, False)
HEADS = OneOf(
    {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2},
    {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2},
    {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2},
    {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 1},
)
TIED = OneOf({}, {"tie_word_embeddings": True}, {"tie_word_embeddings": False})


def text(model_type: str, **more: Any) -> dict[str, Any]:
    """A plain decoder."""
    return {
        "model_type": model_type,
        "intermediate_size": OneOf(64, 100),
        "num_hidden_layers": OneOf(2, 3, 5),
        "vocab_size": OneOf(100, 333),
        "*": HEADS,
        **more,
    }


def vit(model_type: str, **more: Any) -> dict[str, Any]:
    """A vision transformer under the usual names."""
    return {
        "model_type": model_type,
        "hidden_size": 64,
        "intermediate_size": OneOf(100, 120),
        "num_hidden_layers": OneOf(1, 3),
        "num_attention_heads": 4,
        "image_size": 56,
        "patch_size": 14,
        **more,
    }


TEXT_ENCODER = {
    "hidden_size": 64,
    "intermediate_size": OneOf(100, 120),
    "num_hidden_layers": OneOf(1, 3),
    "num_attention_heads": 4,
    "vocab_size": 222,
    "max_position_embeddings": 20,
}
SIGLIP = vit("siglip_vision_model", vision_use_head=BOOL, num_channels=OneOf(1, 3))
CLIP = vit("clip_vision_model", projection_dim=32)
PIXTRAL = vit("pixtral")
QWEN_VIT = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": OneOf(40, 50),
    "num_heads": 2,
    "in_channels": OneOf(1, 3),
    "out_hidden_size": 64,
    "patch_size": OneOf(14, 4),
    "spatial_merge_size": OneOf(1, 2),
    "temporal_patch_size": OneOf(1, 2),
}
QWEN3_VIT = {**QWEN_VIT, "num_position_embeddings": 16, "deepstack_visual_indexes": OneOf([0], [0, 1])}
WHISPER_ENCODER = {
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 50,
    "num_mel_bins": OneOf(8, 20, 80),
    "max_source_positions": 30,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
GEMMA_HEADS = OneOf(
    {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2},
    {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1},
)
GEMMA3 = {
    "model_type": "gemma3_text",
    "intermediate_size": 100,
    "head_dim": OneOf(16, 32),
    "vocab_size": 300,
    "sliding_window": OneOf(8, 64),
    "attention_bias": BOOL,
    "*": GEMMA_HEADS,
    "**": OneOf(
        {"num_hidden_layers": 7},
        {"num_hidden_layers": 5, "sliding_window_pattern": 2},
        {"num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
    ),
}
GEMMA3N = {
    "model_type": "gemma3n_text",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": OneOf(1, 2),
    "head_dim": 16,
    "vocab_size": 300,
    "vocab_size_per_layer_input": 200,
    "hidden_size_per_layer_input": 8,
    "altup_num_inputs": OneOf(2, 4),
    "laurel_rank": 8,
    "*": OneOf(
        {"num_hidden_layers": 10, "num_kv_shared_layers": 3, "intermediate_size": 100},
        {"num_hidden_layers": 5, "num_kv_shared_layers": 0, "intermediate_size": [100, 101, 102, 103, 104]},
    ),
}
GEMMA4 = {
    "model_type": "gemma4_text",
    "intermediate_size": 100,
    "head_dim": 16,
    "global_head_dim": OneOf(16, 32),
    "vocab_size": 300,
    "vocab_size_per_layer_input": OneOf(100, 300),
    "hidden_size_per_layer_input": OneOf(0, 8),
    "sliding_window": OneOf(8, 64),
    "attention_bias": BOOL,
    "attention_k_eq_v": BOOL,
    "use_double_wide_mlp": BOOL,
    "num_global_key_value_heads": OneOf(None, 1, 2),
    "*": GEMMA_HEADS,
    "**": OneOf(
        {"num_hidden_layers": 12, "num_kv_shared_layers": OneOf(0, 3)},
        {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
        {"num_hidden_layers": 6, "enable_moe_block": True, "top_k_experts": 2, "num_experts": 4}
        | {"moe_intermediate_size": 24},
    ),
}
GEMMA4_VIT = {
    "model_type": "gemma4_vision",
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "patch_size": 4,
    "position_embedding_size": 10,
    "use_clipped_linears": BOOL,
    "standardize": BOOL,
}
GEMMA4_CONFORMER = {
    "model_type": "gemma4_audio",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "conv_kernel_size": 3,
    "output_proj_dims": 24,
    "subsampling_conv_channels": [16, 8],
    "use_clipped_linears": BOOL,
}
LLAMA4 = {
    "model_type": "llama4_text",
    "intermediate_size": 40,
    "intermediate_size_mlp": 60,
    "head_dim": 16,
    "vocab_size": 300,
    "num_local_experts": 4,
    "num_experts_per_tok": OneOf(1, 2),
    "attention_bias": BOOL,
    "attention_chunk_size": OneOf(8, 64),
    "num_hidden_layers": 5,
    "*": GEMMA_HEADS,
    "**": OneOf({}, {"interleave_moe_layer_step": 2}, {"moe_layers": [1, 3]}),
    "***": OneOf({}, {"no_rope_layers": [1, 0, 1, 1, 0]}, {"no_rope_layer_interval": 2}),
}


def pair(name: str, decoder: Any, vision: Any, **more: Any) -> dict[str, Any]:
    """A decoder and a vision tower."""
    return {"model_type": name, "text_config": decoder, "vision_config": vision, **more}


def two_sided(name: str, architecture: str) -> dict[str, Any]:
    """An encoder–decoder model of the BART kin."""
    return {
        "model_type": name,
        "architectures": [architecture],
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": OneOf(1, 3),
        "encoder_attention_heads": 4,
        "decoder_attention_heads": OneOf(2, 4),
        "encoder_ffn_dim": 50,
        "decoder_ffn_dim": 60,
        "vocab_size": 222,
        "max_position_embeddings": 40,
        "pad_token_id": 1,
        "*": TIED,
    }


def t5(name: str, prefix: str) -> dict[str, Any]:
    """T5 and its kin. transformers ties heads whatever the config says: left out here."""
    return {
        "model_type": name,
        "architectures": OneOf([f"{prefix}ForConditionalGeneration"], [f"{prefix}EncoderModel"]),
        "d_model": 32,
        "d_kv": OneOf(8, 16),
        "d_ff": 50,
        "num_layers": OneOf(2, 3),
        "num_heads": 4,
        "vocab_size": 222,
        "feed_forward_proj": OneOf("relu", "gated-gelu"),
        "relative_attention_num_buckets": OneOf(16, 32),
        "*": OneOf({}, {"num_decoder_layers": 4}),
    }


_HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def bert(name: str, prefix: str, *heads: str, **more: Any) -> dict[str, Any]:
    """An encoder of the BERT kin under one of its heads."""
    return {
        "model_type": name,
        "architectures": OneOf(*([prefix + head] for head in (*_HEADS, *heads))),
        "hidden_size": 32,
        "num_hidden_layers": OneOf(1, 3),
        "num_attention_heads": 4,
        "intermediate_size": 50,
        "vocab_size": 222,
        "max_position_embeddings": 40,
        "pad_token_id": 1,
        "*": OneOf({}, {"id2label": {"0": "a", "1": "b", "2": "c"}}),
        "**": TIED,
        **more,
    }


TYPES = {"type_vocab_size": OneOf(1, 2)}

#: What is drawn, by a name of its own.
CASES: dict[str, dict[str, Any]] = {
    "albert": bert("albert", "Albert", "ForPreTraining", embedding_size=OneOf(16, 32), **TYPES),
    "aya_vision": pair("aya_vision", text("cohere2", sliding_window=16), SIGLIP, alignment_intermediate_size=40),
    "bart": two_sided("bart", "BartForConditionalGeneration"),
    "bert": bert("bert", "Bert", "ForPreTraining", "LMHeadModel", "ForNextSentencePrediction", **TYPES),
    "blenderbot": two_sided("blenderbot", "BlenderbotForConditionalGeneration"),
    "blenderbot-small": two_sided("blenderbot-small", "BlenderbotSmallForConditionalGeneration"),
    "camembert": bert("camembert", "Camembert", **TYPES),
    "clip": {
        "model_type": "clip",
        "architectures": ["CLIPModel"],
        "projection_dim": OneOf(16, 32),
        "text_config": TEXT_ENCODER,
        "vision_config": CLIP,
    },
    "cohere2_vision": pair(
        "cohere2_vision", text("cohere2", sliding_window=16), SIGLIP, alignment_intermediate_size=40
    ),
    "deberta-v2": bert(
        "deberta-v2",
        "DebertaV2",
        type_vocab_size=OneOf(0, 2),
        relative_attention=BOOL,
        position_buckets=OneOf(-1, 8),
        norm_rel_ebd=OneOf("none", "layer_norm"),
        share_att_key=BOOL,
        pos_att_type=OneOf("p2c|c2p", ["c2p"]),
        position_biased_input=BOOL,
        conv_kernel_size=OneOf(0, 3),
        embedding_size=OneOf(16, 32),
    ),
    "distilbert": {
        "model_type": "distilbert",
        "architectures": OneOf(*([f"DistilBert{head}"] for head in _HEADS)),
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 50,
        "vocab_size": 222,
        "max_position_embeddings": 40,
    },
    "electra": bert("electra", "Electra", "ForPreTraining", embedding_size=OneOf(16, 32), **TYPES),
    "eurobert": text("eurobert", architectures=OneOf(["EuroBertModel"], ["EuroBertForMaskedLM"]), pad_token_id=0),
    "gemma3": pair("gemma3", GEMMA3, SIGLIP),
    "gemma3_text": GEMMA3,
    "gemma3n_text": GEMMA3N,
    "gemma4": {
        "model_type": "gemma4",
        "text_config": GEMMA4,
        "*": OneOf({}, {"vision_config": GEMMA4_VIT}),
        "**": OneOf({}, {"audio_config": GEMMA4_CONFORMER}),
    },
    "gemma4_text": GEMMA4,
    "glm4v": pair("glm4v", text("glm4v_text"), {**QWEN_VIT, "image_size": 56, "attention_bias": BOOL}, **{"*": TIED}),
    "glm4v_moe": pair(
        "glm4v_moe",
        text(
            "glm4v_moe_text",
            moe_intermediate_size=20,
            num_experts_per_tok=2,
            n_shared_experts=1,
            n_routed_experts=4,
            first_k_dense_replace=1,
            head_dim=16,
            attention_bias=BOOL,
        ),
        {**QWEN_VIT, "image_size": 56},
    ),
    "idefics2": pair(
        "idefics2",
        {**text("mistral", sliding_window=None), "*": HEADS[0]},
        vit("idefics2_vision"),
        perceiver_config={"hidden_size": 64, "resampler_n_latents": 4, "resampler_depth": 2, "resampler_n_heads": 4}
        | {"resampler_head_dim": 16, "num_key_value_heads": 2},
    ),
    "idefics3": pair("idefics3", text("llama"), vit("idefics3_vision"), scale_factor=OneOf(2, 3), **{"*": TIED}),
    "internvl": pair(
        "internvl",
        text("qwen2"),
        vit(
            "internvl_vision",
            attention_bias=BOOL,
            use_qk_norm=BOOL,
            norm_type=OneOf("layer_norm", "rms_norm"),
            use_mask_token=BOOL,
            use_mean_pooling=BOOL,
        ),
        tie_word_embeddings=BOOL,
    ),
    "kimi_k25": pair(
        "kimi_k25",
        {
            "model_type": "deepseek_v3",
            "hidden_size": 64,
            "intermediate_size": 80,
            "moe_intermediate_size": 20,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "n_shared_experts": 1,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "q_lora_rank": OneOf(None, 16),
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "vocab_size": 300,
        },
        {
            "hidden_size": 64,
            "intermediate_size": 80,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "pos_emb_height": 8,
            "pos_emb_width": 9,
            "patch_size": 4,
        },
        projection_hidden_size=64,
        tie_word_embeddings=BOOL,
    ),
    "lfm2_vl": pair(
        "lfm2_vl",
        text(
            "lfm2",
            num_hidden_layers=3,
            layer_types=["conv", "full_attention", "conv"],
            block_auto_adjust_ff_dim=False,
            pad_token_id=0,
        ),
        {**vit("siglip2_vision_model", num_patches=16, vision_use_head=BOOL), "patch_size": 4},
        projector_hidden_size=40,
        projector_bias=BOOL,
        projector_use_layernorm=BOOL,
    ),
    "llama4": pair(
        "llama4",
        LLAMA4,
        vit("llama4_vision_model", vision_output_dim=30, projector_input_dim=20, projector_output_dim=20),
    ),
    "llama4_text": LLAMA4,
    "llava": pair(
        "llava",
        OneOf(text("llama"), text("mistral", sliding_window=None), text("qwen2")),
        OneOf(SIGLIP, CLIP, PIXTRAL),
        vision_feature_layer=OneOf(-2, [-2, -1]),
        multimodal_projector_bias=BOOL,
        **{"*": TIED},
    ),
    "llava_next": pair("llava_next", text("llama"), OneOf(SIGLIP, CLIP), vision_feature_layer=-2, **{"*": TIED}),
    "llava_onevision": pair("llava_onevision", text("qwen2"), SIGLIP, **{"*": TIED}),
    "m2m_100": two_sided("m2m_100", "M2M100ForConditionalGeneration"),
    "marian": two_sided("marian", "MarianMTModel"),
    "mbart": two_sided("mbart", "MBartForConditionalGeneration"),
    "minimax_m3_vl": pair(
        "minimax_m3_vl",
        text(
            "minimax_m3_vl_text",
            head_dim=16,
            dense_intermediate_size=48,
            shared_intermediate_size=20,
            num_local_experts=4,
            num_experts_per_tok=2,
            num_hidden_layers=4,
            moe_layer_freq=[0, 1, 1, 1],
            sparse_attention_config={"sparse_index_dim": 16, "sparse_attention_freq": [0, 1, 1, 1]},
        ),
        {"hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2, "num_attention_heads": 4}
        | {"image_size": 56, "patch_size": 14},
        projector_hidden_size=OneOf(40, 64),
    ),
    "mistral3": pair(
        "mistral3",
        OneOf(text("mistral", sliding_window=None), text("ministral3", sliding_window=None)),
        PIXTRAL,
        spatial_merge_size=OneOf(1, 2),
        multimodal_projector_bias=BOOL,
        tie_word_embeddings=BOOL,
    ),
    "mllama": pair(
        "mllama",
        text("mllama_text_model", num_hidden_layers=5, cross_attention_layers=OneOf([1, 3], [0]), pad_token_id=1),
        {"model_type": "mllama_vision_model", "hidden_size": 64, "num_hidden_layers": 2, "num_global_layers": 1}
        | {"attention_heads": 4, "intermediate_size": 80, "vision_output_dim": 128, "image_size": 56}
        | {"patch_size": 14, "intermediate_layers_indices": [0]},
    ),
    "modernbert": {
        "model_type": "modernbert",
        "architectures": OneOf(*([f"ModernBert{head}"] for head in _HEADS[:3])),
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 50,
        "vocab_size": 222,
        "pad_token_id": 0,
        "attention_bias": BOOL,
        "norm_bias": BOOL,
        "mlp_bias": BOOL,
        "decoder_bias": BOOL,
        "classifier_bias": BOOL,
    },
    "mpnet": bert("mpnet", "MPNet"),
    "mt5": t5("mt5", "MT5"),
    "nomic_bert": {
        "model_type": "nomic_bert",
        "architectures": OneOf(*([f"NomicBert{head}"] for head in _HEADS[:3])),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 50,
        "vocab_size": 222,
        "pad_token_id": 0,
    },
    "paligemma": pair(
        "paligemma",
        {**text("gemma", head_dim=16), "*": HEADS[0]},
        {**SIGLIP, "vision_use_head": False},
        projection_dim=64,
    ),
    "paddleocr_vl": pair(
        "paddleocr_vl",
        text("paddleocr_vl_text", head_dim=16, use_bias=BOOL, tie_word_embeddings=True),
        {**vit("paddleocr_vl_vision"), "num_channels": OneOf(1, 3), "spatial_merge_size": OneOf(1, 2)},
        **{"*": TIED},
    ),
    "pegasus": two_sided("pegasus", "PegasusForConditionalGeneration"),
    "phi4_multimodal": text(
        "phi4_multimodal",
        pad_token_id=0,
        vision_config=vit("phi4_multimodal_vision", num_channels=OneOf(1, 3)),
        audio_config={
            "hidden_size": 32,
            "intermediate_size": 50,
            "num_blocks": 2,
            "num_attention_heads": 4,
            "ext_pw_out_channel": 32,
            "depthwise_separable_out_channel": 32,
            "depthwise_multiplier": OneOf(1, 2),
            "kernel_size": 3,
            "input_size": OneOf(20, 80),
            "time_reduction": OneOf(4, 8),
            "bias_max_distance": 10,
            "bias_symmetric": BOOL,
            "nemo_conv_channels": 16,
        },
        **{"**": TIED},
    ),
    "plbart": two_sided("plbart", "PLBartForConditionalGeneration"),
    "qwen2_5_omni_thinker": pair(
        "qwen2_5_omni_thinker",
        text("qwen2_5_omni_text"),
        QWEN_VIT,
        architectures=["Qwen2_5OmniThinkerForConditionalGeneration"],
        audio_config={**WHISPER_ENCODER, "output_dim": 24},
        **{"*": TIED},
    ),
    "qwen2_5_vl": OneOf(
        pair("qwen2_5_vl", text("qwen2_5_vl_text"), QWEN_VIT, **{"*": TIED}),
        text("qwen2_5_vl", vision_config=QWEN_VIT, **{"**": TIED}),
    ),
    "qwen2_audio": {
        "model_type": "qwen2_audio",
        "text_config": text("qwen2"),
        "audio_config": {"model_type": "qwen2_audio_encoder", **WHISPER_ENCODER},
    },
    "qwen2_vl": text(
        "qwen2_vl",
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 64, "mlp_ratio": OneOf(2, 4), "num_heads": 2},
        **{"**": TIED},
    ),
    "qwen3_omni_moe_thinker": pair(
        "qwen3_omni_moe_thinker",
        text("qwen3_omni_moe_text", head_dim=16, **EXPERTS),
        QWEN3_VIT,
        architectures=["Qwen3OmniMoeThinkerForConditionalGeneration"],
        audio_config={**WHISPER_ENCODER, "output_dim": 24, "downsample_hidden_size": 12},
        **{"*": TIED},
    ),
    "qwen3_vl": pair("qwen3_vl", text("qwen3_vl_text", head_dim=16, attention_bias=BOOL), QWEN3_VIT, **{"*": TIED}),
    "qwen3_vl_moe": pair(
        "qwen3_vl_moe",
        text("qwen3_vl_moe_text", head_dim=16, mlp_only_layers=OneOf([], [0]), **EXPERTS),
        QWEN3_VIT,
        **{"*": TIED},
    ),
    "roberta": bert("roberta", "Roberta", **TYPES),
    "siglip": {
        "model_type": "siglip",
        "architectures": ["SiglipModel"],
        "text_config": TEXT_ENCODER | {"*": OneOf({}, {"projection_size": 24})},
        "vision_config": {**SIGLIP, "vision_use_head": True},
    },
    "smolvlm": pair("smolvlm", text("llama"), vit("smolvlm_vision"), scale_factor=OneOf(2, 3)),
    "t5": t5("t5", "T5"),
    "umt5": t5("umt5", "UMT5"),
    "vipllava": pair("vipllava", text("llama"), CLIP, vision_feature_layers=OneOf([-2, -1, 0], [-1])),
    "voxtral": {
        "model_type": "voxtral",
        "text_config": text("llama", head_dim=16),
        "audio_config": {"model_type": "voxtral_encoder", "hidden_size": 32, "num_hidden_layers": 2}
        | {"num_attention_heads": 4, "intermediate_size": 64, "num_mel_bins": 8, "max_source_positions": 30},
    },
    "whisper": {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        **WHISPER_ENCODER,
        "decoder_layers": OneOf(1, 3),
        "decoder_attention_heads": OneOf(2, 4),
        "decoder_ffn_dim": 60,
        "vocab_size": 222,
        "max_target_positions": 40,
        "pad_token_id": 1,
        "*": TIED,
    },
    "xlm-roberta": bert("xlm-roberta", "XLMRoberta", **TYPES),
}
