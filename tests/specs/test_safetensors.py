"""Headers of safetensors files: exact bytes, what counts as a parameter, and liars."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.core.parameters import parameters_total, weights_bytes_model
from kvplan.errors import KvplanError, SpecError
from kvplan.specs.models import load_model
from kvplan.specs.safetensors import gather, read_folder, with_exact_bytes
from kvplan.specs.safetensors_header import parse_header, read_file
from tests.specs.safetensors_writing import CONFIG, header, llama_weights, write_safetensors


def folder_with(tmp_path, tensors, config=CONFIG):
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_safetensors(tmp_path / "model.safetensors", tensors)
    return tmp_path


def test_one_file_gives_the_exact_bytes(tmp_path):
    folder = folder_with(tmp_path, llama_weights())
    files = read_folder(folder)
    model = load_model(folder)
    assert model.exact_weight_bytes == sum(t.stored_bytes for t in files) == 2 * parameters_total(model)
    assert model.warnings == ()


def test_the_real_library_reads_what_we_read(tmp_path):
    numpy = pytest.importorskip("numpy")
    library = pytest.importorskip("safetensors.numpy")
    library.save_file({"a": numpy.zeros((3, 5), "float16"), "b": numpy.zeros(7, "int32")}, tmp_path / "x.safetensors")
    found = {t.name: (t.dtype, t.shape, t.stored_bytes) for t in read_file(tmp_path / "x.safetensors")}
    assert found == {"a": ("F16", (3, 5), 30), "b": ("I32", (7,), 28)}


def test_shards_are_those_of_the_index(tmp_path):
    tensors = llama_weights()
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
    for file, own in parts.items():
        write_safetensors(tmp_path / file, {name: tensors[name] for name in own})
    index = {"metadata": {"total_size": 1}, "weight_map": {name: file for file, own in parts.items() for name in own}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    write_safetensors(tmp_path / "consolidated.safetensors", tensors)
    assert sorted(t.name for t in read_folder(tmp_path)) == names
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(SpecError, match=r"00002-of-00002.*missing"):
        read_folder(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    assert read_folder(tmp_path) is None


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "x.bin", 7])
def test_an_index_can_not_leave_its_folder(tmp_path, name):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(SpecError, match="weight_map"):
        read_folder(tmp_path)


def test_a_difference_above_one_percent_is_told(tmp_path):
    tensors = llama_weights()
    tensors["model.extra.weight"] = ("BF16", (400, 64))
    model = load_model(folder_with(tmp_path, tensors))
    assert model.exact_weight_bytes == weights_bytes_model(model) > 2 * parameters_total(model)
    assert any("%" in warning for warning in model.warnings)


def test_predictors_and_tied_heads_are_not_loaded(tmp_path):
    tensors = llama_weights()
    plain = load_model(folder_with(tmp_path, tensors)).exact_weight_bytes
    tensors["model.layers.2.self_attn.q_proj.weight"] = ("BF16", (64, 64))
    tensors["mtp.layers.0.mlp.up_proj.weight"] = ("BF16", (64, 64))
    assert load_model(folder_with(tmp_path, tensors)).exact_weight_bytes == plain
    tied = {**CONFIG, "tie_word_embeddings": True}
    assert load_model(folder_with(tmp_path, tensors, tied)).exact_weight_bytes == plain - 2 * 100 * 64


def read(head, size):
    return gather([("x", parse_header(head[8:], source="x", data_bytes=size))])


def test_lying_headers_are_refused_quickly(tmp_path):
    head, size = header(llama_weights())
    path = tmp_path / "model.safetensors"
    cases = {
        "short": head[:4],
        "truncated header": head[:60],
        "truncated data": head + bytes(size - 1),
        "more data": head + bytes(size + 8),
        "huge header": (2**40).to_bytes(8, "little") + b"{}",
        "no json": (10).to_bytes(8, "little") + b"x" * 10,
        "deep json": (2_000_000).to_bytes(8, "little") + b"[" * 2_000_000,
        "list": (2).to_bytes(8, "little") + b"[]",
        "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
    }
    for name, content in cases.items():
        path.write_bytes(content)
        began = time.perf_counter()
        with pytest.raises(SpecError, match=r"model\.safetensors"):
            read_file(path)
        assert time.perf_counter() - began < 2, name


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F99", "shape": [1], "data_offsets": [0, 1]},
        {"dtype": "BF16", "shape": [2], "data_offsets": [0, 3]},
        {"dtype": "BF16", "shape": [-2], "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [2**62, 2**62], "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [2**62] * 60, "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [2.0], "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [True], "data_offsets": [0, 2]},
        {"dtype": "BF16", "shape": "2", "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [2], "data_offsets": [4, 0]},
        {"dtype": "BF16", "shape": [2], "data_offsets": [2, 6]},
        {"dtype": "BF16", "shape": [2]},
        [],
        None,
    ],
)
def test_entries_that_can_not_be(entry):
    with pytest.raises(SpecError):
        parse_header(json.dumps({"a": entry}).encode(), source="x")


@settings(max_examples=200, deadline=1000)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(SpecError):
        read_file(path)


@settings(max_examples=100, deadline=1000)
@given(st.integers(0, 1500), st.integers(0, 255))
def test_any_changed_byte_is_read_or_refused(tmp_path_factory, position, value):
    head, size = header(llama_weights(layers=1))
    changed = bytearray(head)
    changed[min(position, len(head) - 1)] = value
    path = tmp_path_factory.mktemp("any") / "model.safetensors"
    path.write_bytes(bytes(changed) + bytes(size))
    try:
        tensors = read_file(path)
    except KvplanError:
        return
    assert sum(t.stored_bytes for t in tensors) == size


def test_arithmetic_stays_where_files_are_equal(tmp_path):
    folder = folder_with(tmp_path, llama_weights())
    plain = load_model(folder / "config.json")
    assert plain.exact_weight_bytes is None
    assert weights_bytes_model(with_exact_bytes(plain, read_folder(folder))) == weights_bytes_model(plain)
