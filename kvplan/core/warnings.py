"""What a reader should doubt about a deployment, whatever its load."""

from __future__ import annotations

from kvplan.core.collectives import PCIE, link_for
from kvplan.core.dtypes import kv_bits
from kvplan.core.engine import Engine
from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.model import Model
from kvplan.core.parameters import model_tensors, tensor_format

_HALF_BITS = 16
_UNITS = {"fp8": "fp8", "fp4": "fp4", "int8": "int8", "bf16": "bf16"}


def deployment_warnings(
    model: Model, gpu: Gpu, *, engine: Engine, layout: Layout, kv_dtype: str, measured: bool
) -> tuple[str, ...]:
    """Warnings of a deployment: missing units, backends and rules, links between nodes, unmeasured devices, quantised caches."""
    found = [*model.warnings, *_missing_units(model, gpu), *_slow_links(gpu, layout)]
    if kv_bits(kv_dtype) < _HALF_BITS:
        found.append(
            f"a cache in {kv_dtype} can cost quality (long-context recall first); kvplan does not predict quality"
        )
    if model.encodes_only:
        found.append(
            f"{model.id} encodes and generates nothing: TTFT is the time of one pass, other times have no meaning"
        )
    if engine.asked_version is not None:
        found.append(
            f"{engine.id}@{engine.asked_version} lies outside the versions whose rules are known: "
            f"those of {engine.version}, the nearest, are used"
        )
    if not engine.runs_on(gpu):
        found.append(
            f"{engine.id} has no backend for {gpu.vendor} devices ({', '.join(engine.vendors)} only): "
            "read this as what such hardware could do, not as something to deploy"
        )
    if not gpu.available:
        found.append(f"{gpu.name} is announced only, or hardly shipped: its figures may change")
    if not measured and engine.id != "ideal":
        found.append(
            f"no measurements of {engine.id} on {gpu.family} devices: efficiencies are inherited and ranges are wider"
        )
    return tuple(dict.fromkeys(found))


def _missing_units(model: Model, gpu: Gpu) -> list[str]:
    computes = {tensor_format(t, model.dtype).compute for _, t in model_tensors(model) if t.matmul}
    found = []
    for compute in sorted(c for c in computes if c in _UNITS):
        unit, _ = gpu.peak(compute)
        if unit != compute:
            saved = "" if compute == "bf16" else ", so only bytes are saved"  # both have 16 bits
            what = "weights are expanded" if compute in {"fp8", "fp4"} else "they run"
            found.append(f"{gpu.name} has no {compute} matrix units: {what} at its {unit} rate{saved}")
    return found


def _slow_links(gpu: Gpu, layout: Layout) -> list[str]:
    if layout.tp == 1:
        return []
    link = link_for(gpu, layout.tp)
    if link.hops_network:
        return [
            f"tp={layout.tp} spans nodes of {gpu.gpus_per_node} {gpu.name}: all-reduces cross the network; prefer pp or dp"
        ]
    return [f"tp={layout.tp} crosses PCIe on {gpu.name}: all-reduces are slow there"] if link.name == PCIE else []
