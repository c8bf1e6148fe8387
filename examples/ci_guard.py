"""A guard in CI: fail where a deployment in scenario files no longer fits, or fits fewer users than were promised.

python examples/ci_guard.py --users 32 examples/chat.yaml other.yaml
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import kvplan


def main(arguments: list[str] | None = None) -> int:
    """Check every file; 0 where all hold, 1 where one does not, 2 where one can't be read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--users", type=float, default=1.0, help="sequences of the whole context that must fit")
    given = parser.parse_args(arguments)
    failed = 0
    for file in given.files:
        try:
            answer = kvplan.estimate(**kvplan.load_scenario(file))
        except kvplan.KvplanError as error:
            print(f"{file}: {error}", file=sys.stderr)
            return 2
        room = answer.capacity.max_concurrency * answer.scenario.dp
        verdict = "ok" if room >= given.users else "FAILS"
        print(
            f"{file}: {verdict}: room for {room:.1f} sequences of {answer.scenario.context} tokens, {given.users:g} asked"
        )
        if room < given.users:
            failed = 1
            for suggestion in answer.capacity.suggestions:
                print(f"  try {suggestion}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
