"""The typed view on a config: one clear line for each thing that is wrong, whatever it is."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import SpecError, UnsupportedModelError
from kvplan.specs.huggingface import from_config
from kvplan.specs.huggingface.config import Config

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
SIZES = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"]
ORACLE = Path(__file__).parent.parent / "oracle" / "models.jsonl"
CONFIGS = [row["config"] for row in map(json.loads, ORACLE.read_text(encoding="utf-8").splitlines()) if row["expected"]]


def refusal(config: object) -> str:
    with pytest.raises(SpecError) as caught:
        from_config(config)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_hidden_layers": None}, "config.json: num_hidden_layers: is missing"),
        ({"num_hidden_layers": -3}, "config.json: num_hidden_layers: must be an integer of at least 1, not -3"),
        ({"num_hidden_layers": 10**12}, "config.json: num_hidden_layers: must be at most 2,000, not 1000000000000"),
        ({"num_hidden_layers": 0}, "config.json: num_hidden_layers: must be an integer of at least 1, not 0"),
        ({"hidden_size": "4096"}, "config.json: hidden_size: must be an integer, not '4096'"),
        ({"hidden_size": 4096.0}, "config.json: hidden_size: must be an integer, not 4096.0"),
        ({"hidden_size": True}, "config.json: hidden_size: must be an integer, not True"),
        ({"hidden_size": [4096]}, "config.json: hidden_size: must be an integer, not [4096]"),
        (
            {"hidden_size": 10**4000},
            "config.json: hidden_size: must be at most 10,000,000, not a number with very many",
        ),
        ({"num_key_value_heads": 7}, "config.json: num_key_value_heads: 7 does not divide the 32 attention heads"),
        ({"tie_word_embeddings": "no"}, "config.json: tie_word_embeddings: must be true or false, not 'no'"),
        ({"torch_dtype": "int8"}, "config.json: dtype: 'int8' is not a floating-point dtype"),
        ({"model_type": None}, "config.json: model_type: is missing"),
        ({"architectures": "Llama"}, "config.json: architectures: must be a list of strings, not 'Llama'"),
        ({"n_layer": 31}, "config.json: num_hidden_layers: is 32, but n_layer is 31: two spellings of one field"),
    ],
)
def test_one_clear_line(change, told):
    message = refusal(LLAMA | change)
    assert message.startswith(told)
    assert "\n" not in message


@pytest.mark.parametrize("name", SIZES)
def test_misspelt_fields_are_pointed_at(name):
    config = {(f"{key}s" if key == name else key): value for key, value in LLAMA.items()}
    with pytest.raises(SpecError) as caught:
        from_config(config)
    assert name in f"{caught.value} {caught.value.hint}"
    assert f"{name}s" in f"{caught.value} {caught.value.hint}"


def test_defaults_are_told():
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    model = from_config(config)
    assert model.assumptions == ("num_key_value_heads is not in config.json: 32 assumed",)


def test_unknown_memory_field_is_refused_and_switched_off_one_is_not():
    assert "kv_share_every" in refusal(LLAMA | {"kv_share_every": 2})
    assert from_config(LLAMA | {"kv_share_every": None, "use_mega_cache": False}).warnings == ()


def test_unknown_harmless_field_is_a_warning():
    model = from_config(LLAMA | {"favourite_colour": "blue"})
    assert model.warnings == ("favourite_colour: not understood, taken as harmless",)


def test_nested_fields_have_their_path():
    config = Config({"text_config": {"hidden_size": -1}})
    with pytest.raises(SpecError, match=r"text_config\.hidden_size"):
        config.nested("text_config").integer("hidden_size")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=2000)
@given(data=st.data())
def test_any_value_in_any_field_is_a_model_or_one_line(data):
    """Whatever stands in a field: a model, or a `SpecError` of one line; never another exception, never slow."""
    config = dict(data.draw(st.sampled_from(CONFIGS)))
    name = data.draw(st.sampled_from(sorted(config)))
    config[name] = data.draw(ANYTHING)
    _read_or_refuse(config)


@settings(max_examples=200, deadline=2000)
@given(data=st.data())
def test_any_field_may_be_missing_or_misspelt(data):
    config = dict(data.draw(st.sampled_from(CONFIGS)))
    name = data.draw(st.sampled_from(sorted(config)))
    value = config.pop(name)
    if data.draw(st.booleans()):
        config[name + data.draw(st.sampled_from(["s", "_", "x"]))] = value
    _read_or_refuse(config)


@settings(max_examples=200, deadline=2000)
@given(data=st.data())
def test_nested_fields_too(data):
    configs = [config for config in CONFIGS if isinstance(config.get("text_config"), dict)]
    config = dict(data.draw(st.sampled_from(configs)))
    place = data.draw(st.sampled_from(sorted(name for name in config if isinstance(config[name], dict))))
    inner = dict(config[place])
    if not inner:
        return
    name = data.draw(st.sampled_from(sorted(inner)))
    inner[name] = data.draw(ANYTHING | st.sampled_from([10**12, -1, 0, 1.5, "1"]))
    _read_or_refuse(config | {place: inner})


def _read_or_refuse(config: dict[str, object]) -> None:
    started = time.perf_counter()
    try:
        from_config(config)
    except SpecError as error:
        message = str(error)
        assert message.startswith("config.json")
        assert "\n" not in message
        assert len(message) < 600
    assert time.perf_counter() - started < 2


def test_unsupported_is_a_spec_error():
    assert issubclass(UnsupportedModelError, SpecError)


def test_kinds_of_layer_are_known_ones_or_the_config_is_refused():
    config = Config({"model_type": "acorn", "layer_types": ["full", "odd"], "kinds": ["full", "full"]})
    assert config.kinds("kinds", known=("full",), length=2) == ("full", "full")
    assert config.kinds("absent", known=("full",)) is None
    with pytest.raises(UnsupportedModelError, match="layer_types: 'odd' is not understood for acorn"):
        config.kinds("layer_types", "absent", known=("full", "window"), length=2)
    with pytest.raises(SpecError, match="layer_types: must have 3 entries"):
        config.kinds("layer_types", known=("full", "odd"), length=3)


def test_fields_can_be_set_whatever_the_file_says():
    config = Config({"bias": False, "width": 3}).with_fields({"bias": True})
    assert (config.boolean("bias", default=False), config.integer("width")) == (True, 3)
    assert list(config.unread()) == []
