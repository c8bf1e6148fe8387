"""Start-up logs: an engine's own figures and settings, line by line, within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from kvplan.calibration.device_names import device_id
from kvplan.calibration.log_engines import LLAMA_CPP_BUFFERS
from kvplan.calibration.log_pattern import Keep, Pattern, Unit
from kvplan.calibration.log_patterns import (
    ARGUMENTS,
    CONFIG_LINE,
    DEVICE_LINE,
    MAKERS,
    PATTERNS,
    RESTART,
    SIGNS,
    TROUBLE,
)
from kvplan.calibration.sources import read_source
from kvplan.core.dataclass import dataclass
from kvplan.core.units import GIB, MIB
from kvplan.errors import SpecError

MAX_LINE: Final = 8_192
MAX_SEARCHED: Final = 8 * 2**20
"""Characters that patterns are tried on: a real start-up log has some 10^5, a hostile one is cut off here."""
MAX_LINES: Final = 500_000
MAX_TROUBLES: Final = 10
_SHOWN: Final = 240
_ARGUMENT_COST: Final = 2
_VOTING_LINES: Final = 5_000
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;?]{0,24}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?|.)?")
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LARGEST: Final = 1e15

#: Units of groups that stand in one pattern with figures of another unit.
_OWN_UNITS: Final[Mapping[str, Unit]] = {
    "gpu_memory_utilization": "fraction",
    "max_model_len": "tokens",
    "kv_pool_tokens": "tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFigure:
    """One number that a log prints.

    Attributes:
        name: What it is, `kv_pool_gib`, `max_concurrency`, …
        value: In `unit`.
        unit: `GiB`, `tokens`, `x`, `blocks`, …
        line: Line of the log, from 1.
        text: The line, without escape sequences, shortened.
    """

    name: str
    value: float
    unit: Unit
    line: int
    text: str


@dataclass(slots=True, kw_only=True)
class StartupLog:
    """What one start of an engine says.

    Attributes:
        engine: Engine that wrote it.
        facts: Setting → value as written (`model`, `version`, `tp`, `max_model_len`, …).
        figures: Name → figure.
        troubles: Lines that say why it did not start, (line, text).
        devices: GPU ids that the log's own words name.
        starts: Starts in the file; the last is read.
        lines: Lines read.
        searched: Characters that patterns were tried on.
        cut: True where reading stopped before the end.
    """

    engine: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    figures: dict[str, LogFigure] = field(default_factory=dict)
    troubles: list[tuple[int, str]] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    starts: int = 1
    lines: int = 0
    searched: int = 0
    cut: bool = False


def read_log(path: str | Path) -> StartupLog:
    """Read a start-up log; `-` is standard input.

    Raises:
        UsageError: It can't be opened.
        SpecError: It is too large, not text, or no engine's start-up log.
    """
    source = read_source(path)
    log = parse_log(source.text)
    if not log.figures:
        writers = log.engine or "vLLM, SGLang, TensorRT-LLM or llama.cpp"
        message = f"{source.path}: no start-up figures of {writers} in {log.lines:,} line{'s' * (log.lines != 1)}"
        raise SpecError(
            message, hint="give the log from the start of the server, for vLLM from 'Initializing a … engine'"
        )
    return log


def parse_log(text: str) -> StartupLog:
    """Figures and settings of the last start in a log.

    >>> log = parse_log("INFO gpu_worker.py:349] Available KV cache memory: 58.11 GiB")
    >>> log.engine, log.figures["kv_pool_gib"].value
    ('vllm', 58.11)
    """
    log = StartupLog()
    votes: dict[str, int] = {}
    buffers: dict[tuple[str, str], float] = {}
    for number, line in _lines(text):
        log.lines = number
        if not line or line.isspace():
            continue
        if log.searched > MAX_SEARCHED:
            log.cut = True
            break
        if log.figures and RESTART.search(line):
            _restart(log, votes, buffers)
        if number <= _VOTING_LINES:
            for engine, sign in SIGNS:
                if sign.search(line):
                    votes[engine] = votes.get(engine, 0) + 1
                    break
        _read_line(log, line, number, votes)
        _read_buffers(log, line, number, buffers, votes)
        if len(log.troubles) < MAX_TROUBLES and TROUBLE.search(line):
            log.troubles.append((number, shorten(line)))
        if any(maker in line for maker in MAKERS):
            _read_devices(log, line)
    _finish(log, votes)
    return log


def _read_devices(log: StartupLog, line: str) -> None:
    log.searched += len(line)
    for name in DEVICE_LINE.findall(line):
        found = device_id(name)
        if found is not None and found not in log.devices and len(log.devices) < MAX_TROUBLES:
            log.devices.append(found)


def _restart(log: StartupLog, votes: dict[str, int], buffers: dict[tuple[str, str], float]) -> None:
    log.starts += 1
    for kept in (log.facts, log.figures, log.troubles, votes, buffers):
        kept.clear()


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without escape sequences and control characters, each cut to a bounded length."""
    start, number = 0, 0
    while start <= len(text) and number < MAX_LINES:
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        number += 1
        line = text[start : min(end, start + MAX_LINE)]
        if not line.isprintable():
            line = _CONTROL.sub("", _ESCAPES.sub("", line))
        yield number, line
        start = end + 1


def shorten(line: str) -> str:
    """A line for people: no outer space, at most a few hundred characters."""
    line = line.strip()
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def _read_line(log: StartupLog, line: str, number: int, votes: dict[str, int]) -> None:
    even = " ".join(line.split()) if "  " in line or "\t" in line else line
    for pattern in PATTERNS:
        if pattern.needle not in even:
            continue
        log.searched += len(even)
        if match := pattern.regex.search(even):
            votes[pattern.engine] = votes.get(pattern.engine, 0) + (2 if pattern.unit in {"GiB", "x"} else 0)
            for name, value in zip(pattern.names, match.groups(), strict=True):
                _keep(log, pattern, name, value, number=number, line=line)
    if CONFIG_LINE.search(line):
        log.searched += len(line) * _ARGUMENT_COST
        is_sglang = "ServerArgs(" in line or "launch_server" in line
        for pattern in ARGUMENTS:
            if (pattern.engine == "sglang") is is_sglang and (match := pattern.regex.search(line)):
                _keep(log, pattern, pattern.names[0], match[1], number=number, line=line)


def _keep(log: StartupLog, pattern: Pattern, name: str, text: str, *, number: int, line: str) -> None:
    unit = _OWN_UNITS.get(name, pattern.unit)
    if unit == "text":
        if pattern.keep != "first" or name not in log.facts:
            log.facts[name] = text.strip()
        return
    value = _number(text, factor=pattern.factor if unit == pattern.unit else 1.0)
    if value is None:
        return
    if unit in {"count", "fraction"} or name in {"max_model_len", "max_num_batched_tokens", "ubatch"}:
        log.facts[name] = text.replace(",", "")
        if name not in {"padding_layers", "gpu_layers"}:
            return
    figure = LogFigure(name=name, value=value, unit=unit, line=number, text=shorten(line))
    log.figures[name] = _choose(log.figures.get(name), figure, pattern.keep)


def _choose(old: LogFigure | None, new: LogFigure, keep: Keep) -> LogFigure:
    """Ranks print the same line: the fullest rank's weights count, and the smallest pool."""
    if old is None:
        return new
    match keep:
        case "max":
            return new if new.value > old.value else old
        case "min":
            return new if new.value < old.value else old
        case "first":
            return old
        case "last" | "sum":
            return new


def _read_buffers(
    log: StartupLog, line: str, number: int, buffers: dict[tuple[str, str], float], votes: dict[str, int]
) -> None:
    """llama.cpp's buffers: the sizes of one device add up, the fullest device counts."""
    if "buffer size" not in line:
        return
    for name, needle, regex in LLAMA_CPP_BUFFERS:
        if needle in line and (match := regex.search(line)):
            value = _number(match[2], factor=MIB / GIB)
            if value is None or match[1].endswith("_Host"):  # pinned memory of the CPU
                continue
            votes["llama.cpp"] = votes.get("llama.cpp", 0) + 2
            buffers[name, match[1]] = buffers.get((name, match[1]), 0.0) + value
            largest = max(size for (kind, _), size in buffers.items() if kind == name)
            log.figures[name] = LogFigure(name=name, value=largest, unit="GiB", line=number, text=shorten(line))
    log.facts["gpu_devices"] = str(len({device for _, device in buffers}) or 1)


def _number(text: str, *, factor: float) -> float | None:
    try:
        value = float(text.replace(",", "")) * factor
    except ValueError:
        return None
    return value if abs(value) <= _LARGEST else None


def _finish(log: StartupLog, votes: Mapping[str, int]) -> None:
    log.engine = max(votes, key=lambda engine: votes[engine]) if votes else None
    halves = (log.figures.get("k_gib"), log.figures.get("v_gib"))
    if halves[0] is not None and halves[1] is not None:
        both = halves[0].value + halves[1].value
        log.figures["kv_pool_gib"] = LogFigure(
            name="kv_pool_gib", value=both, unit="GiB", line=halves[0].line, text=halves[0].text
        )
    peak, weights = log.figures.get("peak_torch_gib"), log.figures.get("weights_gib")
    if peak is not None and weights is not None and "activation_gib" not in log.figures:
        log.figures["activation_gib"] = LogFigure(
            name="activation_gib", value=peak.value - weights.value, unit="GiB", line=peak.line, text=peak.text
        )
    for name in ("k_gib", "v_gib", "peak_torch_gib"):
        log.figures.pop(name, None)
