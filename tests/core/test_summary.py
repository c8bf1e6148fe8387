from dataclasses import replace

import pytest

from kvplan.core.model import CompressedAttention, CrossAttention, Indexer, LayerGroup
from kvplan.core.summary import describe_mixer, layer_table, model_summary
from tests.core.builders import attention, experts, indexer, latent, layer, model, recurrent

COMPRESSED = CompressedAttention(num_attention_heads=64, head_dim=512, window=128, ratio=4)


def test_a_model_in_numbers():
    mixed = model(
        layer(), layer(attention(window=16), experts()), layer(recurrent()), layer(), kv_dtype="fp8", warnings=("w",), assumptions=("a",)
    )  # fmt: skip
    found = model_summary(mixed)
    assert [row["first"] for row in found.pop("layer_groups")] == [0, 1, 2]
    total = 2 * 69_760 + 414_336 + (49_152 + 128) + 128_064
    assert found == {
        "schema": "kvplan.model/1", "id": "small", "architecture": "SmallForCausalLM", "params_total": total,
        "params_active": total - 6 * 49_152, "params_embedding": 64_000, "weights_bytes": 2 * total, "layers": 4,
        "kv_elements_per_token": 192, "kv_elements_per_token_full": 128, "kv_window_layers": 1,
        "state_elements_per_sequence": 1300, "cross_kv_elements_per_source_token": 0, "dtype": "bf16",
        "kv_dtype_default": "fp8", "quantization": None, "max_context": 4096, "assumptions": ["a"], "warnings": ["w"],
    }  # fmt: skip
    assert model_summary(model())["kv_dtype_default"] == "bf16"


def test_one_row_for_each_group_of_equal_layers():
    side = replace(layer(), mixers=(attention(window=16), attention(chunk=8), recurrent()))
    bare = replace(layer(), mixers=(), feed_forward=None)
    spec = model(
        layer(), side, layer(), bare, encoder_groups=(LayerGroup(count=3, layer=layer(attention(causal=False))),)
    )
    plain, both, empty, encoder = layer_table(spec)
    assert plain == {
        "stack": "decoder", "layers": 2, "first": 0, "mixer": "GQA 8/2 x 16", "feed_forward": "dense", "parameters": 69_760,
        "weights_bytes": 139_520, "kv_elements_per_token": 64, "window": None, "state_elements": 0,
    }  # fmt: skip
    assert (both["mixer"], both["window"], both["state_elements"], both["kv_elements_per_token"]) == (
        "GQA 8/2 x 16, window 16 + GQA 8/2 x 16, chunk 8 + mamba2", 8, 1300, 128,
    )  # fmt: skip
    assert (empty["mixer"], empty["feed_forward"], empty["first"], empty["parameters"]) == ("none", "none", 3, 128)
    assert (encoder["stack"], encoder["layers"], encoder["first"]) == ("encoder", 3, None)
    [sparse] = layer_table(model(layer(COMPRESSED, experts())))
    assert (sparse["feed_forward"], sparse["kv_elements_per_token"]) == ("2 of 8 experts", 640)
    [odd] = layer_table(model(layer(replace(COMPRESSED, ratio=1024))))
    assert odd["kv_elements_per_token"] == 512.5
    assert isinstance(plain["kv_elements_per_token"], int)
    assert isinstance(sparse["kv_elements_per_token"], int)


@pytest.mark.parametrize(
    ("mixer", "words"),
    [
        (attention(kv_heads=8), "MHA 8/8 x 16"), (attention(kv_heads=1), "MQA 8/1 x 16"),
        (attention(head_dim=192, v_head_dim=128), "GQA 8/2 x 192/128"), (attention(indexer=indexer()), "GQA 8/2 x 16, top 2048"),
        (attention(causal=False), "GQA 8/2 x 16, bidirectional"), (attention(cached=False), "GQA 8/2 x 16, shared cache"),
        (latent(), "MLA 512 + 64"), (latent(indexer=indexer()), "MLA 512 + 64, top 2048"),
        (replace(COMPRESSED, indexer=Indexer(num_heads=1, head_dim=1, top_k=1)), "compressed 1/4, window 128"),
        (CrossAttention(num_attention_heads=8, num_key_value_heads=2, head_dim=16), "cross 8/2 x 16"),
        (recurrent(), "mamba2"),
    ],
)  # fmt: skip
def test_a_mixer_in_a_few_words(mixer, words):
    assert describe_mixer(mixer) == words
