"""kvplan: does a model fit a GPU, how many users does it serve, how fast, and why.

The public surface is loaded on first use, so that `import kvplan` is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvplan.errors import (
    HubError,
    InfeasibleError,
    KvplanError,
    SpecError,
    UnknownNameError,
    UnsupportedModelError,
    UsageError,
)

if TYPE_CHECKING:
    from kvplan.api import (
        Calibration,
        Comparison,
        Engine,
        Estimate,
        Gpu,
        LogExplanation,
        Model,
        Needs,
        Plan,
        Range,
        Scenario,
        Sweep,
        Validation,
        calibrate,
        compare,
        estimate,
        explain_log,
        load_engine,
        load_gpu,
        load_model,
        load_scenario,
        needs,
        plan,
        sweep,
        validate,
    )

__version__ = "0.1.0"

__all__ = [
    "Calibration",
    "Comparison",
    "Engine",
    "Estimate",
    "Gpu",
    "LogExplanation",
    "Model",
    "Needs",
    "Plan",
    "Range",
    "Scenario",
    "Sweep",
    "Validation",
    "HubError",
    "InfeasibleError",
    "KvplanError",
    "SpecError",
    "UnknownNameError",
    "UnsupportedModelError",
    "UsageError",
    "calibrate",
    "compare",
    "estimate",
    "explain_log",
    "load_engine",
    "load_gpu",
    "load_model",
    "load_scenario",
    "needs",
    "plan",
    "sweep",
    "validate",
]


if not TYPE_CHECKING:  # a type checker must see the signatures above, and no name that is not there

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
        if name in __all__:
            from kvplan import api  # noqa: PLC0415 - lazy surface

            return getattr(api, name)
        msg = f"module 'kvplan' has no attribute {name!r}"
        raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
