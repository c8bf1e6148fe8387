"""Readers of GPUs, engines, scenarios, plans and traces of requests."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import yaml

import kvplan
from kvplan.errors import KvplanError
from tests.fuzz.reader import ASKED, SHARE, estimate_is_sound, shown


def read_gpu(data: bytes, folder: Path) -> None:
    from kvplan.report.specs import GpuReport

    path = folder / "gpu.yaml"
    path.write_bytes(data)
    gpu = kvplan.load_gpu(path)
    if sum(data) % SHARE:
        return
    shown(GpuReport(gpu=gpu))
    for model, engine in (("llama-3-8b", "vllm"), ("gpt-oss-20b", "ideal")):
        with contextlib.suppress(KvplanError):
            estimate_is_sound(kvplan.estimate(model, gpu, engine=engine, **ASKED))


def read_engine(data: bytes, folder: Path) -> None:
    from kvplan.report.engines import EngineReport

    path = folder / "engine.yaml"
    path.write_bytes(data)
    engine = kvplan.load_engine(path)
    if sum(data) % 4:
        return
    shown(EngineReport(engine=engine))
    for model, gpu in (("llama-3-8b", "h100-sxm"), ("gpt-oss-20b", "mi300x")):
        with contextlib.suppress(KvplanError):
            estimate_is_sound(kvplan.estimate(model, gpu, engine=engine, **ASKED))


def scenarios() -> list[bytes]:
    base = {"model": "llama-3-8b", "gpu": "a100-80g", "tp": 2, "concurrency": 8, "context": 4096, "kv-dtype": "fp8"}
    return [
        json.dumps(base).encode(),
        json.dumps({**base, "vary": {"kv-dtype": ["bf16", "fp8"], "kv-heads": "8,32"}}).encode(),
        json.dumps({**base, "scenarios": [{"name": "a", "gpu": "l4"}, "b:tp=4"]}).encode(),
        json.dumps({**base, "sweep": {"concurrency": "1:64:log2", "input-tokens": [100, 200]}}).encode(),
        yaml.safe_dump({**base, "config.rope_theta": 1e6, "layers": 16, "enforce-eager": True}).encode(),
    ]


def read_scenario(data: bytes, folder: Path) -> None:
    from kvplan import api
    from kvplan.report.comparison import ComparisonReport
    from kvplan.report.sweep import SweepReport

    if b".." in data or b"/" in data:
        return  # a scenario file is a command line of the user's own: the paths in it are read, wherever they lead
    path = folder / "scenario.yaml"
    path.write_bytes(data)
    fields, sections = api.read_scenario_file(path)
    api.scenario_text({**fields, **sections})
    if "sweep" in sections:
        shown(SweepReport(sweep=api.sweep(axes=[sections["sweep"]], **fields)))
    else:
        found = api.compare(sections.get("scenarios", ()), vary=[sections.get("vary", {})], **fields)
        shown(ComparisonReport(comparison=found))


def traces() -> list[bytes]:
    azure = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,110,27\n"
    burst = b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,log\n45,GPT-4,9,2,11,log\n"
    mooncake = b'{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
    return [
        azure,
        burst,
        mooncake + mooncake.replace(b": 0,", b": 27482,"),
        b"arrival_s,input_tokens,output_tokens\n0,9,9\n1e3,8,8\n",
    ]


def read_trace(data: bytes, folder: Path) -> None:
    from kvplan.planning.lengths import from_samples
    from kvplan.planning.trace import read_trace

    path = folder / "trace.csv"
    path.write_bytes(data)
    found = read_trace(path)
    from_samples("inputs", found.inputs)
    from_samples("outputs", found.outputs)


def plans() -> list[bytes]:
    return [
        json.dumps({"prices": {"h100-sxm": 2.5, "l4": 0.7}, "lengths": "lognormal:500:1"}).encode(),
        json.dumps(
            {"prices": ["h100-sxm=2.5"], "lengths": "p50=500,p95=2000", "options": {"gpus": "l4,l40s", "tp": [1, 2]}}
        ).encode(),
        json.dumps({"prices": {"l4": "0.7"}, "lengths": "uniform:100:900", "options": {"kv-dtypes": ["fp8"]}}).encode(),
    ]


def read_plan(data: bytes, folder: Path) -> None:
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
