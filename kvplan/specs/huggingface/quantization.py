"""Formats of a quantised checkpoint, assigned tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvplan.core.dataclass import dataclass
from kvplan.core.model import Layer
from kvplan.core.precision import map_tensors
from kvplan.core.tensors import Tensor
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import TEXT_CONFIGS, Config


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
    """Assign stored formats by the quantisation config of a checkpoint, tensor by tensor.

    It is in `config`, nested in its text config, or in the sidecar `config.sidecar`; without one nothing changes.

    A layer's tensor is called `blueprint.layer_prefix.format(i=i) + tensor.name`; model-level and tower tensors have
    full names.

    Raises:
        SpecError: A field is missing or invalid.
        UnsupportedModelError: A quantisation that is not understood.
    """
    if config.sidecar is None and not _mentions_quantization(config):
        return Quantized(blueprint=blueprint)
    from kvplan.specs.quantization import Part, read_quantization  # large, and most models are plain

    plan = read_quantization(config)
    if plan is None:
        return Quantized(blueprint=blueprint)

    def in_layer(prefix: str) -> Callable[[int, Layer], Layer]:
        def change(index: int, layer: Layer) -> Layer:
            start = prefix.format(i=index)
            return map_tensors(layer, lambda t: replace(t, format=plan.format_for(start + t.name, t)))

        return change

    def whole(part: Part) -> Callable[[Tensor], Tensor]:
        return lambda t: replace(t, format=plan.format_for(t.name, t, part))

    def in_predictor(index: int, tensor: Tensor) -> Tensor:
        """Checkpoints number predictor layers after the others, or keep them under `mtp`; lists may name either."""
        if plan.ignore is not None and plan.ignore.matches(f"mtp.layers.{index}.{tensor.name}", copies=tensor.copies):
            return tensor
        name = blueprint.layer_prefix.format(i=len(blueprint.layers) + index) + tensor.name
        return replace(tensor, format=plan.format_for(name, tensor))

    def predictor(index: int, layer: Layer) -> Layer:
        return map_tensors(layer, lambda t: in_predictor(index, t))

    decoder, encoder = in_layer(blueprint.layer_prefix), in_layer(blueprint.encoder_prefix)
    changed = replace(
        blueprint,
        layers=tuple(decoder(i, layer) for i, layer in enumerate(blueprint.layers)),
        encoder_layers=tuple(encoder(i, layer) for i, layer in enumerate(blueprint.encoder_layers)),
        mtp_layers=tuple(predictor(i, layer) for i, layer in enumerate(blueprint.mtp_layers)),
        mtp_tensors=tuple(in_predictor(0, t) for t in blueprint.mtp_tensors),
        tensors=tuple(whole(Part.MODEL)(t) for t in blueprint.tensors),
        towers=tuple(
            replace(tower, tensors=tuple(whole(Part.TOWER)(t) for t in tower.tensors)) for tower in blueprint.towers
        ),
    )
    return Quantized(blueprint=changed, quantization=plan.name, kv_dtype=plan.kv_dtype)


def _mentions_quantization(config: Config) -> bool:
    fields = ("quantization_config", "compression_config")
    if any(config.has(name) for name in fields):
        return True
    config.ignore(*fields)
    nested = (config.data.get(name) for name in TEXT_CONFIGS)
    return any(isinstance(data, dict) and data.get(name) for data in nested for name in fields)
