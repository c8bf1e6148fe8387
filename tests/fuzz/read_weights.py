"""Readers of weight files: safetensors headers and their index, GGUF; whole, and as raw bytes."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kvplan
from tests.fuzz.reader import TEXT_MOST, model_is_sound


def safetensors() -> list[bytes]:
    from tests.specs.safetensors_writing import header, llama_weights

    whole, _ = header(llama_weights(layers=2))
    small, _ = header({"lm_head.weight": ("BF16", (4, 4)), "model.layers.0.x.qweight": ("I32", (8, 4))})
    packed = {
        "a.qweight": ("I32", (8, 4)),
        "a.scales": ("F16", (1, 4)),
        "a.qzeros": ("I32", (1, 1)),
        "b": ("F8_E8M0", (3,)),
    }
    return [whole[8:], small[8:], header(packed)[0][8:]]


def read_safetensors(data: bytes, folder: Path) -> None:
    """The input is the JSON of a header; its length and a hole for its data are put around it."""
    from kvplan.specs.safetensors import read_folder
    from tests.specs.safetensors_writing import CONFIG

    end = 0
    with contextlib.suppress(Exception):
        ends = [entry["data_offsets"][1] for entry in json.loads(data).values() if "data_offsets" in entry]
        end = min(max(ends), 2**40)
    path = folder / "model.safetensors"
    with path.open("wb") as file:
        file.write(len(data).to_bytes(8, "little") + data)
        if end > 0:
            file.truncate(8 + len(data) + int(end))
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    try:
        read_folder(folder)
        model_is_sound(kvplan.load_model(folder), data)
    finally:
        path.unlink()


def safetensors_raw() -> list[bytes]:
    whole = [len(part).to_bytes(8, "little") + part + bytes(_data_bytes(part)) for part in safetensors()]
    return [*(seed for seed in whole if len(seed) < TEXT_MOST), b"version https://git-lfs", b""]


def _data_bytes(header: bytes) -> int:
    return max(entry["data_offsets"][1] for name, entry in json.loads(header).items() if name != "__metadata__")


def read_safetensors_raw(data: bytes, folder: Path) -> None:
    from kvplan.specs.safetensors_header import read_file

    path = folder / "x.safetensors"
    path.write_bytes(data)
    read_file(path)


def read_index(data: bytes, folder: Path) -> None:
    from kvplan.specs.safetensors import read_folder

    (folder / "model.safetensors.index.json").write_bytes(data)
    try:
        read_folder(folder)
    finally:
        (folder / "model.safetensors.index.json").unlink()


def indexes() -> list[bytes]:
    shard = "model-00001-of-00002.safetensors"
    return [
        json.dumps(
            {"metadata": {"total_size": 9}, "weight_map": {"a": shard, "b": shard.replace("1-of", "2-of")}}
        ).encode()
    ]


_GGUF_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


def gguf_recipes() -> list[bytes]:
    """Recipes of headers: keys with type and value, tensors with their dims, type and offset."""

    def recipe(arch: str, keys: dict[str, Any], tensors: list[tuple[str, list[int], int]], layers: int = 2) -> bytes:
        common = {"block_count": layers, "context_length": 512, "embedding_length": 64, "feed_forward_length": 128}
        fields: list[Any] = [["general.architecture", 8, arch], ["general.file_type", 4, 15]]
        for key, value in {**common, **keys}.items():
            fields.append(
                [f"{arch}.{key}", 9 if isinstance(value, list) else 6 if isinstance(value, float) else 4, value]
            )
        fields.append(["tokenizer.ggml.tokens", 9, ["a", "b"]])
        infos, offset = [], 0
        for name, dims, kind in tensors:
            infos.append([name, dims, kind, offset])
            size = 4 if kind == 0 else 2
            for dim in dims:
                size *= dim
            offset += -(-size // 32) * 32
        return json.dumps({"version": 3, "keys": fields, "tensors": infos, "data": offset}).encode()

    ends = [("token_embd.weight", [64, 100], 1), ("output_norm.weight", [64], 0), ("output.weight", [64, 100], 1)]
    attention = {"attn_norm": [64], "attn_q": [64, 64], "attn_k": [64, 32], "attn_v": [64, 32], "attn_output": [64, 64]}
    feed_forward = {"ffn_norm": [64], "ffn_gate": [64, 128], "ffn_up": [64, 128], "ffn_down": [128, 64]}

    def layers(parts: dict[str, list[int]]) -> list[tuple[str, list[int], int]]:
        return [
            (f"blk.{i}.{name}.weight", dims, 0 if len(dims) == 1 else 1)
            for i in range(2)
            for name, dims in parts.items()
        ]

    heads = {"attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5}
    experts = {
        "ffn_gate_inp": [64, 4],
        "ffn_gate_exps": [64, 32, 4],
        "ffn_up_exps": [64, 32, 4],
        "ffn_down_exps": [32, 64, 4],
    }
    latent = {
        "attn_norm": [64], "attn_q": [64, 96], "attn_kv_a_mqa": [64, 40], "attn_kv_a_norm": [32], "attn_kv_b": [32, 128],
        "attn_output": [64, 64],
    }  # fmt: skip
    ssm = {
        "ssm_in": [64, 296],
        "ssm_conv1d": [4, 160],
        "ssm_a": [1, 8],
        "ssm_d": [1, 8],
        "ssm_out": [128, 64],
        "attn_norm": [64],
    }
    ssm_keys = {
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 128,
        "ssm.state_size": 16,
        "ssm.time_step_rank": 8,
        "ssm.group_count": 1,
    }
    return [
        recipe("llama", heads, ends + layers(attention | feed_forward)),
        recipe("qwen3moe", {**heads, "expert_count": 4, "expert_used_count": 2}, ends + layers(attention | experts)),
        recipe("gemma3", {**heads, "attention.sliding_window": 64}, ends + layers(attention | feed_forward)),
        recipe(
            "deepseek2",
            {
                "attention.head_count": 4, "attention.head_count_kv": 1, "attention.kv_lora_rank": 32, "rope.dimension_count": 8,
                "attention.key_length": 40, "attention.value_length": 32, "attention.key_length_mla": 24,
                "attention.value_length_mla": 16,
            },
            ends + layers(latent | feed_forward),
        ),
        recipe("mamba2", ssm_keys, ends + layers(ssm)),
        recipe("jamba", {**heads, **ssm_keys, "attention.head_count_kv": [0, 2]}, ends + layers(attention | feed_forward)),
    ]  # fmt: skip


def _gguf_bytes(data: bytes) -> tuple[bytes, int]:
    """A header from its recipe, and the bytes of its data; what can't be encoded is left out."""
    recipe = json.loads(data)
    order, keys, tensors = "<", recipe.get("keys", []), recipe.get("tensors", [])

    def text(value: object) -> bytes:
        raw = str(value).encode("utf-8", "replace")
        return struct.pack(order + "Q", len(raw)) + raw

    def value(kind: Any, item: Any) -> bytes:
        if kind == 8:
            return text(item)
        if kind == 9:
            inner = 8 if item and isinstance(item[0], str) else 6 if item and isinstance(item[0], float) else 4
            return struct.pack("<IQ", inner, len(item)) + b"".join(value(inner, part) for part in item)
        return struct.pack(order + _GGUF_CODES[kind], item)

    def entries() -> Iterator[bytes]:
        for name, kind, item in keys:
            yield text(name) + struct.pack("<I", kind) + value(kind, item)
        for name, dims, kind, offset in tensors:
            yield text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)

    head = b"GGUF" + struct.pack("<IQQ", recipe.get("version", 3), len(tensors), len(keys)) + b"".join(entries())
    return head, min(int(recipe.get("data", 0)), 2**40)


def read_gguf(data: bytes, folder: Path) -> None:
    path = folder / "model.gguf"
    try:
        head, size = _gguf_bytes(data)
    except Exception:  # noqa: BLE001 - a recipe that no file can hold
        return
    with path.open("wb") as file:
        file.write(head)
        if size > 0:
            file.truncate(-(-len(head) // 32) * 32 + size)
    model_is_sound(kvplan.load_model(path), data)


def gguf_raw() -> list[bytes]:
    return [_gguf_bytes(recipe)[0] + b"\x00" * 100 for recipe in gguf_recipes()]


def read_gguf_raw(data: bytes, folder: Path) -> None:
    path = folder / "model.gguf"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + 10**6)
    model_is_sound(kvplan.load_model(path), data)
