"""A nightly table: how many sequences each model has room for on each GPU, and how fast they run, as CSV.

python examples/nightly_table.py > table.csv
"""

from __future__ import annotations

import csv
import sys

import kvplan

MODELS = ["llama-3.1-8b", "qwen3-32b", "llama-3.1-70b"]
GPUS = ["l4", "l40s", "a100-80g", "h100-sxm"]
COLUMNS = ["model", "gpu", "tp", "status", "max_concurrency", "ttft_ms", "tpot_ms", "output_tokens_per_second"]


def main() -> int:
    """Write one row for each model, GPU and tensor-parallel size."""
    table = kvplan.sweep(
        MODELS, GPUS, tp=[1, 2, 4], dtype="fp8", concurrency=16, input_tokens=2000, output_tokens=300, context=8192
    )
    writer = csv.DictWriter(sys.stdout, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows())
    return 0


if __name__ == "__main__":
    sys.exit(main())
