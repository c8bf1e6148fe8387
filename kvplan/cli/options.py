"""The options that several commands take as they are; a command that asks otherwise writes `option(field, …)` itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvplan.cli.fields import OUTPUT, option, row_option
from kvplan.report.render import Form

Model = Annotated[str, option("model")]
Gpu = Annotated[str, option("gpu")]
Engine = Annotated[str, option("engine")]
Dtype = Annotated[str | None, option("dtype")]
KvDtype = Annotated[str | None, option("kv_dtype")]
Tp = Annotated[int, option("tp")]
Pp = Annotated[int, option("pp")]
Dp = Annotated[int, option("dp")]
Ep = Annotated[int | None, option("ep")]
Dcp = Annotated[int, option("dcp")]
GpuCount = Annotated[int | None, option("gpu_count")]
InputTokens = Annotated[int, option("input_tokens")]
OutputTokens = Annotated[int, option("output_tokens")]
Concurrency = Annotated[int, option("concurrency")]
Context = Annotated[int | None, option("context")]
SharedPrefixTokens = Annotated[int, option("shared_prefix_tokens")]
PrefixHitRate = Annotated[float, option("prefix_hit_rate")]
SourceTokens = Annotated[int | None, option("source_tokens")]
NetworkMs = Annotated[float, option("network_ms")]
BenchmarkRequests = Annotated[int | None, option("benchmark_requests")]
EqualLengths = Annotated[bool, option("equal_lengths")]
GpuMemoryUtilization = Annotated[float | None, option("gpu_memory_utilization")]
MaxNumSeqs = Annotated[int | None, option("max_num_seqs")]
MaxNumBatchedTokens = Annotated[int | None, option("max_num_batched_tokens")]
EnforceEager = Annotated[bool, option("enforce_eager")]
GpuMemoryGib = Annotated[float | None, option("gpu_memory_gib")]
NGpuLayers = Annotated[int | None, option("n_gpu_layers")]
MaxLoras = Annotated[int, option("max_loras")]
MaxLoraRank = Annotated[int, option("max_lora_rank")]
SpeculativeTokens = Annotated[int, option("speculative_tokens")]
DraftModel = Annotated[str | None, option("draft_model")]
AllowContextOverflow = Annotated[bool, option("allow_context_overflow")]
AssumePlain = Annotated[bool, option("assume_plain")]
RowModel = Annotated[str | None, row_option("model", "Model.", metavar="NAME")]
RowGpu = Annotated[str | None, row_option("gpu", "GPU.", metavar="NAME")]
RowEngine = Annotated[str | None, row_option("engine", "Engine.", metavar="NAME")]
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
Text = Annotated[
    str,
    typer.Argument(
        metavar="[TEXT]",
        help="Only those with this text in their name; of GPUs also maker, generation, memory.",
        show_default=False,
    ),
]
