"""Headers of GGUF files (versions 2 and 3): metadata and tensor list, read with every count checked against the file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. No tensor data is read.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from kvplan.core.dataclass import dataclass
from kvplan.errors import SpecError
from kvplan.specs.files import is_regular

MAGIC: Final = b"GGUF"
Value = int | float | bool | str | tuple["int | float | bool | str", ...]

_MAX_HEADER_BYTES: Final = 128_000_000
_MAX_STRING_BYTES: Final = 16_000_000
_MAX_ENTRIES: Final = 100_000
_MAX_TENSORS: Final = 65_536
_MAX_ITEMS: Final = 2_000_000
#: Items of all arrays together that are kept, and strings of all that are walked over.
_MAX_KEPT: Final = 500_000
_MAX_WALKED: Final = 2_000_000
#: Longer arrays (vocabularies, merges) are walked over, not kept.
_KEPT_ITEMS: Final = 4096
_MAX_AXES: Final = 4
_MAX_SPLITS: Final = 1000
_ARRAY: Final = 9
_STRING: Final = 8
_BOOL: Final = 7
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_SPLIT_NAME: Final = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")

#: Tensor type → (name, elements of a block, bytes of a block). Source: gguf 0.19 `GGML_QUANT_SIZES`.
TYPES: Final[dict[int, tuple[str, int, int]]] = {
    0: ("fp32", 1, 4), 1: ("fp16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 10: ("q2_k", 256, 84), 11: ("q3_k", 256, 110), 12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210), 15: ("q8_k", 256, 292), 16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74), 18: ("iq3_xxs", 256, 98), 19: ("iq1_s", 256, 50), 20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110), 22: ("iq2_s", 256, 82), 23: ("iq4_xs", 256, 136), 24: ("i8", 1, 1), 25: ("i16", 1, 2),
    26: ("i32", 1, 4), 27: ("i64", 1, 8), 28: ("fp64", 1, 8), 29: ("iq1_m", 256, 56), 30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54), 35: ("tq2_0", 256, 66), 39: ("gguf_mxfp4", 32, 17), 40: ("gguf_nvfp4", 64, 36),
    41: ("q1_0", 128, 18),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """One tensor of a file.

    Attributes:
        name: Its name (`blk.0.attn_q.weight`).
        shape: Its shape with the longest stride first, as numpy and safetensors write it: `(out, in)`.
        type: Name of its type (`q4_k`).
        stored_bytes: Bytes of its data, without padding [byte].
    """

    name: str
    shape: tuple[int, ...]
    type: str
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """The header of a file, or of all parts of a split one.

    Attributes:
        source: File name for messages.
        metadata: Key → value; an array that is too long to matter is its length under `key + "#"`.
        tensors: All tensors.
    """

    source: str
    metadata: Mapping[str, Value]
    tensors: tuple[GgufTensor, ...]

    @property
    def stored_bytes(self) -> int:
        """Bytes of all tensors, padding not counted [byte]."""
        return sum(t.stored_bytes for t in self.tensors)


class _Reader:
    """Reads a header front to back and refuses to leave the file or the limit."""

    def __init__(self, file: BinaryIO, *, source: str, size: int) -> None:
        self.file = file
        self.source = source
        self.size = size
        self.position = 0
        self.order = "<"
        self.kept = self.walked = 0

    def refuse(self, rule: str) -> NoReturn:
        msg = f"{self.source}: {rule}"
        raise SpecError(msg)

    def room(self, count: int) -> None:
        """Refuse to go on where fewer than `count` bytes are left."""
        if self.position + count > self.size:
            self.refuse(f"is truncated: {count} bytes are needed at {self.position} of {self.size}")
        if self.position + count > _MAX_HEADER_BYTES:
            self.refuse(f"a header of more than {_MAX_HEADER_BYTES} bytes is refused")

    def take(self, count: int) -> bytes:
        self.room(count)
        raw = self.file.read(count)
        if len(raw) != count:
            self.refuse("is truncated")
        self.position += count
        return raw

    def skip(self, count: int) -> None:
        self.room(count)
        self.file.seek(count, 1)
        self.position += count

    def number(self, code: str) -> int:
        return int(struct.unpack(self.order + code, self.take(struct.calcsize(code)))[0])

    def count(self, what: str, limit: int) -> int:
        found = self.number("Q")
        if found > limit:
            self.refuse(f"{what}: {found} are refused (the limit is {limit})")
        return found

    def text(self) -> str:
        return self.take(self.count("string bytes", _MAX_STRING_BYTES)).decode("utf-8", errors="replace")

    def value(self, kind: int, key: str) -> Value | None:
        """A value of this type; None for an array that is too long to keep."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array(key)
        code = _SCALARS.get(kind)
        if code is None:
            self.refuse(f"{key[:80]}: value type {kind} is not known")
        found = struct.unpack(self.order + code, self.take(struct.calcsize(code)))[0]
        return bool(found) if kind == _BOOL else found

    def _array(self, key: str) -> tuple[int | float | bool | str, ...] | None:
        kind = self.number("I")
        length = self.count(f"{key[:80]}: items", _MAX_ITEMS)
        self.kept += length if length <= _KEPT_ITEMS else 0
        if self.kept > _MAX_KEPT:
            self.refuse(f"more than {_MAX_KEPT} items of arrays are refused")
        if kind == _STRING:
            self.room(length * 8)
            self.walked += length
            if self.walked > _MAX_WALKED:
                self.refuse(f"more than {_MAX_WALKED} strings are refused")
            if length > _KEPT_ITEMS:
                for _ in range(length):
                    self.skip(self.count("string bytes", _MAX_STRING_BYTES))
                return None
            return tuple(self.text() for _ in range(length))
        code = _SCALARS.get(kind)
        if code is None:
            self.refuse(f"{key[:80]}: arrays of value type {kind} are not understood")
        width = struct.calcsize(code)
        if length > _KEPT_ITEMS:
            self.skip(length * width)
            return None
        items = struct.unpack(f"{self.order}{length}{code}", self.take(length * width))
        return tuple(bool(item) for item in items) if kind == _BOOL else items


def read_gguf(path: Path) -> GgufFile:
    """The header of a file; of a split one, the headers of all its parts.

    Raises:
        SpecError: A file is missing, truncated, or says something that can't be.
    """
    match = _SPLIT_NAME.match(path.name)
    count = int(match["count"]) if match else 1
    if match is None or count <= 1:
        return _read_one(path)
    if count > _MAX_SPLITS:
        msg = f"{path.name}: {count} parts are refused"
        raise SpecError(msg)
    parts = []
    for number in range(1, count + 1):
        part = path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf")
        if not part.is_file():
            msg = f"{part.name}: is missing: {path.name} is one of {count} parts"
            raise SpecError(msg)
        parts.append(_read_one(part))
    tensors = tuple(tensor for part in parts for tensor in part.tensors)
    said = parts[0].metadata.get("split.tensors.count")
    if isinstance(said, int) and said != len(tensors):
        msg = f"{parts[0].source}: split.tensors.count: says {said}, but the parts hold {len(tensors)}"
        raise SpecError(msg)
    _check_names(tensors, parts[0].source)
    return replace(parts[0], tensors=tensors)


def _read_one(path: Path) -> GgufFile:
    try:
        if not is_regular(path):
            msg = f"{path.name}: is no regular file"
            raise SpecError(msg)
        size = path.stat().st_size
        with path.open("rb") as file:
            return _read_header(_Reader(file, source=path.name, size=size))
    except OSError as error:
        msg = f"{path.name}: can't be read: {error.strerror or error}"
        raise SpecError(msg) from None


def _read_header(reader: _Reader) -> GgufFile:
    magic = reader.take(4)
    if magic != MAGIC:
        hint = "git lfs pull fetches the file" if magic == b"vers" else None
        msg = f"{reader.source}: is no GGUF file"
        raise SpecError(msg, hint=hint)
    version = reader.number("I")
    if version and not version & 0xFFFF:
        reader.order, version = ">", int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in {2, 3}:
        reader.refuse(f"GGUF version {version} is not understood (2 and 3 are)")
    tensor_count = reader.count("tensors", _MAX_TENSORS)
    entry_count = reader.count("metadata entries", _MAX_ENTRIES)
    reader.room(13 * entry_count + 28 * tensor_count)  # the least that so many can take
    metadata: dict[str, Value] = {}
    for _ in range(entry_count):
        key = reader.text()
        value = reader.value(reader.number("I"), key)
        if key in metadata:
            reader.refuse(f"{key[:80]}: is there twice")
        if value is not None:
            metadata[key] = value
    infos = [_tensor_info(reader) for _ in range(tensor_count)]
    _check_offsets(reader, infos, metadata)
    tensors = tuple(tensor for tensor, _ in infos)
    _check_names(tensors, reader.source)
    return GgufFile(source=reader.source, metadata=metadata, tensors=tensors)


def _tensor_info(reader: _Reader) -> tuple[GgufTensor, int]:
    name = reader.text()
    axes = reader.number("I")
    if not 1 <= axes <= _MAX_AXES:
        reader.refuse(f"{name[:80]!r}: {axes} axes are not understood")
    dims = [reader.number("Q") for _ in range(axes)]
    kind, offset = reader.number("I"), reader.number("Q")
    if kind not in TYPES:
        reader.refuse(f"{name[:80]!r}: tensor type {kind} is not known")
    type_name, block, block_bytes = TYPES[kind]
    if not all(0 < dim < 2**40 for dim in dims) or dims[0] % block:
        reader.refuse(f"{name[:80]!r}: shape {dims} is not possible for {type_name}")
    stored = math.prod(dims) // block * block_bytes
    return GgufTensor(name=name, shape=tuple(reversed(dims)), type=type_name, stored_bytes=stored), offset


def _check_offsets(reader: _Reader, infos: list[tuple[GgufTensor, int]], metadata: Mapping[str, Value]) -> None:
    alignment = metadata.get("general.alignment", 32)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or not 0 < alignment <= 2**20:
        reader.refuse("general.alignment: is not possible")
    data = -(-reader.position // alignment) * alignment
    end = 0
    for tensor, offset in sorted(infos, key=lambda info: info[1]):
        if offset < end or offset % alignment:
            reader.refuse(f"{tensor.name[:80]!r}: overlaps another tensor")
        end = offset + tensor.stored_bytes
    if infos and data + end > reader.size:
        reader.refuse(f"is truncated: tensors end at byte {data + end} of {reader.size}; an unfinished download?")


def _check_names(tensors: tuple[GgufTensor, ...], source: str) -> None:
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            msg = f"{source}: {tensor.name[:80]!r} is there twice"
            raise SpecError(msg)
        names.add(tensor.name)
