"""What an engine counts in each line of its log, and why kvplan's figure may differ, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kvplan.calibration.logs import LogFigure, StartupLog
from kvplan.calibration.record import leading_version
from kvplan.core.dataclass import dataclass
from kvplan.core.results import Estimate
from kvplan.core.units import GIB, gib

CLOSE: Final = 0.02
"""A figure within 2 % needs no excuse; logs round to 0.01 GiB and kvplan does not."""

_V1: Final = (0, 8)
_HYBRID_CACHE: Final = (0, 10)
_GRAPH_INSIDE: Final = (0, 20)
_PRINTS_CONCURRENCY: Final = (0, 21)  # patches of 0.20 differ
_MOST_DIGITS: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a reason may look at.

    Attributes:
        log: The log.
        estimate: kvplan's answer for the same deployment.
        figure: The figure of the log that is explained.
        ratio: Predicted ÷ logged, None without a prediction.
        said: Settings that the log or its reader gave; the others are the engine's defaults.
    """

    log: StartupLog
    estimate: Estimate
    figure: LogFigure
    ratio: float | None
    said: frozenset[str]

    @property
    def engine(self) -> str:
        """Engine id without version."""
        return self.estimate.scenario.engine.partition("@")[0]

    @property
    def version(self) -> tuple[int, int] | None:
        """Version of the engine that wrote the log, None for the newest."""
        text = leading_version(self.log.facts.get("version"))
        if text is None:
            return None
        major, minor = text.split(".")[:2]
        return int(major), int(minor)

    @property
    def far(self) -> bool:
        """True where the two differ by more than rounding."""
        return self.ratio is not None and abs(self.ratio - 1) > CLOSE

    def since(self, version: tuple[int, int]) -> bool:
        """True from a version on."""
        return self.version is None or self.version >= version


def notes(context: Context) -> Iterator[str]:
    """Sentences about one figure: how the engine counts first, then why the two may differ."""
    reasons = _REASONS.get(context.figure.name)
    return iter(()) if reasons is None else reasons(context)


def _weights(context: Context) -> Iterator[str]:
    text = context.figure.text
    if "GB" in text.replace("GiB", "") and context.engine in {"vllm", "sglang"}:
        yield "printed as GB, counted in GiB (2^30)"
    if context.figure.name == "consumed_gib":
        yield "weights and what lies outside torch in one figure"
    if context.ratio is None or not context.far:
        return
    if context.ratio < 1:
        yield (
            "the log has more: a vision tower, multi-token-prediction or draft layers, rotary tables, "
            "or layers that the quantised checkpoint keeps in 16 bits"
        )
    else:
        yield "the log has less: is the checkpoint quantised, or are more ranks sharing it? give --dtype or --tp"


def _activation(context: Context) -> Iterator[str]:
    if context.engine == "llama.cpp":
        yield "compute buffer of one micro-batch (-ub): logits and a few hidden rows; without flash attention also scores"
        return
    if context.engine == "tensorrt-llm":
        yield "the peak of one forward pass of max_num_tokens"
        return
    yield "the larger of the sampler (max_num_seqs × vocabulary) and one forward pass (max_num_batched_tokens)"
    if context.engine == "vllm" and context.since(_GRAPH_INSIDE):
        yield "with the estimate of captured graphs, which the peak holds since 0.20"
    if context.far:
        defaults = [name for name in ("max_num_seqs", "max_num_batched_tokens") if name not in context.said]
        if defaults:
            options = " and ".join(f"--{name.replace('_', '-')}" for name in defaults)
            yield f"the log does not say {' and '.join(defaults)}; the engine's defaults were taken: give {options}"
        else:
            yield "a profiling run of a vision tower, or a kernel's workspace, may be the peak"


def _graph(context: Context) -> Iterator[str]:
    if context.engine == "vllm":
        inside = context.since(_GRAPH_INSIDE)
        where = "inside the memory fraction since 0.20" if inside else "outside the memory fraction before 0.20"
        yield f"captured graphs lie {where}"
    if context.engine == "sglang":
        yield "captured in the headroom that the memory fraction leaves"
    if context.far:
        yield "graph memory depends on kernels and capture sizes: within about 12 % where it was measured"


def _pool(context: Context) -> Iterator[str]:
    if context.engine == "llama.cpp":
        yield "allocated up front for n_ctx tokens over all slots (-c, -np), windows shorter"
        if context.far:
            yield "look at the KV types (--cache-type-k, --cache-type-v) and at --swa-full"
        return
    if context.estimate.scenario.pp > 1:
        yield "the log gives rank 0; tokens follow the stage with the smallest pool, which is the one kvplan gives"
    if context.engine == "sglang" and "GB" in context.figure.text:
        yield "printed as GB, counted in GiB (2^30); K and V added"
    if not context.far:
        return
    if "gpu_memory_utilization" not in context.said:
        yield "the log does not say its memory fraction; the engine's default was taken: give --gpu-memory-utilization"
    yield from _fraction(context)
    if context.engine == "tensorrt-llm":
        yield "the fraction is of what is free after loading, so buffers and other processes count"
        return
    if context.engine == "vllm" and "max_num_seqs" not in context.said:
        yield "the log does not say max_num_seqs, which sets the sampler's peak; the default was taken: give --max-num-seqs"
    if context.engine == "vllm" and context.since(_GRAPH_INSIDE):
        yield "since 0.20 the estimated graphs come off the pool, and that estimate is rough"
    yield "other processes on the card, KV connectors and LoRA slots come off the pool and are not in the log's settings"


def _fraction(context: Context) -> Iterator[str]:
    """The fraction of the card at which the pool would be the log's, all else equal: `(usable + logged − pool) ÷ card`."""
    memory = context.estimate.memory
    if context.engine != "vllm" or context.figure.name != "kv_pool_gib":
        return
    fraction = (memory.usable_bytes + context.figure.value * GIB - memory.kv_pool_bytes) / memory.gpu_bytes
    if 0 < fraction <= 1 and "gpu_memory_utilization" not in context.said:
        yield f"at {fraction:.2f} instead of {memory.usable_bytes / memory.gpu_bytes:.2f} the two would meet"
    elif fraction > 1:
        yield "no fraction of this card leaves such a pool: is it another card?"


def _tokens(context: Context) -> Iterator[str]:
    memory = context.estimate.memory
    if context.engine == "vllm":
        if context.since(_PRINTS_CONCURRENCY):
            yield "this version prints maximum concurrency × max_model_len, not what one long sequence could use"
        elif context.since(_HYBRID_CACHE) and not context.since(_GRAPH_INSIDE) and memory.kv_logged_tokens is not None:
            yield "this version prints blocks ÷ groups × block size, which is not what the pool holds of mixed layers"
        elif not context.since(_V1):
            yield f"blocks × {memory.kv_block_tokens} tokens"
    if context.far:
        yield "follows the pool; also look at the KV format (--kv-dtype), and at layers of a draft or MTP model"


def _concurrency(context: Context) -> Iterator[str]:
    memory = context.estimate.memory
    if context.figure.name == "max_concurrency":
        yield f"one sequence of {context.estimate.scenario.context:,} tokens reserves {gib(memory.sequence_bytes):.3g} GiB"
    if memory.kv_bytes_per_token_reserved != memory.kv_bytes_per_token:
        yield "layers of different kinds share one page size, so the engine reserves more than the cache needs"
    if memory.state_bytes_per_sequence:
        yield "recurrent state counts as blocks of each sequence; prefix caching of hybrids (`align`) adds one"
    if context.far:
        yield "follows the pool and the KV format (--kv-dtype)"


def _runtime(context: Context) -> Iterator[str]:
    if context.far:
        yield "outside torch: device context, NCCL buffers, kernels; it varies by driver and by what else runs"


def _total(context: Context) -> Iterator[str]:
    yield f"{context.figure.value:g} GiB from the log, instead of the spec's"


def _padding(context: Context) -> Iterator[str]:
    yield f"layers are divided into equal groups; {context.figure.value:.0f} that hold nothing fill up the last one"


_REASONS: Final[dict[str, Callable[[Context], Iterator[str]]]] = {
    "weights_gib": _weights,
    "consumed_gib": _weights,
    "activation_gib": _activation,
    "runtime_gib": _runtime,
    "graph_gib": _graph,
    "graph_estimate_gib": _graph,
    "kv_pool_gib": _pool,
    "budget_gib": _pool,
    "kv_pool_tokens": _tokens,
    "kv_blocks": _tokens,
    "max_concurrency": _concurrency,
    "kv_needed_gib": _concurrency,
    "longest_context": _concurrency,
    "total_gpu_gib": _total,
    "padding_layers": _padding,
}

_MEANINGS: Final = (
    (
        "KV cache is needed",
        "one sequence of max_model_len needs more than the pool; a shorter one, or a larger pool, starts",
    ),
    ("maximum number of tokens that can be stored", "max_model_len is longer than the whole cache"),
    ("No available memory for the cache", "weights, activations and graphs leave nothing of the memory fraction"),
    ("less than desired GPU memory utilization", "another process holds memory that the fraction claims"),
    ("exceeds available Mamba cache", "each running sequence needs a state block: lower max_num_seqs"),
    (
        "utofmemory",
        "an allocation beyond the card: what lies outside the fraction (graphs, contexts, others) did not fit",
    ),
    (
        "out of memory",
        "an allocation beyond the card: what lies outside the fraction (graphs, contexts, others) did not fit",
    ),
    ("allocate", "a buffer did not fit on the device: fewer layers on the GPU, a shorter context or smaller KV types"),
)


def says(log: StartupLog, figure: LogFigure) -> str:
    """What a figure says, read beside the others of its log and without any prediction; empty where its name says it."""
    values = {name: one.value for name, one in log.figures.items()}
    match figure.name:
        case "weights_gib":
            return "what the parameters take on one GPU"
        case "kv_pool_gib":
            return "what is left of the memory fraction for the caches of all running requests"
        case "kv_pool_tokens":
            words = "tokens, prompt and answer, of all running requests together"
            pool = values.get("kv_pool_gib")
            return (
                f"{words}; {pool * GIB / figure.value / 1024:.0f} KiB of one GPU for each"
                if pool and figure.value
                else words
            )
        case "max_concurrency":
            longest = log.facts.get("max_model_len", "")
            known = longest.isascii() and longest.isdigit() and len(longest) <= _MOST_DIGITS
            length = f"{int(longest):,} tokens" if known else "max_model_len"
            return f"requests of {length} each that run at once; no limit on shorter ones, more of which fit"
        case _:
            return ""


def meaning(text: str) -> str:
    """What a line of trouble says, in other words."""
    folded = text.casefold()
    return next((words for sign, words in _MEANINGS if sign.casefold() in folded), "memory ran out")
