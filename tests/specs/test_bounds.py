"""Files made to take for ages or to fill the memory are refused before anything is built of them."""

from __future__ import annotations

import json
import time

import pytest

import kvplan
from kvplan.errors import SpecError
from kvplan.specs.quantization.regexes import compile_regex
from tests.specs.safetensors_writing import CONFIG


def refused_soon(path):
    start = time.process_time()
    with pytest.raises(SpecError) as caught:
        kvplan.load_model(path)
    assert time.process_time() - start < 2.0  # an eighth of it on an idle machine
    return str(caught.value)


@pytest.mark.parametrize("content", [b'{"a":[' + b"[]," * 5_000_000 + b"[]]}", b'{"a":' * 3_000_000])
def test_json_that_would_fill_the_memory(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    assert "refused" in refused_soon(tmp_path) or "nested" in refused_soon(tmp_path)


@pytest.mark.parametrize("name", ["re:.*x{}", "a*b*c{}*x"])
def test_very_many_patterns(tmp_path, name):
    quant = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 32,
        "modules_to_not_convert": [name.format(i) for i in range(20_000)],
    }
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": quant}), encoding="utf-8")
    assert "too many" in refused_soon(tmp_path)


@pytest.mark.parametrize(
    "text",
    [r"((\w)+)+!", r".*_?.*_?.*_?!", r"(((\w+)x?)+)!", r"(?:\w|.)" * 30, r"(a)\1", r"(?:a{99}){999}", r"(a|b.)*c"],
)
def test_regexes_that_may_take_for_ages(text):
    with pytest.raises(SpecError, match="may take for ages"):
        compile_regex(text, where="ignore")


@pytest.mark.parametrize(
    "text", [r".*\.layers\.\d+\.(mlp|self_attn)\..*proj$", r"^(?!.*(gate|up)_proj).*$", r"(?:model\.)?lm_head"]
)
def test_regexes_that_checkpoints_have(text):
    assert compile_regex(text, where="ignore").pattern == text


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody-here/config.json", "a\0b", "/dev/zero"])
def test_names_that_no_system_has(name):
    with pytest.raises(kvplan.KvplanError):
        kvplan.load_model(name)
