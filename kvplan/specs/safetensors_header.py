"""The header of one safetensors file: no tensor data is read, and no header is believed without a check.

Format: https://huggingface.co/docs/safetensors/index#format (8 bytes of length, a JSON header, then the data).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvplan.core.dataclass import dataclass
from kvplan.errors import SpecError
from kvplan.specs.files import is_regular, parse_json

#: What the hub's client accepts too; the format's own library takes four times as much.
MAX_HEADER_BYTES: Final = 25_000_000
#: Commas and brackets: eight for each tensor, and no file has a hundred thousand.
_MOST_ITEMS: Final = 800_000
_LENGTH_BYTES: Final = 8
_LARGEST: Final = 2**63
_BITS: Final[dict[str, int]] = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


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


def parse_header(raw: bytes, *, source: str, data_bytes: int | None = None) -> tuple[StoredTensor, ...]:
    """Read the JSON header of one file.

    Args:
        raw: The JSON.
        source: File name for messages.
        data_bytes: Bytes that follow the header in the file, or None where that is not known.

    Raises:
        SpecError: It is no header, or it says something that can't be.
    """
    header = parse_json(raw, source=f"{source}: the safetensors header", most_items=_MOST_ITEMS)
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
        if not is_regular(path):
            msg = f"{path.name}: is no regular file"
            raise SpecError(msg)
        size = path.stat().st_size
        with path.open("rb") as file:
            length = header_length(file.read(_LENGTH_BYTES), source=path.name, file_bytes=size)
            raw = file.read(length)
    except OSError as error:
        msg = f"{path.name}: can't be read: {error.strerror or error}"
        raise SpecError(msg) from None
    return parse_header(raw, source=path.name, data_bytes=size - _LENGTH_BYTES - length)
