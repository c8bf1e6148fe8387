"""An autoscaler's question: how many replicas carry this many requests per second within the targets?

    python examples/autoscaler.py 12.5        # prints the number of replicas

A replica's limit does not depend on the load, so that it is planned once and divided ever after.
"""

from __future__ import annotations

import argparse
import math
import sys

import kvplan


def load_of_one_replica() -> float:
    """Requests per second that one replica carries within the targets: a plan without a load answers the most."""
    found = kvplan.plan(
        "llama-3.1-8b",
        ["l40s"],
        input_tokens="lognormal:900:0.8",
        output_tokens=250,
        tp=[1],
        dtypes=["fp8"],
        slo_ttft_ms="1500@p95",
        slo_tpot_ms="60@p95",
    )
    if found.cheapest is None:
        reasons = ", ".join(sorted({one.reason for one in found.rejected}))
        message = f"no replica meets the targets: {reasons}"
        raise SystemExit(message)
    return found.cheapest.rate_per_s


def _rate(text: str) -> float:
    """A load from the command line; a monitoring system's NaN or −1 must not scale anything."""
    rate = float(text)
    if not 0 <= rate < math.inf:
        message = f"{text} is no load"
        raise argparse.ArgumentTypeError(message)
    return rate


def main(arguments: list[str] | None = None) -> int:
    """Print the number of replicas, with one to spare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rate", type=_rate, nargs="+", help="requests per second")
    parser.add_argument("--spare", type=int, default=1)
    given = parser.parse_args(arguments)
    one = load_of_one_replica()
    for rate in given.rate:
        print(max(1, math.ceil(rate / one)) + given.spare)
    return 0


if __name__ == "__main__":
    sys.exit(main())
