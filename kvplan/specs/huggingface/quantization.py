"""Formats of a quantised checkpoint, assigned per tensor: the one place that reads `quantization_config`."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.errors import UnsupportedModelError
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """A blueprint with formats assigned.

    Attributes:
        blueprint: Layers, tensors and towers with `Tensor.format` set where it is not the model's dtype.
        quantization: Name of the checkpoint's quantisation, or None.
        kv_dtype: Cache format that the checkpoint asks for, or None.
    """

    blueprint: Blueprint
    quantization: str | None = None
    kv_dtype: str | None = None


def apply_quantization(blueprint: Blueprint, config: Config) -> Quantized:
    """Assign stored formats by the checkpoint's quantisation config (in `config`, nested in its text config, or in the
    sidecar `config.sidecar`), tensor by tensor; unchanged where there is none.

    A layer's tensor is called `blueprint.layer_prefix.format(i=i) + tensor.name`; model-level and tower tensors have
    full names.

    Raises:
        UnsupportedModelError: A quantisation that is not understood.
    """
    config.ignore("quantization_config", "compression_config")
    if config.has("quantization_config") or config.has("compression_config") or config.sidecar is not None:
        msg = f"{config.source}: quantization_config: not understood"
        raise UnsupportedModelError(msg)
    return Quantized(blueprint=blueprint)
