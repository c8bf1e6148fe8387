"""Fuzz every reader of kvplan: structured mutations, guided by coverage where atheris is installed.

    python benchmarks/fuzz.py --reader config --runs 200000 [--guided] [--finds FOLDER]

Inputs come from `tests/fuzz` (`readers.py` has the known ones, `mutations.py` changes them, `guard.py` holds the laws).
A find is kept once for each place and kind of fault, with the input that showed it. Exit code 1 says that there are some.
`--guided` needs `pip install atheris`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import pkgutil
import random
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

_TELL_EVERY = 20_000


class Campaign:
    """One reader under attack."""

    def __init__(self, name: str, *, runs: int, seed: int, finds: Path) -> None:
        from tests.fuzz.readers import READERS  # noqa: PLC0415 - imported under instrumentation

        self.name, self.runs, self.finds = name, runs, finds
        self.reader = READERS[name]
        self.mutator = self.reader.mutator()
        self.random = random.Random(seed)  # noqa: S311 - inputs, not secrets
        memory = Path("/dev/shm")  # noqa: S108 - a RAM disk, where there is one
        self.folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self.done = self.accepted = 0
        self.found: dict[str, str] = {}
        self.started = time.monotonic()

    def one(self, data: bytes) -> None:
        """Read one input, keep what breaks a law."""
        from tests.fuzz.guard import LawBrokenError, keeps_the_laws  # noqa: PLC0415 - as above

        self.done += 1
        try:
            self.accepted += keeps_the_laws(self.reader.run, data, self.folder)
        except LawBrokenError as error:
            kind = re.sub(r"\d+", "0", str(error))[:70]
            if kind not in self.found:
                self.found[kind] = str(error)
                target = self.finds / self.name / hashlib.sha256(kind.encode()).hexdigest()[:12]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                print(f"{self.name}: FIND {target.name} {str(error)[:220]}", flush=True)
        if self.done % _TELL_EVERY == 0:
            print(self.line(), flush=True)

    def line(self) -> str:
        """Counts so far."""
        spent = time.monotonic() - self.started
        return f"{self.name}: {self.done:,} inputs, {self.accepted:,} accepted, {len(self.found)} kinds of finds, {spent:.0f} s"

    def run(self) -> None:
        """All mutations, unguided."""
        for seed in self.mutator.seeds:
            self.one(seed)
        while self.done < self.runs:
            self.one(self.mutator.fresh(self.random))

    def end(self) -> None:
        """Tell the counts and clean up."""
        print(self.line(), flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def guided(campaign: Campaign) -> None:
    """Let coverage choose which inputs are changed further; does not return."""
    import atheris  # noqa: PLC0415 - optional

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        source = data or campaign.random.choice(campaign.mutator.seeds)
        return campaign.mutator.mutated(source, random.Random(seed))[:max_size]  # noqa: S311 - inputs, not secrets

    corpus = Path(tempfile.mkdtemp())
    for number, seed in enumerate(campaign.mutator.seeds):
        (corpus / str(number)).write_bytes(seed)

    def one(data: bytes) -> None:
        campaign.one(data)
        if campaign.done >= campaign.runs:
            campaign.end()
            sys.stdout.flush()
            os._exit(bool(campaign.found))

    arguments = [sys.argv[0], str(corpus), "-max_len=60000", "-rss_limit_mb=4000", "-verbosity=0", "-timeout=60"]
    atheris.Setup(arguments, one, custom_mutator=mutate)
    atheris.Fuzz()


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Fuzz the readers of kvplan.")
    parser.add_argument("--reader", action="append", help="a reader; all without it")
    parser.add_argument("--runs", type=int, default=200_000, help="inputs for each reader")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--guided", action="store_true", help="by coverage, with atheris; one reader")
    parser.add_argument(
        "--finds", type=Path, default=Path(tempfile.gettempdir()) / "kvplan-finds", help="where finds go"
    )
    asked = parser.parse_args()
    if asked.guided:
        import atheris  # noqa: PLC0415 - optional

        with atheris.instrument_imports(include=["kvplan"]):
            import kvplan  # noqa: PLC0415 - under instrumentation, and so is all that readers import when they run

            for module in pkgutil.walk_packages(kvplan.__path__, "kvplan."):
                if not module.name.endswith("__main__") and "plot" not in module.name:
                    importlib.import_module(module.name)
            from tests.fuzz.readers import READERS  # noqa: PLC0415
    else:
        from tests.fuzz.readers import READERS  # noqa: PLC0415 - after the path is set
    names = asked.reader or list(READERS)
    total = 0
    for name in names:
        campaign = Campaign(name, runs=asked.runs, seed=asked.seed, finds=asked.finds)
        if asked.guided:
            guided(campaign)
        campaign.run()
        campaign.end()
        total += len(campaign.found)
    print(json.dumps({"readers": names, "inputs_each": asked.runs, "finds": total}))
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
