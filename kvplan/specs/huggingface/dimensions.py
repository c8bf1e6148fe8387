"""The sizes, windows and expert counts that decoders have in common, read under all their spellings."""

from __future__ import annotations

from kvplan.core.dataclass import dataclass
from kvplan.specs.huggingface.config import Config

#: Spellings of the longest sequence; the first that is there counts, for they may differ (a tokenizer's limit is one).
_MAX_CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
    "n_ctx",
    "model_max_length",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The sizes that every decoder has.

    Attributes:
        hidden_size: Width of the residual stream.
        num_hidden_layers: Decoder layers.
        num_attention_heads: Query heads.
        num_key_value_heads: KV heads.
        head_dim: Width of a head.
        vocab_size: Rows of the embedding.
        max_context: Longest sequence, or None.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_context: int | None


def read_dimensions(
    config: Config, *, num_key_value_heads: int | None = None, head_dim: int | None = None
) -> Dimensions:
    """Read the sizes under all their spellings.

    Args:
        config: The (text) config.
        num_key_value_heads: The family's default; None means as many as attention heads.
        head_dim: The family's default; None means `hidden_size / num_attention_heads`.

    Raises:
        SpecError: A field is missing, invalid, or the heads don't divide.
    """
    hidden_size = config.integer("hidden_size", "n_embd", "d_model")
    heads = config.integer("num_attention_heads", "n_head", "n_heads")
    kv_heads = config.integer("num_key_value_heads", "n_head_kv", "num_kv_heads", default=num_key_value_heads or heads)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
    width = config.optional_integer("head_dim", "kv_channels", "attention_head_dim")
    if width is None:
        if head_dim is None and hidden_size % heads:
            rule = f"is missing and hidden_size {hidden_size} is no multiple of {heads} attention heads"
            raise config.error("head_dim", rule)
        width = head_dim or hidden_size // heads
    return Dimensions(
        hidden_size=hidden_size,
        num_hidden_layers=config.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=width,
        vocab_size=config.integer("vocab_size"),
        max_context=read_max_context(config),
    )


def read_max_context(config: Config) -> int | None:
    """The longest sequence that the config states under one of its spellings, or None [token]."""
    for name in _MAX_CONTEXT:
        found = config.optional_integer(name)
        if found is not None:
            config.ignore(*_MAX_CONTEXT)
            return found
    return None


def read_windows(
    config: Config, num_hidden_layers: int, *, window: int | None, default: tuple[bool, ...] | None = None
) -> tuple[int | None, ...]:
    """The window of each layer from `layer_types`, or from the family's own pattern where that is missing.

    Args:
        config: The (text) config.
        num_hidden_layers: Layers.
        window: Tokens of a windowed layer.
        default: For each layer whether it is windowed, when there is no `layer_types`; None is no layer.

    Raises:
        SpecError: An unknown type, or a windowed layer without a window.
    """
    types = config.kinds("layer_types", known=("full_attention", "sliding_attention"), length=num_hidden_layers)
    if types is None:
        windowed = default or (False,) * num_hidden_layers
    else:
        windowed = tuple(kind == "sliding_attention" for kind in types)
    if any(windowed) and window is None:
        raise config.error("sliding_window", "is missing, but some layers are windowed")
    return tuple(window if has_window else None for has_window in windowed)


def read_window(config: Config, *, default: int | None = None) -> int | None:
    """The sliding window: null in the file is no window, a missing field is the family's default [token]."""
    if config.has("sliding_window"):
        return config.optional_integer("sliding_window", "sliding_window_size", minimum=0) or None
    if "sliding_window" in config.data:
        config.ignore("sliding_window", "sliding_window_size")
        return None
    if default is None:
        return config.optional_integer("sliding_window", "sliding_window_size")
    return config.integer("sliding_window", "sliding_window_size", default=default)


def read_periodic_windows(
    config: Config, num_hidden_layers: int, *, window: int, period: int, full_first: bool = False
) -> tuple[int | None, ...]:
    """Windows on all but one layer of each `period`, unless `layer_types` says otherwise.

    Args:
        config: The (text) config.
        num_hidden_layers: Layers.
        window: The family's default of `sliding_window` [token].
        period: Layers of a group.
        full_first: True where the first layer of a group is the full one, not the last.
    """
    first = tuple(index % period != 0 for index in range(num_hidden_layers))
    default = first if full_first else patterned(num_hidden_layers, period)
    return read_windows(config, num_hidden_layers, window=read_window(config, default=window), default=default)


def patterned(num_hidden_layers: int, period: int) -> tuple[bool, ...]:
    """Every layer windowed but each `period`-th.

    >>> patterned(4, 2)
    (True, False, True, False)
    """
    return tuple((index + 1) % period != 0 for index in range(num_hidden_layers))


def read_top_k(config: Config, num_experts: int, *names: str, default: int | None = None) -> int:
    """Experts per token, checked against their number.

    Raises:
        SpecError: More than there are.
    """
    names = names or ("num_experts_per_tok",)
    return config.integer(*names, default=default, maximum=num_experts)
