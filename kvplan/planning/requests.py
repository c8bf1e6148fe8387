"""A plan as it is asked for on a command line or in a scenario file: names and texts become arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from kvplan.errors import UnknownNameError, UsageError
from kvplan.planning.scenarios import FIELDS, field_value, number_of

#: What a person writes → the argument of `kvplan.plan`.
_ARGUMENTS: Final[dict[str, str]] = {
    "gpu": "gpus",
    "engine": "engines",
    "dtype": "dtypes",
    "kv_dtype": "kv_dtypes",
    "price": "prices",
}
#: Prices of an hour between which the cost of a million tokens is a number.
_LEAST_PRICE: Final = 1e-9
_MOST_PRICE: Final = 1e12
_COUNTS: Final = frozenset({"tp", "pp", "dp", "ep"})
_NAMES: Final = frozenset({"gpus", "engines", "dtypes", "kv_dtypes"})
#: Numbers and texts that no scenario has.
_LOADS: Final[dict[str, type]] = {
    "rate": float,
    "users": float,
    "think_s": float,
    "max_gpus": int,
    "spare_replicas": int,
    "max_busy": float,
}
_TEXTS: Final = frozenset({"slo_at", "trace"})
#: Fields that a scenario has as numbers and a plan may have as distributions, which `kvplan.planning.lengths` reads.
_LENGTHS: Final = frozenset({"input_tokens", "output_tokens"})
#: Every argument of `kvplan.plan`.
_KNOWN: Final = frozenset(
    {
        *_NAMES,
        *_COUNTS,
        *_LOADS,
        *_TEXTS,
        *_LENGTHS,
        "model",
        "context",
        "shared_prefix_tokens",
        "prefix_hit_rate",
        "slo_ttft_ms",
        "slo_tpot_ms",
        "slo_e2e_ms",
        "max_num_seqs",
        "max_num_batched_tokens",
        "gpu_memory_utilization",
        "prices",
    }
)


def plan_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `kvplan.plan` from what was written.

    >>> plan_arguments({"gpu": ["l4,l40s"], "tp": "1,2", "kv-dtype": "default,fp8", "price": ["l4=0.7"]})
    {'gpus': ['l4', 'l40s'], 'tp': [1, 2], 'kv_dtypes': [None, 'fp8'], 'prices': {'l4': 0.7}}

    Raises:
        UsageError: An argument that does not exist, or a value that is not of its kind.
    """
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = str(key).replace("-", "_")
        name = _ARGUMENTS.get(name, name)
        if name not in _KNOWN:
            near = get_close_matches(name, sorted(_KNOWN), n=3)
            message = f"plan: no argument {key!r}"
            raise UnknownNameError(message, hint=f"did you mean {', '.join(near)}?" if near else None)
        if value is None:
            continue
        if name == "prices":
            found[name] = {**found.get(name, {}), **prices(value)}
        elif name in _NAMES:
            found[name] = [field_value("dtype", part) for part in _parts(value)]
        elif name in _COUNTS:
            found[name] = [field_value(name, part) for part in _parts(value)]
        else:
            found[name] = _value(name, value)
    return found


def _value(name: str, value: Any) -> Any:  # noqa: ANN401 - text or plain data in, the argument's kind out
    if name in _LOADS:
        return number_of(name, value, whole=_LOADS[name] is int)
    if name in FIELDS and FIELDS[name] is not str and name not in _LENGTHS:
        return field_value(name, value)
    if name in _TEXTS and not isinstance(value, str | Path):
        message = f"{name}: {str(value)[:80]!r} is not text"
        raise UsageError(message)
    return value


def prices(given: Mapping[str, Any] | Iterable[str]) -> dict[str, float]:
    """Prices of a GPU-hour, from a mapping or texts `gpu=1.5`.

    Raises:
        UsageError: Not a price above 0.
    """
    if isinstance(given, Mapping):
        pairs = [(str(name), value) for name, value in given.items()]
    else:
        texts = given if isinstance(given, list | tuple) else [given]
        pairs = [(name, value) for name, _, value in (str(text).partition("=") for text in texts)]
    found: dict[str, float] = {}
    for name, value in pairs:
        try:
            price = float(value)
        except (OverflowError, TypeError, ValueError):
            price = 0.0
        if not _LEAST_PRICE <= price <= _MOST_PRICE or not name.strip():
            shown = f"{name[:80]}: {str(value)[:40]!r}" if name.strip() and value else repr(name[:80])
            message = f"price: {shown} is not a GPU with the price of its hour above 0"
            raise UsageError(
                message, hint="--price h100-sxm=2.5, once for each GPU; in a file a line `h100-sxm: 2.5` each"
            )
        found[name.strip()] = price
    return found


def _parts(value: Any) -> list[Any]:  # noqa: ANN401 - text, a list of texts, or data
    items = value if isinstance(value, list | tuple) else [value]
    found: list[Any] = []
    for item in items:
        found.extend([part for part in item.split(",") if part.strip()] if isinstance(item, str) else [item])
    return found
