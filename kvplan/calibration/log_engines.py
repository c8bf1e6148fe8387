"""What SGLang, TensorRT-LLM and llama.cpp print when they start, as their sources and public issues show it."""

from __future__ import annotations

import re
from typing import Final

from kvplan.calibration.log_pattern import GAP, INT, NAME, NUM, ONE_INT, ONE_NUM, Unit, argument, pattern
from kvplan.core.units import GIB, MIB

_SGLANG_ARGUMENTS: Final[tuple[tuple[str, str, str, Unit], ...]] = (
    ("mem_fraction_static", "gpu_memory_utilization", ONE_NUM, "fraction"),
    ("context_length", "max_model_len", ONE_INT, "tokens"),
    ("context_len", "max_model_len", ONE_INT, "tokens"),
    ("max_running_requests", "max_num_seqs", ONE_INT, "count"),
    ("chunked_prefill_size", "max_num_batched_tokens", ONE_INT, "tokens"),
    ("tp_size", "tp", ONE_INT, "count"),
    ("pp_size", "pp", ONE_INT, "count"),
    ("dp_size", "dp", ONE_INT, "count"),
    ("ep_size", "ep", ONE_INT, "count"),
    ("kv_cache_dtype", "kv_dtype", NAME, "text"),
    ("quantization", "quantization", NAME, "text"),
    ("model_path", "model", NAME, "text"),
    ("max_total_num_tokens", "kv_pool_tokens", ONE_INT, "tokens"),
    ("page_size", "block_tokens", ONE_INT, "tokens/block"),
)
SGLANG_ARGUMENTS: Final = tuple(
    argument("sglang", key, name, value, unit) for key, name, value, unit in _SGLANG_ARGUMENTS
)


SGLANG: Final = (
    pattern(
        "sglang",
        "version",
        r"[Ss][Gg][Ll]ang(?: version)?[ :=v]{1,3}([0-9]{1,3}\.[\w.+-]{1,40})",
        "version",
        unit="text",
    ),
    pattern(
        "sglang",
        "Load weight end",
        rf"Load weight end\.{GAP}avail mem={NUM} GB, mem usage={NUM} GB",
        "free_after_weights_gib",
        "weights_gib",
        unit="GiB",
        keep="max",
    ),
    pattern(
        "sglang",
        "KV Cache is allocated",
        rf"KV Cache is allocated\.{GAP}#tokens: {INT}",
        "kv_pool_tokens",
        unit="tokens",
        keep="min",
    ),
    pattern("sglang", "K size:", rf"K size: {NUM} GB, V size: {NUM} GB", "k_gib", "v_gib", unit="GiB", keep="first"),
    pattern("sglang", "KV size:", rf"KV size: {NUM} GB", "kv_pool_gib", unit="GiB", keep="first"),
    pattern(
        "sglang",
        "Memory pool end",
        rf"Memory pool end\. avail mem={NUM} GB",
        "free_after_pool_gib",
        unit="GiB",
        keep="min",
    ),
    pattern(
        "sglang", "max_total_num_tokens=", rf"max_total_num_tokens={INT}", "kv_pool_tokens", unit="tokens", keep="min"
    ),
    pattern("sglang", "max_running_requests=", rf"max_running_requests={INT}", "max_num_seqs", unit="count"),
    pattern("sglang", "context_len=", rf"context_len={INT}", "max_model_len", unit="tokens"),
    pattern(
        "sglang", "cuda graph end", rf"cuda graph end\.{GAP}mem usage={NUM} GB", "graph_gib", unit="GiB", keep="max"
    ),
    pattern(
        "sglang", "CUDA graph end", rf"CUDA graph end\.{GAP}mem usage={NUM} GB", "graph_gib", unit="GiB", keep="max"
    ),
    pattern(
        "sglang",
        "ssm_state size",
        rf"conv_state size: {NUM} ?GB, ssm_state size: {NUM} ?GB",
        "conv_state_gib",
        "ssm_state_gib",
        unit="GiB",
        keep="max",
    ),
)

TENSORRT_LLM: Final = (
    pattern(
        "tensorrt-llm", "TensorRT", r"TensorRT[- ]LLM [Vv]ersion:?\s{1,12}([0-9][\w.+-]{1,40})", "version", unit="text"
    ),
    pattern(
        "tensorrt-llm",
        "for k/v cache",
        r"Allocate ([0-9]{1,15}) bytes for k/v cache",
        "kv_pool_gib",
        unit="GiB",
        keep="max",
        factor=1 / GIB,
    ),
    pattern(
        "tensorrt-llm",
        "tokens in paged KV cache",
        rf"Using {INT} tokens in paged KV cache",
        "kv_pool_tokens",
        unit="tokens",
        keep="max",
    ),
    pattern(
        "tensorrt-llm",
        "for max tokens in paged KV cache",
        rf"Allocated {NUM} GiB for max tokens in paged KV cache \({INT}\)",
        "kv_pool_gib",
        "kv_pool_tokens",
        unit="GiB",
    ),
    pattern(
        "tensorrt-llm",
        "in KV cache primary pool",
        rf"blocks in KV cache primary pool: {INT}",
        "kv_blocks",
        unit="blocks",
    ),
    pattern(
        "tensorrt-llm", "tokens per block", rf"Number of tokens per block: {INT}", "block_tokens", unit="tokens/block"
    ),
    pattern(
        "tensorrt-llm",
        "calculating max tokens",
        rf"total: {NUM} GiB, available: {NUM} GiB",
        "total_gpu_gib",
        "available_gib",
        unit="GiB",
        keep="min",
    ),
    pattern(
        "tensorrt-llm",
        "model weights",
        rf"model weights \(inside torch\){GAP}: {NUM} GiB",
        "weights_gib",
        unit="GiB",
        keep="max",
    ),
    pattern(
        "tensorrt-llm",
        "Loaded engine size",
        rf"Loaded engine size: {INT} MiB",
        "weights_gib",
        unit="GiB",
        keep="max",
        factor=MIB / GIB,
    ),
    pattern(
        "tensorrt-llm",
        "dynamically allocated",
        rf"allocated during inference \(inside torch\){GAP}: {NUM} GiB",
        "activation_gib",
        unit="GiB",
    ),
    pattern(
        "tensorrt-llm",
        "device total memory",
        rf"device total memory {NUM} GiB",
        "total_gpu_gib",
        unit="GiB",
        keep="min",
    ),
    pattern("tensorrt-llm", "fraction is set", rf"fraction is set {NUM}", "gpu_memory_utilization", unit="fraction"),
    pattern(
        "tensorrt-llm",
        "free_gpu_memory_fraction",
        rf"free_gpu_memory_fraction[=: ]{{1,3}}{NUM}",
        "gpu_memory_utilization",
        unit="fraction",
    ),
    pattern("tensorrt-llm", "for model", rf"for model ({NAME}) on port", "model", unit="text"),
    pattern("tensorrt-llm", "max_seq_len=", r"max_seq_len=([0-9]{1,12})", "max_model_len", unit="tokens"),
    pattern(
        "tensorrt-llm", "max_num_tokens=", r"max_num_tokens=([0-9]{1,12})", "max_num_batched_tokens", unit="tokens"
    ),
    pattern("tensorrt-llm", "max_batch_size=", r"max_batch_size=([0-9]{1,12})", "max_num_seqs", unit="count"),
)

_DEVICE = r"((?:CUDA|ROCm|Vulkan|SYCL|MTL|Metal|CANN|MUSA|OpenCL|GPU)[0-9A-Za-z_]{0,16})"
LLAMA_CPP: Final = (
    pattern("llama.cpp", "build", r"\bbuild(?:\s{0,3}[:=]\s{0,3}|: )b?([0-9]{3,6}) \(", "version", unit="text"),
    pattern(
        "llama.cpp",
        "general.name",
        r"general\.name(?:\s+str)?\s{0,24}= ([^\n]{1,120})",
        "model_title",
        unit="text",
        keep="first",
    ),
    pattern("llama.cpp", "file type", r"file type\s{0,24}= ([^\n]{1,60})", "file_type", unit="text", keep="first"),
    pattern("llama.cpp", "BPW)", rf"(?:file|model) size\s{{0,24}}= {NUM} GiB \(", "file_gib", unit="GiB"),
    pattern("llama.cpp", "model path", r"model path[^\n]{0,40}?[=:]\s{0,3}'?([^\s']{1,200})", "model", unit="text"),
    pattern("llama.cpp", "n_ctx ", r"\bn_ctx\s{0,24}= ([0-9]{1,12})", "max_model_len", unit="tokens"),
    pattern("llama.cpp", "n_seq_max", r"n_seq_max\s{0,24}= ([0-9]{1,9})", "max_num_seqs", unit="count"),
    pattern("llama.cpp", "n_ubatch", r"n_ubatch\s{0,24}= ([0-9]{1,9})", "ubatch", unit="tokens"),
    pattern("llama.cpp", "K (", r"K \(([\w.]{1,12})\)", "kv_dtype", unit="text"),
    pattern(
        "llama.cpp",
        "layers to GPU",
        r"offloaded ([0-9]{1,6})/([0-9]{1,6}) layers to GPU",
        "gpu_layers",
        "all_layers",
        unit="count",
    ),
)
#: Lines that name a device; sizes of one device add up, the fullest device counts.
LLAMA_CPP_BUFFERS: Final = (
    (
        "weights_gib",
        "buffer size",
        re.compile(
            rf"(?:load_tensors|llm_load_tensors):\s+{_DEVICE}\s{{1,3}}(?:model )?buffer size\s{{0,3}}=\s+{NUM} MiB"
        ),
    ),
    ("kv_pool_gib", "KV buffer size", re.compile(rf"\s{_DEVICE}\s{{1,3}}KV buffer size\s{{0,3}}=\s+{NUM} MiB")),
    ("state_gib", "RS buffer size", re.compile(rf"\s{_DEVICE}\s{{1,3}}RS buffer size\s{{0,3}}=\s+{NUM} MiB")),
    (
        "activation_gib",
        "compute buffer size",
        re.compile(rf"\s{_DEVICE}\s{{1,3}}compute buffer size\s{{0,3}}=\s+{NUM} MiB"),
    ),
)
