"""Which function reads which `model_type`; modules are imported when a config needs them."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Final, cast

from kvplan.errors import UnsupportedModelError
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config

Adapter = Callable[[Config], Blueprint]

#: `model_type` → (module in this package, function). One line per type; keep each kin's block sorted.
FAMILIES: Final[dict[str, tuple[str, str]]] = {
    # llama.py: plain decoders with gated feed-forward
    "llama": ("llama", "llama"),
}


def adapt(config: Config, *, assume_plain: bool = False) -> Blueprint:
    """Read a config with the adapter of its `model_type` (also for nested text configs).

    Args:
        config: The config.
        assume_plain: Read an unknown type as a plain decoder if it has only plain fields.

    Raises:
        SpecError: A field is missing or invalid.
        UnsupportedModelError: No adapter for this type.
    """
    model_type = config.model_type
    if not model_type:
        raise config.error("model_type", "is missing", hint="kvplan reads the family from it")
    entry = FAMILIES.get(model_type)
    if entry is None and assume_plain:
        entry = ("plain", "plain")
    if entry is None:
        near = difflib.get_close_matches(model_type, FAMILIES, n=1, cutoff=0.5)
        hint = f"nearest known type: {near[0]!r}" if near else None
        msg = f"{config.source}: {config.field('model_type')}: {model_type!r} is not a family that kvplan knows"
        raise UnsupportedModelError(msg, hint=hint)
    module, function = entry
    return cast("Adapter", getattr(importlib.import_module(f"{__package__}.{module}"), function))(config)
