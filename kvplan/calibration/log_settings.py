"""From a log's words to the arguments of an estimate; what the user says wins over what the log says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import PurePosixPath
from typing import Any, Final

from kvplan.calibration.logs import StartupLog
from kvplan.calibration.record import leading_version
from kvplan.core.dataclass import dataclass

_INTEGERS: Final = ("tp", "pp", "dp", "ep", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
_LARGEST: Final = 10**12
_KV_DTYPES: Final = {
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
    "f16": "fp16",
    "f32": "fp32",
    "q8_0": "q8_0",
    "q4_0": "q4_0",
    "nvfp4": "nvfp4",
}
_QUANTIZATIONS: Final = {
    "fp8": "fp8",
    "awq": "awq",
    "awq_marlin": "awq",
    "gptq": "gptq",
    "gptq_marlin": "gptq",
    "bitsandbytes": "nf4",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
}
_FULL: Final = frozenset({"bf16", "fp16", "fp32"})
_WIDTHS: Final = {"medium": "m", "small": "s", "large": "l"}
_GGUF_TYPE: Final = re.compile(
    r"\b((?:I?Q[0-9]_[0-9KXSLM_]{1,4})|F16|BF16|F32|MXFP4)(?: - (Medium|Small|Large))?", re.IGNORECASE
)


@dataclass(slots=True, kw_only=True)
class LogSettings:
    """A deployment as a log and its reader describe it.

    Attributes:
        model, gpu, engine: Names, None where neither says.
        arguments: Keyword arguments of `estimate`.
        said: Name → value and source, for the reader.
        quantized_as: Weight format that the engine was told, for a checkpoint that says nothing of its own.
    """

    model: str | None = None
    gpu: str | None = None
    engine: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    said: dict[str, dict[str, str]] = field(default_factory=dict)
    quantized_as: str | None = None

    def say(self, name: str, value: object, source: str) -> None:
        """Note where a setting is from."""
        self.said[name] = {"value": str(value), "source": source}


def settings_of(
    log: StartupLog, options: Mapping[str, Any], *, known_model: Callable[[str], str | None]
) -> LogSettings:
    """Scenario of a log.

    Args:
        log: What the log says.
        options: Option → value, as `estimate` names them (`max_model_len` as `context`); None is not given.
        known_model: Bundled id of a model's name, None for others: a log's own words never open a file or the network.
    """
    found = LogSettings()
    given = {name: value for name, value in options.items() if value is not None}
    _names(found, log, given, known_model)
    integers: dict[str, int] = {}
    for name in _INTEGERS:
        text = log.facts.get(name, "")
        if text.isascii() and text.isdigit() and 1 <= int(text[:15]) <= _LARGEST:
            integers[name] = int(text[:15])
    if log.engine == "llama.cpp":
        _llama_cpp(log, integers)
    if integers.get("ep") == 1:  # printed where experts are not parallel of their own
        del integers["ep"]
    for name, value in integers.items():
        argument = "context" if name == "max_model_len" else name
        found.arguments[argument] = value
        found.say(argument, value, "log")
    _formats(found, log)
    _memory(found, log)
    for name, value in given.items():
        if name in {"model", "gpu", "engine"}:
            continue
        found.arguments[name] = value
        found.say(name, value, "option")
    return found


def _names(
    found: LogSettings, log: StartupLog, given: Mapping[str, Any], known_model: Callable[[str], str | None]
) -> None:
    version = None if log.engine == "llama.cpp" else leading_version(log.facts.get("version"))
    if "engine" in given:
        found.engine = str(given["engine"])
        found.say("engine", found.engine, "option")
    elif log.engine is not None:
        found.engine = f"{log.engine}@{version}" if version else log.engine
        found.say("engine", found.engine, "log")
    if "model" in given:
        found.model = str(given["model"])
        found.say("model", found.model, "option")
    else:
        for name in (log.facts.get("model"), log.facts.get("model_title")):
            bundled = _bundled(name, known_model) if name else None
            if bundled is not None:
                found.model = bundled
                found.say("model", bundled, "log")
                break
    if "gpu" in given:
        found.gpu = str(given["gpu"])
        found.say("gpu", found.gpu, "option")
    elif len(log.devices) == 1:
        found.gpu = log.devices[0]
        found.say("gpu", found.gpu, "log")


def _bundled(name: str, known_model: Callable[[str], str | None]) -> str | None:
    """A bundled model for a repo id, a local folder's last part, or a title with blanks."""
    last = PurePosixPath(name.replace("\\", "/")).name
    for candidate in (name, last, last.removesuffix(".gguf"), last.replace(" ", "-")):
        found = known_model(candidate) if candidate else None
        if found is not None:
            return found
    return None


def _llama_cpp(log: StartupLog, integers: dict[str, int]) -> None:
    """n_ctx is shared by all slots; GPUs take whole layers, which is a pipeline."""
    slots = integers.setdefault("max_num_seqs", 1)
    if "max_model_len" in integers:
        integers["max_model_len"] = max(1, integers["max_model_len"] // slots)
    ubatch = log.facts.get("ubatch", "")
    if ubatch.isascii() and ubatch.isdigit():
        integers["max_num_batched_tokens"] = max(1, int(ubatch[:9]))
    devices = int(log.facts.get("gpu_devices", "1"))
    if devices > 1:
        integers["pp"] = devices


def _formats(found: LogSettings, log: StartupLog) -> None:
    kv_dtype = _KV_DTYPES.get(log.facts.get("kv_dtype", "").removeprefix("torch.").casefold())
    if kv_dtype is not None:
        found.arguments["kv_dtype"] = kv_dtype
        found.say("kv_dtype", kv_dtype, "log")
    if log.engine == "llama.cpp":
        match = _GGUF_TYPE.search(log.facts.get("file_type", ""))
        if match:
            name = match[1].lower() + (f"_{_WIDTHS[match[2].lower()]}" if match[2] else "")
            dtype = {"f16": "fp16", "f32": "fp32"}.get(name, name)
            found.arguments["dtype"] = dtype
            found.say("dtype", dtype, "log")
        return
    if log.facts.get("dtype", "").removeprefix("torch.") in {"float32", "float"}:
        found.arguments["dtype"] = "fp32"
        found.say("dtype", "fp32", "log")
    found.quantized_as = _QUANTIZATIONS.get(log.facts.get("quantization", "").casefold())


def quantize_if_full(found: LogSettings, model_dtype: str) -> None:
    """Take the engine's `quantization` for the weight format where the checkpoint itself is in 16 or 32 bits."""
    if found.quantized_as is not None and model_dtype in _FULL and "dtype" not in found.arguments:
        found.arguments["dtype"] = found.quantized_as
        found.say("dtype", found.quantized_as, "log")


def _memory(found: LogSettings, log: StartupLog) -> None:
    try:
        fraction = float(log.facts.get("gpu_memory_utilization", ""))
    except ValueError:
        fraction = 0.0
    if 0 < fraction <= 1:
        found.arguments["gpu_memory_utilization"] = fraction
        found.say("gpu_memory_utilization", fraction, "log")
    total = log.figures.get("total_gpu_gib")
    if total is not None and total.value > 0:
        found.arguments["gpu_memory_gib"] = total.value
        found.say("gpu_memory_gib", total.value, "log")
    if log.facts.get("enforce_eager", "").casefold() == "true":
        found.arguments["enforce_eager"] = True
        found.say("enforce_eager", "true", "log")
