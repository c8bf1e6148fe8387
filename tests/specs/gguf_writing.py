"""GGUF files for tests, written with the `gguf` package: headers as llama.cpp writes them, data as a hole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_gguf(
    path: Path,
    arch: str,
    keys: Mapping[str, Any],
    tensors: Mapping[str, tuple[tuple[int, ...], str]],
    *,
    file_type: int = 15,
) -> Path:
    """Write a header and a sparse data section.

    `keys` are without the architecture's prefix; `tensors` maps a name to its shape (out, in) and type (`Q4_K`).
    """
    import gguf
    import numpy as np
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    writer = gguf.GGUFWriter(path, arch)
    writer.add_file_type(file_type)
    writer.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(5000)])
    for key, value in keys.items():
        full = f"{arch}.{key}"
        if isinstance(value, bool):
            writer.add_bool(full, value)
        elif isinstance(value, int):
            writer.add_uint32(full, value)
        elif isinstance(value, float):
            writer.add_float32(full, value)
        elif isinstance(value, str):
            writer.add_string(full, value)
        else:
            writer.add_array(full, list(value))
    total = 0
    for name, (shape, kind) in tensors.items():
        quant = GGMLQuantizationType[kind]
        block, block_bytes = GGML_QUANT_SIZES[quant]
        size = math.prod(shape) // block * block_bytes
        byte_shape = (*shape[:-1], shape[-1] // block * block_bytes)
        writer.add_tensor_info(name, byte_shape, np.dtype(np.uint8), size, raw_dtype=quant)
        total += -(-size // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        end = file.seek(0, 2)
        file.truncate(-(-end // 32) * 32 + total)
    return path


def llama_tensors(
    *,
    layers: int,
    hidden: int,
    intermediate: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    vocab: int,
    tied: bool = False,
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Tensors of a Llama-like model, matrices in Q4_K."""
    found: dict[str, tuple[tuple[int, ...], str]] = {
        "token_embd.weight": ((vocab, hidden), "Q4_K"),
        "output_norm.weight": ((hidden,), "F32"),
    }
    if not tied:
        found["output.weight"] = ((vocab, hidden), "Q6_K")
    for i in range(layers):
        found |= {
            f"blk.{i}.attn_norm.weight": ((hidden,), "F32"),
            f"blk.{i}.ffn_norm.weight": ((hidden,), "F32"),
            f"blk.{i}.attn_q.weight": ((heads * head_dim, hidden), "Q4_K"),
            f"blk.{i}.attn_k.weight": ((kv_heads * head_dim, hidden), "Q4_K"),
            f"blk.{i}.attn_v.weight": ((kv_heads * head_dim, hidden), "Q6_K" if i % 2 else "Q4_K"),
            f"blk.{i}.attn_output.weight": ((hidden, heads * head_dim), "Q4_K"),
            f"blk.{i}.ffn_gate.weight": ((intermediate, hidden), "Q4_K"),
            f"blk.{i}.ffn_up.weight": ((intermediate, hidden), "Q4_K"),
            f"blk.{i}.ffn_down.weight": ((hidden, intermediate), "Q6_K" if i % 2 else "Q4_K"),
        }
    return found
