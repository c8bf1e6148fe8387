"""One scenario: what it holds, how fast it is, and what it would need.

The signature of `estimate` is the one list of keywords, defaults and their meaning; other functions take the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kvplan.api.arguments import by_name
from kvplan.api.deployments import deployment_of
from kvplan.api.loading import EngineLike, GpuLike, ModelLike
from kvplan.core.estimate import estimate as _estimate
from kvplan.core.results import Estimate
from kvplan.core.workload import Workload
from kvplan.errors import UsageError

if TYPE_CHECKING:
    from kvplan.core.reverse import Needs

#: Keywords that describe the load; the others but two describe the deployment.
_LOAD: Final = (
    "input_tokens",
    "output_tokens",
    "concurrency",
    "shared_prefix_tokens",
    "prefix_hit_rate",
    "benchmark_requests",
    "equal_lengths",
    "source_tokens",
    "network_ms",
)


@by_name
def estimate(
    model: ModelLike,
    gpu: GpuLike,
    *,
    engine: EngineLike = "vllm",
    dtype: str | None = None,
    kv_dtype: str | None = None,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int | None = None,
    gpu_count: int | None = None,
    input_tokens: int = 1024,
    output_tokens: int = 256,
    concurrency: int = 1,
    context: int | None = None,
    gpu_memory_utilization: float | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    enforce_eager: bool = False,
    gpu_memory_gib: float | None = None,
    n_gpu_layers: int | None = None,
    max_loras: int = 0,
    max_lora_rank: int = 16,
    speculative_tokens: int = 0,
    draft_model: ModelLike | None = None,
    dcp: int = 1,
    shared_prefix_tokens: int = 0,
    prefix_hit_rate: float = 1.0,
    source_tokens: int | None = None,
    network_ms: float = 0.0,
    benchmark_requests: int | None = None,
    equal_lengths: bool = False,
    allow_context_overflow: bool = False,
    assume_plain: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> Estimate:
    """Answer one scenario: does it fit, how much fits, how fast it is, and why.

    Args:
        model: Name, repo id, path, mapping or spec.
        gpu: Name, path, mapping or spec.
        engine: Name with an optional version, path, mapping or profile.
        dtype: Weight format to plan with instead of the checkpoint's.
        kv_dtype: Cache format; None is the engine's rule.
        tp: Ranks that share each layer.
        pp: Pipeline stages.
        dp: Data-parallel ranks of attention.
        ep: Ranks that routed experts are divided over; None lets them follow tp.
        gpu_count: Checked against `tp × pp × dp` where given.
        input_tokens: Prompt of one request [token].
        output_tokens: Tokens that one request generates.
        concurrency: Sequences in flight over the whole deployment.
        context: Longest sequence to plan memory for (`max_model_len`) [token]; None is input + output.
        gpu_memory_utilization: The engine's own memory fraction.
        max_num_seqs: Sequences that the scheduler runs at most.
        max_num_batched_tokens: Tokens of one iteration at most.
        enforce_eager: No captured graphs.
        gpu_memory_gib: Memory of one GPU to plan with instead of its total [GiB].
        n_gpu_layers: Layers on the GPU (llama.cpp).
        max_loras: LoRA adapters that the engine makes room for at start.
        max_lora_rank: The largest rank of such an adapter.
        speculative_tokens: Tokens that multi-token-prediction layers or a draft model guess.
        draft_model: A smaller model that guesses tokens, on the same GPUs.
        dcp: Tensor-parallel ranks that divide the cache by tokens instead of copying it (decode context parallelism).
        shared_prefix_tokens: Leading prompt tokens that requests share [token].
        prefix_hit_rate: Share of requests that find them cached, 0 to 1.
        source_tokens: Encoder tokens of an encoder–decoder model.
        network_ms: Network time added to TTFT [ms].
        benchmark_requests: Requests of a closed-loop benchmark that starts with all its concurrency at once.
        equal_lengths: A closed-loop benchmark whose requests are all of one length, so that their prompts come together.
        allow_context_overflow: Plan beyond the model's own limit.
        assume_plain: Read an unknown plain architecture as a plain decoder.
        overrides: Config fields of the model to change.

    Returns:
        The estimate. Where nothing fits, `latency` and `throughput` are None.

    Raises:
        UsageError: Values that make no sense together.
        SpecError: A file that is broken or not understood.
    """
    asked = dict(locals())  # before anything else is local: every keyword under its name
    deployed = deployment_of(asked)
    workload = Workload(**{name: asked[name] for name in _LOAD if asked[name] is not None})
    return _estimate(deployed, workload, context=context, allow_context_overflow=allow_context_overflow)


@by_name
def needs(
    model: ModelLike,
    gpu: GpuLike,
    *,
    engine: EngineLike = "vllm",
    dtype: str | None = None,
    kv_dtype: str | None = None,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int | None = None,
    concurrency: int = 1,
    context: int = 4096,
    gpu_memory_utilization: float | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    enforce_eager: bool = False,
    gpu_memory_gib: float | None = None,
    assume_plain: bool = False,
) -> Needs:
    """What `concurrency` sequences of `context` tokens need: which memory fraction, how many GPUs, which context.

    Args as in `estimate`. The fraction, the tensor-parallel size and the context are each found with the others left
    as they are.

    Raises:
        UsageError: Values that make no sense together.
        SpecError: A file that is broken or not understood.
    """
    asked = dict(locals())
    from kvplan.core.reverse import needs as answer  # noqa: PLC0415 - loaded on use

    found = deployment_of(asked)
    return answer(found.question(context=context, concurrency=concurrency), dtype=found.dtype)


def estimate_of(fields: Mapping[str, Any]) -> Estimate:
    """Answer the scenario that fields describe, by the names of `estimate`'s keywords.

    Raises:
        UsageError: No model or GPU is named, or values make no sense together.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    for name in ("model", "gpu"):
        if name not in given:
            msg = f"Missing option '--{name}'"
            raise UsageError(msg, hint=f"`kvplan {name}s list` shows the names; a scenario file may name one too")
    return estimate(given.pop("model"), given.pop("gpu"), **given)
