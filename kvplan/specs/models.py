"""One door for models: a name, a file, a folder, a repository, a mapping or a `Model` comes in, a `Model` comes out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvplan.core.model import Model
from kvplan.errors import SpecError, UsageError
from kvplan.specs import registry
from kvplan.specs.bundled import load_bundled
from kvplan.specs.files import MOST_JSON_ITEMS, is_regular, located, named, parse_json, read_bytes
from kvplan.specs.huggingface import canonical_id, from_config
from kvplan.specs.overrides import override

#: A config.json of a hundred megabytes is not one.
MAX_JSON_BYTES: Final = 16 * 2**20
SPEC_FIELDS: Final = ("id", "aliases", "config", "hf_quant_config", "expected", "notes")
_LONGEST_ID: Final = 120
_SIDECAR: Final = "hf_quant_config.json"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json", ".gguf", ".safetensors"})

ModelLike = str | os.PathLike[str] | Mapping[str, Any] | Model


def load_model(model: ModelLike, *, assume_plain: bool = False, overrides: Mapping[str, Any] | None = None) -> Model:
    """The model behind whatever names it.

    Args:
        model: A bundled id or alias, a repository id (`owner/name`, with `@revision`), a path (spec YAML,
            `config.json`, its folder, GGUF), a mapping (spec or config) or a `Model`.
        assume_plain: Read a config of an unknown type that has only plain fields as a plain decoder.
        overrides: Config keys to change first, as `num_key_value_heads` for a what-if.

    Raises:
        UnknownNameError: No such name.
        SpecError: A file that is broken or not understood.
        UsageError: Overrides for what has no config.
    """
    if isinstance(model, Model):
        if overrides:
            msg = "overrides: a Model has no config to change; pass its name, file or config"
            raise UsageError(msg)
        return model
    if isinstance(model, Mapping):
        return _from_mapping(model, assume_plain=assume_plain, overrides=overrides)
    name = named("model", model)
    bundled = None if _looks_like_path(name) else registry.find("model", name)
    if bundled is not None:
        fields, source = load_bundled(bundled).data, bundled.name
        return _from_spec(fields, source, assume_plain=assume_plain, overrides=overrides)
    path = located(name)
    if path is not None:
        return _from_path(path, assume_plain=assume_plain, overrides=overrides)
    if _looks_like_path(name):
        msg = f"{name}: no such file or folder"
        raise SpecError(msg, hint="a model is a name, a config.json or its folder, a spec YAML, a GGUF or owner/name")
    if name.count("/") == 1:
        from kvplan.specs.repository import load_repository  # noqa: PLC0415 - the only user of the network

        return load_repository(name, assume_plain=assume_plain, overrides=overrides)
    return load_spec(registry.resolve("model", name))


def named_model(name: str) -> Model:
    """A model by its name alone: bundled, or a repository in the hub's cache; no path is looked at and nobody asked.

    Raises:
        UnknownNameError: No bundled model has that name.
        HubError: The cache does not hold the repository.
    """
    if registry.find("model", name) is None and name.count("/") == 1:
        from kvplan.specs.repository import load_repository  # noqa: PLC0415 - as above

        return load_repository(name, network=False)
    spec = registry.resolve("model", name)
    return _from_spec(load_bundled(spec).data, str(spec), assume_plain=False, overrides=None)


def load_spec(
    spec: str | os.PathLike[str] | Mapping[str, Any],
    *,
    assume_plain: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> Model:
    """A model spec: `id`, `aliases`, `config` with the keys of a `config.json`, `expected`.

    Raises:
        SpecError: It is broken, has unknown fields or is not understood.
    """
    if isinstance(spec, Mapping):
        return _from_spec(spec, "spec", assume_plain=assume_plain, overrides=overrides)
    from kvplan.specs.yaml import load_yaml  # noqa: PLC0415 - needed for a user's own file only

    return _from_spec(load_yaml(spec).data, os.fspath(spec), assume_plain=assume_plain, overrides=overrides)


def _from_spec(
    fields: Mapping[str, Any], source: str, *, assume_plain: bool, overrides: Mapping[str, Any] | None
) -> Model:
    _check_spec(fields, source)
    return from_config(
        override(fields["config"], overrides),
        source=source,
        sidecar=fields.get("hf_quant_config"),
        model_id=fields["id"],
        assume_plain=assume_plain,
    )


def _check_spec(fields: Mapping[str, Any], source: str) -> None:
    for name in fields:
        if name not in SPEC_FIELDS:
            msg = f"{source}: {name}: unknown field"
            raise SpecError(msg, hint=f"known: {', '.join(SPEC_FIELDS)}")
    for name, kind, word in (("id", str, "a string"), ("config", Mapping, "a mapping")):
        if not isinstance(fields.get(name), kind):
            msg = f"{source}: {name}: must be {word}"
            raise SpecError(msg)
    if not fields["id"].isprintable() or not 0 < len(fields["id"]) <= _LONGEST_ID:
        msg = f"{source}: id: must be one short line of printable characters"
        raise SpecError(msg)
    if not isinstance(fields.get("hf_quant_config", {}), Mapping):
        msg = f"{source}: hf_quant_config: must be a mapping"
        raise SpecError(msg)


def _from_mapping(model: Mapping[str, Any], *, assume_plain: bool, overrides: Mapping[str, Any] | None) -> Model:
    _check_keys(model)
    if "config" in model and "model_type" not in model:
        return load_spec(model, assume_plain=assume_plain, overrides=overrides)
    return from_config(override(model, overrides), source="config", assume_plain=assume_plain)


def _check_keys(given: Mapping[str, Any]) -> None:
    """Keys are text at every depth, and values no more than a file may have."""
    waiting: list[Any] = [given]
    for _ in range(MOST_JSON_ITEMS):
        if not waiting:
            return
        value = waiting.pop()
        if isinstance(value, Mapping):
            odd = [key for key in value if not isinstance(key, str)]
            if odd:
                msg = f"model: key {repr(odd[0])[:80]} must be text"
                raise SpecError(msg)
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
    msg = f"model: more than {MOST_JSON_ITEMS:,} values are refused"
    raise SpecError(msg)


def _from_path(path: Path, *, assume_plain: bool, overrides: Mapping[str, Any] | None) -> Model:
    suffix = path.suffix.lower()
    if path.is_dir():
        return _from_folder(path, assume_plain=assume_plain, overrides=overrides)
    if suffix in {".yaml", ".yml"}:
        return load_spec(path, assume_plain=assume_plain, overrides=overrides)
    if suffix == ".gguf":
        from kvplan.specs.gguf import load_gguf  # noqa: PLC0415 - only for these files

        if overrides:
            msg = "overrides: a GGUF has no config to change"
            raise UsageError(msg)
        return load_gguf(path)
    if suffix == ".safetensors":
        return _from_folder(path.parent, assume_plain=assume_plain, overrides=overrides)
    return _from_config_file(path, assume_plain=assume_plain, overrides=overrides)


def _from_folder(folder: Path, *, assume_plain: bool, overrides: Mapping[str, Any] | None) -> Model:
    """A downloaded checkpoint: its config, and its weights' headers where they are there."""
    config = folder / "config.json"
    if not is_regular(config):
        files = sorted(path for path in folder.glob("*.gguf") if path.is_file())
        if files:
            return _from_path(files[0], assume_plain=assume_plain, overrides=overrides)
        msg = f"{folder}: has no config.json"
        raise SpecError(msg, hint="give the folder of a checkpoint, or a config.json")
    model = _from_config_file(config, assume_plain=assume_plain, overrides=overrides)
    if overrides:
        return model
    from kvplan.specs.safetensors import read_folder, with_exact_bytes  # noqa: PLC0415 - only for folders

    files_found = read_folder(folder)
    return model if files_found is None else with_exact_bytes(model, files_found)


def _from_config_file(path: Path, *, assume_plain: bool, overrides: Mapping[str, Any] | None) -> Model:
    name, data, sidecar = read_config_file(path)
    return from_config(
        override(data, overrides),
        source=str(path),
        sidecar=sidecar,
        model_id=canonical_id(name) or path.stem,
        assume_plain=assume_plain,
    )


def read_config_file(path: Path) -> tuple[str, dict[str, Any], dict[str, Any] | None]:
    """A config with the name of its model before it and the quantiser's sidecar that lies beside it, or None, after it.

    The name is the config's own (`_name_or_path`), else that of its folder or file, where `owner--name` is `name`.

    Raises:
        SpecError: A file can't be read, or is no JSON object.
    """
    whole = path.name == "config.json"
    data = read_json(path)
    beside = path.with_name(_SIDECAR) if whole else path.with_suffix(f".{_SIDECAR}")
    sidecar = read_json(beside) if is_regular(beside) else None
    named = data.get("_name_or_path")
    if isinstance(named, str) and named and not named.startswith((".", "/", "~")):
        return named, data, sidecar
    stem = path.resolve().parent.name if whole else path.stem
    return stem.rsplit("--", 1)[-1], data, sidecar


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of sane size and depth.

    Raises:
        SpecError: It can't be read, is too large, is no JSON or no object.
    """
    data = parse_json(read_bytes(path, most_bytes=MAX_JSON_BYTES), source=str(path))
    if not isinstance(data, dict):
        msg = f"{path}: must be a JSON object"
        raise SpecError(msg)
    return data


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~", os.sep)) or Path(name).suffix.lower() in _SUFFIXES
