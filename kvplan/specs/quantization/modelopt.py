"""NVIDIA ModelOpt: FP8, NVFP4, MIXED_PRECISION and others, in `config.json` or beside it in `hf_quant_config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kvplan.core.dtypes import FORMATS, Format, integer_format
from kvplan.specs.huggingface.config import Config
from kvplan.specs.quantization.names import NameList
from kvplan.specs.quantization.plan import QuantizationPlan, Rule
from kvplan.specs.quantization.reading import name_list, read_kv_scheme, refused, where

#: `quant_algo` → format where the group size changes nothing.
_FIXED: Final[dict[str, Format]] = {
    "FP8": FORMATS["fp8_static"],
    "FP8_PER_CHANNEL_PER_TOKEN": FORMATS["fp8_channel"],
    "FP8_PB_REAL": FORMATS["fp8_block"],
    "FP8_PB_WO": FORMATS["fp8_block"],
    "MXFP8": FORMATS["mxfp8"],
    "MXFP4": FORMATS["mxfp4"],
    "W4A8_MXFP4_FP8": FORMATS["mxfp4"],
    "W8A8_SQ_PER_CHANNEL": FORMATS["w8a8"],
    "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN": FORMATS["w8a8"],
    "INT8_SQ": FORMATS["w8a8"],
    "W8A16": FORMATS["int8"],
    "W8A16_GPTQ": FORMATS["int8"],
}
_NVFP4: Final = frozenset({"NVFP4", "NVFP4_AWQ", "W4A8_NVFP4_FP8", "NVFP4_SVDQUANT", "W4A16_NVFP4"})
_INT4: Final = {"W4A16": False, "W4A16_AWQ": False, "W4A8_AWQ": False, "INT4_AWQ": False, "W4A16_GPTQ": True}


def modelopt(quant: Config, _config: Config) -> QuantizationPlan:
    """ModelOpt: every linear layer that no exclusion names, towers included, in the format of `quant_algo`.

    The head stays unless `quantized_layers` names it: ModelOpt never quantises it by default, and engines do not either.

    `MIXED_PRECISION` lists each module in `quantized_layers` (or in the targets of `config_groups`).
    """
    quant.ignore("quant_method", "producer", "quant_type")
    body = quant.nested("quantization") if isinstance(quant.data.get("quantization"), Mapping) else quant
    algo = (body.string("quant_algo") or "").upper()
    ignore = name_list(body, "exclude_modules", "ignore")
    kv_dtype = read_kv_scheme(body, "kv_cache_scheme", "kv_cache_quant_algo")
    group = body.optional_integer("group_size", maximum=65_536)
    body.ignore(
        "has_zero_point", "pre_quant_scale", "config_groups", "smoothquant_val", "clamp_val", "use_meta_recipe",
        "pre_quant_scales", "quantized_layers", "awq_block_size", "producer", "kv_cache_group_size",
    )  # fmt: skip
    if algo in {"", "NONE", "NO_QUANT"}:
        if kv_dtype is None:
            raise body.error("quant_algo", "is missing")
        return QuantizationPlan(name="modelopt", rules=(), ignore=ignore, kv_dtype=kv_dtype)
    if algo == "MIXED_PRECISION":
        rules = _mixed(body, group)
    else:
        rules = (Rule(format=algorithm_format(algo, group, body), linears=True, towers=True),)
    return QuantizationPlan(name="modelopt", rules=rules, ignore=ignore, kv_dtype=kv_dtype)


def algorithm_format(algo: str, group: int | None, body: Config) -> Format:
    """The stored format of a `quant_algo`.

    Raises:
        UnsupportedModelError: An algorithm that is not understood.
    """
    if algo in _FIXED:
        return _FIXED[algo]
    if algo in _NVFP4:
        base = FORMATS["nvfp4_w4a16" if algo == "W4A16_NVFP4" else "nvfp4"]
        if group in (None, base.block_in):
            return base
        return replace(base, id=f"{base.id}_g{group}", block_in=group)
    if algo in _INT4:
        return integer_format("int", bits=4, group_size=group or 128, zero_bits=4 if _INT4[algo] else 0)
    raise refused(body, "quant_algo", f"{algo!r} is not a ModelOpt algorithm that kvplan knows")


def _mixed(body: Config, group: int | None) -> tuple[Rule, ...]:
    """One rule per format, each with the modules that `quantized_layers` lists for it."""
    layers = body.raw("quantized_layers")
    if not isinstance(layers, Mapping) or not layers:
        raise body.error("quantized_layers", "must be an object of module names for MIXED_PRECISION")
    by_algorithm: dict[tuple[str, int | None], list[str]] = {}
    for name, settings in layers.items():
        if not isinstance(settings, Mapping) or not isinstance(settings.get("quant_algo"), str):
            raise body.error("quantized_layers", f"{name}: quant_algo is missing")
        size = settings.get("group_size", group)
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= 65_536):  # noqa: PLR2004
            raise body.error("quantized_layers", f"{name}: group_size must be a positive integer")
        by_algorithm.setdefault((settings["quant_algo"].upper(), size), []).append(name)
    return tuple(
        Rule(
            format=algorithm_format(algo, size if algo in _NVFP4 or algo in _INT4 else None, body),
            names=NameList(names, where=where(body, "quantized_layers")),
        )
        for (algo, size), names in by_algorithm.items()
    )
