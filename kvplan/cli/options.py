"""Options that commands share, each with its unit, default and panel. Names equal the Python names with dashes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from kvplan.cli.completion import complete_engine, complete_gpu, complete_model
from kvplan.core.units import ENDINGS
from kvplan.report.render import Form

SCENARIO = "What is deployed"
LAYOUT = "Layout over GPUs"
WORKLOAD = "Workload"
ENGINE = "Engine settings"
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
    if not math.isclose(whole, value, rel_tol=1e-9):
        message = f"{text!r} is not a whole number of tokens, such as 4096, 4k = 4,000 or 4K = 4,096."
        raise typer.BadParameter(message)
    if whole < 1:
        message = f"{whole} is not in the range x>=1."
        raise typer.BadParameter(message)
    return whole


Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME|PATH",
        help="Bundled name, config.json or its folder, a spec YAML, a GGUF file, or a Hugging Face repo id.",
        autocompletion=complete_model,
        rich_help_panel=SCENARIO,
    ),
]
Gpu = Annotated[
    str,
    typer.Option(
        "--gpu",
        "-g",
        metavar="NAME|PATH",
        help="Bundled name, or a spec YAML of your own card.",
        autocompletion=complete_gpu,
        rich_help_panel=SCENARIO,
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        "-e",
        metavar="NAME[@VERSION]",
        help="Engine profile: vllm, sglang, tensorrt-llm, llama.cpp, ideal.",
        autocompletion=complete_engine,
        rich_help_panel=SCENARIO,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="FORMAT",
        help="Weight format: bf16, fp16, fp8, int8, w8a8, int4, awq, gptq, nvfp4, mxfp4, nf4, q4_k_m, …",
        show_default="as the checkpoint says",
        rich_help_panel=SCENARIO,
    ),
]
KvDtype = Annotated[
    str | None,
    typer.Option(
        "--kv-dtype",
        "--kv-cache-dtype",
        metavar="FORMAT",
        help="KV cache format: bf16, fp16, fp8, int8, nvfp4, q8_0, …",
        show_default="the engine's rule for this checkpoint",
        rich_help_panel=SCENARIO,
    ),
]
Tp = Annotated[
    int,
    typer.Option(
        "--tp",
        "--tensor-parallel-size",
        min=1,
        metavar="N",
        help="Tensor-parallel ranks [GPUs].",
        rich_help_panel=LAYOUT,
    ),
]
Pp = Annotated[
    int,
    typer.Option(
        "--pp", "--pipeline-parallel-size", min=1, metavar="N", help="Pipeline stages [GPUs].", rich_help_panel=LAYOUT
    ),
]
Dp = Annotated[
    int,
    typer.Option(
        "--dp",
        "--data-parallel-size",
        min=1,
        metavar="N",
        help="Data-parallel ranks: replicas, or DP attention with --ep [GPUs].",
        rich_help_panel=LAYOUT,
    ),
]
Ep = Annotated[
    int | None,
    typer.Option(
        "--ep",
        "--expert-parallel-size",
        min=1,
        metavar="N",
        help="Ranks that the routed experts are divided over.",
        show_default="experts follow tp",
        rich_help_panel=LAYOUT,
    ),
]
Dcp = Annotated[
    int,
    typer.Option(
        "--dcp",
        "--decode-context-parallel-size",
        min=1,
        metavar="N",
        help="Tensor-parallel ranks that divide the cache by tokens instead of copying it [GPUs].",
        rich_help_panel=LAYOUT,
    ),
]
GpuCount = Annotated[
    int | None,
    typer.Option(
        "--gpu-count",
        "--num-gpus",
        min=1,
        metavar="N",
        help="Checked against tp × pp × dp.",
        show_default="tp × pp × dp",
        rich_help_panel=LAYOUT,
    ),
]
InputTokens = Annotated[
    int,
    typer.Option(
        "--input-tokens",
        "--input-len",
        parser=tokens,
        metavar="N",
        help="Prompt length [tokens].",
        rich_help_panel=WORKLOAD,
    ),
]
OutputTokens = Annotated[
    int,
    typer.Option(
        "--output-tokens",
        "--output-len",
        parser=tokens,
        metavar="N",
        help="Generated length [tokens].",
        rich_help_panel=WORKLOAD,
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(
        "--concurrency",
        "-c",
        min=1,
        metavar="N",
        help="Users at once: sequences in flight over the whole deployment.",
        rich_help_panel=WORKLOAD,
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        "--max-model-len",
        parser=tokens,
        metavar="N",
        help="Longest sequence to plan for [tokens]; 32K is 32,768, 32k is 32,000.",
        show_default="input + output",
        rich_help_panel=WORKLOAD,
    ),
]
SharedPrefixTokens = Annotated[
    int,
    typer.Option(
        "--shared-prefix-tokens",
        min=0,
        metavar="N",
        help="Leading prompt tokens that all requests share [tokens].",
        rich_help_panel=WORKLOAD,
    ),
]
PrefixHitRate = Annotated[
    float,
    typer.Option(
        "--prefix-hit-rate",
        min=0.0,
        max=1.0,
        callback=finite,
        metavar="X",
        help="Share of requests that find the prefix cached [0 to 1].",
        rich_help_panel=WORKLOAD,
    ),
]
SourceTokens = Annotated[
    int | None,
    typer.Option(
        "--source-tokens",
        parser=tokens,
        metavar="N",
        help="Encoder tokens of an encoder–decoder model [tokens].",
        show_default="the model's most",
        rich_help_panel=WORKLOAD,
    ),
]
NetworkMs = Annotated[
    float,
    typer.Option(
        "--network-ms",
        min=0.0,
        callback=finite,
        metavar="X",
        help="Network time added to TTFT [ms].",
        rich_help_panel=WORKLOAD,
    ),
]
BenchmarkRequests = Annotated[
    int | None,
    typer.Option(
        "--benchmark-requests",
        min=1,
        metavar="N",
        help="Requests of a closed-loop benchmark that starts with all its concurrency at once.",
        show_default="steady state, no starting burst",
        rich_help_panel=WORKLOAD,
    ),
]
EqualLengths = Annotated[
    bool,
    typer.Option(
        "--equal-lengths",
        help="A closed-loop benchmark whose requests are all of one length, so that their prompts come together.",
        rich_help_panel=WORKLOAD,
    ),
]
GpuMemoryUtilization = Annotated[
    float | None,
    typer.Option(
        "--gpu-memory-utilization",
        "--mem-fraction-static",
        callback=finite,
        metavar="X",
        help="The engine's own memory fraction [0 to 1].",
        show_default="the engine's",
        rich_help_panel=ENGINE,
    ),
]
MaxNumSeqs = Annotated[
    int | None,
    typer.Option(
        "--max-num-seqs",
        "--max-running-requests",
        min=1,
        metavar="N",
        help="Sequences that the scheduler runs at most.",
        show_default="the engine's",
        rich_help_panel=ENGINE,
    ),
]
MaxNumBatchedTokens = Annotated[
    int | None,
    typer.Option(
        "--max-num-batched-tokens",
        "--chunked-prefill-size",
        parser=tokens,
        metavar="N",
        help="Tokens of one iteration at most [tokens].",
        show_default="the engine's",
        rich_help_panel=ENGINE,
    ),
]
EnforceEager = Annotated[bool, typer.Option("--enforce-eager", help="Capture no CUDA graphs.", rich_help_panel=ENGINE)]
GpuMemoryGib = Annotated[
    float | None,
    typer.Option(
        "--gpu-memory-gib",
        callback=finite,
        metavar="X",
        help="Memory of a card that is sliced or partly used [GiB].",
        show_default="the card's",
        rich_help_panel=ENGINE,
    ),
]
NGpuLayers = Annotated[
    int | None,
    typer.Option(
        "--n-gpu-layers",
        min=0,
        metavar="N",
        help="Layers on the GPU (llama.cpp); the others run on the CPU.",
        show_default="all",
        rich_help_panel=ENGINE,
    ),
]
MaxLoras = Annotated[
    int,
    typer.Option(
        "--max-loras",
        min=0,
        metavar="N",
        help="LoRA adapters that the engine makes room for at start.",
        rich_help_panel=ENGINE,
    ),
]
MaxLoraRank = Annotated[
    int, typer.Option("--max-lora-rank", min=1, metavar="N", help="Largest rank of an adapter.", rich_help_panel=ENGINE)
]
SpeculativeTokens = Annotated[
    int,
    typer.Option(
        "--speculative-tokens",
        "--num-speculative-tokens",
        min=0,
        metavar="N",
        help="Tokens that prediction layers (MTP) or a draft model guess: weights and caches are counted, speed is not.",
        rich_help_panel=ENGINE,
    ),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        "--draft-model",
        metavar="NAME|PATH",
        help="Smaller model that guesses tokens, on the same GPUs.",
        show_default="none",
        rich_help_panel=ENGINE,
    ),
]
AllowContextOverflow = Annotated[
    bool,
    typer.Option("--allow-context-overflow", help="Plan beyond the model's own context limit.", rich_help_panel=ENGINE),
]
AssumePlain = Annotated[
    bool,
    typer.Option(
        "--assume-plain",
        help="Read an unknown model_type as a plain decoder, with a warning.",
        rich_help_panel=SCENARIO,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout, nothing else.", rich_help_panel=OUTPUT)
]
Format = Annotated[
    Form | None,
    typer.Option(
        "--format",
        "-f",
        case_sensitive=False,
        help="Form of the result.",
        show_default="table, or what the suffix of -o says",
        rich_help_panel=OUTPUT,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write to a file, whole or not at all.", rich_help_panel=OUTPUT
    ),
]
Explain = Annotated[
    bool,
    typer.Option("--explain", help="Write each formula with the numbers put in.", rich_help_panel=OUTPUT),
]
