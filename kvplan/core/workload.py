"""The load that a deployment serves."""

from __future__ import annotations

from kvplan.core.dataclass import dataclass
from kvplan.core.numeric import Num, check_count, everywhere
from kvplan.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What each request looks like and how many run at once, in plain numbers, or in arrays that broadcast (a grid).

    Attributes:
        input_tokens: Prompt length [token].
        output_tokens: Generated length [token].
        concurrency: Sequences in flight over the whole deployment.
        shared_prefix_tokens: Leading prompt tokens that requests share [token].
        prefix_hit_rate: Share of requests that find the shared prefix cached, 0 to 1.
        benchmark_requests: Requests of a closed-loop benchmark that starts with all its concurrency at once, or None
            for the steady state without that burst.
        equal_lengths: True for a closed-loop benchmark whose requests are all of one length, so that they stay in step.
        source_tokens: Encoder tokens of an encoder–decoder model, or None for the model's maximum [token].
        network_ms: Network time added to TTFT [ms].
    """

    input_tokens: Num = 1024
    output_tokens: Num = 256
    concurrency: Num = 1
    shared_prefix_tokens: Num = 0
    prefix_hit_rate: Num = 1.0
    benchmark_requests: Num | None = None
    equal_lengths: bool = False
    source_tokens: Num | None = None
    network_ms: Num = 0.0

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens", "concurrency"):
            check_count(name, getattr(self, name))
        for name, least in (("benchmark_requests", 1), ("source_tokens", 0)):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least=least)
        check_count("network_ms", self.network_ms, least=0)
        if not everywhere(self.shared_prefix_tokens >= 0) or not everywhere(
            self.shared_prefix_tokens <= self.input_tokens
        ):
            msg = f"shared_prefix_tokens: must lie between 0 and input_tokens ({self.input_tokens})"
            raise UsageError(msg)
        if not everywhere(self.prefix_hit_rate >= 0) or not everywhere(self.prefix_hit_rate <= 1):
            msg = f"prefix_hit_rate: must lie between 0 and 1, not {self.prefix_hit_rate}"
            raise UsageError(msg)

    @property
    def cached_prefix_tokens(self) -> Num:
        """Prompt tokens that prefill skips on average [token]."""
        return self.shared_prefix_tokens * self.prefix_hit_rate
