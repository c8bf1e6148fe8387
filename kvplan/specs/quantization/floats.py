"""Dialects of floating-point weights: fp8 (block and per tensor), fbgemm, mxfp4, mxfp8, nvfp4."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvplan.core.dtypes import FORMATS, Format
from kvplan.core.tensors import Tensor, TensorClass
from kvplan.specs.huggingface.config import Config
from kvplan.specs.quantization.names import NameList
from kvplan.specs.quantization.plan import QuantizationPlan, Rule
from kvplan.specs.quantization.reading import name_list, read_kv_scheme

_FP8: Final = frozenset({"e4m3", "e5m2", "float8_e4m3fn", "float8_e4m3", "float8_e5m2", "fp8", "e4m3fn"})
_MX_BLOCK: Final = (1, 32)
#: Projections that keep full precision whatever the list says (transformers 5.24, `_keep_in_fp32_modules` of DeepSeek-V4).
_WIDE: Final = NameList(
    ["compressor.kv_proj", "compressor.gate_proj", "indexer.kv_proj", "indexer.gate_proj", "scorer.weights_proj"],
    where="fp8",
)


def is_routed(tensor: Tensor) -> bool:
    """True for the matrices of routed experts."""
    return tensor.tensor_class is TensorClass.EXPERTS


def fp8(quant: Config, config: Config) -> QuantizationPlan:
    """FP8 as DeepSeek, Qwen, MiniMax and Mistral publish it: every linear layer of the decoder but the head.

    With `weight_block_size` one scale per block (fp32, or one byte with `scale_fmt: ue8m0`); without it one scale per
    tensor, and one for the input where `activation_scheme` is static. `expert_dtype: fp4` stores routed experts as
    MXFP4 (DeepSeek-V4). Towers stay 16-bit unless a list says what stays and does not name them.
    """
    fmt = quant.string("fmt", "weight_format", default="e4m3") or "e4m3"
    if fmt.lower() not in _FP8:
        raise quant.error("fmt", f"must be an fp8 format, not {fmt!r}")
    scheme = quant.string("activation_scheme", default="dynamic")
    if scheme not in {"dynamic", "static"}:
        raise quant.error("activation_scheme", f"must be dynamic or static, not {scheme!r}")
    base = _fp8_format(quant, static=scheme == "static")
    ignore = name_list(quant, "modules_to_not_convert", "ignored_layers", "ignore")
    rules = [Rule(format=None, names=_WIDE), Rule(format=base, linears=True)]
    convert = name_list(quant, "modules_to_convert")
    if convert is not None:
        rules.insert(1, Rule(format=base, names=convert))
    experts = quant.string("expert_dtype") or config.string("expert_dtype") or "fp8"
    if experts not in {"fp8", "fp4"}:
        raise config.error("expert_dtype", f"must be fp8 or fp4, not {experts!r}")
    if experts == "fp4":
        rules.insert(1, Rule(format=FORMATS["mxfp4"], linears=True, only=is_routed))
    return QuantizationPlan(
        name="fp8", rules=tuple(rules), ignore=ignore, kv_dtype=read_kv_scheme(quant, "kv_cache_scheme")
    )


def _fp8_format(quant: Config, *, static: bool) -> Format:
    one_byte = quant.string("scale_fmt", default="float") == "ue8m0"
    block = quant.optional_integers("weight_block_size", minimum=1)
    per_channel = bool(quant.boolean("weight_per_channel", "per_channel", default=False))
    if block is None:
        if per_channel:
            return FORMATS["fp8_channel"]
        return FORMATS["fp8_static" if static else "fp8"]
    if len(block) != 2 or any(size > 1_000_000 for size in block):  # noqa: PLR2004 - rows and columns
        raise quant.error("weight_block_size", "must be two integers, rows and columns of a block")
    if tuple(block) == _MX_BLOCK and one_byte:
        return FORMATS["mxfp8"]
    base = FORMATS["fp8_block_e8m0" if one_byte else "fp8_block"]
    if (base.block_out, base.block_in) == tuple(block):
        return base
    return replace(base, id=f"{base.id}_{block[0]}x{block[1]}", block_out=block[0], block_in=block[1])


def fbgemm_fp8(quant: Config, _config: Config) -> QuantizationPlan:
    """FBGEMM FP8 (Llama-3.1-405B-FP8): one fp32 scale per row; attention and others stay where the list says so."""
    quant.ignore("activation_scale_ub", "modules_to_save")
    rule = Rule(format=FORMATS["fp8_channel"], linears=True)
    return QuantizationPlan(name="fbgemm_fp8", rules=(rule,), ignore=name_list(quant, "modules_to_not_convert"))


def mxfp4(quant: Config, _config: Config) -> QuantizationPlan:
    """MXFP4 as gpt-oss publishes it: matrices of routed experts at 4 bits and one byte per 32; all else stays."""
    rule = Rule(format=FORMATS["mxfp4"], linears=True, only=is_routed)
    return QuantizationPlan(
        name="mxfp4", rules=(rule,), ignore=name_list(quant, "modules_to_not_convert", "ignored_layers")
    )


def mxfp8(quant: Config, _config: Config) -> QuantizationPlan:
    """MXFP8: 8 bits and one byte per 32 on every linear layer of the decoder but the head."""
    quant.ignore("weight_block_size", "scale_fmt", "activation_scheme", "fmt")
    rule = Rule(format=FORMATS["mxfp8"], linears=True)
    return QuantizationPlan(
        name="mxfp8", rules=(rule,), ignore=name_list(quant, "modules_to_not_convert", "ignored_layers", "ignore")
    )


def nvfp4(quant: Config, _config: Config) -> QuantizationPlan:
    """NVFP4 as transformers makes it when it loads: every linear layer of the decoder but the head."""
    rule = Rule(format=FORMATS["nvfp4"], linears=True)
    return QuantizationPlan(name="nvfp4", rules=(rule,), ignore=name_list(quant, "modules_to_not_convert"))


def w8a8_fp8(quant: Config, _config: Config) -> QuantizationPlan:
    """FP8 with one scale per row and dynamic inputs (SGLang's `w8a8_fp8`)."""
    rule = Rule(format=FORMATS["fp8_channel"], linears=True)
    return QuantizationPlan(
        name="fp8", rules=(rule,), ignore=name_list(quant, "modules_to_not_convert", "ignore", "ignored_layers")
    )
