"""Fields of a scenario as options: names, meaning, unit, default and panel of each, once for all commands.

Names equal the Python names with dashes; the engines' own spellings are accepted beside them.
"""

from __future__ import annotations

import math
from typing import Any, Final

import typer

from kvplan.cli.completion import complete_dtype, complete_engine, complete_gpu, complete_kv_dtype, complete_model
from kvplan.core.units import ENDINGS

SCENARIO = "What is deployed"
LAYOUT = "Layout over GPUs"
WORKLOAD = "Workload"
ENGINE = "Engine settings"
ROWS = "For rows that do not say"
OUTPUT = "Output"


def finite(value: float | None) -> float | None:
    """Refuse `nan` and `inf`, which Python reads as numbers."""
    if value is not None and not math.isfinite(value):
        message = f"{value} is not a finite number."
        raise typer.BadParameter(message)
    return value


def tokens(text: str | int) -> int:
    """A number of tokens, with vLLM's endings: `32k` is 32,000, `32K` is 32,768, `1M` is 1,048,576.

    >>> tokens("4096"), tokens("1.5k"), tokens("128K")
    (4096, 1500, 131072)

    Raises:
        BadParameter: Not a whole number above zero.
    """
    number, unit = (text[:-1], ENDINGS[text[-1]]) if isinstance(text, str) and text[-1:] in ENDINGS else (text, 1)
    try:
        value = float(number) * unit if unit > 1 else int(number)
        whole = round(value)
    except (ValueError, OverflowError):
        whole, value = 0, math.nan
    if isinstance(value, float) and not math.isclose(whole, value, rel_tol=1e-9):
        message = f"{text!r} is not a whole number of tokens, such as 4096, 4k = 4,000 or 4K = 4,096."
        raise typer.BadParameter(message)
    if whole < 1:
        message = f"{whole} is not in the range x>=1."
        raise typer.BadParameter(message)
    return whole


def _written(*names: str, help: str, panel: str, **how: Any) -> dict[str, Any]:  # noqa: A002 - typer's own word
    return {"param_decls": names, "help": help, "rich_help_panel": panel, **how}


#: Field of a scenario → its names on a command line, what it means, how it is read, what stands for its default.
_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "model": _written(
        "--model",
        "-m",
        panel=SCENARIO,
        help="Bundled name, config.json or its folder, a spec YAML, a GGUF file, or a Hugging Face repo id.",
        metavar="NAME|PATH",
        autocompletion=complete_model,
    ),
    "gpu": _written(
        "--gpu",
        "-g",
        panel=SCENARIO,
        help="Bundled name, or a spec YAML of your own card.",
        metavar="NAME|PATH",
        autocompletion=complete_gpu,
    ),
    "engine": _written(
        "--engine",
        "-e",
        panel=SCENARIO,
        help="Engine profile: vllm, sglang, tensorrt-llm, llama.cpp, ideal.",
        metavar="NAME[@VERSION]",
        autocompletion=complete_engine,
    ),
    "dtype": _written(
        "--dtype",
        panel=SCENARIO,
        help="Weight format: bf16, fp16, fp8, int8, w8a8, int4, awq, gptq, nvfp4, mxfp4, nf4, q4_k_m, …",
        show_default="as the checkpoint says",
        metavar="FORMAT",
        autocompletion=complete_dtype,
    ),
    "kv_dtype": _written(
        "--kv-dtype",
        "--kv-cache-dtype",
        panel=SCENARIO,
        help="KV cache format: bf16, fp16, fp8, int8, nvfp4, q8_0, …",
        show_default="the engine's rule for this checkpoint",
        metavar="FORMAT",
        autocompletion=complete_kv_dtype,
    ),
    "assume_plain": _written(
        "--assume-plain", panel=SCENARIO, help="Read an unknown model_type as a plain decoder, with a warning."
    ),
    "tp": _written(
        "--tp", "--tensor-parallel-size", panel=LAYOUT, help="Tensor-parallel ranks [GPUs].", metavar="N", min=1
    ),
    "pp": _written(
        "--pp", "--pipeline-parallel-size", panel=LAYOUT, help="Pipeline stages [GPUs].", metavar="N", min=1
    ),
    "dp": _written(
        "--dp",
        "--data-parallel-size",
        panel=LAYOUT,
        help="Data-parallel ranks: replicas, or DP attention with --ep [GPUs].",
        metavar="N",
        min=1,
    ),
    "ep": _written(
        "--ep",
        "--expert-parallel-size",
        panel=LAYOUT,
        help="Ranks that the routed experts are divided over.",
        show_default="experts follow tp",
        metavar="N",
        min=1,
    ),
    "dcp": _written(
        "--dcp",
        "--decode-context-parallel-size",
        panel=LAYOUT,
        help="Tensor-parallel ranks that divide the cache by tokens instead of copying it [GPUs].",
        metavar="N",
        min=1,
    ),
    "gpu_count": _written(
        "--gpu-count",
        "--num-gpus",
        panel=LAYOUT,
        help="Checked against tp × pp × dp.",
        show_default="tp × pp × dp",
        metavar="N",
        min=1,
    ),
    "input_tokens": _written(
        "--input-tokens",
        "--input-len",
        panel=WORKLOAD,
        help="Prompt length, the tokens of its images and sound among them [tokens].",
        metavar="N",
        parser=tokens,
    ),
    "output_tokens": _written(
        "--output-tokens", "--output-len", panel=WORKLOAD, help="Generated length [tokens].", metavar="N", parser=tokens
    ),
    "concurrency": _written(
        "--concurrency",
        "-c",
        panel=WORKLOAD,
        help="Users at once: sequences in flight over the whole deployment.",
        metavar="N",
        min=1,
    ),
    "context": _written(
        "--context",
        "--max-model-len",
        panel=WORKLOAD,
        help="Longest sequence to plan for [tokens]; 32K is 32,768, 32k is 32,000.",
        show_default="input + output",
        metavar="N",
        parser=tokens,
    ),
    "shared_prefix_tokens": _written(
        "--shared-prefix-tokens",
        panel=WORKLOAD,
        help="Leading prompt tokens that all requests share [tokens].",
        metavar="N",
        min=0,
    ),
    "prefix_hit_rate": _written(
        "--prefix-hit-rate",
        panel=WORKLOAD,
        help="Share of requests that find the prefix cached [0 to 1].",
        metavar="X",
        min=0.0,
        max=1.0,
        callback=finite,
    ),
    "source_tokens": _written(
        "--source-tokens",
        panel=WORKLOAD,
        help="Encoder tokens of an encoder–decoder model [tokens].",
        show_default="the model's most",
        metavar="N",
        parser=tokens,
    ),
    "network_ms": _written(
        "--network-ms", panel=WORKLOAD, help="Network time added to TTFT [ms].", metavar="X", min=0.0, callback=finite
    ),
    "benchmark_requests": _written(
        "--benchmark-requests",
        panel=WORKLOAD,
        help="Requests of a closed-loop benchmark that starts with all its concurrency at once.",
        show_default="steady state, no starting burst",
        metavar="N",
        min=1,
    ),
    "equal_lengths": _written(
        "--equal-lengths",
        panel=WORKLOAD,
        help="A closed-loop benchmark whose requests are all of one length, so that their prompts come together.",
    ),
    "gpu_memory_utilization": _written(
        "--gpu-memory-utilization",
        "--mem-fraction-static",
        panel=ENGINE,
        help="The engine's own memory fraction [0 to 1].",
        show_default="the engine's",
        metavar="X",
        callback=finite,
    ),
    "max_num_seqs": _written(
        "--max-num-seqs",
        "--max-running-requests",
        panel=ENGINE,
        help="Sequences that the scheduler runs at most.",
        show_default="the engine's",
        metavar="N",
        min=1,
    ),
    "max_num_batched_tokens": _written(
        "--max-num-batched-tokens",
        "--chunked-prefill-size",
        panel=ENGINE,
        help="Tokens of one iteration at most [tokens].",
        show_default="the engine's",
        metavar="N",
        parser=tokens,
    ),
    "enforce_eager": _written("--enforce-eager", panel=ENGINE, help="Capture no CUDA graphs."),
    "gpu_memory_gib": _written(
        "--gpu-memory-gib",
        panel=ENGINE,
        help="Memory of a card that is sliced or partly used [GiB].",
        show_default="the card's",
        metavar="X",
        callback=finite,
    ),
    "n_gpu_layers": _written(
        "--n-gpu-layers",
        panel=ENGINE,
        help="Layers on the GPU (llama.cpp); the others run on the CPU.",
        show_default="all",
        metavar="N",
        min=0,
    ),
    "max_loras": _written(
        "--max-loras", panel=ENGINE, help="LoRA adapters that the engine makes room for at start.", metavar="N", min=0
    ),
    "max_lora_rank": _written("--max-lora-rank", panel=ENGINE, help="Largest rank of an adapter.", metavar="N", min=1),
    "speculative_tokens": _written(
        "--speculative-tokens",
        "--num-speculative-tokens",
        panel=ENGINE,
        help="Tokens that prediction layers (MTP) or a draft model guess: weights and caches are counted, speed is not.",
        metavar="N",
        min=0,
    ),
    "draft_model": _written(
        "--draft-model",
        panel=ENGINE,
        help="Smaller model that guesses tokens, on the same GPUs.",
        show_default="none",
        metavar="NAME|PATH",
        autocompletion=complete_model,
    ),
    "allow_context_overflow": _written(
        "--allow-context-overflow", panel=ENGINE, help="Plan beyond the model's own context limit."
    ),
}


def option(field: str, **other: Any) -> Any:
    """The option of a scenario's field; `other` is what one command says or reads differently, in typer's words."""
    how = {**_FIELDS[field], **other}
    return typer.Option(*how.pop("param_decls"), **how)


def row_option(field: str, words: str, **other: Any) -> Any:
    """The same for measured rows that leave the field empty."""
    return option(field, help=words, rich_help_panel=ROWS, show_default=True, **other)


def picture(help: str, *, panel: str = OUTPUT) -> Any:  # noqa: A002 - typer's own word
    """The option `--plot`, in the words of one command."""
    return typer.Option("--plot", metavar="FILE", help=help, rich_help_panel=panel)
