"""From the header of a GGUF file to a `Model`: tensors as they are stored, caches from the architecture's keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kvplan.core.dtypes import FORMATS
from kvplan.core.model import Model, group_layers
from kvplan.core.tensors import Tensor, TensorClass
from kvplan.errors import SpecError, UnsupportedModelError
from kvplan.specs.gguf_header import GgufFile, GgufTensor, read_gguf
from kvplan.specs.gguf_keys import ARCHITECTURES, PARALLEL, judge_leftovers, read_keys
from kvplan.specs.gguf_layers import BLOCK, MATRIX, format_of, read_layer
from kvplan.specs.huggingface.config import MOST_LAYERS, Config

#: `general.file_type` → name. Source: gguf 0.19 `LlamaFileType`.
FILE_TYPES: Final = {
    2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k", 11: "q3_k_s", 12: "q3_k_m", 13: "q3_k_l", 14: "q4_k_s",
    15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 19: "iq2_xxs", 20: "iq2_xs", 21: "q2_k_s", 22: "iq3_xs",
    23: "iq3_xxs", 24: "iq1_s", 25: "iq4_nl", 26: "iq3_s", 27: "iq3_m", 28: "iq2_s", 29: "iq2_m", 30: "iq4_xs", 31: "iq1_m",
    36: "tq1_0", 37: "tq2_0", 38: "mxfp4_moe", 39: "nvfp4", 40: "q1_0",
}  # fmt: skip
_NO_PARAMETERS: Final = re.compile(r"^(rope_freqs|rope_factors_\w+)(\.weight)?$")
_TABLES: Final = frozenset({"position_embd", "token_types"})


def load_gguf(path: Path, *, model_id: str | None = None) -> Model:
    """The model that a GGUF file holds.

    Args:
        path: The file, or any part of a split one.
        model_id: Its id; None takes the file's name.

    Raises:
        SpecError: The file is broken, or its keys and tensors disagree.
        UnsupportedModelError: An architecture, or a key that changes memory, is not understood.
    """
    return model_from_gguf(read_gguf(path), model_id=model_id or default_id(path))


def default_id(path: Path) -> str:
    """The id of a file: its stem in lower case without the number of its part.

    >>> default_id(Path("Qwen3-8B-Q4_K_M-00001-of-00002.gguf"))
    'qwen3-8b-q4_k_m'
    """
    return re.sub(r"-\d{5}-of-\d{5}$", "", path.stem).lower()


def model_from_gguf(file: GgufFile, *, model_id: str) -> Model:
    """The model that a header describes; see `load_gguf`."""
    arch = _architecture(file)
    data = {key.removeprefix(f"{arch}."): value for key, value in file.metadata.items() if key.startswith(f"{arch}.")}
    config = Config(data, source=file.source, path=arch)
    blocks = config.integer("block_count", maximum=MOST_LAYERS)
    predicted = config.optional_integer("nextn_predict_layers", minimum=0) or 0
    if predicted >= blocks:
        raise config.error("nextn_predict_layers", f"{predicted} is not less than block_count")
    by_layer, rest = _by_layer(file, blocks)
    keys = read_keys(arch, config, blocks - predicted)
    tensors = _model_tensors(file, rest, keys.hidden)
    layers = [read_layer(keys, index, by_layer[index]) for index in range(blocks - predicted)]
    max_context = config.optional_integer("context_length")
    judge_leftovers(config)
    kept = sum(t.stored_bytes for t in rest) + sum(t.stored_bytes for part in by_layer[: keys.layers] for t in part)
    groups, order = group_layers(layers)
    name = FILE_TYPES.get(_file_type(file))
    dtype = "bf16" if any(t.type == "bf16" for t in file.tensors) else "fp16"
    if all(t.type == "fp32" for t in file.tensors):
        dtype = "fp32"
    quantized = any(FORMATS[t.type].quantised for t in file.tensors if t.type in FORMATS)
    return Model(
        id=model_id,
        architecture=arch,
        dtype=dtype,
        hidden_size=keys.hidden,
        vocab_size=next(t.shape[0] for t in tensors if t.tensor_class is TensorClass.EMBEDDING),
        max_context=max_context,
        groups=groups,
        layer_order=order,
        tensors=tensors,
        quantization=(name or "gguf") if quantized else None,
        exact_weight_bytes=kept,
        keeps_fp32=True,  # a file is loaded as it is
        parallel_attention=arch in PARALLEL or bool(data.get("use_parallel_residual")),
        assumptions=tuple(config.assumptions),
        warnings=tuple(config.warnings),
    )


def _architecture(file: GgufFile) -> str:
    arch = file.metadata.get("general.architecture")
    if not isinstance(arch, str):
        msg = f"{file.source}: general.architecture: is missing"
        raise SpecError(msg)
    if file.metadata.get("general.type", "model") != "model":
        msg = f"{file.source}: general.type: {file.metadata['general.type']!r} is not a model"
        raise UnsupportedModelError(msg)
    if arch not in ARCHITECTURES:
        msg = f"{file.source}: general.architecture: {arch[:60]!r} is not one that kvplan knows"
        raise UnsupportedModelError(msg, hint="use the model's config.json with --dtype instead")
    return arch


def _file_type(file: GgufFile) -> int:
    value = file.metadata.get("general.file_type")
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _by_layer(file: GgufFile, blocks: int) -> tuple[list[list[GgufTensor]], list[GgufTensor]]:
    by_layer: list[list[GgufTensor]] = [[] for _ in range(blocks)]
    rest: list[GgufTensor] = []
    for tensor in file.tensors:
        match = BLOCK.match(tensor.name)
        if match is None:
            rest.append(tensor)
            continue
        if int(match[1]) >= blocks:
            msg = f"{file.source}: {tensor.name[:80]!r}: there are only {blocks} layers"
            raise SpecError(msg)
        by_layer[int(match[1])].append(tensor)
    empty = next((index for index, part in enumerate(by_layer) if not part), None)
    if empty is not None:
        msg = f"{file.source}: layer {empty} has no tensors"
        raise SpecError(msg)
    return by_layer, rest


def _model_tensors(file: GgufFile, rest: list[GgufTensor], hidden: int) -> tuple[Tensor, ...]:
    by_name = {t.name: t for t in rest}
    embedding = by_name.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != MATRIX or embedding.shape[1] != hidden:
        msg = f"{file.source}: token_embd.weight: is missing, or not {hidden} wide as embedding_length says"
        raise SpecError(msg)
    found: list[Tensor] = []
    for stored in rest:
        if _NO_PARAMETERS.match(stored.name):
            continue
        name = stored.name.removesuffix(".weight")
        kind = TensorClass.OTHER
        if name in {"token_embd", "per_layer_token_embd"}:
            kind = TensorClass.EMBEDDING
        elif name in {"output", "output.bias"}:
            kind = TensorClass.HEAD
        head = kind is TensorClass.HEAD and len(stored.shape) == MATRIX
        other = kind is TensorClass.OTHER and len(stored.shape) == MATRIX and "norm" not in name and name not in _TABLES
        found.append(
            Tensor(
                name=name,
                tensor_class=kind,
                shape=stored.shape,
                matmul=head or other,
                linear=head or other,
                shards=1 if kind is TensorClass.OTHER else None,
                format=format_of(stored, file.source),
            )
        )
    found.sort(key=lambda t: t.name != "token_embd")
    if "output.weight" not in by_name:
        head_format = format_of(embedding, file.source)
        found.append(
            Tensor(
                name="output",
                tensor_class=TensorClass.HEAD,
                shape=embedding.shape,
                matmul=True,
                stored=False,
                format=head_format,
            )
        )
    return tuple(found)
