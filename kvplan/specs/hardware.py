"""Hardware specs → `Gpu`: names, files and mappings come in, one conversion turns printed values into base units.

A bundled file is held to `hardware_schema` by a test, a user's own file when it is read; both then take the same
conversion, which needs no pydantic and so starts fast.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvplan.core.hardware import Gpu
from kvplan.errors import SpecError
from kvplan.specs import registry
from kvplan.specs.bundled import load_bundled
from kvplan.specs.document import YamlDocument
from kvplan.specs.families import FRAMEWORK_RULES
from kvplan.specs.files import named
from kvplan.specs.units import parse_quantity

PEAK_FORMATS: Final = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4", "fp4")


def load_gpu(gpu: str | os.PathLike[str] | Mapping[str, Any] | Gpu) -> Gpu:
    """The accelerator behind a name, an alias, the path of a YAML file, a mapping of its fields, or itself.

    Args:
        gpu: Id or alias in any case; text with a folder or a `.yaml` ending is a path.

    Raises:
        UnknownNameError: No bundled card has that name.
        SpecError: The file or mapping breaks the schema; all errors in one message.

    >>> load_gpu("A100").id, load_gpu("a100-80g").memory_bandwidth_bytes_per_s
    ('a100-80g-sxm', 2039000000000)
    """
    if isinstance(gpu, Gpu):
        return gpu
    if isinstance(gpu, Mapping):
        return _load_mapping(gpu)
    name = named("gpu", gpu)
    if isinstance(gpu, str) and not _looks_like_path(name):
        return bundled_gpu(name)
    return _load_file(Path(name))


def bundled_gpu(name: str) -> Gpu:
    """A bundled accelerator by its id or alias; no path is looked at.

    Raises:
        UnknownNameError: No bundled card has that name.
    """
    return _load_bundled(registry.resolve("gpu", name))


def default_framework_rule(vendor: str, *, unified: bool) -> str:
    """Name of the `FRAMEWORK_RULES` entry for a card whose spec states no framework memory."""
    if unified:
        return "as-usable"
    return {"nvidia": "nvidia-discrete", "amd": "rocm-discrete"}.get(vendor.casefold(), "as-usable")


def gpu_from_spec(spec: Mapping[str, Any]) -> Gpu:
    """Convert a checked hardware spec to base units, for ONE rank.

    A package that engines see as `n` devices (`devices_per_package: n`) is printed whole on its sheet: memory,
    bandwidth, peaks, caches, cores, links and power are divided by `n`, link domain and devices per server multiplied.

    Args:
        spec: Fields of a hardware spec that satisfies `hardware_schema.HardwareSpec`.

    >>> spec = {"id": "x", "vendor": "X", "family": "cpu", "peak": {"fp32": "1 TFLOPS"},
    ...         "memory": {"capacity": "8 GB", "bandwidth": "50 GB/s"}}
    >>> gpu_from_spec(spec).memory_bytes
    8000000000
    """
    ranks = spec.get("devices_per_package") or 1
    memory, links = spec["memory"], spec.get("links") or {}
    usable_bytes, framework_bytes, notes = _memory(spec)
    scale_up, pcie = links.get("scale_up") or {}, links.get("pcie") or {}
    network, host = links.get("network") or {}, links.get("host") or {}
    link = _optional(scale_up.get("rate"), "rate", ranks)
    pcie_rate = _optional(pcie.get("rate"), "rate", ranks)
    capability = spec.get("compute_capability")
    last_level_cache = spec.get("last_level_cache") or spec.get("l2_cache")
    cores = spec.get("cores")
    return Gpu(
        id=spec["id"],
        name=spec.get("name") or spec["id"],
        vendor=spec["vendor"],
        architecture=spec.get("architecture") or spec["family"],
        family=spec["family"],
        compute_capability=_capability(capability) if capability else None,
        memory_bytes=usable_bytes // ranks,
        framework_memory_bytes=framework_bytes // ranks,
        memory_bandwidth_bytes_per_s=_share(parse_quantity(memory["bandwidth"], "rate"), ranks),
        peak_flops_per_s={
            name: _share(parse_quantity(spec["peak"][name], "compute"), ranks)
            for name in PEAK_FORMATS
            if spec["peak"].get(name)
        },
        l2_bytes=_size(last_level_cache) // ranks if last_level_cache else None,
        link_name=scale_up.get("name"),
        link_bytes_per_s=link,
        link_p2p_bytes_per_s=_optional(scale_up.get("p2p"), "rate", 1) or link,
        link_domain=(scale_up.get("domain") or 1) * ranks,
        pcie_bytes_per_s=pcie_rate,
        host_bytes_per_s=_optional(host.get("rate"), "rate", ranks) or pcie_rate,
        network_bytes_per_s=_optional(network.get("rate"), "rate", 1),
        gpus_per_node=(spec.get("gpus_per_node") or 1) * ranks,
        tdp_w=_optional(spec.get("tdp"), "power", ranks),
        sm_count=cores // ranks if cores else None,
        boost_clock_hz=_optional(spec.get("clock"), "frequency", 1),
        unified_memory=bool(memory.get("unified")),
        devices_per_package=ranks,
        available=spec.get("available", True) is not False,
        notes=(*(spec.get("notes") or ()), *notes),
    )


def _memory(spec: Mapping[str, Any]) -> tuple[int, int, list[str]]:
    """Driver's and framework's total of a package [byte], and what had to be assumed."""
    memory, notes = spec["memory"], []
    usable = memory.get("usable")
    if usable:
        usable_bytes = _size(usable["value"])
    else:
        usable_bytes = _size(memory["capacity"])
        notes.append("The spec states no usable memory: the printed capacity is taken, in decimal bytes.")
    framework = memory.get("framework")
    if framework and framework.get("value"):
        return usable_bytes, _size(framework["value"]), notes
    unified = bool(memory.get("unified"))
    rule = framework["rule"] if framework else default_framework_rule(spec["vendor"], unified=unified)
    notes.append(f"Framework memory is derived from the driver's total by rule `{rule}`.")
    return usable_bytes, FRAMEWORK_RULES[rule](usable_bytes), notes


def _load_bundled(path: Path) -> Gpu:
    return gpu_from_spec(load_bundled(path).data)


def _load_file(path: Path) -> Gpu:
    from kvplan.specs.hardware_schema import HardwareSpec  # noqa: PLC0415 - pydantic is slow to import
    from kvplan.specs.yaml import load_yaml, validate  # noqa: PLC0415 - as above

    document = load_yaml(path)
    validate(document, HardwareSpec)
    return gpu_from_spec(document.data)


def _load_mapping(fields: Mapping[str, Any]) -> Gpu:
    from kvplan.specs.hardware_schema import HardwareSpec  # noqa: PLC0415 - pydantic is slow to import
    from kvplan.specs.yaml import validate  # noqa: PLC0415 - as above

    document = YamlDocument(path="<gpu>", data=dict(fields), lines={})
    try:
        validate(document, HardwareSpec)
    except SpecError as error:
        raise SpecError(re.sub(r"^<gpu>:1: ", "gpu: ", str(error), flags=re.MULTILINE)) from None
    return gpu_from_spec(document.data)


def _looks_like_path(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) or "/" in name or os.sep in name


def _capability(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _size(text: object) -> int:
    return int(parse_quantity(text, "size"))


def _optional(text: object, kind: str, ranks: int) -> float | None:
    return None if text is None else _share(parse_quantity(text, kind), ranks)


def _share(value: float, ranks: int) -> float:
    return value if ranks == 1 else value / ranks
