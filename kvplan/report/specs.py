"""Models and GPUs for people: one shown in full, many as a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvplan.core.cache import elements_per_token, state_elements
from kvplan.core.dataclass import dataclass
from kvplan.core.hardware import Gpu
from kvplan.core.model import Model
from kvplan.core.precision import display_dtype
from kvplan.core.summary import model_summary
from kvplan.core.units import GB, GIB, TERA
from kvplan.report.blocks import Block, Bullets, Line, Table, flat, plain_data
from kvplan.report.layers import feed_forward_words, group_parameters, layer_numbers, mixer_words
from kvplan.report.text import billions, exact, gib, significant, whole

NONE_FOUND = Line(text="None has this text; without one, all are listed.", tone="warning")
_LARGE_GIB = 100
_FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """One model: what it is made of, layer by layer."""

    model: Model

    def data(self) -> dict[str, Any]:
        """The `kvplan.model/1` document."""
        return model_summary(self.model)

    def records(self) -> Sequence[Mapping[str, Any]]:
        """The summary as one row."""
        return (flat(self.data()),)

    def blocks(self) -> Sequence[Block]:
        """Summary, layers, and what to doubt."""
        return list(_model_blocks(self.model, self.data()))


def _model_blocks(model: Model, summary: Mapping[str, Any]) -> Iterator[Block]:
    yield Line(text=f"{model.id} ({model.architecture})", tone="title")
    rows = [("parameters", whole(summary["params_total"]), billions(summary["params_total"]))]
    if summary["params_active"] != summary["params_total"]:
        rows.append(("  active per token", whole(summary["params_active"]), billions(summary["params_active"])))
    rows += [
        ("  of these embeddings", whole(summary["params_embedding"]), billions(summary["params_embedding"])),
        (
            "weights",
            f"{whole(summary['weights_bytes'])} bytes",
            f"{gib(summary['weights_bytes'])}, {display_dtype(model)}",
        ),
        ("layers", whole(summary["layers"]), f"hidden size {whole(model.hidden_size)}"),
        ("KV cache per token", f"{exact(summary['kv_elements_per_token'])} elements", "while every window is open"),
    ]
    if summary["kv_window_layers"]:
        rows.append(
            (
                "  without a window",
                f"{exact(summary['kv_elements_per_token_full'])} elements",
                f"{summary['kv_window_layers']} layers have one",
            )
        )
    if summary["state_elements_per_sequence"]:
        rows.append(("fixed state per sequence", f"{whole(summary['state_elements_per_sequence'])} elements", ""))
    if summary["cross_kv_elements_per_source_token"]:
        cross = f"{whole(summary['cross_kv_elements_per_source_token'])} elements"
        rows.append(("cross cache per source token", cross, ""))
    longest = summary["max_context"]
    rows += [
        ("longest context", f"{whole(longest)} tokens" if longest else "not stated", ""),
        ("cache format", str(summary["kv_dtype_default"]), "unless the engine or --kv-dtype says otherwise"),
    ]
    yield Table(title="", columns=("", "", ""), rows=tuple(rows), left=1, open_end=True)
    yield _layer_table(model)
    if summary["warnings"]:
        yield Bullets(title="Warnings", items=tuple(summary["warnings"]), tone="warning")
    if model.assumptions:
        yield Bullets(title="Assumptions", items=model.assumptions)


def _layer_table(model: Model) -> Table:
    rows = []
    for index, group in enumerate(model.groups):
        mixers = group.layer.mixers
        cache = sum(elements_per_token(mixer) for mixer in mixers)
        state = sum(state_elements(mixer) for mixer in mixers)
        kept = exact(cache) if cache or not state else f"{whole(state)} fixed"
        words = " + ".join(mixer_words(mixer) for mixer in mixers) or "none"
        rows.append(
            (
                layer_numbers(model, index),
                whole(group.count),
                whole(group_parameters(group)),
                kept,
                f"{words}; feed-forward {feed_forward_words(group)}",
            )
        )
    for group in model.encoder_groups:
        words = " + ".join(mixer_words(mixer) for mixer in group.layer.mixers)
        one = whole(group_parameters(group))
        rows.append(("encoder", whole(group.count), one, "0", f"{words}; feed-forward {feed_forward_words(group)}"))
    columns = ("layers", "count", "parameters", "cache/token", "what each is")
    return Table(
        title="Layers (each: parameters, cache elements that one token adds)",
        columns=columns,
        rows=tuple(rows),
        left=1,
        open_end=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelListReport:
    """Many models, one line each."""

    models: tuple[Model, ...]

    def data(self) -> list[dict[str, Any]]:
        """A list of `kvplan.model/1` documents."""
        return [model_summary(model) for model in self.models]

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One row per model."""
        return [flat(item) for item in self.data()]

    def blocks(self) -> Sequence[Block]:
        """A table."""
        if not self.models:
            return (NONE_FOUND,)
        rows = tuple(
            (
                model.id,
                billions(item["params_total"]),
                billions(item["params_active"]) if item["params_active"] != item["params_total"] else "",
                _gib(item["weights_bytes"] / GIB),
                display_dtype(model),
                exact(item["kv_elements_per_token"]),
                whole(item["max_context"]) if item["max_context"] else "",
            )
            for model, item in zip(self.models, self.data(), strict=True)
        )
        columns = ("model", "params", "active", "GiB", "format", "KV/token", "context")
        units = "Weights in GiB; KV cache elements that one token adds, in any format; context in tokens."
        return (Table(title="", columns=columns, rows=rows), Line(text=units, tone="quiet"))


def _gib(value: float) -> str:
    """Hundredths of a GiB as long as they matter: a list of all models has 80 columns."""
    return f"{value:,.2f}" if value < _LARGE_GIB else f"{value:,.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """A spec file that was written.

    Attributes:
        path: The file.
        model: Id of the model.
        parameters: Its parameters [parameter].
        warnings: What to doubt.
    """

    path: str
    model: str
    parameters: int
    warnings: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """The same as a document."""
        return plain_data(self)  # type: ignore[no-any-return]

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One flat row."""
        return (flat(self.data()),)

    def blocks(self) -> Sequence[Block]:
        """One line, and warnings."""
        text = f"wrote {self.path}: {self.model}, {whole(self.parameters)} parameters; review it before use"
        lines: list[Block] = [Line(text=text)]
        return [*lines, Bullets(title="Warnings", items=self.warnings, tone="warning")] if self.warnings else lines


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """One accelerator."""

    gpu: Gpu

    def data(self) -> dict[str, Any]:
        """A `kvplan.gpu/1` document in base units."""
        return {"schema": "kvplan.gpu/1", **plain_data(self.gpu)}

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One flat row."""
        return (flat(self.data()),)

    def blocks(self) -> Sequence[Block]:
        """Memory, rates, links."""
        return list(_gpu_blocks(self.gpu))


def _gpu_blocks(gpu: Gpu) -> Iterator[Block]:
    yield Line(text=f"{gpu.id}: {gpu.name} ({gpu.vendor})", tone="title")
    capability = ".".join(str(part) for part in gpu.compute_capability) if gpu.compute_capability else None
    rows: list[tuple[str, str]] = [
        ("architecture", gpu.architecture + (f", compute capability {capability}" if capability else "")),
        ("efficiency family", gpu.family),
        ("memory (driver)", f"{whole(gpu.memory_bytes)} bytes = {gib(gpu.memory_bytes)}"),
        ("memory (framework)", f"{whole(gpu.framework_memory_bytes)} bytes = {gib(gpu.framework_memory_bytes)}"),
        ("memory bandwidth", _rate(gpu.memory_bandwidth_bytes_per_s)),
    ]
    if gpu.unified_memory:
        rows.append(("", "shared with the CPU"))
    if gpu.l2_bytes:
        rows.append(("last-level cache", f"{whole(gpu.l2_bytes)} bytes"))
    if gpu.link_bytes_per_s:
        rows.append(
            (gpu.link_name or "link", f"{_rate(gpu.link_bytes_per_s)} per direction, {gpu.link_domain} devices")
        )
    if gpu.link_p2p_bytes_per_s and gpu.link_p2p_bytes_per_s != gpu.link_bytes_per_s:
        rows.append(("  between one pair", _rate(gpu.link_p2p_bytes_per_s)))
    if gpu.pcie_bytes_per_s:
        rows.append(("host link (PCIe)", f"{_rate(gpu.pcie_bytes_per_s)} per direction"))
    if gpu.network_bytes_per_s:
        rows.append(("network per device", f"{_rate(gpu.network_bytes_per_s)} per direction"))
    if gpu.tdp_w:
        rows.append(("board power", f"{significant(gpu.tdp_w)} W"))
    yield Table(title="", columns=("", ""), rows=tuple(rows), left=1, open_end=True)
    peaks = [(name, gpu.peak_flops_per_s[name]) for name in _FORMATS if gpu.peak_flops_per_s.get(name)]
    yield Table(
        title="Dense peaks",
        columns=("format", "TFLOP/s", "FLOP per byte of bandwidth"),
        rows=tuple(
            (name, significant(rate / TERA), significant(rate / gpu.memory_bandwidth_bytes_per_s))
            for name, rate in peaks
        ),
    )
    if gpu.notes:
        yield Bullets(title="Notes", items=gpu.notes)


def _rate(bytes_per_s: float) -> str:
    return f"{significant(bytes_per_s / GB, 4)} GB/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuListReport:
    """Many accelerators, one line each."""

    gpus: tuple[Gpu, ...]

    def data(self) -> list[dict[str, Any]]:
        """A list of `kvplan.gpu/1` documents."""
        return [{"schema": "kvplan.gpu/1", **plain_data(gpu)} for gpu in self.gpus]

    def records(self) -> Sequence[Mapping[str, Any]]:
        """One row per accelerator."""
        return [flat(item) for item in self.data()]

    def blocks(self) -> Sequence[Block]:
        """A table."""
        if not self.gpus:
            return (NONE_FOUND,)
        rows = tuple(
            (
                gpu.id,
                f"{gpu.framework_memory_bytes / GIB:,.1f}",
                significant(gpu.memory_bandwidth_bytes_per_s / GB, 4),
                _peak(gpu, "bf16") or _peak(gpu, "fp16"),
                _peak(gpu, "fp8"),
                _peak(gpu, "int8"),
                significant(gpu.link_bytes_per_s / GB) if gpu.link_bytes_per_s else "",
            )
            for gpu in self.gpus
        )
        columns = ("GPU", "GiB", "GB/s", "bf16", "fp8", "int8", "link")
        units = "Memory as frameworks report it; dense TFLOP/s in bf16 (else fp16), fp8, int8; link GB/s per direction."
        return (Table(title="", columns=columns, rows=rows), Line(text=units, tone="quiet"))


def _peak(gpu: Gpu, name: str) -> str:
    rate = gpu.peak_flops_per_s.get(name)
    return significant(rate / TERA) if rate else ""
