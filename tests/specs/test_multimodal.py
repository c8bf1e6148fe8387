"""Models with towers: published totals, how files spell them, what they may leave out, what is refused."""

from __future__ import annotations

import copy

import pytest

from kvplan.core.cache import cross_kv_elements_per_source_token, kv_elements_per_token, window_layers
from kvplan.core.parameters import parameters_active, parameters_total
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
PIXTRAL = {
    "model_type": "pixtral",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 1540,
    "patch_size": 14,
}
MISTRAL_SMALL = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    "model_type": "mistral3",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0",
    "image_token_index": 10,
    "multimodal_projector_bias": False,
    "spatial_merge_size": 2,
    "vision_feature_layer": -1,
    "text_config": {
        "model_type": "mistral",
        "hidden_size": 5120,
        "intermediate_size": 32768,
        "num_attention_heads": 32,
        "num_hidden_layers": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "sliding_window": None,
        "vocab_size": 131072,
    },
    "vision_config": PIXTRAL,
}
#: As llava-hf publishes it: the nested decoder leaves out what is a Llama's default.
LLAVA = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "ignore_index": -100,
    "image_token_index": 32000,
    "pad_token_id": 32001,
    "projector_hidden_act": "gelu",
    "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064},
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "image_size": 336,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
        "projection_dim": 768,
        "vocab_size": 32000,
    },
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
    "vocab_size": 32064,
}
MLLAMA = {
    "architectures": ["MllamaForConditionalGeneration"],
    "model_type": "mllama",
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "mllama_text_model",
        "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 40,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "vision_config": {"attention_heads": 16, "image_size": 560, "max_num_tiles": 4, "vision_output_dim": 7680},
}
SCOUT = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "model_type": "llama4",
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "llama4_text",
        "attention_chunk_size": 8192,
        "head_dim": 128,
        "hidden_size": 5120,
        "interleave_moe_layer_step": 1,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "no_rope_layers": [],
        "num_attention_heads": 40,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
        "num_local_experts": 16,
        "vocab_size": 202048,
    },
    "vision_config": {
        "model_type": "llama4_vision_model",
        "hidden_size": 1408,
        "image_size": 336,
        "intermediate_size": 5632,
        "num_attention_heads": 16,
        "num_hidden_layers": 34,
        "patch_size": 14,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
        "vision_output_dim": 4096,
    },
}
INTERNVL = {
    "architectures": ["InternVLChatModel"],
    "model_type": "internvl_chat",
    "torch_dtype": "bfloat16",
    "downsample_ratio": 0.5,
    "dynamic_image_size": True,
    "force_image_size": 448,
    "llm_config": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
        "vocab_size": 151674,
    },
    "max_dynamic_patch": 12,
    "min_dynamic_patch": 1,
    "ps_version": "v2",
    "select_layer": -1,
    "template": "internvl2_5",
    "use_backbone_lora": 0,
    "use_llm_lora": 0,
    "use_thumbnail": True,
    "vision_config": {
        "model_type": "intern_vit_6b",
        "hidden_size": 1024,
        "image_size": 448,
        "intermediate_size": 4096,
        "norm_type": "layer_norm",
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
        "qk_normalization": False,
        "qkv_bias": True,
    },
}
QWEN_VL = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "num_attention_heads": 40,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "sliding_window": 32768,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vision_config": {
        "depth": 32,
        "fullatt_block_indexes": [7, 15, 23, 31],
        "hidden_size": 1280,
        "in_chans": 3,
        "intermediate_size": 3456,
        "num_heads": 16,
        "out_hidden_size": 5120,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "tokens_per_second": 2,
        "window_size": 112,
    },
    "vocab_size": 152064,
}
QWEN_AUDIO = {
    "architectures": ["Qwen2AudioForConditionalGeneration"],
    "model_type": "qwen2_audio",
    "torch_dtype": "bfloat16",
    "audio_config": {
        "model_type": "qwen2_audio_encoder",
        "d_model": 1280,
        "encoder_attention_heads": 20,
        "encoder_ffn_dim": 5120,
        "encoder_layers": 32,
        "max_source_positions": 1500,
        "num_mel_bins": 128,
    },
    "text_config": {"model_type": "qwen2", "intermediate_size": 11008, "vocab_size": 156032},
    "vocab_size": 156032,
}

#: Totals as the hub's safetensors metadata state them.
PUBLISHED = [
    ("mistral-small-3.1", MISTRAL_SMALL, 24_011_361_280, 81_920),
    ("llava-1.5-7b", LLAVA, 7_063_427_072, 262_144),
    ("llama-3.2-11b-vision", MLLAMA, 10_670_220_835, 65_536),
    ("llama-4-scout", SCOUT, 108_641_793_536, 98_304),
    ("internvl3-8b", INTERNVL, 7_944_373_760, 28_672),
    ("qwen2.5-vl-32b", QWEN_VL, 33_452_718_336, 131_072),
    ("qwen2-audio-7b", QWEN_AUDIO, 8_397_094_912, 262_144),
]


@pytest.mark.parametrize(("config", "parameters", "kv"), [row[1:] for row in PUBLISHED], ids=[r[0] for r in PUBLISHED])
def test_published_totals(config, parameters, kv):
    model = from_config(config)
    assert parameters_total(model) == parameters
    assert kv_elements_per_token(model) == kv
    assert model.towers
    assert not model.warnings


def test_what_a_nested_decoder_leaves_out_is_told():
    said = " ".join(from_config(LLAVA).assumptions)
    assert "text_config.hidden_size is not in config.json: 4096 assumed" in said


def test_nested_and_flat_spelling_say_the_same():
    vision = QWEN_VL["vision_config"]
    outer = ("architectures", "model_type", "torch_dtype", "tie_word_embeddings")
    nested = {name: QWEN_VL[name] for name in outer} | {"vision_config": vision}
    nested["text_config"] = {k: v for k, v in QWEN_VL.items() if k not in (*outer, "vision_config")}
    both = {**QWEN_VL, "text_config": nested["text_config"]}
    counts = {parameters_total(from_config(config)) for config in (QWEN_VL, nested, both)}
    assert counts == {33_452_718_336}


def test_a_file_without_vision_config_is_warned_about():
    config = {name: value for name, value in SCOUT.items() if name != "vision_config"}
    model = from_config(config)
    # transformers 5.24's default tower of Llama 4: 455,178,240 parameters with its projector.
    assert parameters_total(model) == 108_225_039_360
    assert "vision_config is not in config.json" in model.warnings[0]
    assert "455,178,240" in model.warnings[0]


def test_a_file_without_audio_config_is_warned_about():
    config = {name: value for name, value in QWEN_AUDIO.items() if name != "audio_config"}
    model = from_config(config)
    assert "audio_config is not in config.json" in model.warnings[0]
    # transformers 5.24's default tower of Qwen2-Audio, the projector to the width of 4096 with it.
    assert parameters_total(model) == parameters_total(from_config(QWEN_AUDIO)) == 8_397_094_912


def test_chunked_layers_are_windows_and_the_rest_is_full():
    model = from_config(SCOUT)
    assert window_layers(model) == 36
    assert kv_elements_per_token(model, full_only=True) == 12 * 2 * 8 * 128


def test_images_are_cached_by_cross_attention_once_per_source_token():
    model = from_config(MLLAMA)
    assert cross_kv_elements_per_source_token(model) == 8 * 2 * 8 * 128
    assert model.max_source_tokens == 4 * (40 * 40 + 1)
    assert kv_elements_per_token(model) == 32 * 2 * 8 * 128


@pytest.mark.parametrize(
    ("outer", "inner", "version", "tied"),
    [
        (None, None, "4.50.0", False),
        (None, None, "5.0.0", True),
        (None, None, None, False),
        (None, True, "5.0.0", True),
        (False, None, "5.0.0", False),
        (False, True, "5.0.0", False),
        (True, False, "4.50.0", True),
    ],
)
def test_tying_outer_before_nested_before_the_writer_s_default(outer, inner, version, tied):
    config = copy.deepcopy(MISTRAL_SMALL)
    for place, value in ((config, outer), (config["text_config"], inner)):
        if value is not None:
            place["tie_word_embeddings"] = value
    config["transformers_version"] = version
    head = 131_072 * 5120
    assert parameters_total(from_config(config)) == 24_011_361_280 - (head if tied else 0)


def test_a_bigger_tower_changes_parameters_not_the_cache():
    wide = copy.deepcopy(MISTRAL_SMALL)
    wide["vision_config"]["num_hidden_layers"] = 48
    before, after = from_config(MISTRAL_SMALL), from_config(wide)
    assert parameters_total(after) > parameters_total(before)
    assert kv_elements_per_token(after) == kv_elements_per_token(before)
    assert parameters_active(after) == parameters_total(after)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("vision_config", "model_type"), "eva02", "vision_config.model_type: 'eva02' is not a vision tower"),
        (("vision_config", "hidden_size"), -1, "vision_config.hidden_size: must be an integer of at least 1"),
        (("vision_config", "patch_size"), "14", "vision_config.patch_size: must be an integer"),
        (("vision_config", "num_hidden_layers"), 10**12, "vision_config.num_hidden_layers: must be at most"),
        (("vision_config", "extra_cache_layers"), 3, "vision_config.extra_cache_layers: not understood"),
        (("text_config", "num_hidden_layers"), 2.5, "text_config.num_hidden_layers: must be an integer"),
        (("text_config", "model_type"), "nothing", "text_config.model_type: 'nothing' is not a family"),
        (("text_config",), None, "text_config: is missing"),
        (("text_config",), 7, "text_config: must be an object"),
        (("vision_config",), [], "vision_config: must be an object"),
        (("vision_feature_layer",), "last", "vision_feature_layer: must be an integer or a list"),
        (("spatial_merge_size",), 0, "spatial_merge_size: must be an integer of at least 1"),
    ],
)
def test_bad_fields_are_named(path, value, message):
    config = copy.deepcopy(MISTRAL_SMALL)
    place = config
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(SpecError) as caught:
        from_config(config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_configs_nested_in_each_other_are_refused_at_once():
    config = copy.deepcopy(LLAVA)
    for _ in range(400):
        config = {**LLAVA, "text_config": config}
    with pytest.raises(SpecError, match="nested twice"):
        from_config(config)


def test_unmerged_lora_is_refused():
    with pytest.raises(SpecError, match="use_llm_lora"):
        from_config({**INTERNVL, "use_llm_lora": 128})


@pytest.mark.parametrize("model_type", ["qwen2_5_omni", "qwen3_omni_moe"])
def test_speech_generators_are_refused_with_a_way_out(model_type):
    with pytest.raises(UnsupportedModelError, match="talker_config") as caught:
        from_config({"model_type": model_type, "thinker_config": {}, "talker_config": {}})
    assert f"{model_type}_thinker" in caught.value.hint
