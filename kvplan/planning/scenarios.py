"""Scenarios as plain data: which fields there are, what values they take, and how people write them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from typing import Any, Final

from kvplan.core.dataclass import dataclass
from kvplan.core.units import ENDINGS
from kvplan.errors import UnknownNameError, UsageError
from kvplan.planning.words import PARAMETERS

#: Fields of a scenario, the keywords of `kvplan.estimate`, with the kind of value that each takes.
FIELDS: Final[dict[str, type]] = {
    "model": str,
    "gpu": str,
    "engine": str,
    "dtype": str,
    "kv_dtype": str,
    "tp": int,
    "pp": int,
    "dp": int,
    "ep": int,
    "gpu_count": int,
    "input_tokens": int,
    "output_tokens": int,
    "concurrency": int,
    "context": int,
    "gpu_memory_utilization": float,
    "max_num_seqs": int,
    "max_num_batched_tokens": int,
    "enforce_eager": bool,
    "gpu_memory_gib": float,
    "n_gpu_layers": int,
    "max_loras": int,
    "max_lora_rank": int,
    "speculative_tokens": int,
    "draft_model": str,
    "dcp": int,
    "shared_prefix_tokens": int,
    "prefix_hit_rate": float,
    "source_tokens": int,
    "network_ms": float,
    "benchmark_requests": int,
    "equal_lengths": bool,
    "allow_context_overflow": bool,
    "assume_plain": bool,
}

#: Fields that describe the load; the others describe the deployment.
LOAD_FIELDS: Final = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "concurrency",
        "context",
        "shared_prefix_tokens",
        "prefix_hit_rate",
        "source_tokens",
        "network_ms",
        "benchmark_requests",
        "equal_lengths",
    }
)

#: What-ifs on the model itself, by the key of `config.json` that each changes.
MODEL_FIELDS: Final[dict[str, str]] = {
    "kv_heads": "num_key_value_heads",
    "heads": "num_attention_heads",
    "layers": "num_hidden_layers",
    "head_dim": "head_dim",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "experts": "num_experts",
    "experts_per_token": "num_experts_per_tok",
    "window": "sliding_window",
}

_ALIASES: Final[dict[str, str]] = {
    "max_model_len": "context",
    "kv_cache_dtype": "kv_dtype",
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "expert_parallel_size": "ep",
    "mem_fraction_static": "gpu_memory_utilization",
    "max_running_requests": "max_num_seqs",
    "chunked_prefill_size": "max_num_batched_tokens",
    "input_len": "input_tokens",
    "output_len": "output_tokens",
    "num_key_value_heads": "kv_heads",
    "num_attention_heads": "heads",
    "num_hidden_layers": "layers",
}
_CONFIG = "config."
_NONE: Final = frozenset({"none", "default", "auto", "null"})
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario to ask about.

    Attributes:
        name: What people call it.
        changes: Fields that differ from the base, in the order they were written.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def field_name(text: str) -> str:
    """The canonical name of a field, with dashes or underscores, by alias or as `config.KEY`.

    >>> field_name("kv-cache-dtype"), field_name("kv-heads"), field_name("config.rope_theta")
    ('kv_dtype', 'kv_heads', 'config.rope_theta')

    Raises:
        UnknownNameError: No such field; the hint has the nearest.
    """
    name = text.strip()
    if name.startswith(_CONFIG) and len(name) > len(_CONFIG):
        return name
    name = name.lower().lstrip("-").replace("-", "_")
    name = _ALIASES.get(name, name)
    known = {**FIELDS, **MODEL_FIELDS}
    if name in known:
        return name
    other = PARAMETERS.get(name.replace("_", "-"))
    near = [other] if other in known else get_close_matches(name, [*known, *_ALIASES], n=3)
    message = f"no scenario field {text.strip()!r}"
    words = ", ".join(item.replace("_", "-") for item in near or known)
    raise UnknownNameError(message, hint=f"did you mean {words}?" if near else f"fields: {words}, config.KEY")


def field_value(name: str, value: Any) -> Any:  # noqa: ANN401 - text or plain data in, the field's kind out
    """A value of a field, read from text or checked as data; `default` is None.

    >>> field_value("tp", "4"), field_value("kv_dtype", "fp8"), field_value("context", "default")
    (4, 'fp8', None)

    Raises:
        UsageError: The value is not of the field's kind.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() in _NONE):
        return None
    kind = int if name in MODEL_FIELDS else FIELDS.get(name)
    if kind is None:
        return _any(value)
    if kind is str:
        return str(value).strip()
    if kind is bool:
        return _boolean(name, value)
    return number_of(name, value, whole=kind is int)


def _boolean(name: str, value: Any) -> bool:  # noqa: ANN401 - as field_value
    word = str(value).strip().lower()
    if word in _TRUE | _FALSE:
        return word in _TRUE
    message = f"{name}: {value!r} is neither true nor false"
    raise UsageError(message)


def number_of(name: str, value: Any, *, whole: bool) -> int | float:  # noqa: ANN401 - as field_value
    """A finite number from text, with endings, or data.

    >>> number_of("rate", "2.5", whole=False)
    2.5

    Raises:
        UsageError: It is none.
    """
    try:
        number = float(with_ending(value.strip().replace("_", "")) if isinstance(value, str) else value)
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number) or (whole and number != int(number)):
        message = f"{name}: {value!r} is not a {'whole ' if whole else ''}number"
        raise UsageError(message)
    return int(number) if whole else number


def with_ending(text: str) -> float:
    """A number with vLLM's endings, as options take them: `8k` is 8,000, `8K` is 8,192.

    >>> with_ending("8k"), with_ending("1.5K"), with_ending("64")
    (8000.0, 1536.0, 64.0)

    Raises:
        ValueError: Not a number.
    """
    unit = ENDINGS.get(text[-1:], 1)
    return float(text[:-1] if unit > 1 else text) * unit


def _any(value: Any) -> Any:  # noqa: ANN401 - a config value of any kind
    if not isinstance(value, str):
        return value
    for convert in (int, float):
        try:
            return convert(value)
        except ValueError:
            continue
    word = value.strip().lower()
    return word == "true" if word in {"true", "false"} else value


def checked_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by their canonical names with values of their kinds.

    Raises:
        UsageError: A field that does not exist, or a value that is not of its kind.
    """
    named = {field_name(str(key)): value for key, value in values.items()}
    return {name: field_value(name, value) for name, value in named.items()}


def keywords(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as keywords of `kvplan.estimate`: what-ifs on the model go into `overrides`.

    >>> keywords({"tp": 2, "kv_heads": 32, "config.rope_theta": 1e6})
    {'tp': 2, 'overrides': {'num_key_value_heads': 32, 'rope_theta': 1000000.0}}
    """
    found: dict[str, Any] = {}
    overrides: dict[str, Any] = dict(values.get("overrides") or {})
    for name, value in values.items():
        if name == "overrides":
            continue
        if name in MODEL_FIELDS:
            overrides[MODEL_FIELDS[name]] = value
        elif name.startswith(_CONFIG):
            overrides[name.removeprefix(_CONFIG)] = value
        else:
            found[name] = value
    return {**found, "overrides": overrides} if overrides else found


def read_assignment(text: str) -> tuple[str, str]:
    """`key=value` as the canonical field and the text of its value.

    Raises:
        UsageError: There is no `=`, or nothing after it.
    """
    key, equals, value = text.partition("=")
    if not equals or not value.strip():
        message = f"{text!r} is not key=value"
        raise UsageError(message, hint="for example kv-dtype=fp8")
    return field_name(key), value.strip()


def read_scenario(text: str) -> Scenario:
    """`name:key=value,key=value` as a scenario; `name:` alone is the base itself.

    >>> read_scenario("small:gpu=l40s,tp=2").changes
    {'gpu': 'l40s', 'tp': 2}

    Raises:
        UsageError: It has no name, or a part is not `key=value`.
    """
    name, colon, rest = text.partition(":")
    if not colon or not name.strip() or "=" in name:
        message = f"{text!r} is not name:key=value,…"
        raise UsageError(message, hint="for example --scenario small:gpu=l40s,tp=2")
    parts = [part for part in rest.split(",") if part.strip()]
    pairs = [read_assignment(part) for part in parts]
    return Scenario(name=name.strip(), changes={key: field_value(key, value) for key, value in pairs})


def crossed(axes: Mapping[str, Sequence[Any]]) -> tuple[Scenario, ...]:
    """Every combination of values, the last field running fastest.

    >>> [one.name for one in crossed({"tp": [1, 2], "dtype": ["bf16"]})]
    ['tp=1, dtype=bf16', 'tp=2, dtype=bf16']
    """
    found: list[dict[str, Any]] = [{}]
    for name, values in axes.items():
        found = [{**one, name: value} for one in found for value in values]
    return tuple(Scenario(name=described(one), changes=one) for one in found)


def described(changes: Mapping[str, Any]) -> str:
    """Changes as a short name."""
    return ", ".join(
        f"{key.replace('_', '-')}={'default' if value is None else value}" for key, value in changes.items()
    )
