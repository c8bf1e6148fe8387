"""GGUF headers: files written with the `gguf` package come out exact, liars are refused."""

from __future__ import annotations

import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("gguf")
from gguf.constants import GGML_QUANT_SIZES

from kvplan.core.cache import kv_elements_per_token, state_elements_per_sequence, window_layers
from kvplan.core.model import Attention, LatentAttention, MixtureOfExperts
from kvplan.core.parameters import parameters_active, parameters_embedding, parameters_total, weights_bytes_model
from kvplan.core.precision import apply_dtype, display_dtype
from kvplan.errors import KvplanError, SpecError, UnsupportedModelError
from kvplan.specs.gguf import load_gguf
from kvplan.specs.gguf_header import TYPES, read_gguf
from kvplan.specs.gguf_keys import ARCHITECTURES
from tests.specs.gguf_writing import llama_tensors, write_gguf

SMALL = {"layers": 4, "hidden": 512, "intermediate": 1024, "heads": 8, "kv_heads": 2, "head_dim": 64, "vocab": 768}
KEYS = {
    "block_count": 4,
    "context_length": 8192,
    "embedding_length": 512,
    "feed_forward_length": 1024,
    "attention.head_count": 8,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 10000.0,
    "rope.dimension_count": 64,
    "vocab_size": 768,
}


def small(tmp_path, arch="llama", keys=None, tensors=None, name="small-Q4_K_M.gguf"):
    return write_gguf(tmp_path / name, arch, {**KEYS, **(keys or {})}, tensors or llama_tensors(**SMALL))


def test_types_are_those_of_the_gguf_package():
    ours = {number: (block, size) for number, (_, block, size) in TYPES.items()}
    theirs = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items() if kind.name != "Q8_1"}
    assert ours == theirs


def test_llama_3_1_8b_comes_out_as_published(tmp_path):
    shape = {"layers": 32, "hidden": 4096, "intermediate": 14336, "heads": 32, "kv_heads": 8, "head_dim": 128}
    keys = {**KEYS, "block_count": 32, "context_length": 131072, "embedding_length": 4096, "attention.head_count": 32,
            "attention.head_count_kv": 8, "feed_forward_length": 14336, "vocab_size": 128256}  # fmt: skip
    tensors = llama_tensors(**shape, vocab=128256) | {"rope_freqs.weight": ((64,), "F32")}
    model = load_gguf(write_gguf(tmp_path / "Llama-3.1-8B-Q4_K_M.gguf", "llama", keys, tensors))
    assert model.id == "llama-3.1-8b-q4_k_m"
    assert parameters_total(model) == 8_030_261_248
    assert parameters_embedding(model) == 128256 * 4096
    assert kv_elements_per_token(model) == 65_536
    assert model.max_context == 131072
    assert display_dtype(model) == "q4_k_m"
    file = read_gguf(tmp_path / "Llama-3.1-8B-Q4_K_M.gguf")
    assert weights_bytes_model(model) == file.stored_bytes
    assert weights_bytes_model(apply_dtype(model, "bf16")) == 2 * 8_030_261_248


def test_tied_head(tmp_path):
    model = load_gguf(small(tmp_path, tensors=llama_tensors(**SMALL, tied=True)))
    assert parameters_total(model) == sum(
        t.parameters for g in model.groups for _ in range(g.count) for t in g.layer.all_tensors()
    ) + 768 * 512 + 512  # fmt: skip


def test_windows_by_architecture_and_by_array(tmp_path):
    gemma = load_gguf(small(tmp_path, "gemma2", {"attention.sliding_window": 1024}))
    assert window_layers(gemma) == 2
    pattern = {"attention.sliding_window": 128, "attention.sliding_window_pattern": [True, True, True, False]}
    assert window_layers(load_gguf(small(tmp_path, "gemma3", pattern))) == 3
    with pytest.raises(UnsupportedModelError, match="sliding_window"):
        load_gguf(small(tmp_path, "llama", {"attention.sliding_window": 128}))


def test_per_layer_heads(tmp_path):
    tensors = llama_tensors(**SMALL)
    tensors["blk.3.attn_k.weight"] = tensors["blk.3.attn_v.weight"] = ((256, 512), "Q4_K")
    model = load_gguf(small(tmp_path, keys={"attention.head_count_kv": [2, 2, 2, 4]}, tensors=tensors))
    assert kv_elements_per_token(model) == (3 * 2 + 4) * 2 * 64
    with pytest.raises(SpecError, match="attn_k"):
        load_gguf(small(tmp_path, keys={"attention.head_count_kv": 4}))


def test_mixture_of_experts(tmp_path):
    tensors = llama_tensors(**SMALL)
    for i in range(4):
        for name in ("gate", "up", "down"):
            out, inside = tensors.pop(f"blk.{i}.ffn_{name}.weight")[0]
            tensors[f"blk.{i}.ffn_{name}_exps.weight"] = ((8, out, inside), "Q4_K")
        tensors[f"blk.{i}.ffn_gate_inp.weight"] = ((8, 512), "F32")
    model = load_gguf(small(tmp_path, "qwen3moe", {"expert_count": 8, "expert_used_count": 2}, tensors))
    feed_forward = model.groups[0].layer.feed_forward
    assert isinstance(feed_forward, MixtureOfExperts)
    assert (feed_forward.num_experts, feed_forward.top_k) == (8, 2)
    assert parameters_total(model) - parameters_active(model) == 4 * 3 * 6 * 512 * 1024


def test_latent_attention(tmp_path):
    tensors = {k: v for k, v in llama_tensors(**SMALL).items() if "attn_" not in k or "norm" in k}
    for i in range(4):
        tensors |= {
            f"blk.{i}.attn_q.weight": ((8 * 192, 512), "Q4_K"),
            f"blk.{i}.attn_kv_a_mqa.weight": ((512 + 64, 512), "Q4_K"),
            f"blk.{i}.attn_k_b.weight": ((8, 512, 128), "Q8_0"),
            f"blk.{i}.attn_v_b.weight": ((8, 128, 512), "Q4_K"),
            f"blk.{i}.attn_output.weight": ((512, 8 * 128), "Q4_K"),
        }
    keys = {"attention.kv_lora_rank": 512, "attention.key_length": 576, "attention.value_length": 512,
            "attention.key_length_mla": 192, "attention.value_length_mla": 128, "attention.head_count_kv": 1}  # fmt: skip
    model = load_gguf(small(tmp_path, "deepseek2", keys, tensors))
    mixer = model.groups[0].layer.mixers[0]
    assert isinstance(mixer, LatentAttention)
    assert (mixer.qk_nope_head_dim, mixer.v_head_dim) == (128, 128)
    assert kv_elements_per_token(model) == 4 * 576


def test_recurrent_layers_keep_a_state_and_no_cache(tmp_path):
    tensors = {"token_embd.weight": ((768, 512), "Q4_K"), "output_norm.weight": ((512,), "F32")}
    for i in range(4):
        tensors |= {
            f"blk.{i}.attn_norm.weight": ((512,), "F32"),
            f"blk.{i}.ssm_in.weight": ((2048, 512), "Q4_K"),
            f"blk.{i}.ssm_conv1d.weight": ((1024, 4), "F32"),
            f"blk.{i}.ssm_x.weight": ((64, 1024), "Q4_K"),
            f"blk.{i}.ssm_dt.weight": ((1024, 32), "F32"),
            f"blk.{i}.ssm_a": ((1024, 16), "F32"),
            f"blk.{i}.ssm_d": ((1024,), "F32"),
            f"blk.{i}.ssm_out.weight": ((512, 1024), "Q4_K"),
        }
    keys = {"block_count": 4, "context_length": 4096, "embedding_length": 512, "feed_forward_length": 0, "vocab_size": 768,
            "attention.head_count": 0, "ssm.conv_kernel": 4, "ssm.inner_size": 1024, "ssm.state_size": 16,
            "ssm.time_step_rank": 32, "attention.layer_norm_rms_epsilon": 1e-5}  # fmt: skip
    model = load_gguf(write_gguf(tmp_path / "mamba.gguf", "mamba", keys, tensors))
    assert kv_elements_per_token(model) == 0
    assert state_elements_per_sequence(model) == 4 * (1024 * 16 + 3 * 1024)


def test_split_files_are_read_together(tmp_path):
    tensors = llama_tensors(**SMALL)
    names = list(tensors)
    write_gguf(tmp_path / "m-00001-of-00002.gguf", "llama", KEYS, {n: tensors[n] for n in names[:20]})
    second = write_gguf(tmp_path / "m-00002-of-00002.gguf", "llama", {}, {n: tensors[n] for n in names[20:]})
    whole = load_gguf(small(tmp_path))
    both = load_gguf(second)
    assert both.id == "m"
    assert weights_bytes_model(both) == weights_bytes_model(whole)
    (tmp_path / "m-00001-of-00002.gguf").unlink()
    with pytest.raises(SpecError, match="00001-of-00002"):
        load_gguf(second)


def test_unknown_architectures_and_keys_are_refused(tmp_path):
    with pytest.raises(UnsupportedModelError, match="rwkv6"):
        load_gguf(small(tmp_path, "rwkv6"))
    with pytest.raises(UnsupportedModelError, match="cache_rank"):
        load_gguf(small(tmp_path, keys={"attention.cache_rank": 7}))
    with pytest.raises(SpecError, match="embedding_length"):
        load_gguf(small(tmp_path, keys={"embedding_length": 640}))
    with pytest.raises(SpecError, match="only 3 layers"):
        load_gguf(small(tmp_path, keys={"block_count": 3}))
    with pytest.raises(SpecError, match="layer 4 has no tensors"):
        load_gguf(small(tmp_path, keys={"block_count": 5}))
    assert "clip" not in ARCHITECTURES


def head(*, version=3, tensors=0, entries=0, rest=b""):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + rest


def text(value):
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"GGML" + bytes(100),
        head(version=1),
        head(version=99),
        head(tensors=2**63),
        head(entries=2**63),
        head(tensors=100_000),
        head(entries=1, rest=struct.pack("<Q", 2**62)),
        head(entries=1, rest=text(b"k") + struct.pack("<IIQ", 9, 8, 2**60)),
        head(entries=1, rest=text(b"k") + struct.pack("<IIQ", 9, 0, 3_999_999)),
        head(entries=1, rest=text(b"k") + struct.pack("<IIQ", 9, 9, 1) + bytes(40)),
        head(entries=1, rest=text(b"k") + struct.pack("<I", 77) + bytes(40)),
        head(tensors=1, rest=text(b"t") + struct.pack("<I", 2**31) + bytes(40)),
        head(tensors=1, rest=text(b"t") + struct.pack("<IQQIQ", 2, 2**39, 2**39, 0, 0)),
        head(tensors=1, rest=text(b"t") + struct.pack("<IQIQ", 1, 32, 0, 0)),
        head(tensors=1, rest=text(b"t") + struct.pack("<IQIQ", 1, 33, 12, 0)),
        head(tensors=1, rest=text(b"t") + struct.pack("<IQIQ", 1, 32, 99, 0)),
        head(tensors=1, rest=text(b"t") + struct.pack("<IQIQ", 1, 32, 0, 7) + bytes(500)),
    ],
)
def test_lying_counts_are_refused_quickly(tmp_path, content):
    path = tmp_path / "lie.gguf"
    path.write_bytes(content)
    began = time.perf_counter()
    with pytest.raises(SpecError, match=r"lie\.gguf"):
        load_gguf(path)
    assert time.perf_counter() - began < 1


@settings(max_examples=200, deadline=1000)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "x.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + content)
    with pytest.raises(SpecError):
        load_gguf(path)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = small(tmp_path_factory.mktemp("written"))
    with path.open("rb") as file:
        return file.read(400_000), path.stat().st_size


@settings(max_examples=150, deadline=3000)
@given(st.data())
def test_any_changed_byte_is_read_or_refused(written, tmp_path_factory, data):
    content, size = written
    end = content.rindex(b"blk.3.") + 60
    position = data.draw(st.one_of(st.integers(0, 40), st.integers(60_000, end), st.integers(0, end)))
    changed = bytearray(content)
    changed[position] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("any") / "x.gguf"
    with path.open("wb") as file:
        file.write(changed)
        file.truncate(size)
    try:
        model = load_gguf(path)
    except KvplanError as error:
        assert "\n" not in str(error)  # noqa: PT017 - many changes are refused, some are harmless
    else:
        assert weights_bytes_model(model) > 0


@settings(max_examples=40, deadline=3000)
@given(st.integers(0, 120_000))
def test_truncated_files_are_refused(written, tmp_path_factory, length):
    content, _ = written
    path = tmp_path_factory.mktemp("any") / "x.gguf"
    path.write_bytes(content[:length])
    with pytest.raises(SpecError):
        load_gguf(path)


def test_attention_widths_of_keys_and_values(tmp_path):
    tensors = llama_tensors(**SMALL)
    for i in range(4):
        tensors[f"blk.{i}.attn_v.weight"] = ((2 * 128, 512), "Q4_K")
        tensors[f"blk.{i}.attn_output.weight"] = ((512, 8 * 128), "Q4_K")
    model = load_gguf(
        small(tmp_path, keys={"attention.key_length": 64, "attention.value_length": 128}, tensors=tensors)
    )
    mixer = model.groups[0].layer.mixers[0]
    assert isinstance(mixer, Attention)
    assert kv_elements_per_token(model) == 4 * 2 * (64 + 128)
