"""The compressed-tensors dialect (llm-compressor, Red Hat, Kimi): groups of targets, each with its number format."""

from __future__ import annotations

from typing import Final

from kvplan.core.dtypes import FORMATS, Format, integer_format
from kvplan.specs.huggingface.config import Config
from kvplan.specs.quantization.floats import is_routed
from kvplan.specs.quantization.names import NameList
from kvplan.specs.quantization.plan import QuantizationPlan, Rule
from kvplan.specs.quantization.reading import name_list, read_kv_scheme, refused, where

#: Class names in `targets` that stand for every linear layer, for experts, and for modules without weights to store.
_LINEAR_CLASSES: Final = frozenset({"Linear", "LinearBase", "ColumnParallelLinear", "RowParallelLinear"})
_EXPERT_CLASSES: Final = frozenset({"FusedMoE", "MoE", "Experts"})
_FORMATS: Final = frozenset(
    {
        "dense", "float-quantized", "naive-quantized", "int-quantized", "pack-quantized", "nvfp4-pack-quantized",
        "mxfp4-pack-quantized", "mxfp8-quantized", "mxfp8", "mixed-precision", "mixed_precision",
    }
)  # fmt: skip
_MX_GROUP: Final = 32
_NV_GROUP: Final = 16


def compressed_tensors(quant: Config, _config: Config) -> QuantizationPlan:
    """compressed-tensors: `config_groups` with targets (class names, module names, `re:` regexes) and an `ignore` list."""
    fmt = quant.string("format", default="dense")
    if fmt not in _FORMATS:
        raise refused(quant, "format", f"{fmt!r} is not understood for compressed-tensors")
    _check_sparsity(quant)
    quant.ignore(
        "quantization_status",
        "global_compression_ratio",
        "run_compressed",
        "transform_config",
        "use_optimized_inference",
    )
    groups = quant.optional_nested("config_groups")
    rules: list[Rule] = []
    for name in list(groups.data) if groups is not None else ():
        rule = _group_rule(groups, name) if groups is not None else None
        if rule is not None:
            rules.append(rule)
    rules.sort(key=lambda rule: rule.names is None)  # names say more than classes
    ignore = name_list(quant, "ignore")
    kv_dtype = read_kv_scheme(quant, "kv_cache_scheme")
    return QuantizationPlan(name="compressed-tensors", rules=tuple(rules), ignore=ignore, kv_dtype=kv_dtype)


def _check_sparsity(quant: Config) -> None:
    sparsity = quant.optional_nested("sparsity_config")
    if sparsity is None:
        return
    fmt = sparsity.string("format", default="dense")
    sparsity.ignore(*sparsity.data)
    if fmt != "dense":
        raise refused(quant, "sparsity_config", f"{fmt!r} (sparse weights) is not understood")


def _group_rule(groups: Config, name: str) -> Rule | None:
    if isinstance(groups.data.get(name), list):  # a preset name with targets: {"W8A8": ["Linear"]}
        raise refused(groups, name, "preset schemes are not understood; spell the group out")
    group = groups.nested(name)
    targets = group.strings("targets") or ("Linear",)
    group.ignore("output_activations", "format")
    inputs = group.optional_nested("input_activations")
    weights = group.optional_nested("weights")
    if weights is None:
        return None  # a group for the cache or for activations alone
    fmt = weight_format(weights, inputs)
    names = [t for t in targets if t.startswith("re:") or "." in t or t.islower()]
    classes = [t for t in targets if t not in names]
    linears = any(t in _LINEAR_CLASSES for t in classes)
    experts = any(t in _EXPERT_CLASSES for t in classes)
    unknown = [t for t in classes if t not in _LINEAR_CLASSES and t not in _EXPERT_CLASSES]
    if unknown:
        raise refused(group, "targets", f"{unknown[0]!r} is not understood")
    return Rule(
        format=fmt,
        names=NameList(names, where=where(group, "targets")) if names else None,
        linears=linears or experts,
        head=linears,
        towers=linears,
        only=None if linears else is_routed,
    )


def weight_format(weights: Config, inputs: Config | None) -> Format:
    """The stored format of a group.

    Args:
        weights: Its `weights`: `num_bits`, `type`, `strategy`, `group_size`, `block_structure`, `symmetric`, `actorder`.
        inputs: Its `input_activations`, or None where activations stay 16-bit.

    Raises:
        UnsupportedModelError: A combination that is not understood.
    """
    bits, kind = weights.integer("num_bits", maximum=16), weights.string("type", default="int")
    group = weights.optional_integer("group_size", minimum=-1, maximum=1_000_000)
    group = None if group is not None and group < 1 else group
    strategy = weights.string("strategy", default="group" if group else "tensor")
    block = weights.optional_integers("block_structure", minimum=1)
    symmetric = weights.boolean("symmetric", default=True)
    actorder = weights.raw("actorder")
    scale_dtype = weights.string("scale_dtype")
    weights.ignore("dynamic", "observer", "observer_kwargs", "zp_dtype", "is_mx")
    input_bits, input_kind, static = _inputs(inputs)
    match kind, bits:
        case "float", 8:
            return _fp8(weights, strategy, group, block, static=static, quantised=input_bits == 8)  # noqa: PLR2004
        case "float", 4:
            return _fp4(weights, group or _NV_GROUP, scale_dtype, weight_only=input_bits is None or input_bits > 8)  # noqa: PLR2004
        case "int", n if n in range(2, 9):
            compute = "int8" if n <= 8 and input_bits == 8 and input_kind == "int" else None  # noqa: PLR2004
            if strategy == "tensor":
                return Format(id=f"int{n}_tensor", element_bits=n, compute=compute, tensor_bits=32)
            columns = group if strategy == "group" else None
            return integer_format(
                "w8a8_int" if compute else "int",
                bits=n,
                group_size=columns,
                zero_bits=0 if symmetric else n,
                input_bits=32 if actorder in ("group", True) else 0,
                compute=compute,
            )
        case _:
            raise refused(weights, "num_bits", f"{bits}-bit {kind} is not understood")


def _inputs(inputs: Config | None) -> tuple[int | None, str | None, bool]:
    if inputs is None:
        return None, None, False
    bits, kind = inputs.integer("num_bits", maximum=16), inputs.string("type", default="int")
    static = not inputs.boolean("dynamic", default=False) if isinstance(inputs.data.get("dynamic"), bool) else False
    inputs.ignore(*inputs.data)
    return bits, kind, static


def _fp8(
    weights: Config,
    strategy: str | None,
    group: int | None,
    block: tuple[int, ...] | None,
    *,
    static: bool,
    quantised: bool,
) -> Format:
    compute = "fp8" if quantised else None
    match strategy:
        case "tensor":
            base = FORMATS["fp8_static" if static else "fp8"]
            return base if quantised else Format(id="fp8_w8a16", element_bits=8, compute=None, tensor_bits=32)
        case "channel":
            return Format(id="fp8_channel16", element_bits=8, compute=compute, block_out=1, scale_bits=16)
        case "block":
            if block is None or len(block) != 2:  # noqa: PLR2004 - rows and columns
                raise weights.error("block_structure", "must be two integers, rows and columns of a block")
            return Format(
                id=f"fp8_block_{block[0]}x{block[1]}", element_bits=8, compute=compute, block_out=block[0],
                block_in=block[1], scale_bits=16,
            )  # fmt: skip
        case "group" | "tensor_group":
            if group == _MX_GROUP:
                return FORMATS["mxfp8"]
            return Format(
                id=f"fp8_g{group}", element_bits=8, compute=compute, block_out=1, block_in=group, scale_bits=16
            )
        case _:
            raise refused(weights, "strategy", f"{strategy!r} is not understood for fp8 weights")


def _fp4(weights: Config, group: int, scale_dtype: str | None, *, weight_only: bool) -> Format:
    """NVFP4 (groups of 16, fp8 scale, fp32 per tensor) or MXFP4 (groups of 32, power-of-two scale)."""
    if group == _NV_GROUP:
        return FORMATS["nvfp4_w4a16" if weight_only else "nvfp4"]
    if group == _MX_GROUP and scale_dtype in (None, "uint8", "torch.uint8", "float8_e8m0fnu", "torch.float8_e8m0fnu"):
        return FORMATS["mxfp4"]
    raise refused(weights, "group_size", f"groups of {group} are not understood for 4-bit floats")
