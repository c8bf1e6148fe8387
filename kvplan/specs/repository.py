"""Models from the hub: a repository's metadata through the same adapters as a local checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvplan.core.model import Model
from kvplan.specs import hub
from kvplan.specs.huggingface import canonical_id, from_config
from kvplan.specs.overrides import override
from kvplan.specs.safetensors import with_exact_bytes


def load_repository(
    name: str, *, assume_plain: bool = False, overrides: Mapping[str, Any] | None = None, network: bool = True
) -> Model:
    """The model of a repository.

    Args:
        name: `owner/name`, with `@revision` where it is not the main branch.
        assume_plain: Read an unknown family that has only plain fields as a plain decoder.
        overrides: Config keys to change first; the bytes of the files are then left out.
        network: False looks at the hub's cache alone.

    Raises:
        HubError: The repository is missing, private or gated, or the hub can't be reached.
        SpecError: Its config is broken or not understood.
    """
    found = hub.fetch(name, headers=not overrides, network=network)
    model = from_config(
        override(found.config, overrides),
        source=f"{found.id}/config.json",
        sidecar=found.sidecar,
        model_id=canonical_id(found.id),
        assume_plain=assume_plain,
    )
    model = replace(model, warnings=(*model.warnings, *found.warnings))
    return model if found.weights is None else with_exact_bytes(model, found.weights)
