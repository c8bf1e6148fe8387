"""All patterns of start-up lines, and the words that tell engines, starts, devices and trouble apart.

A pattern is tried only on lines that hold its needle, and all repetitions are bounded, so that no line takes more
than linear time.
"""

from __future__ import annotations

import re
from typing import Final

from kvplan.calibration.log_engines import LLAMA_CPP, SGLANG, SGLANG_ARGUMENTS, TENSORRT_LLM
from kvplan.calibration.log_vllm import VLLM, VLLM_ARGUMENTS

#: Lines that print a whole configuration, where short names such as `model` and `dtype` can be trusted.
CONFIG_LINE: Final = re.compile(
    r"with config:|non-default args|args: Namespace|engine args|vllm serve|api_server|ServerArgs\(|launch_server"
)

#: A line that only a new start of a server writes: what came before belongs to an earlier one.
RESTART: Final = re.compile(r"vLLM API server version|server_args=ServerArgs\(|vLLM (?:is starting|server starting)")

ARGUMENTS: Final = (*VLLM_ARGUMENTS, *SGLANG_ARGUMENTS)
PATTERNS: Final = (*VLLM, *SGLANG, *TENSORRT_LLM, *LLAMA_CPP)

#: Sign of each engine, strongest first, where no figure tells.
SIGNS: Final = (
    ("sglang", re.compile(r"sglang|ServerArgs\(|Load weight end\.|#tokens:")),
    ("tensorrt-llm", re.compile(r"TensorRT-LLM|TRT-LLM|trtllm")),
    ("llama.cpp", re.compile(r"llama_(?:model_loader|kv_cache|context|new_context)|llm_load_|load_tensors:|ggml_")),
    ("vllm", re.compile(r"vllm|vLLM|gpu_worker\.py|kv_cache_utils\.py|gpu_model_runner\.py|GPU KV cache size")),
)
TROUBLE: Final = re.compile(
    r"OutOfMemoryError|CUDA out of memory|No available memory for the cache blocks|is less than desired GPU memory"
    r"|KV cache is needed, which is larger|is larger than the maximum number of tokens|exceeds available Mamba cache"
    r"|failed to allocate|unable to allocate|Not enough memory"
)
MAKERS: Final = ("NVIDIA", "AMD", "Apple", "Tesla", "Quadro", "GeForce", "device_name", "GPU name")
DEVICE_LINE: Final = re.compile(
    r"(?:NVIDIA|AMD|Apple|Tesla|Quadro|GeForce)[ _-][\w ./()+-]{1,60}|device_name=[\w-]{2,60}|GPU name\s*:\s*[\w .-]{2,60}"
)
