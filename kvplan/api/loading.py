"""Names, paths and mappings become specs; the readers are imported when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvplan.api.arguments import by_name
from kvplan.core.engine import Engine
from kvplan.core.hardware import Gpu
from kvplan.core.model import Model
from kvplan.specs import registry

#: What a model, GPU or engine may be given as: a name, a path, a mapping, or the spec itself.
ModelLike = str | Path | Mapping[str, Any] | Model
GpuLike = str | Path | Mapping[str, Any] | Gpu
EngineLike = str | Path | Mapping[str, Any] | Engine


@by_name
def load_model(model: ModelLike, *, assume_plain: bool = False, overrides: Mapping[str, Any] | None = None) -> Model:
    """Read a model from a name, a repo id, a path (`config.json`, its folder, YAML, GGUF), a mapping or a spec.

    Args:
        model: What to read.
        assume_plain: Read an unknown architecture with only plain fields as a plain decoder, with a warning.
        overrides: Config fields to change before reading (`{"num_key_value_heads": 32}`).

    Raises:
        UnknownNameError: No such name; the hint has the nearest.
        SpecError: The file is broken or not understood.
        HubError: The hub can't be reached, or the repository is missing or gated.
    """
    from kvplan.specs.models import load_model as load  # noqa: PLC0415 - loaded on use

    return load(model, assume_plain=assume_plain, overrides=overrides)


@by_name
def load_gpu(gpu: GpuLike) -> Gpu:
    """Read a GPU from a name, an alias, a YAML path, a mapping or a spec.

    Raises:
        UnknownNameError: No such GPU; the hint has the nearest.
        SpecError: The file is broken.
    """
    from kvplan.specs.hardware import load_gpu as load  # noqa: PLC0415 - loaded on use

    return load(gpu)


@by_name
def load_engine(engine: EngineLike) -> Engine:
    """Read an engine profile from a name with an optional version (`vllm@0.19`), a YAML path, a mapping or a profile.

    Raises:
        UnknownNameError: No such engine; the hint has the nearest.
        SpecError: The file is broken.
    """
    from kvplan.specs.engines import load_engine as load  # noqa: PLC0415 - loaded on use

    return load(engine)


def engine_versions(engine: str) -> tuple[str, ...]:
    """Versions of a bundled engine at which its rules change, oldest first; those between take the rules before them."""
    from kvplan.specs.engines import engine_versions as versions  # noqa: PLC0415 - loaded on use

    return versions(engine)


def repository_of(model: ModelLike) -> str:
    """What an engine loads: the first repository among a bundled model's aliases, a config's folder, or the name as given."""
    name = str(model) if isinstance(model, str | Path) else str(getattr(model, "id", "MODEL"))
    if Path(name).name == "config.json":
        return str(Path(name).parent)
    found = registry.find("model", name)
    if found is None or "/" in name:
        return name
    return next(
        (alias for alias, spec in registry.aliases("model").items() if spec == found.stem and "/" in alias), name
    )
