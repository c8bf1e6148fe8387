"""Readers of models: config.json with its quantisation, the sidecar beside it, spec files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import kvplan
from tests.fuzz.reader import ROOT, TEXT_MOST, model_is_sound


def _lines(name: str) -> list[Any]:
    text = (ROOT / "tests" / "oracle" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line and not line.startswith("#")]


@cache
def configs() -> list[bytes]:
    whole = [row["config"] for row in _lines("models.jsonl")]
    by_type: dict[str, Any] = {}
    for name in ("small_configs.jsonl", "small_models.jsonl", "small_towers.jsonl"):
        for row in _lines(name):
            config = row.get("config", row)
            by_type.setdefault(str(config.get("model_type")), config)
    texts = [json.dumps(config).encode() for config in [*whole, *by_type.values()]]
    return [text for text in texts if len(text) < TEXT_MOST]


def read_config(data: bytes, folder: Path) -> None:
    path = folder / "config.json"
    path.write_bytes(data)
    model_is_sound(kvplan.load_model(path), data)


@cache
def quantizations() -> list[bytes]:
    found: list[bytes] = []
    for path in sorted((ROOT / "model_specs").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if "quantization_config" not in text and "hf_quant_config" not in text:
            continue
        spec = yaml.safe_load(text)
        quant = spec["config"].get("quantization_config") or spec.get("hf_quant_config")
        if quant is not None and len(json.dumps(quant)) < TEXT_MOST:
            found.append(json.dumps(quant).encode())
    for dialect in (
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "modules_to_not_convert": ["gate"]},
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "desc_act": True,
            "sym": True,
            "dynamic": {"-:.*gate": {}},
        },
        {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "llm_int8_skip_modules": ["x"],
        },
        {
            "quant_method": "torchao",
            "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}},
        },
        {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}},
        {
            "quant_method": "auto-round",
            "bits": 4,
            "group_size": 128,
            "extra_config": {"model.layers.0.mlp.up_proj": {"bits": 8}},
        },
        {
            "quant_method": "quark",
            "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}},
            "exclude": ["re:.*a.*"],
        },
    ):
        found.append(json.dumps(dialect).encode())  # noqa: PERF401 - one dialect a line
    return found


@cache
def _hosts() -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in configs()
        if b'"quantization_config"' not in line
        and (b'"mixtral"' in line or b'"llama"' in line or b"deepseek_v3" in line)
    ][:3]


def read_quantization(data: bytes, folder: Path) -> None:
    host = _hosts()[len(data) % len(_hosts())]
    text = json.dumps({**host, "quantization_config": "HERE"}).replace('"HERE"', data.decode("utf-8", "replace"))
    read_config(text.encode("utf-8", "replace"), folder)


def read_sidecar(data: bytes, folder: Path) -> None:
    host = _hosts()[len(data) % len(_hosts())]
    (folder / "hf_quant_config.json").write_bytes(data)
    try:
        read_config(json.dumps(host).encode(), folder)
    finally:
        (folder / "hf_quant_config.json").unlink()


def read_model_spec(data: bytes, folder: Path) -> None:
    path = folder / "model.yaml"
    path.write_bytes(data)
    model_is_sound(kvplan.load_model(path), data)
