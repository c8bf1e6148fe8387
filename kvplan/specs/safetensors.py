"""Exact weight bytes from the headers of a checkpoint's safetensors files, and what of them are parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kvplan.core.dataclass import dataclass
from kvplan.core.model import Model
from kvplan.core.parameters import weights_bytes_model
from kvplan.core.tensors import TensorClass
from kvplan.errors import SpecError
from kvplan.specs.files import parse_json, read_bytes
from kvplan.specs.safetensors_header import StoredTensor, read_file

INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_FILE: Final = "model.safetensors"
_MOST_SHARDS: Final = 10_000
_MOST_INDEX_BYTES: Final = 64_000_000
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
_LAYER: Final = re.compile(r"(?:^|\.)layers\.(\d{1,9})\.")
#: Modules that a decoder's layers lie in; those of towers and encoders lie in others.
_WRAPPERS: Final = frozenset(
    {"", "model", "language_model", "text_model", "transformer", "backbone", "gpt_neox", "decoder"}
)
_PREDICTOR: Final = re.compile(r"^(model\.|language_model\.)*mtp\b|(^|\.)mtp_")
_DIFFERENCE_TO_TELL: Final = 0.01


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
        found = sorted(path.name for path in folder.glob("*.safetensors") if path.is_file())
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
    return parse_json(read_bytes(path, most_bytes=_MOST_INDEX_BYTES, what="an index"), source=path.name)


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
    safe = all(re.fullmatch(r"[\w.\-]{1,200}\.safetensors", name, re.ASCII) for name in names)
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
