"""What a calibration fits and finds: multipliers with their reasons, and errors before, in sample and out of sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from kvplan.calibration.scoring import Score
from kvplan.core.dataclass import dataclass
from kvplan.core.engine import Engine
from kvplan.core.results import Dumpable


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplier:
    """One fitted number: a factor on fields of an efficiency.

    Attributes:
        name: Name in the report.
        fields: Fields that it multiplies; shares stay at 1 or below.
        sigma: How far it may stray before data must insist, as a standard deviation of its logarithm.
        why: Why it exists.
    """

    name: str
    fields: tuple[str, ...]
    sigma: float
    why: str


MULTIPLIERS: Final = (
    Multiplier(
        name="bandwidth",
        fields=("gemm_bandwidth", "expert_bandwidth", "attention_bandwidth"),
        sigma=0.15,
        why="drivers, clocks and memory differ between boards of one family",
    ),
    Multiplier(
        name="arithmetic",
        fields=("gemm_mfu", "expert_mfu", "attention_mfu_prefill", "attention_mfu_decode"),
        sigma=0.25,
        why="power limits and kernels set how much of the peak is reached",
    ),
    Multiplier(
        name="kernels",
        fields=("kernel_s", "quantise_kernel_s", "attention_s", "layer_s", "moe_layer_s", "recurrent_s"),
        sigma=0.3,
        why="launch, ramp and gaps per layer differ between builds of an engine",
    ),
    Multiplier(name="links", fields=("link_bandwidth",), sigma=0.3, why="topology and collectives library"),
    Multiplier(name="messages", fields=("allreduce_s", "alltoall_s"), sigma=0.3, why="latency of small messages"),
    Multiplier(
        name="host", fields=("step_s", "sequence_s", "host_floor_s"), sigma=0.7, why="the CPU and the scheduler"
    ),
    Multiplier(name="requests", fields=("request_s", "prefill_token_s"), sigma=0.8, why="HTTP server and tokeniser"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFit(Dumpable):
    """What was fitted for one device family.

    Attributes:
        family: Device family.
        rows: Rows used.
        configurations: Sets of model, format, GPU and layout among them; folds hold whole ones out.
        factors: Multiplier → value.
        before: Errors of the profile as it was, per quantity.
        in_sample: Errors after the fit on the rows that were fitted.
        out_of_sample: Errors on configurations that the fit did not see; empty where there is one only.
    """

    family: str
    rows: int
    configurations: int
    factors: Mapping[str, float]
    before: Mapping[str, Score]
    in_sample: Mapping[str, Score]
    out_of_sample: Mapping[str, Score]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(Dumpable):
    """A calibrated engine.

    Attributes:
        engine: The engine with fitted efficiencies.
        families: What was fitted, by device family.
        skipped: Rows left out → why.
    """

    schema: ClassVar[str | None] = "kvplan.calibrate/1"
    engine: Engine
    families: tuple[FamilyFit, ...]
    skipped: Mapping[str, str]

    def model_dump(self) -> dict[str, Any]:
        """What was found as plain data, the engine by its name: it is a profile, which has a file of its own."""
        found = {"families": [fit.model_dump() for fit in self.families], "skipped": dict(self.skipped)}
        return {"schema": self.schema, "engine": self.engine.name, **found}
