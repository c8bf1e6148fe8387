"""Words that other tools use for our options, and what to try after a command line that was not understood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Parameter → options that people try for it, coming from engines, benchmarks and papers.
_OTHER_WORDS: Final[Mapping[str, str]] = {
    "concurrency": "users num-users batch batch-size max-concurrency requests num-requests num-prompts sequences",
    "context": "context-length context-len context-size ctx ctx-size n-ctx num-ctx seq-len max-seq-len max-context "
    "input-tokens input-len output-tokens output-len",  # for commands that ask for both as one
    "input_tokens": "input input-length prompt prompt-len prompt-length prompt-tokens isl random-input-len",
    "output_tokens": "output-length osl max-tokens new-tokens max-new-tokens generated-tokens random-output-len",
    "dtype": "quantization quantisation quant precision weights weight-dtype weights-dtype",
    "kv_dtype": "kv kv-cache kv-quant kv-cache-type cache-dtype cache-type-k cache-type-v",
    "tp": "tp-size gpus n-gpus num-gpus ngpu nproc",
    "pp": "pp-size",
    "dp": "dp-size replicas",
    "ep": "ep-size enable-expert-parallel",
    "model": "model-path hf-model name",
    "gpu": "hardware device card accelerator gpu-type gpu-name",
    "engine": "backend framework runtime",
    "gpu_memory_utilization": "utilization gpu-util memory-fraction mem-fraction gpu-memory-fraction",
    "gpu_memory_gib": "memory vram gpu-memory gpu-mem memory-gib",
    "max_num_seqs": "max-batch-size max-seqs",
    "max_num_batched_tokens": "max-prefill-tokens chunk-size max-num-tokens",
    "rate": "rps qps request-rate requests-per-second",
    "slo_ttft_ms": "ttft ttft-ms max-ttft slo-ttft",
    "slo_tpot_ms": "tpot tpot-ms max-tpot slo-tpot itl",
    "slo_e2e_ms": "e2e latency max-latency slo-e2e",
    "form": "csv markdown table",
}
_PARAMETERS: Final = {word: parameter for parameter, words in _OTHER_WORDS.items() for word in words.split()}
_LISTED: Final = frozenset({"model", "gpu", "engine"})


def next_step(error: Any) -> tuple[str, str | None]:
    """The message of a command-line error, and what to try next where that is more than its `--help`.

    Args:
        error: The error.

    Returns:
        Message and hint.
    """
    message = " ".join(error.format_message().split()) if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    wrong = getattr(error, "option_name", None)
    if context is not None and wrong is not None:
        option = _option_for(context, wrong.lstrip("-"))
        if option is not None:
            return f"No such option: {wrong}", f"did you mean {option}?"
    missing = getattr(getattr(error, "param", None), "name", None)
    if message.startswith("Missing") and missing in _LISTED:
        return message, f"`kvplan {missing}s list` shows the names,"
    return message, None


def _option_for(context: Any, word: str) -> str | None:
    parameter = _PARAMETERS.get(word.lower().replace("_", "-"))
    found = (one for one in context.command.get_params(context) if one.name == parameter)
    return next((one.opts[0] for one in found), None)
