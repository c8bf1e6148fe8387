"""What vLLM prints when it starts, in the wordings of versions 0.2 to 0.31 as public issues show them.

V0: worker.py, executor_base.py. V1: gpu_worker.py, gpu_model_runner.py, kv_cache_utils.py.
"""

from __future__ import annotations

from typing import Final

from kvplan.calibration.log_pattern import GAP, INT, NAME, NUM, ONE_INT, ONE_NUM, Unit, argument, pattern

_VLLM_ARGUMENTS: Final[tuple[tuple[str, str, str, Unit], ...]] = (
    ("gpu_memory_utilization", "gpu_memory_utilization", ONE_NUM, "fraction"),
    ("max_model_len", "max_model_len", ONE_INT, "tokens"),
    ("max_seq_len", "max_model_len", ONE_INT, "tokens"),
    ("max_num_seqs", "max_num_seqs", ONE_INT, "count"),
    ("max_num_batched_tokens", "max_num_batched_tokens", ONE_INT, "tokens"),
    ("tensor_parallel_size", "tp", ONE_INT, "count"),
    ("pipeline_parallel_size", "pp", ONE_INT, "count"),
    ("data_parallel_size", "dp", ONE_INT, "count"),
    ("kv_cache_dtype", "kv_dtype", NAME, "text"),
    ("quantization", "quantization", NAME, "text"),
    ("enforce_eager", "enforce_eager", "True|False|true|false", "text"),
    ("dtype", "dtype", NAME, "text"),
    ("model", "model", NAME, "text"),
)
VLLM_ARGUMENTS: Final = tuple(argument("vllm", key, name, value, unit) for key, name, value, unit in _VLLM_ARGUMENTS)

VLLM: Final = (
    pattern(
        "vllm",
        "version",
        r"(?:vLLM API server version|vLLM version|vLLM Version\s*:)\s{0,3}v?([0-9][\w.+-]{1,40})",
        "version",
        unit="text",
    ),
    pattern("vllm", "LLM engine (v", r"LLM engine \(v([0-9][\w.+-]{1,40}?)\)", "version", unit="text"),
    pattern("vllm", "Initializing a", r"Initializing an? (V[01]) LLM engine", "generation", unit="text"),
    pattern("vllm", "max model len", r"Using max model len ([0-9]{1,12})", "max_model_len", unit="tokens"),
    pattern(
        "vllm",
        "max_num_batched_tokens=",
        r"max_num_batched_tokens=([0-9]{1,12})",
        "max_num_batched_tokens",
        unit="tokens",
    ),
    pattern(
        "vllm",
        "model weights took",
        rf"Loading model weights took {NUM} G(?:i?)B",
        "weights_gib",
        unit="GiB",
        keep="max",
    ),
    pattern("vllm", "Model loading took", rf"Model loading took {NUM} GiB", "weights_gib", unit="GiB", keep="max"),
    pattern("vllm", "model weights take", rf"model weights take {NUM}GiB", "weights_gib", unit="GiB", keep="max"),
    pattern("vllm", "GiB for weight", rf"{NUM} GiB for weights?", "weights_gib", unit="GiB", keep="max"),
    pattern("vllm", "weights memory:", rf"weights memory: {NUM}GiB", "weights_gib", unit="GiB", keep="max"),
    pattern(
        "vllm", "torch peak memory", rf"torch peak memory increase: {NUM}GiB", "activation_gib", unit="GiB", keep="max"
    ),
    pattern(
        "vllm",
        "Requested memory",
        rf"Requested memory: {NUM} \(util\), {NUM} GiB",
        "gpu_memory_utilization",
        "budget_gib",
        unit="GiB",
    ),
    pattern("vllm", "consumed memory", rf"{NUM} GiB for consumed memory", "consumed_gib", unit="GiB", keep="max"),
    pattern("vllm", "peak activation", rf"{NUM} GiB for peak activation", "activation_gib", unit="GiB", keep="max"),
    pattern(
        "vllm",
        "activation peak memory takes",
        rf"activation peak memory takes {NUM}GiB",
        "activation_gib",
        unit="GiB",
        keep="max",
    ),
    pattern("vllm", "non-torch memory", rf"{NUM} GiB for non-torch memory", "runtime_gib", unit="GiB", keep="max"),
    pattern(
        "vllm", "non_torch_memory takes", rf"non_torch_memory takes {NUM}GiB", "runtime_gib", unit="GiB", keep="max"
    ),
    pattern("vllm", "peak_torch_memory=", rf"peak_torch_memory={NUM}GiB", "peak_torch_gib", unit="GiB", keep="max"),
    pattern("vllm", "non_torch_memory=", rf"non_torch_memory={NUM}GiB", "runtime_gib", unit="GiB", keep="max"),
    pattern("vllm", "kv_cache_size=", rf"kv_cache_size={NUM}GiB", "kv_pool_gib", unit="GiB", keep="min"),
    pattern(
        "vllm",
        "gpu_memory_utilization=",
        rf"gpu_memory_utilization={NUM}\b",
        "gpu_memory_utilization",
        unit="fraction",
    ),
    pattern("vllm", "total_gpu_memory", rf"total_gpu_memory(?:=| \(){NUM}GiB", "total_gpu_gib", unit="GiB", keep="min"),
    pattern(
        "vllm",
        "x gpu_memory_utilization",
        rf"x gpu_memory_utilization \({NUM}\) = {NUM}GiB",
        "gpu_memory_utilization",
        "budget_gib",
        unit="GiB",
    ),
    pattern(
        "vllm",
        "reserved for KV Cache is",
        rf"reserved for KV Cache is {NUM}GiB",
        "kv_pool_gib",
        unit="GiB",
        keep="min",
    ),
    pattern(
        "vllm",
        "Free memory on device",
        rf"Free memory on device{GAP}\({NUM}/{NUM} GiB\)",
        "free_at_start_gib",
        "total_gpu_gib",
        unit="GiB",
        keep="min",
    ),
    pattern(
        "vllm",
        "GPU memory utilization",
        rf"[Dd]esired GPU memory utilization{GAP}\({NUM}, {NUM} GiB\)",
        "gpu_memory_utilization",
        "budget_gib",
        unit="GiB",
    ),
    pattern(
        "vllm",
        "Available KV cache memory",
        rf"Available KV cache memory: {NUM} GiB",
        "kv_pool_gib",
        unit="GiB",
        keep="min",
    ),
    pattern(
        "vllm", "GPU KV cache size", rf"GPU KV cache size: {INT} tokens", "kv_pool_tokens", unit="tokens", keep="min"
    ),
    pattern(
        "vllm",
        "Maximum concurrency for",
        rf"Maximum concurrency for {INT}\s{{1,12}}tokens per request: {NUM}x",
        "max_model_len",
        "max_concurrency",
        unit="x",
        keep="min",
    ),
    pattern("vllm", "GPU blocks:", rf"# GPU blocks: {INT}", "kv_blocks", unit="blocks", keep="min"),
    pattern("vllm", "blocks:", rf"# (?:cuda|CUDA|rocm|ROCM) blocks: {INT}", "kv_blocks", unit="blocks", keep="min"),
    pattern(
        "vllm",
        "attention block size to",
        rf"attention block size to {INT} tokens",
        "block_tokens",
        unit="tokens/block",
    ),
    pattern("vllm", "padding layers", rf"Add {INT} padding layers", "padding_layers", unit="count"),
    pattern(
        "vllm",
        "Estimated CUDA graph memory",
        rf"Estimated CUDA graph memory: {NUM} GiB",
        "graph_estimate_gib",
        unit="GiB",
        keep="max",
    ),
    pattern(
        "vllm",
        "Graph capturing finished",
        rf"Graph capturing finished in {GAP}took {NUM} GiB",
        "graph_gib",
        unit="GiB",
        keep="max",
    ),
    pattern("vllm", "Mamba cache blocks", rf"Mamba cache blocks \({INT}\)", "state_blocks", unit="blocks", keep="min"),
    pattern(
        "vllm",
        "KV cache is needed",
        rf"max seq len \({INT}\){GAP}\(?{NUM} GiB KV cache is needed",
        "max_model_len",
        "kv_needed_gib",
        unit="GiB",
    ),
    pattern(
        "vllm",
        "available KV cache memory (",
        rf"available KV cache memory \({NUM} GiB",
        "kv_pool_gib",
        unit="GiB",
        keep="min",
    ),
    pattern(
        "vllm",
        "maximum model length is",
        rf"estimated maximum model length is {INT}",
        "longest_context",
        unit="tokens",
        keep="min",
    ),
    pattern(
        "vllm",
        "stored in KV cache",
        rf"max seq len \({INT}\) is larger than the maximum number of tokens that can be stored in KV cache \({INT}\)",
        "max_model_len",
        "kv_pool_tokens",
        unit="tokens",
        keep="min",
    ),
)
