"""Every dialect of `quantization_config` and the sidecar `hf_quant_config.json`, read into a `QuantizationPlan`."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Mapping
from typing import Final, cast

from kvplan.errors import UnsupportedModelError
from kvplan.specs.huggingface.config import TEXT_CONFIGS, Config
from kvplan.specs.quantization.plan import Part, QuantizationPlan, Rule

__all__ = ["METHODS", "Part", "QuantizationPlan", "Rule", "read_quantization"]

Reader = Callable[[Config, Config], QuantizationPlan]

#: `quant_method` → (module in this package, function).
METHODS: Final[dict[str, tuple[str, str]]] = {
    "aqlm": ("integers", "aqlm"),
    "auto-round": ("integers", "auto_round"),
    "auto_round": ("integers", "auto_round"),
    "awq": ("integers", "awq"),
    "bitnet": ("integers", "bitnet"),
    "bitsandbytes": ("integers", "bitsandbytes"),
    "compressed-tensors": ("compressed_tensors", "compressed_tensors"),
    "compressed_tensors": ("compressed_tensors", "compressed_tensors"),
    "eetq": ("integers", "eetq"),
    "fbgemm_fp8": ("floats", "fbgemm_fp8"),
    "fp8": ("floats", "fp8"),
    "gemma": ("integers", "gemma"),
    "gptq": ("integers", "gptq"),
    "gptqmodel": ("integers", "gptq"),
    "hqq": ("integers", "hqq"),
    "intel/auto-round": ("integers", "auto_round"),
    "metal": ("integers", "metal"),
    "modelopt": ("modelopt", "modelopt"),
    "modelopt_fp4": ("modelopt", "modelopt"),
    "modelopt_fp8": ("modelopt", "modelopt"),
    "modelopt_mixed": ("modelopt", "modelopt"),
    "mxfp4": ("floats", "mxfp4"),
    "mxfp8": ("floats", "mxfp8"),
    "nvfp4": ("floats", "nvfp4"),
    "quark": ("quark", "quark"),
    "torchao": ("torchao", "torchao"),
    "w8a8_fp8": ("floats", "w8a8_fp8"),
    "w8a8_int8": ("integers", "w8a8_int8"),
}
#: Fields that say how a checkpoint was made or is loaded, in any dialect.
_HARMLESS: Final = frozenset(
    {"quant_method", "producer", "version", "provider", "meta", "dequantize", "backend", "_commit_hash", "model_type"}
)
#: A field with one of these in its name may change what is stored.
_SMELLS: Final = re.compile(
    r"bit|group|scale|dtype|type|format|block|zero|sym|algo|quant|pack|spars|module|layer|exclu|ignor|skip|expert|kv"
    r"|cache|rank|lora|rotat|outlier|codebook|embed|head|mixed|precision|weight|target|convert|vector|resid|shape"
)


def read_quantization(config: Config) -> QuantizationPlan | None:
    """The quantisation of a checkpoint, or None where it has none.

    The config's own `quantization_config` counts before one nested in its text config, and both before the sidecar, as
    engines read them.

    Raises:
        SpecError: A field is missing or invalid.
        UnsupportedModelError: A dialect or a field is not understood.
    """
    config.ignore("quantization_config", "compression_config")
    places = [config]
    for name in TEXT_CONFIGS:
        if isinstance(config.data.get(name), Mapping):
            places.append(config.nested(name))
            places[-1].ignore("quantization_config", "compression_config")
    for place in places:
        for name in ("quantization_config", "compression_config"):
            data = place.data.get(name)
            if data is None or data == {}:
                continue
            if not isinstance(data, Mapping):
                raise place.error(name, f"must be an object, not {type(data).__name__}")
            quant = Config(data, source=place.source, parent=place, path=place.field(name))
            plan = _read(quant, config)
            _tell_sidecar(plan, config)
            return plan
    if config.sidecar is not None:
        return _read(Config(config.sidecar, source="hf_quant_config.json", parent=config), config)
    return None


def _tell_sidecar(plan: QuantizationPlan, config: Config) -> None:
    """Warn where only the sidecar asks for a quantised cache: engines that read `config.json` alone won't have one."""
    inner = config.sidecar.get("quantization") if config.sidecar is not None else None
    algorithm = inner.get("kv_cache_quant_algo") if isinstance(inner, Mapping) else None
    if plan.kv_dtype is None and isinstance(algorithm, str) and algorithm.lower() not in {"", "none"}:
        config.warnings.append(
            f"hf_quant_config.json asks for a {algorithm[:20]} cache and {config.source} does not: vLLM reads the latter"
        )


def _read(quant: Config, config: Config) -> QuantizationPlan:
    method = _method(quant)
    entry = METHODS.get(method)
    if entry is None:
        near = difflib.get_close_matches(method, METHODS, n=1, cutoff=0.6)
        msg = f"{quant.source}: {quant.field('quant_method')}: {method!r} is not a quantisation that kvplan knows"
        raise UnsupportedModelError(msg, hint=f"nearest known: {near[0]!r}" if near else "give dtype as an override")
    module, function = entry
    reader = cast("Reader", getattr(importlib.import_module(f"{__package__}.{module}"), function))
    plan = reader(quant, config)
    quant.ignore(*_HARMLESS)
    for owner, name, value in quant.unread():
        if value is None or value is False or value in ("", "none", [], {}):
            continue
        if not _SMELLS.search(name):
            config.warnings.append(f"{owner.field(name)}: not understood, taken as harmless")
            continue
        msg = f"{owner.source}: {owner.field(name)}: not understood for quant_method {method!r}"
        near_name = owner.nearest(name)
        raise UnsupportedModelError(msg, hint=f"did you mean {near_name!r}?" if near_name else None)
    config.warnings.extend(plan.warnings)
    return plan


def _method(quant: Config) -> str:
    """The dialect: what the config says, or what gives it away (modelopt and bitsandbytes leave it out)."""
    method = quant.string("quant_method")
    if method is not None:
        return "modelopt" if method.lower() == "modelopt" else method.lower()
    if quant.has("quant_algo") or quant.has("quantization"):
        return "modelopt"
    if quant.has("load_in_4bit") or quant.has("load_in_8bit"):
        return "bitsandbytes"
    if quant.has("config_groups"):
        return "compressed-tensors"
    if quant.has("global_quant_config"):
        return "quark"
    raise quant.error("quant_method", "is missing", hint="kvplan reads the dialect from it")
