"""Fuzz every reader and writer of kvplan: structured mutations, guided by coverage where atheris is installed.

    python benchmarks/fuzz.py [--reader NAME]… [--runs 200000] [--processes 2] [--seed 1] [--finds FOLDER]
    python benchmarks/fuzz.py --guided --reader config --runs 50000

Inputs come from `tests/fuzz` (`readers.py` lists the readers with known inputs, `mutations.py` changes them, `guard.py`
holds the laws). A find is kept once for each kind of fault, with the input that showed it. The table at the end is ready
for a page; exit code 1 says that there are finds. `--guided` needs `pip install atheris`, and tells how coverage grew.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib
import multiprocessing
import os
import pkgutil
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

#: Inputs of one process: its memory is its own, and many parts keep all processes busy to the end.
_PART = 25_000
_COLLECT_AFTER = 100_000
#: Counters of coverage slow a reader down.
_GUIDED_S = 10.0
_GROWTH = re.compile(r"#\d+\s+(?:INITED|DONE|NEW|REDUCE|pulse)\s+cov: (\d+) ft: (\d+) corp: (\d+)/")


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of the inputs of one reader."""

    reader: str
    inputs: int = 0
    accepted: int = 0
    slowest_s: float = 0.0
    memory_bytes: int = 0
    found: dict[str, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Count another part of the same reader in."""
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.memory_bytes = max(self.memory_bytes, other.memory_bytes)
        self.found.update(other.found)

    def cells(self) -> tuple[str, ...]:
        """A row of the table."""
        memory = f"{self.memory_bytes / 2**20:.0f}"
        return (
            *(self.reader, f"{self.inputs:,}", f"{self.accepted:,}", str(len(self.found))),
            *(f"{self.slowest_s:.2f}", memory),
        )


class Campaign:
    """One reader under attack, in this process."""

    def __init__(self, name: str, *, finds: Path) -> None:
        from tests.fuzz.readers import READERS  # noqa: PLC0415 - imported under instrumentation

        self.reader, self.finds = READERS[name], finds
        self.tally = Tally(reader=name)
        self.mutator = self.reader.mutator()
        memory = Path("/dev/shm")  # noqa: S108 - a RAM disk, where there is one
        self.folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        with contextlib.suppress(Exception):  # a first one, for what a reader imports when it runs, is not timed
            self.reader.run(self.mutator.seeds[0], self.folder)
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)

    def one(self, data: bytes, *, most_s: float = 1.0) -> None:
        """Read one input, keep what breaks a law."""
        from tests.fuzz.guard import LawBrokenError, keeps_the_laws  # noqa: PLC0415 - as above

        tally = self.tally
        tally.inputs += 1
        try:
            answer = keeps_the_laws(self.reader.run, data, self.folder, most_s=most_s)
            tally.accepted += answer.accepted
            tally.slowest_s = max(tally.slowest_s, answer.spent_s)
        except LawBrokenError as error:
            if error.kind not in tally.found:
                tally.found[error.kind] = str(error)
                target = self.finds / tally.reader / hashlib.sha256(error.kind.encode()).hexdigest()[:12]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                print(f"{tally.reader}: FIND {target.name} {str(error)[:220]}", flush=True)

    def end(self) -> Tally:
        """The counts; the folder is removed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.tally.memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return self.tally


def part(name: str, runs: int, seed: str, finds: Path) -> Tally:
    """Some mutations of a reader's known inputs; the first part takes these themselves too."""
    campaign, numbers = Campaign(name, finds=finds), random.Random(seed)  # noqa: S311 - inputs, not secrets
    known = campaign.mutator.seeds if seed.endswith("/0") else ()
    for data in known:
        campaign.one(data)
    for _ in range(runs - len(known)):
        campaign.one(campaign.mutator.fresh(numbers))
    return campaign.end()


def keep_bundled() -> None:
    """Have every bundled spec parsed and kept: most readers load some, a parse costs ten times as much."""
    from kvplan.specs.bundled import load_bundled  # noqa: PLC0415 - as above
    from kvplan.specs.registry import spec_folder  # noqa: PLC0415 - as above

    sys.dont_write_bytecode = False
    for kind in ("model", "gpu", "engine"):
        for path in spec_folder(kind).glob("*.yaml"):
            load_bundled(path)


def unguided(names: Sequence[str], *, runs: int, seed: int, processes: int, finds: Path) -> dict[str, Tally]:
    """All mutations of all readers, over a few processes."""
    keep_bundled()
    tallies = {name: Tally(reader=name) for name in names}
    started = time.monotonic()
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        parts = [
            pool.submit(part, name, min(_PART, runs - start), f"{seed}/{start}", finds)
            for name in names
            for start in range(0, runs, _PART)
        ]
        for done in as_completed(parts):
            tally = tallies[done.result().reader]
            tally.add(done.result())
            if tally.inputs >= runs:
                print(
                    f"{tally.reader}: all done after {time.monotonic() - started:,.0f} s", file=sys.stderr, flush=True
                )
    return tallies


def guided(name: str, *, runs: int, finds: Path) -> None:
    """Let coverage choose which inputs are changed further; does not return."""
    import atheris  # noqa: PLC0415 - optional

    with atheris.instrument_imports(include=["kvplan"]):
        import kvplan  # noqa: PLC0415 - under instrumentation, and so is all that readers import when they run

        for module in pkgutil.walk_packages(kvplan.__path__, "kvplan."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    keep_bundled()
    campaign = Campaign(name, finds=finds)
    mutator = campaign.mutator

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        return mutator.mutated(data, random.Random(seed))[:max_size]  # noqa: S311 - inputs, not secrets

    corpus = Path(tempfile.mkdtemp())
    for number, known in enumerate(mutator.seeds):
        (corpus / str(number)).write_bytes(known)

    def one(data: bytes) -> None:
        campaign.one(data, most_s=_GUIDED_S)
        if campaign.tally.inputs == runs:
            print("| " + " | ".join(campaign.end().cells()) + " |", flush=True)
            shutil.rmtree(corpus, ignore_errors=True)
            os._exit(1 if campaign.tally.found else 0)

    # One mutation at a time: ours change several places, and stacked they leave little that a reader takes.
    options = ["-max_len=60000", "-rss_limit_mb=4000", "-timeout=60", "-mutate_depth=1", "-verbosity=1"]
    atheris.Setup([sys.argv[0], str(corpus), *options], one, custom_mutator=mutate)
    atheris.Fuzz()


def grown(lines: Iterable[str]) -> str:
    """How coverage and corpus grew, from what libFuzzer writes; other lines are passed on."""
    first = last = None
    for line in lines:
        match = _GROWTH.match(line)
        if match is None:
            if not line.startswith(("INFO:", "WARNING:", "#")):
                print(line, end="", file=sys.stderr)
            continue
        last = match
        first = first or (match if "INITED" in line else None)
    if first is None or last is None:
        return "coverage was not told"
    return ", ".join(
        f"{what} {int(first[at]):,} → {int(last[at]):,}" for at, what in enumerate(("edges", "features", "corpus"), 1)
    )


def watched(name: str, words: Sequence[str]) -> int:
    """A guided run in a process of its own, which ends where libFuzzer or the last input ends it."""
    command = [sys.executable, __file__, *words, "--reader", name]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "KVPLAN_FUZZ_INSIDE": "1"}
    ) as child:
        print(f"{name}: {grown(child.stderr or ())}", flush=True)
    return child.returncode


def table(tallies: Sequence[Tally]) -> str:
    """Markdown for a page."""
    head = ("reader", "inputs", "accepted", "kinds of finds", "slowest [s]", "memory of the process [MiB]")
    rows = [head, ("---", *["---:"] * (len(head) - 1)), *(tally.cells() for tally in tallies)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Fuzz the readers and writers of kvplan.")
    parser.add_argument("--reader", action="append", help="a reader, repeatable; all without it")
    parser.add_argument("--runs", type=int, default=200_000, help="inputs for each reader")
    parser.add_argument("--processes", type=int, default=1, help="readers at once")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--guided", action="store_true", help="by coverage, with atheris, one after the other")
    place = Path(tempfile.gettempdir()) / "kvplan-finds"
    parser.add_argument("--finds", type=Path, default=place, help="where finds go")
    asked = parser.parse_args()
    if asked.guided and "KVPLAN_FUZZ_INSIDE" in os.environ:
        guided(asked.reader[-1], runs=asked.runs, finds=asked.finds)
    from tests.fuzz.readers import READERS  # noqa: PLC0415 - after the path is set, and not before instrumentation

    names = asked.reader or list(READERS)
    if asked.guided:
        words = ["--guided", "--runs", str(asked.runs), "--finds", str(asked.finds)]
        return max([watched(name, words) for name in names])
    tallies = unguided(names, runs=asked.runs, seed=asked.seed, processes=asked.processes, finds=asked.finds)
    print(table(list(tallies.values())))
    return 1 if any(tally.found for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
