"""A serving engine as data: how it budgets memory, how it schedules, and how near it comes to the roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.core.efficiency import Efficiency
from kvplan.core.hardware import Gpu
from kvplan.core.memory_rules import MemoryRules, StateMode
from kvplan.core.model import Model
from kvplan.core.numeric import check_count
from kvplan.core.units import GIB
from kvplan.errors import UsageError

#: A fraction from which on a per cent was meant.
_SURELY_PER_CENT: Final = 10
#: More memory than a GPU will have, in a number that arithmetic can hold [GiB].
_MOST_GIB: Final = 1e6


def memory_bytes(gpu_memory_gib: float | None) -> int | None:
    """Memory of one GPU to plan with instead of its total, None where none is given [byte].

    Raises:
        UsageError: Not above 0, not finite, or more than any GPU has.
    """
    if gpu_memory_gib is None:
        return None
    if not 0 < gpu_memory_gib <= _MOST_GIB:
        msg = f"gpu_memory_gib: must be above 0 and at most {_MOST_GIB:,.0f}, not {gpu_memory_gib}"
        raise UsageError(msg)
    return round(gpu_memory_gib * GIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The knobs of one engine instance; None is the engine's own default.

    Attributes:
        gpu_memory_utilization: The engine's own fraction (vLLM: of the total; SGLang `mem_fraction_static`;
            TensorRT-LLM: of what is free after loading).
        max_num_seqs: Sequences that run at most.
        max_num_batched_tokens: Tokens of one iteration at most.
        enforce_eager: True without captured graphs.
        gpu_memory_bytes: Memory to plan with instead of the card's total [byte].
        n_gpu_layers: Layers on the GPU (llama.cpp); the others stay on the CPU.
        max_loras, max_lora_rank: LoRA slots that are allocated up front.
        block_size: Tokens of one cache block.
        state_mode: State blocks that a sequence of a hybrid keeps (prefix caching of hybrids).
        speculative_tokens: Tokens that MTP layers or a draft model guess; above 0 the MTP layers' weights and cache count.
        dcp: Tensor-parallel ranks that divide each sequence's cache by tokens (decode context parallelism), where they
            would each keep a copy.
        draft_model: A smaller model that guesses tokens, on the same ranks; its weights and cache count.
    """

    gpu_memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    gpu_memory_bytes: int | None = None
    n_gpu_layers: int | None = None
    max_loras: int = 0
    max_lora_rank: int = 16
    block_size: int | None = None
    state_mode: StateMode | None = None
    speculative_tokens: int = 0
    draft_model: Model | None = None
    dcp: int = 1

    def __post_init__(self) -> None:
        fraction = self.gpu_memory_utilization
        if fraction is not None and not 0 < fraction <= 1:
            msg = f"gpu_memory_utilization: must lie above 0 and not above 1, not {fraction}"
            raise UsageError(
                msg, hint=f"{fraction:g} % is {fraction / 100:g}" if fraction >= _SURELY_PER_CENT else None
            )
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "max_lora_rank", "dcp"):
            value = getattr(self, name)
            if value is not None:
                check_count(name, value)
        for name in ("max_loras", "speculative_tokens", "n_gpu_layers"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least=0)
        if self.gpu_memory_bytes is not None and self.gpu_memory_bytes < 1:
            msg = f"gpu_memory_bytes: must be at least 1, not {self.gpu_memory_bytes}"
            raise UsageError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How an engine fills its iterations.

    Attributes:
        mixes_prefill: True where a prefill chunk runs in one iteration with the decodes; False where prompts run in
            iterations of their own while decodes wait.
        reserves_output: True where a request is admitted only if its whole output will fit; False where it is admitted on
            its prompt and room is found as it grows, so that running sequences are half grown on average.
    """

    mixes_prefill: bool = True
    reserves_output: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine at one version.

    Attributes:
        id: `vllm`, `sglang`, `tensorrt-llm`, `llama.cpp`, `ideal`.
        version: Version from which its rules hold, or None.
        memory: Memory rules (`kvplan.core.memory`).
        scheduling: How iterations are filled.
        efficiencies: Fitted parameters per device family.
        fallback: Parameters for a family without measurements, with a wider range.
        vendors: Makers whose devices it runs on; empty is all of them.
        notes: Provenance and limits.
        asked_version: Version that was asked for where it lies outside those whose rules are known, or None.
    """

    id: str
    memory: MemoryRules
    efficiencies: Mapping[str, Efficiency]
    fallback: Efficiency
    version: str | None = None
    scheduling: Scheduling = field(default_factory=Scheduling)
    vendors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    asked_version: str | None = None

    @property
    def name(self) -> str:
        """Canonical id with the version, `vllm@0.19`."""
        return f"{self.id}@{self.version}" if self.version else self.id

    def runs_on(self, gpu: Gpu) -> bool:
        """False where its documentation names no backend for devices of this maker."""
        return not self.vendors or gpu.vendor in self.vendors

    def efficiency_for(self, gpu: Gpu) -> tuple[Efficiency, bool]:
        """The parameters for a GPU, and whether its family was measured."""
        found = self.efficiencies.get(gpu.family, self.fallback)
        return found, found.measured
