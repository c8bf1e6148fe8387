"""Every way into kvplan, and every way in which it writes, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import read_measurements, read_models, read_specs, read_weights, read_words, writers
from tests.fuzz.reader import Reader, spec_files

READERS: Final[dict[str, Reader]] = {
    "config": Reader(run=read_models.read_config, seeds=read_models.configs),
    "quantization": Reader(run=read_models.read_quantization, seeds=read_models.quantizations),
    "sidecar": Reader(run=read_models.read_sidecar, seeds=read_models.quantizations),
    "model-yaml": Reader(run=read_models.read_model_spec, seeds=spec_files("model_specs", 40)),
    "gpu-yaml": Reader(run=read_specs.read_gpu, seeds=spec_files("hardware_specs", 20)),
    "engine-yaml": Reader(run=read_specs.read_engine, seeds=spec_files("kvplan/specs/profiles", 20)),
    "scenario-yaml": Reader(run=read_specs.read_scenario, seeds=read_specs.scenarios),
    "plan-yaml": Reader(run=read_specs.read_plan, seeds=read_specs.plans),
    "trace": Reader(run=read_specs.read_trace, seeds=read_specs.traces, is_tree=False),
    "safetensors": Reader(run=read_weights.read_safetensors, seeds=read_weights.safetensors),
    "safetensors-raw": Reader(run=read_weights.read_safetensors_raw, seeds=read_weights.safetensors_raw, is_tree=False),
    "safetensors-index": Reader(run=read_weights.read_index, seeds=read_weights.indexes),
    "gguf": Reader(run=read_weights.read_gguf, seeds=read_weights.gguf_recipes),
    "gguf-raw": Reader(run=read_weights.read_gguf_raw, seeds=read_weights.gguf_raw, is_tree=False),
    "records-csv": Reader(run=read_measurements.read_csv, seeds=read_measurements.csv_records, is_tree=False),
    "records-json": Reader(run=read_measurements.read_json, seeds=read_measurements.json_records),
    "log": Reader(run=read_measurements.read_log, seeds=read_measurements.logs, is_tree=False),
    "name": Reader(run=read_words.read_name, seeds=read_words.names),
    "command-line": Reader(run=read_words.read_command_line, seeds=read_words.command_lines),
    "completion": Reader(run=read_words.complete, seeds=read_words.completions),
    "output-path": Reader(run=writers.write_outputs, seeds=writers.outputs),
    "deployment": Reader(run=writers.write_deployment, seeds=writers.deployments),
    "profile": Reader(run=writers.write_profile, seeds=writers.profiles),
    "picture": Reader(run=writers.draw, seeds=writers.pictures),
}
