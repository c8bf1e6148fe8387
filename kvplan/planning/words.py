"""Words that other tools use for our options and fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Parameter → words that people try for it, coming from engines, benchmarks and papers.
OTHER_WORDS: Final[Mapping[str, str]] = {
    "concurrency": "users num-users batch batch-size max-concurrency requests num-requests num-prompts sequences",
    "users": "concurrency",  # for commands that know users only
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
#: Word → parameter.
PARAMETERS: Final = {word: parameter for parameter, words in OTHER_WORDS.items() for word in words.split()}
