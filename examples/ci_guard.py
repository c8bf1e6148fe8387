"""A guard in CI: fail where a deployment in scenario files no longer holds the users that were promised, or is too slow.

python examples/ci_guard.py --users 32 --tpot-ms 50 examples/chat.yaml other.yaml
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import kvplan


def misses(answer: kvplan.Estimate, users: int, tpot_ms: float | None) -> Iterator[str]:
    """What is not as promised; the upper end of the 90 % band counts, so that one measurement of twenty is slower."""
    room = answer.capacity.max_concurrency * answer.scenario.dp
    if room < users:
        yield f"room for {room:.1f} sequences of {answer.scenario.context} tokens, {users} asked"
    if answer.latency is None:
        yield "it does not fit"
    elif tpot_ms is not None and answer.latency.tpot_ms.high > tpot_ms:
        yield f"a token takes up to {answer.latency.tpot_ms.high:.1f} ms, {tpot_ms:g} allowed"


def main(arguments: list[str] | None = None) -> int:
    """Check every file; 0 where all hold, 1 where one does not, 2 where one can't be read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--users", type=int, default=1, help="users at once, of the whole context each")
    parser.add_argument("--tpot-ms", type=float, help="milliseconds that a token may take with all of them")
    given = parser.parse_args(arguments)
    failed = 0
    for file in given.files:
        try:
            answer = kvplan.estimate(**{**kvplan.load_scenario(file), "concurrency": given.users})
        except kvplan.KvplanError as error:
            print(f"{file}: {error}", file=sys.stderr)
            return 2
        found = list(misses(answer, given.users, given.tpot_ms))
        print(f"{file}: {'FAILS: ' + '; '.join(found) if found else 'ok'}")
        if found:
            failed = 1
            for suggestion in answer.capacity.suggestions:
                print(f"  try {suggestion}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
