"""From a Hugging Face `config.json` to a `Model`: one adapter per family, nothing ignored in silence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kvplan.core.dtypes import FORMATS, format_by_id
from kvplan.core.model import Attention, Layer, Model, group_layers
from kvplan.errors import UnknownNameError
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import TEXT_CONFIGS, Config
from kvplan.specs.huggingface.leftovers import judge_leftovers
from kvplan.specs.huggingface.registry import adapt

_DEFAULT_DTYPE: Final = "bf16"


def from_config(
    data: Mapping[str, Any],
    *,
    source: str = "config.json",
    sidecar: Mapping[str, Any] | None = None,
    model_id: str = "",
    assume_plain: bool = False,
) -> Model:
    """Read a config.

    Args:
        data: The parsed `config.json`.
        source: Its name, for messages.
        sidecar: The parsed `hf_quant_config.json` beside it, or None.
        model_id: Id of the model; empty takes the last part of `_name_or_path`, else the model type.
        assume_plain: Read a config of an unknown type that has only plain fields as a plain decoder.

    Raises:
        SpecError: A field is missing or invalid; the message names it.
        UnsupportedModelError: The family or a field is not understood.
    """
    config = Config(data, source=source, sidecar=sidecar)
    blueprint = adapt(config, assume_plain=assume_plain)
    model = assemble(config, blueprint, model_id=model_id)
    judge_leftovers(config)
    return _with_notes(model, config)


def assemble(config: Config, blueprint: Blueprint, *, model_id: str = "") -> Model:
    """Assign formats, group equal layers and name the model."""
    from kvplan.specs.huggingface.quantization import apply_quantization

    quantized = apply_quantization(blueprint, config)
    parts = quantized.blueprint
    groups, order = group_layers(_open_windows(parts))
    encoder_groups, _ = group_layers(parts.encoder_layers)
    architectures = config.strings("architectures") or ()
    return Model(
        id=model_id or _default_id(config),
        architecture=architectures[0] if architectures else config.model_type,
        dtype=read_dtype(config),
        hidden_size=parts.hidden_size,
        vocab_size=parts.vocab_size,
        max_context=parts.max_context,
        groups=groups,
        layer_order=order,
        tensors=parts.tensors,
        encoder_groups=encoder_groups,
        max_source_tokens=parts.max_source_tokens,
        towers=parts.towers,
        mtp_layers=parts.mtp_layers,
        mtp_tensors=parts.mtp_tensors,
        quantization=quantized.quantization,
        kv_dtype=quantized.kv_dtype,
        state_dtype=_state_dtype(config),
        whole_item_tokens=parts.whole_item_tokens,
        buffer_elements=parts.buffer_elements,
        parallel_attention=parts.parallel_attention,
    )


def _open_windows(parts: Blueprint) -> tuple[Layer, ...]:
    """The layers, those whose window is no shorter than the longest sequence as layers of full attention."""
    longest = parts.max_context
    if longest is None:
        return parts.layers
    made: dict[int, Layer] = {}
    for layer in parts.layers:
        if id(layer) not in made:
            mixers = tuple(
                replace(mixer, window=None)
                if isinstance(mixer, Attention) and mixer.window is not None and mixer.window >= longest
                else mixer
                for mixer in layer.mixers
            )
            made[id(layer)] = layer if mixers == layer.mixers else replace(layer, mixers=mixers)
    return tuple(made[id(layer)] for layer in parts.layers)


def read_dtype(config: Config) -> str:
    """The format id of the unquantised weights, from the config or its text config; bf16 where none says.

    Raises:
        SpecError: Not a floating-point dtype.
    """
    for place in _places(config):
        dtype = place.string("torch_dtype", "dtype")
        if dtype is None or dtype == "auto":
            continue
        try:
            found = format_by_id(dtype.removeprefix("torch."))
        except UnknownNameError:
            found = FORMATS["int8"]
        if found.quantised:
            raise place.error("dtype", f"{dtype!r} is not a floating-point dtype of weights")
        return found.id
    config.assumptions.append(f"dtype is not in {config.source}: {_DEFAULT_DTYPE} assumed")
    return _DEFAULT_DTYPE


def _places(config: Config) -> list[Config]:
    """The config and those of the language model inside it."""
    return [config, *(config.nested(name) for name in TEXT_CONFIGS if isinstance(config.data.get(name), Mapping))]


def _state_dtype(config: Config) -> str | None:
    """The format that a config names for recurrent states; `read_state_bits` has judged it."""
    for place in _places(config):
        for name in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
            value = place.data.get(name)
            if isinstance(value, str) and value != "auto":
                return value.removeprefix("torch.")
    return None


def _default_id(config: Config) -> str:
    name = config.string("_name_or_path") or ""
    return canonical_id(name) if name and not name.startswith((".", "/")) else config.model_type


def canonical_id(repo_id: str) -> str:
    """The id of a repository: its name in lower case without owner, `Meta-` and `-Instruct`.

    >>> canonical_id("meta-llama/Meta-Llama-3.1-70B-Instruct")
    'llama-3.1-70b'
    """
    name = repo_id.rstrip("/").rsplit("/", 1)[-1].lower()
    return name.removeprefix("meta-").replace("-instruct", "")


def _with_notes(model: Model, config: Config) -> Model:
    return replace(model, assumptions=tuple(config.assumptions), warnings=tuple(config.warnings))
