"""What an answer says about the server that is to be started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvplan.core.results import Estimate

_PORTS: Final = {"vllm": 8000, "sglang": 30000, "tensorrt-llm": 8000, "llama.cpp": 8080}
#: Guessed tokens where a draft model is given without their number.
_FEW_GUESSES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One replica to be started.

    Attributes:
        estimate: What was planned; it must fit.
        model: Repository id or path that the engine loads.
        vendor: Maker of the GPUs, `nvidia` or `amd`.
        quantization: Weight format that was asked for instead of the checkpoint's, or None.
        max_num_seqs, max_num_batched_tokens, gpu_memory_utilization: Settings that differ from the engine's own, or None.
        card_bytes: Total of the card where another amount was planned with (a slice, or what others leave), or None.
        enforce_eager: No captured graphs.
        n_gpu_layers: Layers on the GPU (llama.cpp), or None for all.
        max_loras, max_lora_rank: Room for LoRA adapters.
        speculative_tokens, draft_model: Tokens that are guessed, and the repository of the model that does, or None for
            the model's own multi-token-prediction layers.
        dcp: Ranks that divide the cache by tokens.
        replicas: Equal replicas.
    """

    estimate: Estimate
    model: str
    vendor: str = "nvidia"
    quantization: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    card_bytes: int | None = None
    enforce_eager: bool = False
    n_gpu_layers: int | None = None
    max_loras: int = 0
    max_lora_rank: int = 16
    speculative_tokens: int = 0
    draft_model: str | None = None
    dcp: int = 1
    replicas: int = 1

    @property
    def engine(self) -> str:
        """Engine without its version."""
        return self.estimate.scenario.engine.partition("@")[0]

    @property
    def serves(self) -> bool:
        """False for a profile that is no server, such as `ideal`."""
        return self.engine in _PORTS

    @property
    def context(self) -> int:
        """Longest sequence that is planned for and that the pool holds [token]."""
        return min(self.estimate.scenario.context, self.estimate.capacity.max_context)

    @property
    def port(self) -> int:
        """Port that the engine listens on."""
        return _PORTS[self.engine]

    @property
    def guesses(self) -> int:
        """Tokens that are guessed ahead, 0 for none [token]."""
        return self.speculative_tokens or (_FEW_GUESSES if self.draft_model is not None else 0)
