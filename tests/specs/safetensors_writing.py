"""Safetensors files for tests: a header and a hole of the right size, so that gigabytes cost nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

BITS = {"F32": 32, "BF16": 16, "F16": 16, "F8_E4M3": 8, "F8_E8M0": 8, "I32": 32, "I8": 8, "U8": 8, "I64": 64}


def header(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[bytes, int]:
    """The 8 bytes of length with the JSON, and the bytes of data that follow."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(entries).encode()
    return len(raw).to_bytes(8, "little") + raw, end


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> Path:
    """Write the header and leave the data as a hole."""
    head, size = header(tensors)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    return path


def llama_weights(
    *, layers: int = 2, hidden: int = 64, intermediate: int = 128, kv: int = 32, vocab: int = 100, dtype: str = "BF16"
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Tensors of a Llama as its checkpoint names them."""
    found = {"model.embed_tokens.weight": (dtype, (vocab, hidden)), "model.norm.weight": (dtype, (hidden,))}
    found["lm_head.weight"] = (dtype, (vocab, hidden))
    for i in range(layers):
        shapes = {
            "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (intermediate, hidden), "mlp.up_proj": (intermediate, hidden),
            "mlp.down_proj": (hidden, intermediate),
        }  # fmt: skip
        found |= {f"model.layers.{i}.{name}.weight": (dtype, shape) for name, shape in shapes.items()}
    return found


CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "intermediate_size": 128,
    "max_position_embeddings": 512, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
