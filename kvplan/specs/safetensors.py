"""Exact weight bytes from the headers of a checkpoint's safetensors files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

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
_LAYER: Final = re.compile(r"(?:^|\.)layers\.(\d{1,9})\.")
#: Modules that a decoder's layers lie in; those of towers and encoders lie in others.
_WRAPPERS: Final = frozenset(
    {"", "model", "language_model", "text_model", "transformer", "backbone", "gpt_neox", "decoder"}
)
_PREDICTOR: Final = re.compile(r"^(model\.|language_model\.)*mtp\b|(^|\.)mtp_")
_DIFFERENCE_TO_TELL: Final = 0.01


def read_folder(folder: Path) -> tuple[StoredTensor, ...] | None:
    """The tensors in the headers of all weight files of a local checkpoint, or None where it has none.

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


def gather(files: Iterable[tuple[str, tuple[StoredTensor, ...]]]) -> tuple[StoredTensor, ...]:
    """The tensors of all files together.

    Raises:
        SpecError: Two files hold a tensor of the same name.
    """
    tensors: list[StoredTensor] = []
    owner: dict[str, str] = {}
    for name, entries in files:
        for tensor in entries:
            if tensor.name in owner:
                msg = f"{name}: {tensor.name[:80]} is in {owner[tensor.name]} too"
                raise SpecError(msg)
            owner[tensor.name] = name
        tensors.extend(entries)
    return tuple(tensors)


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


def with_exact_bytes(model: Model, stored: Iterable[StoredTensor]) -> Model:
    """The model with the bytes of its files; a difference from arithmetic above 1 % becomes a warning.

    Multi-token-prediction layers and a stored copy of a tied head are left out: engines do not load them.
    """
    tied = not any(t.tensor_class is TensorClass.HEAD and t.stored for t in model.tensors)
    exact = sum(t.stored_bytes for t in stored if not _is_left_out(t.name, model.num_hidden_layers, tied=tied))
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
