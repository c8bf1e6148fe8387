"""`kvplan models import`: a repository or a local config as a spec file that a person can review and edit."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvplan.core.dataclass import dataclass
from kvplan.core.model import Model
from kvplan.core.parameters import parameters_total, weights_bytes_model
from kvplan.errors import SpecError, UsageError
from kvplan.specs.files import located
from kvplan.specs.huggingface import canonical_id
from kvplan.specs.models import load_spec, read_config_file
from kvplan.specs.yaml import dump_yaml
from kvplan.writing import is_there, make_folder, write_file

#: Fields of a config that no reader of a spec wants to see.
_NOISE: Final = frozenset(
    {
        "auto_map", "transformers_version", "_name_or_path", "_commit_hash", "id2label", "label2id", "task_specific_params",
        "use_cache", "tokenizer_class", "output_attentions", "output_hidden_states", "return_dict", "torchscript",
        "pruned_heads", "finetuning_task", "problem_type", "bad_words_ids", "chat_template",
    }
)  # fmt: skip
_EXPERT: Final = re.compile(r"^(.*\bexperts)\.(\d+)(\..*)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What was written.

    Attributes:
        path: The file.
        model: The model that it describes.
        parameters: Its parameters [parameter].
        warnings: What the reader should doubt.
    """

    path: Path
    model: Model
    parameters: int
    warnings: tuple[str, ...]


def import_model(source: str, output: str | os.PathLike[str], *, overwrite: bool = False) -> Imported:
    """Write the spec of a model, after a check that kvplan understands it.

    Args:
        source: A repository id (`owner/name`, with `@revision`), a `config.json` or its folder.
        output: The YAML file to write; it appears whole or not at all.
        overwrite: Replace a file that is there.

    Raises:
        SpecError: The config is broken or not understood.
        UsageError: The file is there already, or can't be written.
        HubError: The repository can't be had.
    """
    target = Path(output)
    if is_there(target) and not overwrite:
        msg = f"output: {target} is there already"
        raise UsageError(msg, hint="choose another name, or overwrite it on purpose")
    spec, exact, warnings = _spec(source)
    model = load_spec(spec)
    counted = parameters_total(model)
    spec["expected"] = {"parameters": counted, "source": f"counted by kvplan from the config of {source}"}
    if exact is not None:
        spec["expected"]["weights_bytes"] = exact
        spec["expected"]["source"] += "; bytes from the headers of its weight files"
    shown = source if source.isprintable() else repr(source)  # a line break would end the comment
    head = f"# Imported from {shown} by kvplan models import; review it before use.\n"
    make_folder(target.parent, option="--output")
    write_file(target, head + dump_yaml(spec))
    return Imported(path=target, model=model, parameters=counted, warnings=(*model.warnings, *warnings))


def _spec(source: str) -> tuple[dict[str, Any], int | None, tuple[str, ...]]:
    """The fields of the spec, the exact bytes where headers were read, and warnings."""
    if Path(source).suffix.lower() in {".gguf", ".yaml", ".yml"}:
        msg = f"model: {source}: only a config.json or a repository can be imported"
        raise UsageError(msg, hint="kvplan takes the path of a GGUF or a spec as it is")
    path = located(source)
    if path is not None:
        return _fields(*read_config_file(path / "config.json" if path.is_dir() else path)), None, ()
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        msg = f"{source}: no such file or folder"
        raise SpecError(msg, hint="give a config.json, its folder, or owner/name")
    from kvplan.specs import hub  # noqa: PLC0415 - the only user of the network

    found = hub.fetch(source)
    fields = _fields(found.id, found.config, found.sidecar)
    if found.weights is None:
        return fields, None, found.warnings
    from kvplan.specs.safetensors import with_exact_bytes  # noqa: PLC0415 - only with headers

    model = with_exact_bytes(load_spec(fields), found.weights)
    return fields, weights_bytes_model(model), (*found.warnings, *model.warnings)


def _fields(name: str, config: Mapping[str, Any], sidecar: Mapping[str, Any] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": canonical_id(name)}
    if "/" in name:
        fields["aliases"] = [name]
    fields["config"] = {key: value for key, value in config.items() if key not in _NOISE and _is_finite(value)}
    if isinstance(config.get("quantization_config"), Mapping):
        fields["config"]["quantization_config"] = _without_experts(config["quantization_config"])
    elif sidecar is not None:  # the config's own counts before it
        fields["hf_quant_config"] = _without_experts(sidecar)
    return fields


def _is_finite(value: Any) -> bool:  # noqa: ANN401 - a piece of JSON
    """False for what holds an infinite number (limits of Mamba's time step), which a spec can't hold."""
    if isinstance(value, float):
        return math.isfinite(value)
    return all(_is_finite(item) for item in value) if isinstance(value, list) else True


def _without_experts(value: Any) -> Any:  # noqa: ANN401 - a piece of JSON
    """A quantisation config whose thousands of expert names are folded: `experts.0.w1` … `experts.127.w1` is one name.

    Names are folded where all experts from 0 on have the same settings; a name without an index stands for all.
    """
    if isinstance(value, Mapping):
        folded = {key: _without_experts(item) for key, item in value.items()}
        keep = _foldable({key: repr(item) for key, item in folded.items()})
        return {keep.get(key, key): item for key, item in folded.items()}
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        keep = _foldable(dict.fromkeys(value, ""))
        return list(dict.fromkeys(keep.get(item, item) for item in value))
    return value


def _foldable(settings: Mapping[str, str]) -> dict[str, str]:
    """Name with an expert's index → name without, where every expert has the same settings."""
    seen: dict[str, dict[int, str]] = {}
    names: dict[str, str] = {}
    for name, value in settings.items():
        match = _EXPERT.match(name)
        if match is not None:
            names[name] = f"{match[1]}{match[3] or ''}"
            seen.setdefault(names[name], {})[int(match[2])] = value
    whole = {
        name
        for name, experts in seen.items()
        if len(experts) > 1 and set(experts) == set(range(len(experts))) and len(set(experts.values())) == 1
    }
    most = max((len(seen[name]) for name in whole), default=0)
    return {name: short for name, short in names.items() if short in whole and len(seen[short]) == most}
