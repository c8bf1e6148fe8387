"""Encoders keep no cache; encoder–decoder models keep a self and a cross cache."""

from __future__ import annotations

import pytest

from kvplan.core.cache import cross_kv_elements_per_source_token, kv_elements_per_token, window_layers
from kvplan.core.parameters import parameters_embedding, parameters_total
from kvplan.errors import SpecError
from kvplan.specs.huggingface import from_config
from kvplan.specs.models import load_model

BERT = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_size": 64,
    "intermediate_size": 100,
    "max_position_embeddings": 40,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "torch_dtype": "float32",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 222,
}
WHISPER = {
    "architectures": ["WhisperForConditionalGeneration"],
    "model_type": "whisper",
    "d_model": 64,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 100,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 100,
    "encoder_layers": 5,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "num_mel_bins": 80,
    "torch_dtype": "float16",
    "vocab_size": 222,
}
T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "d_ff": 100,
    "d_kv": 16,
    "d_model": 64,
    "num_heads": 4,
    "num_layers": 3,
    "vocab_size": 222,
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bge-large-en-v1.5", 335_141_888),
        ("bge-m3", 567_754_752),
        ("all-minilm-l6-v2", 22_713_216),
        ("modernbert-base", 149_655_232),
        ("nomic-embed-text-v1.5", 136_731_648),
        ("clip-vit-large-patch14", 427_616_513),
    ],
)
def test_embedding_models_have_published_totals_and_no_cache(name, parameters):
    model = load_model(name)
    assert parameters_total(model) == parameters
    assert kv_elements_per_token(model) == 0
    assert window_layers(model) == 0


def test_nomic_in_its_old_spelling():
    old = {
        "model_type": "nomic_bert",
        "architectures": ["NomicBertModel"],
        "causal": False,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "n_embd": 768,
        "n_head": 12,
        "n_inner": 3072,
        "n_layer": 12,
        "n_positions": 8192,
        "prenorm": False,
        "qkv_proj_bias": False,
        "rotary_emb_base": 1000,
        "type_vocab_size": 2,
        "vocab_size": 30528,
    }
    assert parameters_total(from_config(old)) == 136_731_648


@pytest.mark.parametrize(
    ("head", "extra"),
    [
        ("BertModel", 64 * 65),
        ("BertForMaskedLM", 64 * 65 + 2 * 64 + 222),
        ("BertForSequenceClassification", 64 * 65 + 2 * 65),
        ("BertForTokenClassification", 2 * 65),
        ("BertForPreTraining", 2 * 64 * 65 + 2 * 64 + 222 + 2 * 65),
    ],
)
def test_heads_are_counted_by_the_class(head, extra):
    bare = parameters_total(from_config({**BERT, "architectures": ["BertForQuestionAnswering"]})) - 2 * 65
    assert parameters_total(from_config({**BERT, "architectures": [head]})) == bare + extra


def test_positions_are_no_input_embeddings():
    assert parameters_embedding(from_config(BERT)) == 222 * 64


def test_albert_stores_one_layer_for_all():
    albert = {**BERT, "model_type": "albert", "architectures": ["AlbertModel"], "embedding_size": 64}
    three = from_config(albert)
    assert parameters_total(three) == parameters_total(from_config({**albert, "num_hidden_layers": 1}))
    assert three.num_hidden_layers == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architectures": ["BertForMultipleChoices"]}, "'BertForMultipleChoices' has a head"),
        ({"is_decoder": True}, "is_decoder"),
        ({"num_attention_heads": 3}, "head_dim"),
        ({"vocab_size": None}, "vocab_size: is missing"),
        ({"memory_tokens": 4}, "memory_tokens: not understood"),
    ],
)
def test_what_an_encoder_is_refused_for(fields, message):
    with pytest.raises(SpecError) as caught:
        from_config({**BERT, **fields})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "parameters", "self_cache", "cross_cache"),
    [
        ("whisper-large-v3", 1_543_490_560, 81_920, 81_920),
        ("whisper-large-v3-turbo", 808_878_080, 10_240, 10_240),
        ("t5-large", 737_668_096, 49_152, 49_152),
        ("flan-t5-large", 783_150_080, 49_152, 49_152),
        ("bart-large-cnn", 406_290_432, 24_576, 24_576),
        ("nllb-200-distilled-600m", 615_073_792, 24_576, 24_576),
    ],
)
def test_two_sided_models(name, parameters, self_cache, cross_cache):
    model = load_model(name)
    assert parameters_total(model) == parameters
    assert kv_elements_per_token(model) == self_cache
    assert cross_kv_elements_per_source_token(model) == cross_cache


@pytest.mark.parametrize(("config", "field"), [(WHISPER, "encoder_layers"), (T5, "num_layers")])
def test_a_longer_encoder_costs_weights_and_no_cache(config, field):
    config = {**config, "num_decoder_layers": 2} if field == "num_layers" else config
    before, after = from_config(config), from_config({**config, field: 8})
    assert parameters_total(after) > parameters_total(before)
    assert kv_elements_per_token(after) == kv_elements_per_token(before)
    assert cross_kv_elements_per_source_token(after) == cross_kv_elements_per_source_token(before)


def test_whisper_hears_thirty_seconds_and_writes_448_tokens():
    model = from_config(WHISPER)
    assert model.max_source_tokens == 1500
    assert model.max_context == 448
    assert model.num_hidden_layers == 2


def test_relative_positions_are_on_the_first_layer_of_each_side():
    more = from_config({**T5, "relative_attention_num_buckets": 64})
    assert parameters_total(more) - parameters_total(from_config(T5)) == 2 * 32 * 4


def test_an_encoder_alone_keeps_no_cache():
    model = from_config({**T5, "architectures": ["T5EncoderModel"]})
    assert kv_elements_per_token(model) == 0
    assert cross_kv_elements_per_source_token(model) == 0


def test_an_untied_head_is_stored():
    untied = from_config({**T5, "tie_word_embeddings": False})
    assert parameters_total(untied) - parameters_total(from_config(T5)) == 222 * 64


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        (T5, {"feed_forward_proj": "gated-gelu-new"}, "feed_forward_proj"),
        (T5, {"architectures": ["T5ForTokenClassification"]}, "has a head"),
        (T5, {"num_layers": 10**12}, "num_layers: must be at most"),
        (WHISPER, {"decoder_attention_heads": 5}, "decoder_attention_heads: 5 does not divide"),
        (WHISPER, {"architectures": ["WhisperForAudioClassification"]}, "has a head"),
        (WHISPER, {"decoder_layers": None}, "decoder_layers: is missing"),
    ],
)
def test_what_a_two_sided_model_is_refused_for(config, fields, message):
    with pytest.raises(SpecError) as caught:
        from_config({**config, **fields})
    assert message in str(caught.value)
