"""The load that a deployment serves."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What each request looks like and how many run at once.

    Attributes:
        input_tokens: Prompt length [token].
        output_tokens: Generated length [token].
        concurrency: Sequences in flight over the whole deployment.
        shared_prefix_tokens: Leading prompt tokens that requests share [token].
        prefix_hit_rate: Share of requests that find the shared prefix cached, 0 to 1.
        benchmark_requests: Requests of a closed-loop benchmark that starts with all its concurrency at once, or None
            for the steady state without that burst.
        source_tokens: Encoder tokens of an encoder–decoder model, or None for the model's maximum [token].
        network_ms: Network time added to TTFT [ms].
    """

    input_tokens: int = 1024
    output_tokens: int = 256
    concurrency: int = 1
    shared_prefix_tokens: int = 0
    prefix_hit_rate: float = 1.0
    benchmark_requests: int | None = None
    source_tokens: int | None = None
    network_ms: float = 0.0

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens", "concurrency"):
            if getattr(self, name) < 1:
                msg = f"{name}: must be at least 1, not {getattr(self, name)}"
                raise UsageError(msg)
        if not 0 <= self.shared_prefix_tokens <= self.input_tokens:
            msg = f"shared_prefix_tokens: must lie between 0 and input_tokens ({self.input_tokens})"
            raise UsageError(msg)
        if not 0 <= self.prefix_hit_rate <= 1:
            msg = f"prefix_hit_rate: must lie between 0 and 1, not {self.prefix_hit_rate}"
            raise UsageError(msg)

    @property
    def cached_prefix_tokens(self) -> float:
        """Prompt tokens that prefill skips on average [token]."""
        return self.shared_prefix_tokens * self.prefix_hit_rate
