"""The Python face: names become specs, specs become a deployment, a deployment answers questions.

Every function takes what the command line takes, under the same names. Each module stands on those above it:

    arguments       what can't be an argument is told by name
    loading         names, paths, mappings → specs
    deployments     specs, layout and settings → one deployment
    answers         one scenario: estimate, needs
    measurements    against what was measured: validate, calibrate, explain_log
    decisions       many scenarios: compare, sweep, plan
    scenario_files  questions that were written to a file
    services        an answer → what starts the server

A module is loaded when one of its functions is asked for, so that an estimate never pays for a plan.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kvplan.api.answers import estimate as estimate
    from kvplan.api.answers import estimate_of as estimate_of
    from kvplan.api.answers import needs as needs
    from kvplan.api.decisions import compare as compare
    from kvplan.api.decisions import plan as plan
    from kvplan.api.decisions import sweep as sweep
    from kvplan.api.decisions import users_sweep as users_sweep
    from kvplan.api.deployments import deployment as deployment
    from kvplan.api.deployments import deployment_of as deployment_of
    from kvplan.api.loading import EngineLike as EngineLike
    from kvplan.api.loading import GpuLike as GpuLike
    from kvplan.api.loading import ModelLike as ModelLike
    from kvplan.api.loading import engine_versions as engine_versions
    from kvplan.api.loading import load_engine as load_engine
    from kvplan.api.loading import load_gpu as load_gpu
    from kvplan.api.loading import load_model as load_model
    from kvplan.api.loading import repository_of as repository_of
    from kvplan.api.measurements import calibrate as calibrate
    from kvplan.api.measurements import explain_log as explain_log
    from kvplan.api.measurements import profile_text as profile_text
    from kvplan.api.measurements import validate as validate
    from kvplan.api.scenario_files import load_scenario as load_scenario
    from kvplan.api.scenario_files import plan_request as plan_request
    from kvplan.api.scenario_files import read_scenario_file as read_scenario_file
    from kvplan.api.scenario_files import scenario_text as scenario_text
    from kvplan.api.services import service_of as service_of
    from kvplan.calibration.explanation import LogExplanation as LogExplanation
    from kvplan.calibration.fitted import Calibration as Calibration
    from kvplan.calibration.validation import Validation as Validation
    from kvplan.core.engine import Engine as Engine
    from kvplan.core.hardware import Gpu as Gpu
    from kvplan.core.model import Model as Model
    from kvplan.core.results import Estimate as Estimate
    from kvplan.core.results import Range as Range
    from kvplan.core.reverse import Needs as Needs
    from kvplan.planning.comparison import Comparison as Comparison
    from kvplan.planning.plan_result import Plan as Plan
    from kvplan.planning.scenarios import Scenario as Scenario
    from kvplan.planning.sweep_result import Sweep as Sweep

#: Module → what it gives under the name of this package, the classes of specs and answers among it; for type checkers the imports above say the same.
_HOMES: Final = {
    "api.loading": (
        "EngineLike",
        "GpuLike",
        "ModelLike",
        "engine_versions",
        "load_engine",
        "load_gpu",
        "load_model",
        "repository_of",
    ),
    "api.deployments": ("deployment", "deployment_of"),
    "api.answers": ("estimate", "estimate_of", "needs"),
    "api.measurements": ("calibrate", "explain_log", "profile_text", "validate"),
    "api.decisions": ("compare", "plan", "sweep", "users_sweep"),
    "api.scenario_files": ("load_scenario", "plan_request", "read_scenario_file", "scenario_text"),
    "api.services": ("service_of",),
    "calibration.explanation": ("LogExplanation",),
    "calibration.fitted": ("Calibration",),
    "calibration.validation": ("Validation",),
    "core.engine": ("Engine",),
    "core.hardware": ("Gpu",),
    "core.model": ("Model",),
    "core.results": (
        "Estimate",
        "Range",
    ),
    "core.reverse": ("Needs",),
    "planning.comparison": ("Comparison",),
    "planning.plan_result": ("Plan",),
    "planning.scenarios": ("Scenario",),
    "planning.sweep_result": ("Sweep",),
}
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker must see the signatures above, and no name that is not there

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
        if name in _HOME_OF:
            return getattr(import_module(f"kvplan.{_HOME_OF[name]}"), name)
        msg = f"module 'kvplan.api' has no attribute {name!r}"
        raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(_HOME_OF)
