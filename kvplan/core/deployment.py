"""A model laid out over GPUs under an engine: everything that does not depend on the load, made once and asked often."""

from __future__ import annotations

from dataclasses import replace

from kvplan.core import cache, parameters
from kvplan.core.dataclass import dataclass
from kvplan.core.efficiency import IDEAL
from kvplan.core.engine import Engine, Settings
from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.ledger import Question
from kvplan.core.memory import resolve_kv_dtype
from kvplan.core.model import CrossAttention, Model
from kvplan.core.precision import apply_dtype, display_dtype, narrowed, with_conv_dtype, with_state_dtype
from kvplan.core.results import ModelFigures
from kvplan.core.roofline import Machine
from kvplan.core.warnings import deployment_warnings
from kvplan.core.work import StepWork, compile_work
from kvplan.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A model laid out over GPUs under an engine.

    Attributes:
        model, gpu, engine, layout, settings: The parts.
        kv_dtype: Cache format.
        dtype: Display name of the weight format.
        work: Compiled work of a step.
        machine, ideal: The GPU under the engine's efficiencies, and under none.
        figures: What the model is, over all its ranks.
        measured: True where the efficiencies were fitted on this device family.
        assumptions, warnings: What was assumed and what to doubt, whatever the load.
    """

    model: Model
    gpu: Gpu
    engine: Engine
    layout: Layout
    settings: Settings
    kv_dtype: str
    dtype: str
    work: StepWork
    machine: Machine
    ideal: Machine
    figures: ModelFigures
    measured: bool
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    def question(self, *, context: int, concurrency: int, source_tokens: int | None = None) -> Question:
        """What this deployment's memory is asked for: room for sequences of `context` tokens, `concurrency` in all.

        Args:
            context: Longest sequence to plan for [token].
            concurrency: Sequences in flight over the whole deployment.
            source_tokens: Encoder tokens of an encoder–decoder model; None is the model's most [token].
        """
        return Question(
            model=self.model,
            gpu=self.gpu,
            engine=self.engine,
            layout=self.layout,
            settings=self.settings,
            kv_dtype=self.kv_dtype,
            context=context,
            concurrency=concurrency,
            source_tokens=source_tokens,
        )


def deploy(
    model: Model,
    gpu: Gpu,
    engine: Engine,
    *,
    layout: Layout,
    settings: Settings,
    kv_dtype: str | None = None,
) -> Deployment:
    """Lay a model out over GPUs.

    Args:
        model: The model with its precision.
        gpu: One accelerator; all are equal.
        engine: Rules and efficiencies.
        layout: Ranks.
        settings: The engine's knobs.
        kv_dtype: Cache format, or None for the checkpoint's wish, else the model's compute dtype.

    Raises:
        UsageError: The layout does not fit the model.
        UnknownNameError: No such cache format.
    """
    layout.check(model)
    _check_speculation(model, layout, settings)
    _check_context_parallelism(model, layout, settings)
    assumptions = [*model.assumptions]
    model, changes = as_loaded(model, engine)
    assumptions += changes
    if settings.draft_model is not None:
        settings = replace(settings, draft_model=as_loaded(settings.draft_model, engine)[0])
    if settings.speculative_tokens or settings.draft_model is not None:
        assumptions.append("speculative decoding is counted in memory only: times are those without it")
    if settings.dcp > 1:
        assumptions.append(
            f"context parallelism over {settings.dcp} ranks divides the cache; times are those without it"
        )
    if model.towers:
        assumptions.append(_media_words(model))
    resolved = resolve_kv_dtype(model, engine, kv_dtype)
    if kv_dtype is None:
        assumptions.append(f"kv_dtype {resolved}: {_kv_dtype_reason(model, engine)}")
    efficiency, measured = engine.efficiency_for(gpu)
    return Deployment(
        model=model,
        gpu=gpu,
        engine=engine,
        layout=layout,
        settings=settings,
        kv_dtype=resolved,
        dtype=display_dtype(model),
        work=compile_work(model, layout, kv_dtype=resolved),
        machine=Machine(gpu=gpu, efficiency=efficiency, eager=settings.enforce_eager),
        ideal=Machine(gpu=gpu, efficiency=IDEAL),
        figures=_figures(model, resolved),
        measured=measured,
        assumptions=tuple(assumptions),
        warnings=deployment_warnings(model, gpu, engine=engine, layout=layout, kv_dtype=resolved, measured=measured),
    )


def as_loaded(model: Model, engine: Engine) -> tuple[Model, list[str]]:
    """The model in the formats that the engine keeps it in unless told otherwise, and what that changed."""
    rules, told = engine.memory, []
    file_type = rules.file_types.get(display_dtype(model)) if rules.file_types else None
    if file_type is not None:
        model = apply_dtype(model, file_type)
        told.append(f"weights as the GGUF file type {file_type}: what {engine.name} reads")
    before, model = model, narrowed(model, rules.narrow_dtype)
    if model is not before:
        told.append(f"weights in {rules.narrow_dtype}: {engine.name} loads fp32 checkpoints so unless dtype is fp32")
    if rules.state_dtype is not None:
        before, model = model, with_state_dtype(model, rules.state_dtype)
        if model is not before:
            told.append(f"recurrent state in {rules.state_dtype}: the default of {engine.name}")
    return (model if rules.conv_dtype is None else with_conv_dtype(model, rules.conv_dtype)), told


def _media_words(model: Model) -> str:
    """How images and sound are counted: their tokens are the asker's to say, their towers weigh and take no time."""
    crossed = any(isinstance(m, CrossAttention) for group in model.groups for m in group.layer.mixers)
    field = "source_tokens" if crossed else "input_tokens"
    return f"images and sound are the tokens that they become, part of {field}; their towers' time is left out of TTFT"


def _check_speculation(model: Model, layout: Layout, settings: Settings) -> None:
    if settings.draft_model is not None:
        layout.check(settings.draft_model)
    elif settings.speculative_tokens and not model.mtp_layers:
        msg = f"speculative_tokens: {model.id} declares no multi-token-prediction layers to draft with"
        raise UsageError(msg, hint="give draft_model, a smaller model of the same vocabulary")


def _check_context_parallelism(model: Model, layout: Layout, settings: Settings) -> None:
    copies = min(
        (
            layout.tp // cache.kv_shards(mixer, layout.tp)
            for group in model.groups
            for mixer in group.layer.mixers
            if cache.elements_per_token(mixer)
        ),
        default=1,
    )
    if settings.dcp > 1 and (settings.dcp > copies or copies % settings.dcp):
        msg = f"dcp: {settings.dcp} does not divide {copies}, the copies of the cache that tp={layout.tp} keeps"
        raise UsageError(msg, hint="raise tp, or leave dcp out: KV heads are divided before tokens")


def _kv_dtype_reason(model: Model, engine: Engine) -> str:
    if engine.memory.kv_dtype is not None:
        return f"the default of {engine.name}"
    if model.kv_dtype is not None:
        return "the checkpoint asks for it"
    return "the engine follows the model's compute dtype"


def _figures(model: Model, kv_dtype: str) -> ModelFigures:
    return ModelFigures(
        id=model.id,
        architecture=model.architecture,
        params_total=parameters.parameters_total(model),
        params_active=parameters.parameters_active(model),
        layers=model.num_hidden_layers,
        kv_bytes_per_token_model=cache.kv_bytes_per_token_model(model, kv_dtype),
        state_bytes_per_sequence_model=cache.state_bytes_per_sequence_model(model),
        max_context=model.max_context,
    )


def moved_to(deployment: Deployment, gpu: Gpu) -> Deployment:
    """The same model, engine and layout on another accelerator, without compiling its work anew."""
    efficiency, measured = deployment.engine.efficiency_for(gpu)
    return replace(
        deployment,
        gpu=gpu,
        machine=replace(deployment.machine, gpu=gpu, efficiency=efficiency),
        ideal=Machine(gpu=gpu, efficiency=IDEAL),
        measured=measured,
        warnings=deployment_warnings(
            deployment.model,
            gpu,
            engine=deployment.engine,
            layout=deployment.layout,
            kv_dtype=deployment.kv_dtype,
            measured=measured,
        ),
    )
