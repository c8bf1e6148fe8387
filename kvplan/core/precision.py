"""What-if precision: a model as a checkpoint of another number format would hold it, and how to tell its precision."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from kvplan.core import gguf_mixtures
from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import FORMATS, Format, format_by_id
from kvplan.core.model import Layer, Model, Recurrent, group_layers
from kvplan.core.parameters import model_tensors, tensor_bytes, tensor_format
from kvplan.core.tensors import Tensor, TensorClass
from kvplan.errors import UnknownNameError

#: Formats that an override may name, beside the GGUF file types.
_WEIGHT_DTYPES: Final = (
    "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "w8a8", "int4", "awq", "gptq", "nvfp4", "mxfp4", "nf4",
    "fp8_block", "fp8_channel", "mxfp8", "nf4_double",
)  # fmt: skip
#: Every name that `apply_dtype` knows.
DTYPES: Final[tuple[str, ...]] = (*_WEIGHT_DTYPES, *gguf_mixtures.FILE_TYPES)
#: Words for an override beyond the aliases of formats: file types by their short names, and libraries.
_ALIASES: Final = {
    "q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m", "int4_g128": "int4", "bnb": "nf4", "bitsandbytes": "nf4",
}  # fmt: skip
_SIXTEEN_BITS: Final = 16
#: Beginning of a format id → the name that people use for such a checkpoint.
_DISPLAY: Final = (
    ("fp8", "fp8"), ("mxfp8", "fp8"), ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("awq", "awq"), ("gptq4", "gptq"),
    ("nf4", "nf4"), ("bnb_fp4", "nf4"), ("llm_int8", "int8"), ("w8a8", "w8a8"), ("int8", "int8"), ("int4", "int4"),
)  # fmt: skip


def canonical_dtype(name: str) -> str:
    """The canonical name of an override.

    >>> canonical_dtype("Q4_K_M"), canonical_dtype("bfloat16")
    ('q4_k_m', 'bf16')

    Raises:
        UnknownNameError: No such format.
    """
    key = name.lower().replace("-", "_")
    key = _ALIASES.get(key, key)
    if key in DTYPES:
        return key
    try:
        found = format_by_id(key).id
    except UnknownNameError:
        found = ""
    if found in DTYPES:
        return found
    near = difflib.get_close_matches(key, DTYPES, n=3, cutoff=0.5)
    msg = f"dtype: unknown weight format {name!r}"
    suggestion = f"did you mean {', '.join(near)}? " if near else ""
    raise UnknownNameError(msg, hint=f"{suggestion}usual ones: bf16, fp8, int8, int4, awq, gptq, nvfp4, mxfp4, q4_k_m")


def apply_dtype(model: Model, dtype: str) -> Model:
    """The model as a checkpoint of this format would hold it.

    Linear layers of the decoder take the format; embeddings, head, norms, routers and towers stay (or become) 16-bit.
    A GGUF file type is a mixture over all tensors (see `gguf_mixtures`). A model whose checkpoint has this format
    already is returned as it is. Sizes read from file headers and the cache format that a replaced quantisation asked
    for are dropped: they belong to the other checkpoint.

    Args:
        model: The model.
        dtype: One of `DTYPES`.

    Raises:
        UnknownNameError: No such format.
    """
    name = canonical_dtype(dtype)
    if name == display_dtype(model):
        return replace(model, keeps_fp32=True) if name == "fp32" else model
    if name in gguf_mixtures.FILE_TYPES:
        return _as_gguf(model, name)
    fmt = FORMATS[name]
    if not fmt.quantised:
        plain = _in_formats(model, lambda _index, _tensor: None)
        return replace(
            plain,
            dtype=name,
            quantization=None,
            kv_dtype=None,
            exact_weight_bytes=None,
            keeps_fp32=name == "fp32",
        )

    changed = _in_formats(model, lambda _, tensor: fmt if is_quantisable(tensor) else None)
    return replace(
        changed,
        dtype=_sixteen_bits(model, "bf16"),
        quantization=name,
        kv_dtype=None,
        exact_weight_bytes=None,
    )


def is_quantisable(tensor: Tensor) -> bool:
    """True where a quantised checkpoint stores a tensor in fewer bits unless it says otherwise."""
    return tensor.linear and tensor.tensor_class not in {TensorClass.HEAD, TensorClass.EMBEDDING}


def _as_gguf(model: Model, name: str) -> Model:
    shape = gguf_mixtures.model_shape(model)

    def format_of(index: int, tensor: Tensor) -> Format:
        if tensor.format == FORMATS["mxfp4"]:  # llama.cpp copies MXFP4 experts (gpt-oss) into every file type
            return FORMATS["gguf_mxfp4"]
        return gguf_mixtures.tensor_type(name, tensor, index=index, shape=shape)

    changed = _in_formats(model, format_of)
    return replace(
        changed,
        dtype=_sixteen_bits(model, "fp16"),
        quantization=name,
        kv_dtype=None,
        exact_weight_bytes=None,
    )


def _sixteen_bits(model: Model, usual: str) -> str:
    """Format of what a quantised checkpoint leaves alone: the model's own, or `usual` where that is wider."""
    return usual if FORMATS[model.dtype].element_bits > _SIXTEEN_BITS else model.dtype


def _in_formats(model: Model, format_of: Callable[[int, Tensor], Format | None]) -> Model:
    """A model whose tensors have other formats, by the index of their layer; towers are left in (or return to) 16 bits."""
    made: dict[tuple[int, tuple[Format | None, ...]], Layer] = {}  # most layers of a group come out alike

    def in_tensor(index: int, tensor: Tensor) -> Tensor:
        return replace(tensor, format=format_of(index, tensor))

    def in_layer(index: int, layer: Layer) -> Layer:
        formats = tuple(format_of(index, tensor) for tensor in layer.all_tensors())
        alike = (id(layer), formats)
        if alike not in made:
            made[alike] = map_tensors(layer, lambda tensor: in_tensor(index, tensor))
        return made[alike]

    groups, order = group_layers(in_layer(i, model.groups[g].layer) for i, g in enumerate(model.layer_order))
    encoder_layers = [group.layer for group in model.encoder_groups for _ in range(group.count)]
    encoder_groups, _ = group_layers(in_layer(i, layer) for i, layer in enumerate(encoder_layers))
    return replace(
        model,
        groups=groups,
        layer_order=order,
        encoder_groups=encoder_groups,
        tensors=tuple(in_tensor(0, tensor) for tensor in model.tensors),
        towers=tuple(
            replace(tower, tensors=tuple(replace(one, format=None) for one in tower.tensors)) for tower in model.towers
        ),
        mtp_layers=tuple(in_layer(0, layer) for layer in model.mtp_layers),
        mtp_tensors=tuple(in_tensor(0, tensor) for tensor in model.mtp_tensors),
    )


def narrowed(model: Model, dtype: str | None) -> Model:
    """An fp32 checkpoint as an engine loads it that casts such ones to `dtype`, recurrent states with it.

    Other models, and those whose fp32 was asked for, stay as they are, as do all where `dtype` is None.
    """
    if dtype is None or model.dtype != "fp32" or model.keeps_fp32:
        return model
    return with_state_dtype(replace(model, dtype=dtype, exact_weight_bytes=None), dtype)


def with_state_dtype(model: Model, dtype: str) -> Model:
    """A model that keeps its recurrent states in `dtype`, as an engine does where the config names no format."""
    if model.state_dtype is not None:
        return model
    bits = int(format_by_id(dtype).element_bits)
    return _map_recurrent(model, lambda mixer: replace(mixer, state_bits=bits))


def with_conv_dtype(model: Model, dtype: str) -> Model:
    """A model that keeps its convolution states in `dtype`."""
    bits = int(format_by_id(dtype).element_bits)
    return _map_recurrent(model, lambda mixer: replace(mixer, conv_bits=bits))


def _map_recurrent(model: Model, change: Callable[[Recurrent], Recurrent]) -> Model:
    def changed(layer: Layer) -> Layer:
        mixers = tuple(change(m) if isinstance(m, Recurrent) else m for m in layer.mixers)
        return layer if mixers == layer.mixers else replace(layer, mixers=mixers)

    groups = tuple(replace(group, layer=changed(group.layer)) for group in model.groups)
    return model if groups == model.groups else replace(model, groups=groups)


def map_tensors(layer: Layer, change: Callable[[Tensor], Tensor]) -> Layer:
    """A layer with every weight tensor changed."""
    feed_forward = layer.feed_forward
    if feed_forward is not None:
        feed_forward = replace(feed_forward, tensors=tuple(change(t) for t in feed_forward.tensors))
    return replace(
        layer,
        mixers=tuple(replace(mixer, tensors=tuple(change(t) for t in mixer.tensors)) for mixer in layer.mixers),
        feed_forward=feed_forward,
        tensors=tuple(change(t) for t in layer.tensors),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPrecision:
    """How the tensors of one class are stored and multiplied.

    Attributes:
        parameters: Parameters of the class [parameter].
        stored_bytes: Their bytes, scales counted [byte].
        bits: Stored bits per parameter, averaged over the class [bit].
        formats: Ids of the stored formats, the largest share first.
        compute: Format of the multiplication of the largest share, or the model's dtype where weights are expanded.
    """

    parameters: int
    stored_bytes: int
    bits: float
    formats: tuple[str, ...]
    compute: str


def precision_by_class(model: Model) -> dict[TensorClass, ClassPrecision]:
    """Stored bits and compute format per tensor class, weighted over the model's stored tensors."""
    shares: dict[TensorClass, dict[Format, list[int]]] = {}
    for count, tensor in model_tensors(model):
        if tensor.parameters:
            fmt = tensor_format(tensor, model.dtype)
            share = shares.setdefault(tensor.tensor_class, {}).setdefault(fmt, [0, 0])
            share[0] += count * tensor.parameters
            share[1] += count * tensor_bytes(tensor, model.dtype)
    return {kind: _class_precision(shares[kind], model) for kind in TensorClass if kind in shares}


def _class_precision(shares: dict[Format, list[int]], model: Model) -> ClassPrecision:
    ranked = sorted(shares.items(), key=lambda item: -item[1][0])
    parameters = sum(share[0] for share in shares.values())
    stored = sum(share[1] for share in shares.values())
    return ClassPrecision(
        parameters=parameters,
        stored_bytes=stored,
        bits=8 * stored / parameters,
        formats=tuple(dict.fromkeys(fmt.id for fmt, _ in ranked)),
        compute=ranked[0][0].compute or model.dtype,
    )


def display_dtype(model: Model) -> str:
    """The name that people use for the model's precision: `bf16`, `fp8`, `nvfp4`, `q4_k_m` and so on.

    That of an override or GGUF file, else the format of most of its quantised parameters.
    """
    if model.quantization is None:
        return model.dtype
    if model.quantization in DTYPES and model.quantization != "fp8":
        return model.quantization
    counts: dict[str, int] = {}
    for parameters, fmt in _quantised(model):
        counts[fmt.id] = counts.get(fmt.id, 0) + parameters
    if not counts:
        return model.dtype
    largest = max(counts, key=lambda key: counts[key])
    grouped = re.match(r"[a-z]+(\d)_", largest)
    default = f"int{grouped[1]}" if grouped else largest
    return next((name for start, name in _DISPLAY if largest.startswith(start)), default)


def _quantised(model: Model) -> Iterator[tuple[int, Format]]:
    for count, tensor in model_tensors(model):
        if tensor.format is not None and tensor.format.quantised:
            yield count * tensor.parameters, tensor.format
