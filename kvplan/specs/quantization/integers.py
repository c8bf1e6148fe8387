"""Dialects of integer weights: AWQ, GPTQ, AutoRound, bitsandbytes, HQQ, EETQ, AQLM, BitNet and others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvplan.core.dtypes import FORMATS, Format, integer_format
from kvplan.specs.huggingface.config import Config
from kvplan.specs.quantization.names import NameList
from kvplan.specs.quantization.plan import QuantizationPlan, Rule
from kvplan.specs.quantization.reading import name_list, refused, where

_GPTQ_BITS: Final = frozenset({2, 3, 4, 5, 6, 7, 8})
_MOST_RULES: Final = 100_000
#: AutoRound's `data_type` → format; None is integers packed as GPTQ does.
_ROUNDED: Final[dict[str | None, Format | None]] = {
    "int": None,
    "mx_fp": FORMATS["mxfp4"],
    "mxfp4": FORMATS["mxfp4"],
    "mx_fp4": FORMATS["mxfp4"],
    "nv_fp": FORMATS["nvfp4"],
    "nv_fp4": FORMATS["nvfp4"],
    "nvfp4": FORMATS["nvfp4"],
}


def _bits(quant: Config, *names: str, allowed: frozenset[int] = _GPTQ_BITS, default: int | None = None) -> int:
    bits = quant.integer(*names, default=default, maximum=16)
    if bits not in allowed:
        raise quant.error(names[0], f"must be one of {', '.join(map(str, sorted(allowed)))}, not {bits}")
    return bits


def _group(quant: Config, *names: str, default: int | None = None) -> int | None:
    """Inputs per scale; -1 stands for the whole row (None)."""
    size = quant.integer(*names, default=default, minimum=-1, maximum=1_000_000)
    if size == 0:
        raise quant.error(names[0], "must be -1 or at least 1, not 0")
    return None if size < 0 else size


def _children(quant: Config, name: str) -> Iterator[tuple[Config, str]]:
    """The nested config of this name with each of its fields, or nothing where it is missing."""
    child = quant.optional_nested(name)
    if child is not None:
        for key in list(child.data)[:_MOST_RULES]:
            yield child, key


def awq(quant: Config, _config: Config) -> QuantizationPlan:
    """AWQ: packed integers, one fp16 scale and one packed zero point per row and group."""
    if quant.data.get("autoround_version") or quant.data.get("packing_format"):
        return auto_round(quant, _config)
    bits = _bits(quant, "bits", "w_bit", allowed=frozenset({4, 8}))
    group = _group(quant, "group_size", "q_group_size")
    zeros = bits if quant.boolean("zero_point", default=True) else 0
    quant.ignore(
        "do_fuse", "fuse_max_seq_len", "exllama_config", "modules_to_fuse", "sym", "format", "desc_act", "lm_head"
    )
    quant.ignore("pack_method", "checkpoint_format", "static_groups", "dataset", "damp_percent", "block_size")
    fmt = FORMATS["awq"] if (bits, group, zeros) == (4, 128, 4) else None
    fmt = fmt or integer_format("awq", bits=bits, group_size=group, zero_bits=zeros)
    ignore = name_list(quant, "modules_to_not_convert")
    return QuantizationPlan(name="awq", rules=(Rule(format=fmt, linears=True),), ignore=ignore)


def _gptq_format(bits: int, group: int | None, *, desc_act: bool) -> Format:
    if (bits, group, desc_act) == (4, 128, False):
        return FORMATS["gptq"]
    return integer_format("gptq", bits=bits, group_size=group, zero_bits=bits, input_bits=32 if desc_act else 0)


def gptq(quant: Config, _config: Config) -> QuantizationPlan:
    """GPTQ: packed integers, one fp16 scale and one packed zero point (stored also when symmetric) per row and group.

    `g_idx` (4 bytes per input) counts only with `desc_act`: engines drop it otherwise. GPTQModel's `dynamic` rules are
    regexes on module names that except modules (`-:`) or change bits and group (`+:`).
    """
    bits, group = _bits(quant, "bits"), _group(quant, "group_size", default=128)
    desc_act = quant.boolean("desc_act", default=False)
    head = quant.boolean("lm_head", default=False)
    quant.ignore(
        "damp_percent", "damp_auto_increment", "static_groups", "sym", "true_sequential", "model_name_or_path", "tokenizer",
        "model_file_base_name", "is_marlin_format", "checkpoint_format", "format", "dataset", "batch_size", "cache_block_outputs",
        "model_seqlen", "block_name_to_quantize", "module_name_preceding_first_block", "pad_token_id", "max_input_length",
        "use_cuda_fp16", "use_exllama", "exllama_config", "disable_exllama", "pack_dtype", "hyb_act", "act_group_aware",
        "parallel_packing", "mse", "rotation", "gptaq", "gptaq_alpha", "gptaq_memory_device", "v2", "v2_alpha", "adapter",
        "fused_scheme", "use_triton", "inject_fused_attention", "offload_to_disk", "offload_to_disk_path", "foem",
        "compute_device_filter", "failsafe", "vram_strategy", "moe", "process", "hessian", "bits_dynamic",
    )  # fmt: skip
    base = _gptq_format(bits, group, desc_act=desc_act)
    rules = [*_dynamic_rules(quant, bits, group, desc_act=desc_act), Rule(format=base, linears=True, head=head)]
    inside = quant.raw("modules_in_block_to_quantize")
    if inside is not None:
        rules[-1] = Rule(format=base, names=_module_names(quant, "modules_in_block_to_quantize", inside))
    return QuantizationPlan(name="gptq", rules=tuple(rules), ignore=name_list(quant, "modules_to_not_convert"))


def _module_names(quant: Config, name: str, value: object) -> NameList:
    """Names from a list of lists."""
    flat = (
        [item for part in value for item in (part if isinstance(part, list) else [part])]
        if isinstance(value, list)
        else [None]
    )
    if not all(isinstance(item, str) for item in flat):
        raise quant.error(name, "must be a list of lists of module names")
    return NameList((str(item) for item in flat), where=where(quant, name))


def _dynamic_rules(quant: Config, bits: int, group: int | None, *, desc_act: bool) -> list[Rule]:
    dynamic = quant.optional_nested("dynamic")
    if dynamic is None:
        return []
    rules: list[Rule] = []
    for pattern in list(dynamic.data)[:_MOST_RULES]:
        names = NameList([f"re:{pattern.removeprefix('-:').removeprefix('+:')}"], where=where(quant, "dynamic"))
        if pattern.startswith("-:"):
            dynamic.ignore(pattern)
            rules.append(Rule(format=None, names=names))
            continue
        change = dynamic.nested(pattern)
        own_bits = _bits(change, "bits", default=bits) if change.has("bits") else bits
        own_group = _group(change, "group_size") if change.has("group_size") else group
        own_act = change.boolean("desc_act", default=desc_act)
        change.ignore("sym", "mse", "damp_percent", "static_groups", "true_sequential")
        rules.append(Rule(format=_gptq_format(own_bits, own_group, desc_act=own_act), names=names))
    return rules


def auto_round(quant: Config, _config: Config) -> QuantizationPlan:
    """Intel AutoRound: packed as GPTQ or AWQ does; `extra_config` changes or excepts modules by name or regex."""
    data_type = quant.string("data_type", default="int")
    if data_type not in _ROUNDED:
        raise refused(quant, "data_type", f"{data_type!r} is not understood for auto-round")
    floating = _ROUNDED[data_type]
    bits, group = _bits(quant, "bits", default=4), _group(quant, "group_size", default=128)
    quant.ignore(
        "sym", "packing_format", "autoround_version", "block_name_to_quantize", "to_quant_block_names", "batch_size", "iters",
        "nsamples", "seqlen", "low_gpu_mem_usage", "lr", "minmax_lr", "gradient_accumulate_steps", "enable_quanted_input",
        "enable_minmax_tuning", "amp", "quant_nontext_module", "act_bits", "act_dynamic", "act_group_size", "act_sym",
        "act_data_type", "super_bits", "super_group_size", "scale_dtype", "enable_norm_bias_tuning", "not_use_best_mse",
        "dynamic_max_gap", "supported_types", "lr_scheduler", "damp_percent", "desc_act", "true_sequential", "device", "format",
        "momentum", "enable_alg_ext", "model_free", "scale_format", "static_kv_dtype", "static_attention_dtype", "zero_point", "disable_opt_rtn",
    )  # fmt: skip
    rules = [Rule(format=floating or _gptq_format(bits, group, desc_act=False), linears=True)]
    by_format: dict[Format, list[str]] = {}
    keep: list[str] = []
    for extra, name in _children(quant, "extra_config"):
        change = extra.nested(name)
        own = change.integer("bits", default=bits, maximum=32) if change.has("bits") else bits
        own_group = _group(change, "group_size") if change.has("group_size") else group
        change.ignore(*change.data)
        pattern = f"re:{name}" if any(c in name for c in "*^$\\|[") else name
        if own >= 16:  # noqa: PLR2004 - not quantised
            keep.append(pattern)
        else:
            fmt = floating if floating and own == bits else _gptq_format(own, own_group, desc_act=False)
            by_format.setdefault(fmt, []).append(pattern)
    exceptions = [
        Rule(format=fmt, names=NameList(names, where=where(quant, "extra_config"))) for fmt, names in by_format.items()
    ]
    skipped = NameList(keep, where=where(quant, "extra_config")) if keep else None
    listed = name_list(quant, "modules_to_not_convert")
    if listed is not None:
        exceptions.insert(0, Rule(format=None, names=listed))
    return QuantizationPlan(name="auto-round", rules=(*exceptions, *rules), ignore=skipped)


def bitsandbytes(quant: Config, _config: Config) -> QuantizationPlan:
    """bitsandbytes: 4 bits with one absolute maximum per 64 (itself quantised with double quantisation), or int8 rows.

    Every linear layer but the head, towers included, unless `llm_int8_skip_modules` names it.
    """
    eight = quant.boolean("load_in_8bit", default=False) | quant.boolean("_load_in_8bit", default=False)
    four = quant.boolean("load_in_4bit", default=False) | quant.boolean("_load_in_4bit", default=False)
    kind = quant.string("bnb_4bit_quant_type", default="fp4")
    double = quant.boolean("bnb_4bit_use_double_quant", default=False)
    skip = name_list(quant, "llm_int8_skip_modules", "modules_to_not_convert")
    quant.ignore(
        "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "llm_int8_enable_fp32_cpu_offload", "llm_int8_threshold",
        "llm_int8_has_fp16_weight", "bnb_4bit_blocksize",
    )  # fmt: skip
    if eight == four:
        raise quant.error("load_in_4bit", "exactly one of load_in_4bit and load_in_8bit must be true")
    if four and kind not in {"nf4", "fp4"}:
        raise quant.error("bnb_4bit_quant_type", f"must be nf4 or fp4, not {kind!r}")
    fmt = FORMATS["llm_int8"] if eight else FORMATS["nf4_double" if double else "nf4"]
    if four and kind == "fp4":
        fmt = replace(fmt, id=fmt.id.replace("nf4", "bnb_fp4"))
    rule = Rule(format=fmt, linears=True, towers=True)
    return QuantizationPlan(name="bitsandbytes", rules=(rule,), ignore=skip)


def eetq(quant: Config, _config: Config) -> QuantizationPlan:
    """EETQ: int8 with one fp16 scale per row."""
    weights = quant.string("weights", default="int8")
    if weights != "int8":
        raise quant.error("weights", f"must be int8, not {weights!r}")
    rule = Rule(format=FORMATS["int8"], linears=True)
    return QuantizationPlan(name="eetq", rules=(rule,), ignore=name_list(quant, "modules_to_not_convert"))


def hqq(quant: Config, _config: Config) -> QuantizationPlan:
    """HQQ: packed integers with an fp16 scale and an fp16 zero per group; layers may have settings of their own."""
    skip = name_list(quant, "skip_modules")
    inner = quant.optional_nested("quant_config")
    quant.ignore("weight_quant_params_offload", "axis", "view_as_float")
    if inner is None:
        return QuantizationPlan(name="hqq", rules=(Rule(format=_hqq_format(quant), linears=True),), ignore=skip)
    if "weight_quant_params" in inner.data:
        params = inner.nested("weight_quant_params")
        inner.ignore("scale_quant_params", "zero_quant_params", "offload_meta")
        return QuantizationPlan(name="hqq", rules=(Rule(format=_hqq_format(params), linears=True),), ignore=skip)
    rules: list[Rule] = []
    for name in list(inner.data)[:_MOST_RULES]:
        layer = inner.nested(name)
        params = layer.nested("weight_quant_params") if "weight_quant_params" in layer.data else layer
        layer.ignore("scale_quant_params", "zero_quant_params", "offload_meta")
        rules.append(Rule(format=_hqq_format(params), names=NameList([name], where=where(quant, "quant_config"))))
    return QuantizationPlan(name="hqq", rules=tuple(rules), ignore=skip)


def _hqq_format(params: Config) -> Format:
    bits = _bits(params, "nbits", "bits", allowed=frozenset({1, 2, 3, 4, 8}), default=4)
    group = _group(params, "group_size", default=64)
    params.ignore("channel_wise", "optimize", "round_zero", "axis", "view_as_float", "offload_meta")
    return integer_format("hqq", bits=bits, group_size=group, zero_bits=16)


def aqlm(quant: Config, _config: Config) -> QuantizationPlan:
    """AQLM: additive codes per group of weights, one fp16 scale per group of rows, codebooks per matrix."""
    books = quant.integer("num_codebooks", default=1, maximum=64)
    bits = quant.integer("nbits_per_codebook", default=16, maximum=32)
    group_in = quant.integer("in_group_size", default=8, maximum=4096)
    group_out = quant.integer("out_group_size", default=1, maximum=4096)
    fmt = Format(
        id=f"aqlm_{books}x{bits}",
        element_bits=books * bits / (group_in * group_out),
        compute=None,
        block_out=group_out,
        scale_bits=16,
        tensor_bits=16 * books * 2**bits * group_in * group_out,
    )
    skip = name_list(quant, "linear_weights_not_to_quantize")
    return QuantizationPlan(name="aqlm", rules=(Rule(format=fmt, linears=True),), ignore=skip)


def bitnet(quant: Config, _config: Config) -> QuantizationPlan:
    """BitNet: ternary weights packed four to a byte, one scale per matrix."""
    mode = quant.string("quantization_mode", default="offline")
    if mode != "offline":
        raise refused(quant, "quantization_mode", f"{mode!r} is not understood")
    quant.ignore("linear_class", "use_rms_norm", "rms_norm_eps")
    fmt = Format(id="bitnet", element_bits=2, compute=None, tensor_bits=16)
    rule = Rule(format=fmt, linears=True)
    return QuantizationPlan(name="bitnet", rules=(rule,), ignore=name_list(quant, "modules_to_not_convert"))


def metal(quant: Config, _config: Config) -> QuantizationPlan:
    """Affine quantisation for Apple GPUs (MLX): packed integers with a 16-bit scale and bias per group."""
    bits = _bits(quant, "bits", allowed=frozenset({2, 4, 8}), default=4)
    fmt = integer_format("affine", bits=bits, group_size=_group(quant, "group_size", default=64), zero_bits=16)
    rule = Rule(format=fmt, linears=True)
    return QuantizationPlan(name="metal", rules=(rule,), ignore=name_list(quant, "modules_to_not_convert"))


def w8a8_int8(quant: Config, _config: Config) -> QuantizationPlan:
    """Int8 weights and activations, one fp32 scale per row (SGLang's `w8a8_int8`)."""
    rule = Rule(format=FORMATS["w8a8"], linears=True)
    return QuantizationPlan(
        name="w8a8", rules=(rule,), ignore=name_list(quant, "modules_to_not_convert", "ignore", "ignored_layers")
    )


def gemma(quant: Config, _config: Config) -> QuantizationPlan:
    """Gemma's quantisation-aware checkpoints: integers of 2, 4 or 8 bits with one scale per row, by module regex.

    Raises:
        UnsupportedModelError: Embeddings are quantised too (their scales are not documented).
    """
    allowed = frozenset({2, 4, 8})
    base = _bits(quant, "num_bits", allowed=allowed, default=4)
    if quant.boolean("quantize_embeddings", default=False):
        raise refused(quant, "quantize_embeddings", "quantised embeddings are not understood")
    rules: list[Rule] = []
    for own, pattern in _children(quant, "module_quant_configs"):
        change = own.nested(pattern)
        bits = _bits(change, "num_bits", allowed=allowed, default=base)
        names = NameList([f"re:.*?(?:{pattern})"], where=where(quant, "module_quant_configs"))
        rules.append(Rule(format=integer_format("gemma", bits=bits), names=names))
    rules.append(Rule(format=integer_format("gemma", bits=base), linears=True))
    return QuantizationPlan(name="gemma", rules=tuple(rules), ignore=name_list(quant, "modules_to_not_convert"))
