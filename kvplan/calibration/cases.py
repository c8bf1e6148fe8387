"""Measurement records as what a fit asks the step model: one configuration each, its rows as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kvplan.calibration.planner import Planner
from kvplan.calibration.record import Record
from kvplan.core.dataclass import dataclass
from kvplan.core.deployment import Deployment, deploy
from kvplan.core.engine import Engine, Settings, memory_bytes
from kvplan.core.estimate import rank_load
from kvplan.core.layout import Layout
from kvplan.core.memory import plan_memory
from kvplan.core.precision import apply_dtype
from kvplan.core.roofline import Machine
from kvplan.core.serving import Load
from kvplan.core.units import MS_PER_S
from kvplan.core.work import StepWork
from kvplan.core.workload import Workload
from kvplan.errors import KvplanError

#: Fields of a load in which the rows of a case differ.
_COLUMNS: Final = ("input_tokens", "output_tokens", "concurrency", "capacity", "max_num_seqs", "budget_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rows that differ in their load only.

    Attributes:
        configuration: Model, format, GPU and layout; folds hold whole ones out.
        family: Device family.
        work, machine: What a step asks of which machine.
        load: The loads, as arrays.
        ttft_s, tpot_s: What was measured, NaN where nothing was [s].
    """

    configuration: tuple[str, ...]
    family: str
    work: StepWork
    machine: Machine
    load: Load
    ttft_s: Any
    tpot_s: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    record: Record
    deployment: Deployment
    load: Load

    @property
    def configuration(self) -> tuple[str, ...]:
        one = self.record
        return (one.model, str(one.dtype), one.gpu, f"{one.tp}/{one.pp}/{one.dp}/{one.ep}")

    @property
    def kind(self) -> tuple[object, ...]:
        """What rows must share to be one case: work, machine and protocol follow from it."""
        one = self.record
        protocol = self.load.benchmark_requests is not None, one.is_of_one_length
        return (*self.configuration, self.deployment.kv_dtype, one.enforce_eager, *protocol)


def cases_of(rows: Sequence[Record], base: Engine, *, planner: Planner) -> tuple[list[Case], dict[str, str]]:
    """The cases that rows make on one engine.

    Args:
        rows: Records with a TTFT or a TPOT.
        base: Profile to fit.
        planner: Loaders.

    Returns:
        The cases, and the rows that are left out with the reason: other engines, rows that queued by label or by
        prediction, rows that can't be predicted.
    """
    skipped: dict[str, str] = {}
    grouped: dict[tuple[object, ...], list[_Row]] = {}
    for record in _of_one_engine(rows, base, planner=planner, skipped=skipped):
        label = _label(record)
        if record.queued:
            skipped[label] = "requests queued"
            continue
        if record.is_decode_alone:
            skipped[label] = "decode steps alone were timed"
            continue
        try:
            row = _deployed(record, base, planner=planner)
        except KvplanError as error:
            skipped[label] = str(error).splitlines()[0]
            continue
        if row.load.concurrency > min(row.load.capacity, row.load.max_num_seqs):
            skipped[label] = "requests would queue"
            continue
        grouped.setdefault(row.kind, []).append(row)
    return [_case(items) for items in grouped.values()], skipped


def engine_of(record: Record) -> str | Path:
    """The engine that a record names, as a loader takes it."""
    return record.files.get("engine", record.engine_name)


def _label(record: Record) -> str:
    return record.id or f"line {record.line}"


def _of_one_engine(
    rows: Sequence[Record], base: Engine, *, planner: Planner, skipped: dict[str, str]
) -> Iterator[Record]:
    """Rows that a profile may be fitted to: those of its own engine; a profile of the user's own takes any one engine's."""
    try:
        planner.engine(base.id)
    except KvplanError:
        yield from rows
        return
    for record in rows:
        measured_on = record.engine_name.partition("@")[0]
        with suppress(KvplanError):  # an engine that nobody knows is not this one
            measured_on = planner.engine(engine_of(record)).id
        if measured_on == base.id:
            yield record
        else:
            skipped[_label(record)] = f"measured on {measured_on}, not {base.id}"


def _deployed(record: Record, base: Engine, *, planner: Planner) -> _Row:
    arguments, _ = record.scenario()
    model = planner.model(record.files.get("model", record.model))
    if record.dtype is not None:
        model = apply_dtype(model, record.dtype)
    layout = Layout(tp=record.tp, pp=record.pp, dp=record.dp, ep=arguments["ep"])
    settings = Settings(
        gpu_memory_utilization=record.gpu_memory_utilization,
        max_num_seqs=record.max_num_seqs,
        max_num_batched_tokens=record.max_num_batched_tokens,
        enforce_eager=record.enforce_eager,
        gpu_memory_bytes=memory_bytes(record.total_gpu_gib),
    )
    gpu = planner.gpu(record.files.get("gpu", record.gpu))
    deployment = deploy(model, gpu, base, layout=layout, settings=settings, kv_dtype=record.kv_dtype)
    workload = Workload(
        input_tokens=arguments["input_tokens"],
        output_tokens=arguments["output_tokens"],
        concurrency=arguments["concurrency"],
        benchmark_requests=arguments["benchmark_requests"],
        equal_lengths=arguments["equal_lengths"],
    )
    whole = workload.input_tokens + workload.output_tokens
    plan = plan_memory(deployment.question(context=whole, concurrency=workload.concurrency), advise=False)
    load = rank_load(deployment, workload, plan, concurrency=workload.concurrency)
    return _Row(record=record, deployment=deployment, load=load)


def _case(rows: Sequence[_Row]) -> Case:
    import numpy as np  # noqa: PLC0415 - part of an extra

    def column(name: str) -> Any:  # noqa: ANN401 - an array
        return np.array([float(getattr(row.load, name)) for row in rows])

    def measured(name: str) -> Any:  # noqa: ANN401 - an array
        return np.array([row.record.measured.get(name, float("nan")) for row in rows]) / MS_PER_S

    first = rows[0]
    load = replace(
        first.load,
        **{name: column(name) for name in _COLUMNS},
        # A single request has none to stay in step with, so that rows of one request may join the others.
        equal_lengths=any(row.load.equal_lengths for row in rows),
        benchmark_requests=None if first.load.benchmark_requests is None else column("benchmark_requests"),
    )
    return Case(
        configuration=first.configuration,
        family=first.deployment.gpu.family,
        work=first.deployment.work,
        machine=first.deployment.machine,
        load=load,
        ttft_s=measured("ttft_ms"),
        tpot_s=measured("tpot_ms"),
    )
