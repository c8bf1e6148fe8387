"""Exact weight bytes from safetensors headers: no tensor data is read, and no header is believed without a check.

Format: https://huggingface.co/docs/safetensors/index#format (8 bytes of length, a JSON header, then the data).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kvplan.core.model import Model, TensorClass
from kvplan.core.parameters import weights_bytes_model
from kvplan.errors import SpecError

INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_FILE: Final = "model.safetensors"
#: The largest header that the format's own library accepts.
MAX_HEADER_BYTES: Final = 100_000_000
_LENGTH_BYTES: Final = 8
_MOST_SHARDS: Final = 10_000
_LARGEST: Final = 2**63
_BITS: Final[dict[str, int]] = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
#: Stored beside weights, and no parameters: scales, zero points, orders and other notes of a quantiser.
_SCALE: Final = re.compile(
    r"(^|[._])(weight_scale(_inv|_2|_shift)?|scale_inv|scales?|input_scale|output_scale|weight_global_scale|absmax|SCB"
    r"|input_global_scale|[kqv]_scale|scales_and_zeros|nested_absmax|act_scale|prob_output_scale|kv_scale)$"
)
_ZERO: Final = re.compile(r"(^|[._])(qzeros|weight_zero_point|zero_point|zeros|qbiases)$")
_NOTE: Final = re.compile(
    r"(^|[._])(g_idx|weight_g_idx|weight_shape|quant_map|nested_quant_map|quant_state\.\w+|weight_format|codebooks?_dummy)$"
)
_BUFFER: Final = re.compile(
    r"(^|\.)(e_score_correction_bias|inv_freq|rotary_emb\.\w+|masked_bias|tid2eid|attn\.bias|attention\.bias"
    r"|num_batches_tracked|position_ids)$"
)
_PACKED: Final = re.compile(r"(^|[._])(qweight|weight_packed|packed|w_packed)$")
_LAYER: Final = re.compile(r"(?:^|\.)layers\.(\d+)\.")
#: Modules that a decoder's layers lie in; those of towers and encoders lie in others.
_WRAPPERS: Final = frozenset(
    {"", "model", "language_model", "text_model", "transformer", "backbone", "gpt_neox", "decoder"}
)
_PREDICTOR: Final = re.compile(r"^(model\.|language_model\.)*mtp\b|(^|\.)mtp_")
_DIFFERENCE_TO_TELL: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One entry of a header.

    Attributes:
        name: Its name.
        dtype: Its dtype as written (`BF16`, `F8_E4M3`, `I32`, …).
        shape: Its shape as stored, packed or not.
        stored_bytes: Bytes of its data [byte].
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored_bytes: int

    @property
    def elements(self) -> int:
        """Stored elements, packed ones counted once [element]."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFiles:
    """What the headers of a checkpoint say.

    Attributes:
        tensors: All tensors of all files.
        files: Number of files.
    """

    tensors: tuple[StoredTensor, ...]
    files: int

    @property
    def stored_bytes(self) -> int:
        """Bytes of all tensors [byte]."""
        return sum(t.stored_bytes for t in self.tensors)

    def bytes_by_dtype(self) -> dict[str, int]:
        """Bytes per dtype as written."""
        found: dict[str, int] = {}
        for tensor in self.tensors:
            found[tensor.dtype] = found.get(tensor.dtype, 0) + tensor.stored_bytes
        return found

    def quantiser_bytes(self) -> dict[str, int]:
        """Bytes of `scales`, `zeros`, `notes` (orders, shapes, tables) and `buffers`: stored, and no parameters."""
        found = {"scales": 0, "zeros": 0, "notes": 0, "buffers": 0}
        for tensor in self.tensors:
            kind = _kind(tensor)
            if kind in found:
                found[kind] += tensor.stored_bytes
        return found

    def parameters(self, *, packed_bits: int = 4) -> int:
        """Parameters, packed ones unpacked; scales, zero points and buffers are none [parameter].

        Args:
            packed_bits: Bits of one weight in integer words where the header does not give it away.
        """
        by_name = {t.name: t for t in self.tensors}
        return sum(_parameters(t, by_name, packed_bits) for t in self.tensors)


def _kind(tensor: StoredTensor) -> str:
    if _BUFFER.search(tensor.name):
        return "buffers"
    if _SCALE.search(tensor.name) or tensor.dtype == "F8_E8M0":
        return "scales"
    if _ZERO.search(tensor.name):
        return "zeros"
    return "notes" if _NOTE.search(tensor.name) else "weights"


def _parameters(tensor: StoredTensor, by_name: Mapping[str, StoredTensor], packed_bits: int) -> int:
    if _kind(tensor) != "weights":
        return 0
    if _PACKED.search(tensor.name):
        return tensor.stored_bytes * 8 // _packed_bits(tensor, by_name, packed_bits)
    if tensor.dtype == "U8":  # two 4-bit weights in a byte: NVFP4, MXFP4 blocks, bitsandbytes
        return tensor.elements * 2
    if tensor.dtype == "I8":  # int8, or two fp4 weights where a power-of-two scale lies beside it
        stem = tensor.name.removesuffix(".weight")
        scale = by_name.get(f"{stem}.scale") or by_name.get(f"{stem}.weight_scale")
        return tensor.elements * (2 if scale is not None and scale.dtype == "F8_E8M0" else 1)
    if tensor.dtype in {"I64", "U64", "BOOL"}:
        return 0
    return tensor.elements


def _packed_bits(tensor: StoredTensor, by_name: Mapping[str, StoredTensor], default: int) -> int:
    """Bits of a weight inside a packed word, from its neighbours (GPTQ, AWQ), else the default."""
    if tensor.dtype in {"U8", "I8"}:
        return 4
    stem = tensor.name.removesuffix("qweight")
    scales, zeros = by_name.get(f"{stem}scales"), by_name.get(f"{stem}qzeros")
    if scales is None or len(scales.shape) != 2 or len(tensor.shape) != 2 or not scales.shape[1]:  # noqa: PLR2004
        return default
    width = scales.shape[1]
    words = zeros.shape[1] if zeros is not None and len(zeros.shape) == 2 else 0  # noqa: PLR2004 - a matrix
    if tensor.shape[1] != width:  # AWQ packs along the outputs
        words = tensor.shape[1]
    bits = words * 32 // width
    return bits if bits in {2, 3, 4, 8} else default


def parse_header(raw: bytes, *, source: str, data_bytes: int | None = None) -> tuple[StoredTensor, ...]:
    """Read the JSON header of one file.

    Args:
        raw: The JSON.
        source: File name for messages.
        data_bytes: Bytes that follow the header in the file, or None where that is not known.

    Raises:
        SpecError: It is no header, or it says something that can't be.
    """
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        msg = f"{source}: the safetensors header is not valid JSON"
        raise SpecError(msg) from None
    if not isinstance(header, dict):
        msg = f"{source}: the safetensors header must be an object"
        raise SpecError(msg)
    return check_header(header, source=source, data_bytes=data_bytes)


def check_header(header: Mapping[str, Any], *, source: str, data_bytes: int | None = None) -> tuple[StoredTensor, ...]:
    """The tensors of a parsed header; see `parse_header`."""
    spans: list[tuple[int, int]] = []
    tensors: list[StoredTensor] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor, span = _entry(name, entry, source)
        tensors.append(tensor)
        spans.append(span)
    _check_spans(spans, source, data_bytes)
    return tuple(tensors)


def _entry(name: str, entry: Any, source: str) -> tuple[StoredTensor, tuple[int, int]]:  # noqa: ANN401 - from JSON
    values = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = values.get("dtype"), _counts(values.get("shape")), _counts(values.get("data_offsets"))
    rule = ""
    if not isinstance(dtype, str) or dtype not in _BITS:
        rule = f"dtype {str(dtype)[:20]!r} is not one that safetensors has"
    elif shape is None:
        rule = "shape must be a list of whole numbers"
    elif offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:  # noqa: PLR2004 - begin and end
        rule = "data_offsets must be [begin, end]"
    elif (offsets[1] - offsets[0]) * 8 != _BITS[dtype] * math.prod(shape):
        rule = f"data_offsets hold {offsets[1] - offsets[0]} bytes, which is not what its dtype and shape need"
    else:
        size = offsets[1] - offsets[0]
        return StoredTensor(name=name, dtype=dtype, shape=shape, stored_bytes=size), (offsets[0], offsets[1])
    msg = f"{source}: {name[:80]!r}: {rule}"
    raise SpecError(msg)


def _counts(value: Any) -> tuple[int, ...] | None:  # noqa: ANN401 - from JSON
    """A list of whole numbers, or None where it is none."""
    if not isinstance(value, list) or len(value) > 64:  # noqa: PLR2004 - more axes than any tensor
        return None
    fine = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < _LARGEST for n in value)
    return tuple(value) if fine else None


def _check_spans(spans: list[tuple[int, int]], source: str, data_bytes: int | None) -> None:
    """Tensors must fill the data without holes or overlaps, and the file must hold them."""
    end = 0
    for begin, stop in sorted(spans):
        if begin != end:
            msg = f"{source}: tensors overlap or leave a hole at byte {min(begin, end)} of the data"
            raise SpecError(msg)
        end = stop
    if data_bytes is not None and data_bytes != end:
        what = "is truncated" if data_bytes < end else "has bytes that no tensor owns"
        msg = f"{source}: {what}: its header describes {end} bytes of data, and it holds {data_bytes}"
        raise SpecError(msg)


def header_length(first: bytes, *, source: str, file_bytes: int | None = None) -> int:
    """The length of the header from the first 8 bytes of a file [byte].

    Raises:
        SpecError: The file is too short, or the length can't be right.
    """
    if first.startswith(b"version "):
        msg = f"{source}: is a Git LFS pointer, not weights"
        raise SpecError(msg, hint="git lfs pull fetches the weights; config.json alone works too")
    if len(first) < _LENGTH_BYTES:
        msg = f"{source}: is no safetensors file: only {len(first)} bytes"
        raise SpecError(msg)
    length = int.from_bytes(first[:_LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        msg = f"{source}: a header of {length} bytes is refused (the limit is {MAX_HEADER_BYTES})"
        raise SpecError(msg)
    if file_bytes is not None and length > file_bytes - _LENGTH_BYTES:
        msg = f"{source}: is truncated: a header of {length} bytes in a file of {file_bytes}"
        raise SpecError(msg)
    return length


def read_file(path: Path) -> tuple[StoredTensor, ...]:
    """The header of one local file.

    Raises:
        SpecError: The file can't be read, is truncated or lies.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = header_length(file.read(_LENGTH_BYTES), source=path.name, file_bytes=size)
            raw = file.read(length)
    except OSError as error:
        msg = f"{path.name}: can't be read: {error.strerror or error}"
        raise SpecError(msg) from None
    return parse_header(raw, source=path.name, data_bytes=size - _LENGTH_BYTES - length)


def read_folder(folder: Path) -> WeightFiles | None:
    """The headers of all weight files of a local checkpoint, or None where it has none.

    The index says which files belong together; without one `model.safetensors`, else every safetensors file but
    Mistral's second copy (`consolidated*`) and adapters counts.

    Raises:
        SpecError: A file is missing, broken, or lies.
    """
    index = folder / INDEX_FILE
    if index.is_file():
        names = shard_names(_read_json(index), source=INDEX_FILE)
        present = [name for name in names if (folder / name).is_file()]
        if not present:
            return None
        if len(present) < len(names):
            missing = next(name for name in names if name not in present)
            msg = f"{missing}: is missing, but {INDEX_FILE} names it"
            raise SpecError(msg, hint="finish the download, or point kvplan at config.json alone")
    elif (folder / SINGLE_FILE).is_file():
        names = [SINGLE_FILE]
    else:
        found = sorted(path.name for path in folder.glob("*.safetensors"))
        names = [name for name in found if not name.startswith(("consolidated", "adapter"))]
    if not names:
        return None
    return gather((name, read_file(folder / name)) for name in names)


def gather(files: Iterable[tuple[str, tuple[StoredTensor, ...]]]) -> WeightFiles:
    """The tensors of all files together.

    Raises:
        SpecError: Two files hold a tensor of the same name.
    """
    tensors: list[StoredTensor] = []
    owner: dict[str, str] = {}
    count = 0
    for name, entries in files:
        count += 1
        for tensor in entries:
            if tensor.name in owner:
                msg = f"{name}: {tensor.name[:80]} is in {owner[tensor.name]} too"
                raise SpecError(msg)
            owner[tensor.name] = name
        tensors.extend(entries)
    return WeightFiles(tensors=tuple(tensors), files=count)


def _read_json(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    try:
        if path.stat().st_size > MAX_HEADER_BYTES:
            msg = f"{path.name}: is refused: more than {MAX_HEADER_BYTES} bytes"
            raise SpecError(msg)
        return json.loads(path.read_bytes())
    except OSError as error:
        msg = f"{path.name}: can't be read: {error.strerror or error}"
        raise SpecError(msg) from None
    except (ValueError, RecursionError):
        msg = f"{path.name}: is not valid JSON"
        raise SpecError(msg) from None


def shard_names(index: Any, *, source: str) -> list[str]:  # noqa: ANN401 - from JSON
    """The files that an index names, in order.

    Raises:
        SpecError: It is no index, or a name leaves the folder.
    """
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        msg = f"{source}: weight_map: is missing or no object"
        raise SpecError(msg)
    names = sorted({name for name in weight_map.values() if isinstance(name, str)})
    safe = all(re.fullmatch(r"[\w.\-]+\.safetensors", name) for name in names)
    if not names or not safe or not all(isinstance(name, str) for name in weight_map.values()):
        msg = f"{source}: weight_map: must name safetensors files of the same folder"
        raise SpecError(msg)
    if len(names) > _MOST_SHARDS:
        msg = f"{source}: weight_map: {len(names)} files are refused"
        raise SpecError(msg)
    return names


def with_exact_bytes(model: Model, files: WeightFiles) -> Model:
    """The model with the bytes of its files; a difference from arithmetic above 1 % becomes a warning.

    Multi-token-prediction layers and a stored copy of a tied head are left out: engines do not load them.
    """
    tied = not any(t.tensor_class is TensorClass.HEAD and t.stored for t in model.tensors)
    exact = sum(t.stored_bytes for t in files.tensors if not _is_left_out(t.name, model.num_hidden_layers, tied=tied))
    arithmetic = weights_bytes_model(replace(model, exact_weight_bytes=None))
    warnings = model.warnings
    if arithmetic and abs(exact / arithmetic - 1) > _DIFFERENCE_TO_TELL:
        percent = 100 * (exact / arithmetic - 1)
        text = (
            f"the weight files hold {exact:,} bytes, {percent:+.1f} % against the {arithmetic:,} that the config "
            "gives: the files count"
        )
        warnings = (*warnings, text)
    return replace(model, exact_weight_bytes=exact, warnings=warnings)


def _is_left_out(name: str, layers: int, *, tied: bool) -> bool:
    if _PREDICTOR.search(name):
        return True
    if tied and name in {"lm_head.weight", "model.lm_head.weight", "language_model.lm_head.weight"}:
        return True
    found = _LAYER.search(name)
    return found is not None and _WRAPPERS.issuperset(name[: found.start()].split(".")) and int(found[1]) >= layers > 0
