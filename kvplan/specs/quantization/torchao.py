"""torchao: one config class by name with its settings, in the old string form or the serialised one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kvplan.core.dtypes import FORMATS, Format, integer_format
from kvplan.specs.huggingface.config import Config
from kvplan.specs.quantization.plan import QuantizationPlan, Rule
from kvplan.specs.quantization.reading import name_list, refused

_DEFAULT_GROUPS: Final = {"int4_weight_only": 128, "int8_dynamic_activation_int4_weight": 32}


def torchao(quant: Config, _config: Config) -> QuantizationPlan:
    """torchao: every linear layer but the head.

    Raises:
        UnsupportedModelError: A config class that is not understood, or settings by module.
    """
    value = quant.raw("quant_type")
    settings: Mapping[str, Any] = {}
    if isinstance(value, Mapping):
        outer = quant.nested("quant_type")
        inner = outer.optional_nested("default")
        extra = [name for name in outer.data if name != "default"]
        if inner is None or extra:
            raise refused(quant, "quant_type", "settings by module are not understood for torchao")
        value = inner.string("_type")
        data = inner.raw("_data")
        inner.ignore("_data", "_version")
        settings = data if isinstance(data, Mapping) else {}
    elif quant.has("quant_type_kwargs"):
        kwargs = quant.raw("quant_type_kwargs")
        settings = kwargs if isinstance(kwargs, Mapping) else {}
    quant.ignore("quant_type_kwargs", "untie_embedding_weights")
    if not isinstance(value, str):
        raise quant.error("quant_type", "must name a torchao config")
    if quant.boolean("include_input_output_embeddings", default=False):
        raise refused(quant, "include_input_output_embeddings", "quantised embeddings are not understood for torchao")
    rule = Rule(format=_format(quant, value, settings), linears=True)
    return QuantizationPlan(name="torchao", rules=(rule,), ignore=name_list(quant, "modules_to_not_convert"))


def _snake(name: str) -> str:
    """`Int4WeightOnlyConfig` as `int4_weight_only`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Config")).lower()


def _format(quant: Config, name: str, settings: Mapping[str, Any]) -> Format:
    kind = _snake(name) if name[:1].isupper() else name
    group = settings.get("group_size", _DEFAULT_GROUPS.get(kind))
    if group is not None and (isinstance(group, bool) or not isinstance(group, int) or not 0 < group <= 65_536):  # noqa: PLR2004
        raise quant.error("quant_type", "group_size must be a positive integer")
    by_row = "row" in str(settings.get("granularity", "")).lower()
    match kind:
        case "int4_weight_only" | "int8_dynamic_activation_int4_weight":
            return integer_format("torchao", bits=4, group_size=group, zero_bits=16)
        case "int8_weight_only":
            return integer_format("int", bits=8, group_size=group)
        case "int8_dynamic_activation_int8_weight":
            return FORMATS["w8a8"]
        case "float8_weight_only":
            return Format(id="fp8_w8a16", element_bits=8, compute=None, block_out=1, scale_bits=32)
        case "float8_dynamic_activation_float8_weight" | "float8_static_activation_float8_weight":
            return FORMATS["fp8_channel" if by_row else "fp8"]
        case _:
            raise refused(quant, "quant_type", f"{name!r} is not a torchao config that kvplan knows")
