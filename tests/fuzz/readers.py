"""Every reader of kvplan with known inputs to start from: one function each, from bytes to an answer or a `KvplanError`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

import kvplan
from kvplan.errors import KvplanError
from tests.fuzz.guard import LawBrokenError, check_shown
from tests.fuzz.mutations import Mutator

ROOT = Path(__file__).resolve().parents[2]
_TEXT_MOST = 6_000
_SHARE = 16
_ASKED = {"concurrency": 4, "input_tokens": 100, "output_tokens": 10}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One way in.

    Attributes:
        run: Reads bytes, with a folder of its own to write in.
        seeds: Known inputs.
        is_tree: True where inputs are JSON (or a recipe in JSON) and change by structure.
    """

    run: Callable[[bytes, Path], None]
    seeds: Callable[[], list[bytes]]
    is_tree: bool = True

    def mutator(self) -> Mutator:
        """What makes new inputs."""
        return Mutator(self.seeds(), is_tree=self.is_tree)


# --- what is made of an accepted input -------------------------------------------------------------------------------


def _shown(report: Any) -> None:
    """All forms of a report can be made, and act on no terminal."""
    from kvplan.report.render import Form, render

    for form in Form:
        check_shown(render(report, form))


def _model_is_sound(model: kvplan.Model, data: bytes) -> None:
    """Count its parameters, and for one input in `_SHARE` answer with it and show that in all forms."""
    from kvplan.core.summary import model_summary
    from kvplan.report.estimate import EstimateReport
    from kvplan.report.specs import ModelReport

    json.dumps(model_summary(model), allow_nan=False)
    if sum(data) % _SHARE:
        return
    _shown(ModelReport(model=model))
    for gpu, engine, layout in (("h200", "vllm", {}), ("l4", "llama.cpp", {}), ("b200", "sglang", {"tp": 2, "pp": 2})):
        with contextlib.suppress(KvplanError):
            answer = kvplan.estimate(model, gpu, engine=engine, allow_context_overflow=True, **_ASKED, **layout)
            estimate_is_sound(answer)
            if engine == "vllm":
                _shown(EstimateReport(estimate=answer, explain=True, model=model))


def estimate_is_sound(answer: kvplan.Estimate) -> None:
    """The laws of one estimate: the ledger sums, ranges are ordered, the JSON is finite.

    Raises:
        LawBrokenError: One is broken.
    """
    data = json.loads(answer.model_dump_json())
    json.dumps(data, allow_nan=False)
    memory = data["memory"]
    parts = ("weights_bytes", "activation_bytes", "runtime_bytes", "kv_pool_bytes", "unused_bytes")
    inside = sum(memory.get(name) or 0 for name in parts)
    graph = memory["graph_bytes"] or 0
    if memory["usable_bytes"] not in {inside, inside + graph}:
        message = f"the ledger does not sum: {memory}"
        raise LawBrokenError(message)
    for part in ("latency", "throughput"):
        for name, value in (data[part] or {}).items():
            if isinstance(value, dict) and "low" in value:
                low, mid, high, floor = (value[key] for key in ("low", "mid", "high", "floor"))
                best_first = (floor, low, mid, high) if part == "latency" else (low, mid, high, floor)
                slack = 1 + 1e-9
                if not all(a <= b * slack for a, b in pairwise(best_first)):
                    message = f"{name} is not ordered: {value}"
                    raise LawBrokenError(message)


# --- models ----------------------------------------------------------------------------------------------------------


def _lines(name: str) -> list[Any]:
    text = (ROOT / "tests" / "oracle" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line and not line.startswith("#")]


@cache
def _configs() -> list[bytes]:
    whole = [row["config"] for row in _lines("models.jsonl")]
    by_type: dict[str, Any] = {}
    for name in ("small_configs.jsonl", "small_models.jsonl", "small_towers.jsonl"):
        for row in _lines(name):
            config = row.get("config", row)
            by_type.setdefault(str(config.get("model_type")), config)
    texts = [json.dumps(config).encode() for config in [*whole, *by_type.values()]]
    return [text for text in texts if len(text) < _TEXT_MOST]


def _read_config(data: bytes, folder: Path) -> None:
    path = folder / "config.json"
    path.write_bytes(data)
    _model_is_sound(kvplan.load_model(path), data)


@cache
def _quantizations() -> list[bytes]:
    found: list[bytes] = []
    for path in sorted((ROOT / "model_specs").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if "quantization_config" not in text and "hf_quant_config" not in text:
            continue
        spec = yaml.safe_load(text)
        quant = spec["config"].get("quantization_config") or spec.get("hf_quant_config")
        if quant is not None and len(json.dumps(quant)) < _TEXT_MOST:
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
        for line in _configs()
        if b'"quantization_config"' not in line
        and (b'"mixtral"' in line or b'"llama"' in line or b"deepseek_v3" in line)
    ][:3]


def _read_quantization(data: bytes, folder: Path) -> None:
    host = _hosts()[len(data) % len(_hosts())]
    text = json.dumps({**host, "quantization_config": "HERE"}).replace('"HERE"', data.decode("utf-8", "replace"))
    _read_config(text.encode("utf-8", "replace"), folder)


def _read_sidecar(data: bytes, folder: Path) -> None:
    host = _hosts()[len(data) % len(_hosts())]
    (folder / "hf_quant_config.json").write_bytes(data)
    try:
        _read_config(json.dumps(host).encode(), folder)
    finally:
        (folder / "hf_quant_config.json").unlink()


def _specs(kind: str, most: int) -> Callable[[], list[bytes]]:
    @cache
    def seeds() -> list[bytes]:
        paths = sorted((ROOT / kind).glob("*.yaml"))
        texts = [path.read_bytes() for path in paths if path.stat().st_size < _TEXT_MOST][:: max(1, len(paths) // most)]
        return [part for text in texts for part in (json.dumps(yaml.safe_load(text), default=str).encode(), text)]

    return seeds


def _read_model_spec(data: bytes, folder: Path) -> None:
    path = folder / "model.yaml"
    path.write_bytes(data)
    _model_is_sound(kvplan.load_model(path), data)


# --- GPUs, engines, scenarios ----------------------------------------------------------------------------------------


def _read_gpu(data: bytes, folder: Path) -> None:
    from kvplan.report.specs import GpuReport

    path = folder / "gpu.yaml"
    path.write_bytes(data)
    gpu = kvplan.load_gpu(path)
    if sum(data) % _SHARE:
        return
    _shown(GpuReport(gpu=gpu))
    for model, engine in (("llama-3-8b", "vllm"), ("gpt-oss-20b", "ideal")):
        with contextlib.suppress(KvplanError):
            estimate_is_sound(kvplan.estimate(model, gpu, engine=engine, **_ASKED))


def _read_engine(data: bytes, folder: Path) -> None:
    from kvplan.report.engines import EngineReport

    path = folder / "engine.yaml"
    path.write_bytes(data)
    engine = kvplan.load_engine(path)
    if sum(data) % 4:
        return
    _shown(EngineReport(engine=engine))
    for model, gpu in (("llama-3-8b", "h100-sxm"), ("gpt-oss-20b", "mi300x")):
        with contextlib.suppress(KvplanError):
            estimate_is_sound(kvplan.estimate(model, gpu, engine=engine, **_ASKED))


def _scenarios() -> list[bytes]:
    base = {"model": "llama-3-8b", "gpu": "a100-80g", "tp": 2, "concurrency": 8, "context": 4096, "kv-dtype": "fp8"}
    return [
        json.dumps(base).encode(),
        json.dumps({**base, "vary": {"kv-dtype": ["bf16", "fp8"], "kv-heads": "8,32"}}).encode(),
        json.dumps({**base, "scenarios": [{"name": "a", "gpu": "l4"}, "b:tp=4"]}).encode(),
        json.dumps({**base, "sweep": {"concurrency": "1:64:log2", "input-tokens": [100, 200]}}).encode(),
        yaml.safe_dump({**base, "config.rope_theta": 1e6, "layers": 16, "enforce-eager": True}).encode(),
    ]


def _read_scenario(data: bytes, folder: Path) -> None:
    from kvplan import api
    from kvplan.report.comparison import ComparisonReport
    from kvplan.report.sweep import SweepReport

    path = folder / "scenario.yaml"
    path.write_bytes(data)
    fields, sections = api.read_scenario_file(path)
    api.scenario_text({**fields, **sections})
    if "sweep" in sections:
        _shown(SweepReport(sweep=api.sweep(axes=[sections["sweep"]], **fields)))
    else:
        found = api.compare(sections.get("scenarios", ()), vary=[sections.get("vary", {})], **fields)
        _shown(ComparisonReport(comparison=found))


# --- weight files ----------------------------------------------------------------------------------------------------


def _safetensors() -> list[bytes]:
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


def _read_safetensors(data: bytes, folder: Path) -> None:
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
        found = read_folder(folder)
        if found is not None:
            found.parameters()
            found.quantiser_bytes()
        _model_is_sound(kvplan.load_model(folder), data)
    finally:
        path.unlink()


def _safetensors_raw() -> list[bytes]:
    return [len(part).to_bytes(8, "little") + part for part in _safetensors()] + [b"version https://git-lfs", b""]


def _read_safetensors_raw(data: bytes, folder: Path) -> None:
    from kvplan.specs.safetensors_header import read_file

    path = folder / "x.safetensors"
    path.write_bytes(data)
    read_file(path)


def _read_index(data: bytes, folder: Path) -> None:
    from kvplan.specs.safetensors import read_folder

    (folder / "model.safetensors.index.json").write_bytes(data)
    try:
        read_folder(folder)
    finally:
        (folder / "model.safetensors.index.json").unlink()


def _indexes() -> list[bytes]:
    shard = "model-00001-of-00002.safetensors"
    return [
        json.dumps(
            {"metadata": {"total_size": 9}, "weight_map": {"a": shard, "b": shard.replace("1-of", "2-of")}}
        ).encode()
    ]


_GGUF_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


def _gguf_recipes() -> list[bytes]:
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


def _read_gguf(data: bytes, folder: Path) -> None:
    path = folder / "model.gguf"
    try:
        head, size = _gguf_bytes(data)
    except Exception:  # noqa: BLE001 - a recipe that no file can hold
        return
    with path.open("wb") as file:
        file.write(head)
        if size > 0:
            file.truncate(-(-len(head) // 32) * 32 + size)
    _model_is_sound(kvplan.load_model(path), data)


def _gguf_raw() -> list[bytes]:
    return [_gguf_bytes(recipe)[0] + b"\x00" * 100 for recipe in _gguf_recipes()]


def _read_gguf_raw(data: bytes, folder: Path) -> None:
    path = folder / "model.gguf"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + 10**6)
    _model_is_sound(kvplan.load_model(path), data)


# --- measurements and logs -------------------------------------------------------------------------------------------


def _planner() -> Any:
    from kvplan import api
    from kvplan.calibration.planner import Planner

    return Planner(load_model=api.load_model, load_gpu=api.load_gpu, load_engine=api.load_engine, estimate=api.estimate)


def _validated(path: Path) -> None:
    from kvplan.calibration.validate import validate
    from kvplan.report.validation import ValidationReport

    found = validate(path, planner=_planner(), group_by=["model", "gpu"], defaults={"gpu": "l4"})
    _shown(ValidationReport(validation=found, worst=5))


def _csv_records() -> list[bytes]:
    lines = (ROOT / "tests" / "data" / "measurements.csv").read_bytes().splitlines(keepends=True)
    single = b"total_time_ms,prompt_tokens,completion_tokens,time_to_first_token_ms,timestamp\n900,10,20,50,1\n800,9,9,40,2\n"
    return [lines[0] + line for line in lines[1:5]] + [b"model,gpu,tp,ttft_ms\nllama-3-8b,l4,1,10\n", single]


def _read_csv(data: bytes, folder: Path) -> None:
    path = folder / "rows.csv"
    path.write_bytes(data)
    _validated(path)


def _json_records() -> list[bytes]:
    row = {
        "id": "a", "model": "llama-3-8b", "gpu": "a100-80g", "tp": 1, "engine": "vllm", "engine_version": "0.6.3", "dtype": "bf16",
        "max_model_len": 8192, "gpu_memory_utilization": 0.9, "input_tokens": 512, "output_tokens": 128, "concurrency": 8,
        "length_distribution": "uniform 0.8-1.0 of nominal", "ttft_ms": 100.0, "tpot_ms": 12.5, "kv_pool_gib": 55.1,
    }  # fmt: skip
    bench = {
        "completed": 100, "total_input_tokens": 51200, "total_output_tokens": 12800, "mean_ttft_ms": 90, "mean_tpot_ms": 11,
        "model_id": "llama-3-8b", "max_concurrency": 8, "duration": 30.0, "request_rate": "inf", "output_throughput": 400.0,
    }  # fmt: skip
    statistic = {"unit": "ms", "avg": 90.0, "p99": 120.0}
    genai = {
        "time_to_first_token": statistic, "inter_token_latency": statistic, "request_latency": statistic,
        "output_sequence_length": {"avg": 128}, "input_sequence_length": {"avg": 512},
        "input_config": {"model": ["llama-3-8b"], "concurrency": 8},
    }  # fmt: skip
    single = {
        "total_time_ms": 900,
        "prompt_tokens": 10,
        "completion_tokens": 20,
        "time_to_first_token_ms": 50,
        "timestamp": 1,
    }
    return [
        json.dumps(one).encode()
        for one in (row, [row, {**row, "id": "b", "tp": 2}], bench, genai, single, [single, single])
    ]


def _read_json(data: bytes, folder: Path) -> None:
    path = folder / "rows.json"
    path.write_bytes(data)
    _validated(path)


def _logs() -> list[bytes]:
    found = []
    for path in sorted((ROOT / "tests" / "data" / "logs").glob("*.log")):
        lines = path.read_bytes().splitlines(keepends=True)
        found.append(b"".join(line for line in lines if len(line) < 1500)[:8_000])
    return found


def _read_log(data: bytes, folder: Path) -> None:
    from kvplan.calibration.explain_log import explain_log
    from kvplan.report.log_report import LogReport
    from kvplan.specs import registry

    path = folder / "server.log"
    path.write_bytes(data)

    def known(name: str) -> str | None:
        found = registry.find("model", name)
        return None if found is None else found.stem

    _shown(LogReport(explanation=explain_log(path, planner=_planner(), known_model=known, options={})))


# --- plans: traces, prices, lengths ----------------------------------------------------------------------------------


def _traces() -> list[bytes]:
    azure = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,110,27\n"
    burst = b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,log\n45,GPT-4,9,2,11,log\n"
    mooncake = b'{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
    return [
        azure,
        burst,
        mooncake + mooncake.replace(b": 0,", b": 27482,"),
        b"arrival_s,input_tokens,output_tokens\n0,9,9\n1e3,8,8\n",
    ]


def _read_trace(data: bytes, folder: Path) -> None:
    from kvplan.planning.lengths import from_samples
    from kvplan.planning.trace import read_trace

    path = folder / "trace.csv"
    path.write_bytes(data)
    found = read_trace(path)
    from_samples("inputs", found.inputs)
    from_samples("outputs", found.outputs)


def _plans() -> list[bytes]:
    return [
        json.dumps({"prices": {"h100-sxm": 2.5, "l4": 0.7}, "lengths": "lognormal:500:1"}).encode(),
        json.dumps(
            {"prices": ["h100-sxm=2.5"], "lengths": "p50=500,p95=2000", "options": {"gpus": "l4,l40s", "tp": [1, 2]}}
        ).encode(),
        json.dumps({"prices": {"l4": "0.7"}, "lengths": "uniform:100:900", "options": {"kv-dtypes": ["fp8"]}}).encode(),
    ]


def _read_plan(data: bytes, folder: Path) -> None:
    from kvplan.planning.lengths import read_lengths
    from kvplan.planning.requests import plan_arguments, prices
    from kvplan.specs.scenario_file import read_mapping

    path = folder / "plan.yaml"
    path.write_bytes(data)
    given = read_mapping(path)
    prices(given.get("prices", {}))
    lengths = read_lengths(given.get("lengths", 100))
    json.dumps([lengths.mean, lengths.longest], allow_nan=False)
    if isinstance(given.get("options"), dict):
        plan_arguments(given["options"])


# --- names and command lines -----------------------------------------------------------------------------------------


def _names() -> list[bytes]:
    names = (
        "meta-llama/Llama-3.1-8B@main", "llama-3-8b", "vllm@0.19", "a100-80g", "owner/../name", "~root/x", "./config.json", "a/b/c",
        "owner/name@refs/pr/1", "x.gguf", "-", "/dev/zero", "/proc/self/mem", "-x/y", "a@b", "owner--name/x..y",
    )  # fmt: skip
    return [json.dumps(name).encode() for name in names]


def _read_name(data: bytes, folder: Path) -> None:
    """A name where a model, GPU or engine is asked for; the hub is offline."""
    try:
        name = json.loads(data)
    except ValueError:
        name = data.decode("utf-8", "surrogateescape")
    if not isinstance(name, str) or Path(name.replace("\0", "")).is_absolute() or ".." in name:
        return  # a path that the user gives is read, wherever it is
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HOME"] = str(folder / "hub")
    for load in (kvplan.load_engine, kvplan.load_gpu, kvplan.load_model):
        try:
            load(name)
        except KvplanError as error:
            last = error
        else:
            return
    raise last


_SWITCHES = (
    "--model", "--gpu", "--engine", "--dtype", "--kv-dtype", "--tp", "--pp", "--dp", "--ep", "--gpu-count", "--input-tokens",
    "--output-tokens", "--concurrency", "--context", "--gpu-memory-utilization", "--max-num-seqs", "--max-num-batched-tokens",
    "--gpu-memory-gib", "--n-gpu-layers", "--shared-prefix-tokens", "--prefix-hit-rate", "--source-tokens", "--network-ms",
    "--benchmark-requests",
)  # fmt: skip


def _command_lines() -> list[bytes]:
    base = ["estimate", "--model", "llama-3-8b", "--gpu", "a100-80g"]
    lines = [
        base,
        [*base, "--json", "--tp", "2", "--concurrency", "8"],
        [*base, "--explain", "--kv-dtype", "fp8", "--dtype", "int4"],
        [
            "estimate",
            "--model",
            "deepseek-v3",
            "--gpu",
            "h200",
            "--tp",
            "8",
            "--dp",
            "2",
            "--ep",
            "16",
            "--format",
            "csv",
        ],
        ["estimate", "--model", "gpt-oss-120b", "--gpu", "mi300x", "--engine", "vllm@0.11", "--context", "100000"],
        ["compare", *base[1:], "--vary", "kv-dtype=bf16,fp8", "--vary", "tp=1,2", "--format", "markdown"],
        ["compare", *base[1:], "--scenario", "small:gpu=l4,kv-heads=32", "--scenario", "b:layers=16"],
        ["sweep", *base[1:], "--sweep", "concurrency=1:64:log2", "--sweep", "context=4096,8192", "--json"],
        ["models", "show", "qwen3-8b"],
        ["gpus", "show", "h100-sxm", "--format", "markdown"],
        ["engines", "show", "vllm@0.6", "--json"],
        ["gpus", "list", "h1", "--format", "csv"],
        ["estimat", "--help"],
    ]
    lines.extend([*base, switch, "1"] for switch in _SWITCHES[5:])
    return [json.dumps(line).encode() for line in lines]


def _read_command_line(data: bytes, folder: Path) -> None:
    """A command line of several words, run in this process, its streams looked at."""
    from kvplan.cli.boundary import guarded
    from kvplan.cli.main import app

    try:
        words = json.loads(data)
    except (ValueError, RecursionError):
        words = data.decode("utf-8", "replace").split()
    if not isinstance(words, list):
        return
    arguments = [word if isinstance(word, str) else json.dumps(word) for word in words[:40]]
    arguments = [word.replace("\0", "") for word in arguments]
    if any(
        word.startswith(("-o", "--out", "--plot", "--save", "--deploy", "--install", "--show-compl"))
        for word in arguments
    ):
        return
    out, err = io.StringIO(), io.StringIO()
    inside = Path.cwd()
    os.chdir(folder)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HOME"] = str(folder / "hub")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = guarded(lambda: app(arguments, prog_name="kvplan", standalone_mode=False))
    finally:
        os.chdir(inside)
    check_shown(out.getvalue())
    check_shown(err.getvalue())
    if code not in {0, 2, 3, 4, 5}:
        message = f"exit code {code}: {err.getvalue()[:200]}"
        raise LawBrokenError(message)
    if code in {2, 4, 5} and (out.getvalue() or not err.getvalue() or len(err.getvalue()) > 20_000):
        message = f"exit code {code} with stdout {out.getvalue()[:80]!r} and {len(err.getvalue())} characters on stderr"
        raise LawBrokenError(message)
    if code in {0, 3} and "--json" in arguments and not {"--help", "-h", "--version"} & set(arguments):
        json.loads(out.getvalue(), parse_constant=_not_json)


def _not_json(text: str) -> None:
    message = f"{text} in JSON"
    raise LawBrokenError(message)


READERS: dict[str, Reader] = {
    "config": Reader(run=_read_config, seeds=_configs),
    "quantization": Reader(run=_read_quantization, seeds=_quantizations),
    "sidecar": Reader(run=_read_sidecar, seeds=_quantizations),
    "model-yaml": Reader(run=_read_model_spec, seeds=_specs("model_specs", 40)),
    "gpu-yaml": Reader(run=_read_gpu, seeds=_specs("hardware_specs", 20)),
    "engine-yaml": Reader(run=_read_engine, seeds=_specs("kvplan/specs/profiles", 20)),
    "scenario-yaml": Reader(run=_read_scenario, seeds=_scenarios),
    "safetensors": Reader(run=_read_safetensors, seeds=_safetensors),
    "safetensors-raw": Reader(run=_read_safetensors_raw, seeds=_safetensors_raw, is_tree=False),
    "safetensors-index": Reader(run=_read_index, seeds=_indexes),
    "gguf": Reader(run=_read_gguf, seeds=_gguf_recipes),
    "gguf-raw": Reader(run=_read_gguf_raw, seeds=_gguf_raw, is_tree=False),
    "records-csv": Reader(run=_read_csv, seeds=_csv_records, is_tree=False),
    "records-json": Reader(run=_read_json, seeds=_json_records),
    "log": Reader(run=_read_log, seeds=_logs, is_tree=False),
    "trace": Reader(run=_read_trace, seeds=_traces, is_tree=False),
    "plan-yaml": Reader(run=_read_plan, seeds=_plans),
    "name": Reader(run=_read_name, seeds=_names),
    "command-line": Reader(run=_read_command_line, seeds=_command_lines),
}
