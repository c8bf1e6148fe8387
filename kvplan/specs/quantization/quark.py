"""AMD Quark: a global scheme, schemes by module name or class, and exclusions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplan.core.dtypes import FORMATS, Format, integer_format
from kvplan.specs.huggingface.config import Config
from kvplan.specs.quantization.names import NameList
from kvplan.specs.quantization.plan import QuantizationPlan, Rule
from kvplan.specs.quantization.reading import name_list, refused, where

_FP8: Final = frozenset({"fp8_e4m3", "fp8_e5m2"})
_KV: Final = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "int8": "int8", "fp4": "nvfp4"}


def quark(quant: Config, _config: Config) -> QuantizationPlan:
    """Quark: `global_quant_config` for every linear layer, `layer_quant_config` by name or glob, `exclude` by both."""
    quant.ignore(
        "algo_config",
        "export",
        "pack_method",
        "quant_mode",
        "softmax_quant_spec",
        "log_severity_level",
        "group_size_merge",
    )
    rules: list[Rule] = []
    own = quant.optional_nested("layer_quant_config")
    for name in list(own.data) if own is not None else ():
        if own is not None:
            fmt = _scheme(own.nested(name))
            rules.append(Rule(format=fmt, names=NameList([name], where=where(quant, "layer_quant_config"))))
    by_class = quant.optional_nested("layer_type_quant_config")
    if by_class is not None and by_class.data:
        raise refused(quant, "layer_type_quant_config", "schemes by class are not understood")
    scheme = quant.optional_nested("global_quant_config")
    fmt = _scheme(scheme) if scheme is not None else None
    if fmt is not None:
        rules.append(Rule(format=fmt, linears=True, head=True, towers=True))
    return QuantizationPlan(name="quark", rules=tuple(rules), ignore=name_list(quant, "exclude"), kv_dtype=_kv(quant))


def _scheme(scheme: Config) -> Format | None:
    """The format of a scheme's weights, or None where it leaves them alone."""
    scheme.ignore("output_tensors", "bias", "target_device")
    inputs = scheme.raw("input_tensors")
    scheme.ignore("input_tensors")
    if isinstance(scheme.data.get("weight"), list):
        raise refused(scheme, "weight", "weights quantised twice are not understood")
    weight = scheme.optional_nested("weight")
    if weight is None:
        return None
    dtype = weight.string("dtype")
    group = weight.optional_integer("group_size", maximum=65_536)
    granularity = weight.string("qscheme", default="per_group" if group else "per_tensor")
    symmetric = weight.boolean("symmetric", default=True)
    scales = weight.string("scale_format")
    weight.ignore(*weight.data)
    static = isinstance(inputs, Mapping) and inputs.get("is_dynamic") is False
    quantised = isinstance(inputs, Mapping)
    if dtype in _FP8:
        match granularity:
            case "per_tensor":
                return FORMATS["fp8_static" if static else "fp8"]
            case "per_channel":
                return FORMATS["fp8_channel"]
            case "per_group" if group == 32 and scales == "e8m0":  # noqa: PLR2004 - MX block
                return FORMATS["mxfp8"]
    if dtype in {"fp4", "fp4_e2m1"} and granularity == "per_group" and group in {None, 32}:
        return FORMATS["mxfp4"]
    if dtype in {"int8", "int4", "uint4", "uint8"}:
        bits = 8 if dtype.endswith("8") else 4
        zero_bits = 0 if symmetric and dtype.startswith("int") else bits
        compute = "int8" if quantised and bits == 8 else None  # noqa: PLR2004
        size = group if granularity == "per_group" else None
        return integer_format("int", bits=bits, group_size=size, zero_bits=zero_bits, compute=compute)
    raise refused(weight, "dtype", f"{dtype!r} with {granularity!r} is not understood for quark")


def _kv(quant: Config) -> str | None:
    """The cache format of `kv_cache_quant_config`: that of the outputs of its key and value projections."""
    found: set[str] = set()
    cache = quant.optional_nested("kv_cache_quant_config")
    for name in list(cache.data) if cache is not None else ():
        entry = cache.nested(name) if cache is not None else None
        outputs = entry.data.get("output_tensors") if entry is not None else None
        if entry is not None:
            entry.ignore(*entry.data)
        if isinstance(outputs, Mapping):
            found.add(str(outputs.get("dtype")))
    if not found:
        return None
    if len(found) > 1 or next(iter(found)) not in _KV:
        raise refused(quant, "kv_cache_quant_config", f"{', '.join(sorted(found))} is not understood")
    return _KV[found.pop()]
