"""One measurement record, and how it becomes the scenario that kvplan is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from kvplan.core.dataclass import dataclass

PROMPTS_PER_CONCURRENCY: Final = 10
"""Requests of one InferenceX run per unit of concurrency (its `benchmark_serving.py` call: `num_prompts = 10 × conc`)."""
BURST: Final = (
    f"rows with a length range are closed-loop runs of {PROMPTS_PER_CONCURRENCY} requests per unit of concurrency "
    "that start all at once (InferenceX protocol)"
)
IN_STEP: Final = "rows without a length range are closed-loop runs of equal lengths, whose prompts come together"
MIXED: Final = (
    "rows of mixed lengths (so named, or with lengths that are no round numbers) are a steady load of their means"
)
DECODE_ALONE: Final = "rows of llama.cpp with a TPOT alone, several requests at a time, are batches whose prompts are done (llama-batched-bench)"
PREFILL_ALONE: Final = "rows with a TTFT alone, one request at a time, are a prompt and its first token"

_UNIFORM: Final = re.compile(r"uniform\s+([0-9]*\.?[0-9]+)\s*(?:-|–|to)\s*([0-9]*\.?[0-9]+)\s+of\s+nominal\Z")
_FIXED: Final = frozenset({"fixed", "exact", "constant"})
_MIXED: Final = frozenset({"mixed", "varied", "natural", "dataset"})
_ROUND: Final = (32, 50)
_VERSION: Final = re.compile(r"[~>=≥v\s]{0,3}([0-9]{1,4}(?:\.[0-9]{1,6}){1,3})")
_UNTAGGED: Final = re.compile(r"\s*v?0\.(?:0|1)\.dev")
_LATENCY: Final = frozenset({"ttft_ms", "tpot_ms", "e2e_ms", "output_tokens_per_second"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One measurement with the deployment it was made on; absent is None and means the engine's default.

    Attributes:
        id: Name of the row.
        line: Line in its file.
        model: Model as the row names it.
        files: `model`, `gpu` or `engine` → the file that its word means, where it means one; other words are names.
        total_gpu_gib: Memory of the card that replaces its spec's [GiB].
        length_distribution: How lengths vary around the nominal ones, in words.
        benchmark_requests: Requests of a closed-loop benchmark, or None for the steady state.
        queued: True where the row is labelled as waiting for room, None without a label.
        measured: Quantity → value, only what was measured.
        notes: What reading the row took for granted.
    """

    id: str
    line: int
    model: str
    gpu: str
    gpu_count: int | None = None
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int | None = None
    engine: str = "vllm"
    engine_version: str | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    total_gpu_gib: float | None = None
    input_tokens: int = 1024
    output_tokens: int = 256
    concurrency: int = 1
    length_distribution: str | None = None
    benchmark_requests: int | None = None
    queued: bool | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def scenario(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Keyword arguments of `estimate` besides model, GPU and engine, and what they assume."""
        factor, assumptions = length_factor(self.length_distribution)
        requests = self.benchmark_requests
        if requests is None and factor is not None:
            requests = PROMPTS_PER_CONCURRENCY * self.concurrency
            assumptions = (
                *assumptions,
                BURST,
            )
        in_step = False
        if requests is None and self.concurrency > 1 and self.is_latency:
            in_step = self.is_of_one_length
            told = DECODE_ALONE if self.is_decode_alone else IN_STEP if in_step else MIXED
            assumptions = (*assumptions, told)
        scale = 1.0 if factor is None else factor
        if self.is_prefill_alone:
            assumptions = (*assumptions, PREFILL_ALONE)
        prompt = max(1, round(self.input_tokens * scale))
        answer = 1 if self.is_prefill_alone else max(1, round(self.output_tokens * scale))
        if not self.is_latency and self.max_model_len is not None:  # memory knows one length, the longest
            answer = min(answer, max(1, self.max_model_len // 2))
            prompt = min(prompt, max(1, self.max_model_len - answer))
        arguments = {
            "dtype": self.dtype,
            "kv_dtype": self.kv_dtype,
            "tp": self.tp,
            "pp": self.pp,
            "dp": self.dp,
            "ep": None if self.ep == 1 else self.ep,  # tables write 1 where experts are not parallel of their own
            "gpu_count": self.gpu_count,
            "input_tokens": prompt,
            "output_tokens": answer,
            "concurrency": self.concurrency,
            "context": self.context,
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "enforce_eager": self.enforce_eager,
            "gpu_memory_gib": self.total_gpu_gib,
            "benchmark_requests": requests,
            "equal_lengths": in_step,
            "allow_context_overflow": True,  # it was measured, so it ran
        }
        return arguments, (*self.notes, *assumptions)

    @property
    def context(self) -> int | None:
        """Longest sequence: as given; input + output of a latency row; None lets the estimate choose."""
        if self.max_model_len is None and self.is_latency:
            return self.input_tokens + (1 if self.is_prefill_alone else self.output_tokens)
        return self.max_model_len

    @property
    def is_latency(self) -> bool:
        """True where a time or a rate was measured."""
        return not _LATENCY.isdisjoint(self.measured)

    @property
    def is_of_one_length(self) -> bool:
        """True where all requests have one length: the row says so, or says nothing and its lengths are round numbers.

        Those who measure with made-up prompts choose multiples of 32 or 50; means of real ones are seldom that.
        """
        words = (self.length_distribution or "").strip().casefold()
        if words:
            return words in _FIXED
        return all(
            tokens == 1 or any(tokens % step == 0 for step in _ROUND)
            for tokens in (self.input_tokens, self.output_tokens)
        )

    @property
    def is_prefill_alone(self) -> bool:
        """True where a TTFT is all that was timed, of one request at a time: what follows it needs no room."""
        return self.concurrency == 1 and _LATENCY & self.measured.keys() == {"ttft_ms"}

    @property
    def is_decode_alone(self) -> bool:
        """True where the decode steps of a batch are all that was timed, as llama-batched-bench does."""
        alone = _LATENCY & self.measured.keys() == {"tpot_ms"}
        return alone and self.concurrency > 1 and self.engine.partition("@")[0] == "llama.cpp"

    @property
    def engine_name(self) -> str:
        """Engine id with the version that counts, `vllm@0.19.0`; a name that has one already stays."""
        version = leading_version(self.engine_version)
        return self.engine if version is None or "@" in self.engine else f"{self.engine}@{version}"


def length_factor(text: str | None) -> tuple[float | None, tuple[str, ...]]:
    """Mean length over nominal length, and the assumption that it rests on.

    `uniform a-b of nominal` draws each length evenly between `a` and `b` times the nominal one, so the mean is
    `(a + b) / 2`; None means that lengths are as given.

    >>> length_factor("uniform 0.8-1.0 of nominal")[0]
    0.9
    """
    words = (text or "").strip().casefold()
    if not words or words in _FIXED:
        return None, ()
    match = _UNIFORM.match(words)
    if match and 0 < (low := float(match[1])) <= (high := float(match[2])) <= 1:
        factor = (low + high) / 2
        return factor, (f"lengths {words}: predicted at their mean, {factor:g} of the nominal input and output",)
    if words in _MIXED:
        return None, ()
    return None, ("a length_distribution that is not understood: predicted at the nominal lengths",)


def leading_version(text: str | None) -> str | None:
    """The version number at the start of free text; None where there is none, and for untagged development builds.

    >>> leading_version("0.23.1rc1.dev531"), leading_version("~0.6.4 (V0)"), leading_version("2025-08")
    ('0.23.1', '0.6.4', None)
    >>> leading_version("0.1.dev16944"), leading_version("May 2024 snapshot"), leading_version("b6918 (2f68ce7cf)")
    (None, None, None)
    """
    if not text or _UNTAGGED.match(text):
        return None
    match = _VERSION.match(text)
    return match[1] if match else None
