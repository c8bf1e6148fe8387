"""Formats: every stored size worked out for one matrix, GGUF types against the `gguf` package."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.dtypes import FORMATS, KV_BITS, format_by_id, integer_format, kv_bits, kv_format
from kvplan.errors import UnknownNameError

ROWS, COLUMNS = 256, 512
N = ROWS * COLUMNS

#: id → (payload + scales + zero points + what is kept once per tensor [byte], compute format).
SIZES = {
    "fp32": (4 * N, "fp32"),
    "tf32": (4 * N, "tf32"),
    "bf16": (2 * N, "bf16"),
    "fp16": (2 * N, "fp16"),
    "fp8": (N + 4, "fp8"),
    "fp8_static": (N + 4 + 4, "fp8"),
    "fp8_channel": (N + ROWS * 4, "fp8"),
    "fp8_block": (N + 2 * 4 * 4, "fp8"),
    "fp8_block_e8m0": (N + 2 * 4 * 1, "fp8"),
    "mxfp8": (N + ROWS * COLUMNS // 32, "fp8"),
    "int8": (N + ROWS * 2, None),
    "w8a8": (N + ROWS * 4, "int8"),
    "llm_int8": (N + ROWS * 4, None),
    "int4": (N // 2 + ROWS * 4 * 2, None),
    "awq": (N // 2 + ROWS * 4 * 2 + ROWS * 4 // 2, None),
    "gptq": (N // 2 + ROWS * 4 * 2 + ROWS * 4 // 2, None),
    "nvfp4": (N // 2 + ROWS * COLUMNS // 16 + 4 + 4, "fp4"),
    "nvfp4_w4a16": (N // 2 + ROWS * COLUMNS // 16 + 4, None),
    "mxfp4": (N // 2 + ROWS * COLUMNS // 32, "fp4"),
    "nf4": (N // 2 + ROWS * COLUMNS // 64 * 4, None),
    "nf4_double": (N // 2 + ROWS * COLUMNS // 64 + N * 4 // 16384, None),
}
PLAIN = {"fp32", "tf32", "bf16", "fp16"}


@pytest.mark.parametrize(("name", "expected"), SIZES.items())
def test_one_matrix_of_256_by_512(name, expected):
    fmt = FORMATS[name]
    assert (fmt.stored_bytes(ROWS, COLUMNS), fmt.compute) == expected
    assert fmt.quantised is (name not in PLAIN)


def test_gguf_types_have_the_block_sizes_of_the_gguf_package():
    constants = pytest.importorskip("gguf.constants")
    names = {"gguf_mxfp4": "MXFP4", "gguf_nvfp4": "NVFP4"}
    checked = {name: names.get(name, name.upper()) for name in FORMATS if name not in SIZES}
    for name, theirs in checked.items():
        kind = constants.GGMLQuantizationType[theirs]
        elements, size_bytes = constants.GGML_QUANT_SIZES[kind]
        assert FORMATS[name].stored_bytes(1, elements) == size_bytes, name
        assert FORMATS[name].compute is None
        assert FORMATS[name].quantised
    assert len(checked) == 25


def test_cache_formats():
    assert KV_BITS == {
        "fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4, "nvfp4": 4.5, "mxfp4": 4.25, "q8_0": 8.5,
        "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5, "iq4_nl": 4.5,
    }  # fmt: skip
    for name in set(KV_BITS) & set(FORMATS) - {"int8", "int4", "nvfp4", "mxfp4"}:
        assert FORMATS[name].element_bits == KV_BITS[name]


def test_a_partial_block_counts_by_its_share():
    assert FORMATS["fp8_block"].stored_bytes(64, 64) == 64 * 64 + 1  # a quarter of a 32-bit scale
    assert FORMATS["fp8_block"].stored_bytes(1, 1) == 2  # rounded up to whole bytes


def test_integer_formats():
    plain = integer_format("gptq", bits=4, group_size=128, zero_bits=4, input_bits=32)
    assert plain.id == "gptq4_g128"
    assert plain.stored_bytes(ROWS, COLUMNS) == N // 2 + ROWS * 4 * 2 + ROWS * 4 // 2 + COLUMNS * 4
    row = integer_format("int", bits=8, compute="int8", scale_bits=32)
    assert (row.id, row.compute, row.quantised) == ("int8_channel", "int8", True)
    assert row.stored_bytes(ROWS, COLUMNS) == N + ROWS * 4
    assert integer_format("int", bits=8).stored_bytes(ROWS, COLUMNS) == N + ROWS * 2


def test_bits_per_element_of_a_shape():
    assert FORMATS["fp8_channel"].bits_per_element(10, 100) == 8 + 32 / 100
    assert FORMATS["fp8_channel"].bits_per_element() == 8 + 32 / 4096
    assert FORMATS["fp8"].bits_per_element(1000, 1) == 8 * 1004 / 1000


@given(st.sampled_from(sorted(FORMATS)), st.integers(1, 64), st.integers(1, 64))
def test_stored_bytes_grow_with_both_dimensions_and_never_fall_below_the_payload(name, rows, columns):
    fmt = FORMATS[name]
    size = fmt.stored_bytes(rows, columns)
    assert isinstance(size, int)
    assert 8 * size >= fmt.element_bits * rows * columns
    assert fmt.stored_bytes(rows + 1, columns) >= size
    assert fmt.stored_bytes(rows, columns + 1) >= size


@pytest.mark.parametrize(
    ("alias", "name"),
    [("float32", "fp32"), ("BFLOAT16", "bf16"), ("half", "fp16"), ("float8_e4m3fn", "fp8"), ("w4a16", "int4"), ("w8a16", "int8")],
)  # fmt: skip
def test_names_that_people_use(alias, name):
    assert format_by_id(alias).id == name
    assert kv_format(alias) == name
    assert kv_bits(alias) == KV_BITS[name]


def test_unknown_formats_are_refused_with_what_is_known():
    with pytest.raises(UnknownNameError, match="dtype: unknown weight format 'fp7'") as caught:
        format_by_id("fp7")
    assert "bf16" in str(caught.value.hint)
    with pytest.raises(UnknownNameError, match="kv_dtype: unknown cache format 'q4_k'") as caught:
        kv_format("q4_k")
    assert "q4_0" in str(caught.value.hint)
