"""Models whose decoder is described in a nested config, with towers beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from kvplan.core.dataclass import dataclass
from kvplan.core.model import Tower
from kvplan.core.tensors import Tensor
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import TEXT_CONFIGS, Config
from kvplan.specs.huggingface.parts import Parts, parameters
from kvplan.specs.huggingface.registry import adapt
from kvplan.specs.huggingface.towers import Encoder

_NEWEST_WITH_NESTED_TYING: Final = 5

#: What a nested text config may leave out: the defaults of its family's config class in transformers 5.24.
TEXT_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "cohere": {
        "vocab_size": 256_000,
        "hidden_size": 8192,
        "intermediate_size": 22_528,
        "num_hidden_layers": 40,
        "num_attention_heads": 64,
    },
    "cohere2": {
        "vocab_size": 256_000,
        "hidden_size": 8192,
        "intermediate_size": 22_528,
        "num_hidden_layers": 40,
        "num_attention_heads": 64,
        "sliding_window": 4096,
    },
    "gemma": {
        "vocab_size": 256_000,
        "hidden_size": 3072,
        "intermediate_size": 24_576,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 256,
    },
    "gemma2": {
        "vocab_size": 256_000,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
    },
    "glm4v_moe_text": {"n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1408},
    "llama": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "mistral": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
    },
    "paddleocr_vl_text": {
        "vocab_size": 103_424,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "tie_word_embeddings": True,
    },
    "qwen2": {
        "vocab_size": 151_936,
        "hidden_size": 4096,
        "intermediate_size": 22_016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    },
    "qwen3_vl_moe_text": {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408},
    "qwen3_vl_text": {"num_key_value_heads": 32, "head_dim": 128},
}

#: Nested model types that are another family under a multimodal name.
TEXT_TYPES: Final[dict[str, str]] = {
    "paddleocr_vl_text": "ernie4_5",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_omni_moe_text": "qwen3_moe",
    "kimi_k2": "deepseek_v3",
}

#: Fields of the outer config that choose images' sizes and features, not memory.
_OUTER_HARMLESS: Final = (
    "vision_feature_select_strategy",
    "image_seq_length",
    "image_grid_pinpoints",
    "mm_tokens_per_image",
    "vision_soft_tokens_per_image",
    "audio_soft_tokens_per_image",
    "projector_hidden_act",
    "vision_aspect_ratio",
    "ignore_index",
    "process_image_mode",
    "hidden_size",
    "vocab_size",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """How a family's checkpoint names the decoder.

    Attributes:
        decoder: Prefix of the decoder's modules, in place of `model.`.
        head: Name of the output head.
    """

    decoder: str = "language_model.model."
    head: str = "language_model.lm_head"


INNER: Final = Spelling()
FLAT: Final = Spelling(decoder="model.", head="lm_head")
MODERN: Final = Spelling(decoder="model.language_model.", head="lm_head")


def read_text(
    config: Config,
    *,
    default_type: str,
    spelling: Spelling = INNER,
    names: tuple[str, ...] = TEXT_CONFIGS,
    tied_default: bool | None = None,
    either_ties: bool = False,
    tying: Literal["outer", "inner", "never"] = "outer",
    defaults: Mapping[str, Any] | None = None,
) -> tuple[Blueprint, Config]:
    """Read the nested decoder with the adapter of its own family.

    Args:
        config: The outer config.
        default_type: Family of the decoder where the nested config names none.
        spelling: Names in the checkpoint.
        names: Fields that may hold the nested config.
        tied_default: Whether files that transformers 5 wrote tie embeddings when they don't say so (it leaves out
            what is its class's default); older ones fall back to the decoder family's own default. None: always that.
        either_ties: True where a nested true outweighs an outer false.
        tying: Which config says whether embeddings are tied; `never` for classes that can't tie them.
        defaults: What the nested config may leave out here, before the family's own defaults (Voxtral).

    Returns:
        The decoder's blueprint under the checkpoint's names, and the nested config.

    Raises:
        SpecError: It is missing, nested twice, or a field is invalid.
        UnsupportedModelError: Its family is not known.
    """
    text = config.nested(*names)
    if config.path:
        raise config.error(names[0], "a decoder nested twice is not known to kvplan")
    named = text.string("model_type", default=default_type) or default_type
    model_type = TEXT_TYPES.get(named, named)
    tied: bool | None
    if tying == "outer":
        tied = _tying(config, text, tied_default=tied_default, either_ties=either_ties)
    else:
        config.ignore("tie_word_embeddings")
        tied = None if tying == "inner" else False
    extra: dict[str, Any] = {"model_type": model_type}
    if tied is not None:
        extra["tie_word_embeddings"] = tied
    text.with_fields(extra)
    known = {**(TEXT_DEFAULTS.get(named) or TEXT_DEFAULTS.get(model_type, {})), **(defaults or {})}
    text.with_defaults({name: value for name, value in known.items() if name not in text.data})
    config.ignore(*_OUTER_HARMLESS)
    _same_as_nested(config, text)
    return rename(adapt(text), spelling), text


def _tying(config: Config, text: Config, *, tied_default: bool | None, either_ties: bool) -> bool | None:
    """Whether the head is tied: as the outer config says, then the nested one; None leaves it to the family."""
    named = text.data.get("model_type")
    inner = text.data.get("tie_word_embeddings", TEXT_DEFAULTS.get(str(named), {}).get("tie_word_embeddings"))
    outer = config.boolean("tie_word_embeddings", default=False) if config.has("tie_word_embeddings") else None
    if outer is not None:
        return outer or (either_ties and inner is True)
    if inner is not None or tied_default is None:
        return None
    version = config.string("transformers_version") or ""
    if version.partition(".")[0].isdigit() and int(version.partition(".")[0]) >= _NEWEST_WITH_NESTED_TYING:
        config.assumptions.append(
            f"tie_word_embeddings is not in {config.source}, which transformers 5 wrote: {str(tied_default).lower()} "
            "assumed, its default for this family"
        )
        return tied_default
    return None


def _same_as_nested(config: Config, text: Config) -> None:
    """Skip outer copies of nested fields that say the same."""
    same = [name for name, value in config.data.items() if name in text.data and text.data[name] == value]
    config.ignore(*same)


def rename(blueprint: Blueprint, spelling: Spelling) -> Blueprint:
    """Put a decoder under the names that the multimodal checkpoint has."""

    def named(tensor: Tensor) -> Tensor:
        name = tensor.name
        if name.startswith("lm_head"):
            return replace(tensor, name=spelling.head + name.removeprefix("lm_head"))
        if name.startswith("model."):
            return replace(tensor, name=spelling.decoder + name.removeprefix("model."))
        return tensor

    prefix = blueprint.layer_prefix
    return replace(
        blueprint,
        tensors=tuple(named(t) for t in blueprint.tensors),
        layer_prefix=spelling.decoder + prefix.removeprefix("model.") if prefix.startswith("model.") else prefix,
    )


def tower_config(config: Config, name: str = "vision_config", *, defaults: Mapping[str, Any] | None = None) -> Config:
    """The config of a tower; without it the family's default tower is meant, which `with_towers` tells.

    `defaults` are those of the whole tower: a file that describes it in part means its class's own defaults elsewhere.
    """
    child = config.optional_nested(name)
    if child is None:
        return Config({}, source=config.source, path=name).with_defaults(defaults or {})
    return child


def with_towers(config: Config, blueprint: Blueprint, towers: Mapping[str, Encoder | Parts]) -> Blueprint:
    """Add towers under their names; say so where the file does not describe one."""
    made = [Tower(name=name, tensors=tuple(tower.tensors)) for name, tower in towers.items()]
    for name in ("vision", "audio"):
        if name in towers and not config.has(f"{name}_config"):
            count = sum(parameters(tower.tensors) for tower in made if tower.name in {name, "projector"})
            config.warnings.append(
                f"{name}_config is not in {config.source}: the default tower of {config.model_type} is counted "
                f"({count:,} parameters with its projector); the checkpoint's own may differ"
            )
    buffers = sum(tower.buffer_elements for tower in towers.values() if isinstance(tower, Encoder))
    return replace(
        blueprint,
        towers=(*blueprint.towers, *(tower for tower in made if tower.tensors)),
        buffer_elements=blueprint.buffer_elements + buffers,
    )
