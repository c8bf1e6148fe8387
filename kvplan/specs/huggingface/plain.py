"""The fallback for an unknown family whose config has only the well-known fields of a plain decoder."""

from __future__ import annotations

from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.llama import llama


def plain(config: Config) -> Blueprint:
    """Read as a Llama-like decoder, with a warning; any field beyond the plain ones is refused later as not read."""
    config.warnings.append(
        f"model_type {config.model_type!r} is not known: read as a plain decoder (grouped-query attention, gated "
        "feed-forward, two norms); parameters may be off by norms and biases, more if the family has other parts"
    )
    return llama(config)
