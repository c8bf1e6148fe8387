"""Types of the keywords that describe scenarios and grids of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict

from kvplan.core.engine import Engine
from kvplan.core.hardware import Gpu
from kvplan.core.model import Model


class Array(Protocol):
    """Values of NumPy, pandas or another library, of which nothing else is asked here."""

    @property
    def ndim(self) -> int:
        """Dimensions: 0 is one value."""


#: One value, or several: a sequence or an array.
Texts = str | Sequence[str | None] | Array | None
Counts = int | Sequence[int | None] | Array | None
Numbers = float | Sequence[float | None] | Array | None


class ScenarioFields(TypedDict, total=False):
    """Keywords of `kvplan.estimate`."""

    model: str | Path | Mapping[str, Any] | Model
    gpu: str | Path | Mapping[str, Any] | Gpu
    engine: str | Path | Mapping[str, Any] | Engine
    dtype: str | None
    kv_dtype: str | None
    tp: int
    pp: int
    dp: int
    ep: int | None
    gpu_count: int | None
    input_tokens: int
    output_tokens: int
    concurrency: int
    context: int | None
    gpu_memory_utilization: float | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    enforce_eager: bool
    gpu_memory_gib: float | None
    n_gpu_layers: int | None
    max_loras: int
    max_lora_rank: int
    speculative_tokens: int
    draft_model: str | Path | Mapping[str, Any] | Model | None
    dcp: int
    shared_prefix_tokens: int
    prefix_hit_rate: float
    source_tokens: int | None
    network_ms: float
    benchmark_requests: int | None
    equal_lengths: bool
    allow_context_overflow: bool
    assume_plain: bool
    overrides: Mapping[str, Any] | None


class GridFields(TypedDict, total=False):
    """The same, each one value or several."""

    engine: str | Path | Mapping[str, Any] | Engine | Sequence[str]
    dtype: Texts
    kv_dtype: Texts
    tp: Counts
    pp: Counts
    dp: Counts
    ep: Counts
    input_tokens: Counts
    output_tokens: Counts
    concurrency: Counts
    context: Counts
    gpu_memory_utilization: Numbers
    max_num_seqs: Counts
    max_num_batched_tokens: Counts
    enforce_eager: bool | Sequence[bool]
    gpu_memory_gib: Numbers
    n_gpu_layers: Counts
    max_loras: Counts
    max_lora_rank: Counts
    speculative_tokens: Counts
    draft_model: str | Path | Mapping[str, Any] | Model | None
    dcp: Counts
    shared_prefix_tokens: Counts
    prefix_hit_rate: Numbers
    source_tokens: Counts
    network_ms: Numbers
    benchmark_requests: Counts
    equal_lengths: bool | Sequence[bool]
    allow_context_overflow: bool
    assume_plain: bool
    overrides: Mapping[str, Any] | None
