"""Ask several scenarios and set them side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kvplan.core.dtypes import kv_bits
from kvplan.core.results import Estimate
from kvplan.errors import KvplanError, UnknownNameError, UsageError
from kvplan.planning.causes import causes
from kvplan.planning.comparison import Compared, Comparison
from kvplan.planning.scenarios import (
    MODEL_FIELDS,
    Scenario,
    crossed,
    described,
    field_name,
    field_value,
    keywords,
    read_scenario,
)

#: Quantities that are compared, and where an estimate has them.
QUANTITIES: Final[dict[str, Callable[[Estimate], float | None]]] = {
    "gpu_count": lambda one: one.scenario.gpu_count,
    "weights_bytes": lambda one: one.memory.weights_bytes,
    "kv_pool_bytes": lambda one: one.memory.kv_pool_bytes,
    "kv_bytes_per_token": lambda one: one.memory.kv_bytes_per_token,
    "max_concurrency": lambda one: one.capacity.max_concurrency,
    "max_context": lambda one: one.capacity.max_context,
    "running": lambda one: one.latency.running * one.scenario.dp if one.latency else None,
    "ttft_ms": lambda one: one.latency.ttft_ms.mid if one.latency else None,
    "tpot_ms": lambda one: one.latency.tpot_ms.mid if one.latency else None,
    "e2e_ms": lambda one: one.latency.e2e_ms.mid if one.latency else None,
    "output_tokens_per_second": lambda one: one.throughput.output_tokens_per_second.mid if one.throughput else None,
    "per_gpu_output_tokens_per_second": lambda one: (
        one.throughput.per_gpu_output_tokens_per_second.mid if one.throughput else None
    ),
    "requests_per_second": lambda one: one.throughput.requests_per_second.mid if one.throughput else None,
}
_NARROW_BITS: Final = 16
#: Formats of weights that nobody narrowed after training.
_AS_TRAINED: Final = {"fp32", "tf32", "bf16", "fp16"}
_MOST: Final = 1000


def run_compare(
    estimate: Callable[..., Estimate],
    base: Mapping[str, Any],
    scenarios: Iterable[Scenario | Mapping[str, Any] | str],
    *,
    vary: Mapping[str, Sequence[Any]],
) -> Comparison:
    """Answer all scenarios; the first that fits is what the others are compared with.

    Args:
        estimate: `estimate(model, gpu, *, …)`.
        base: Fields that all share.
        scenarios: Named scenarios; one alone is compared with the base itself.
        vary: Field → values, crossed.

    Raises:
        UsageError: Fewer than two scenarios, or more than a thousand.
        UnknownNameError: A name that no scenario could take.
        KvplanError: None of them could be answered: the first error.
    """
    asked = [_scenario(one) for one in scenarios]
    if vary:
        asked.extend(crossed(vary))
    if len(asked) == 1:
        asked.insert(0, Scenario(name="base"))
    if not 1 < len(asked) <= _MOST:
        message = (
            "compare: nothing to compare with" if not asked else f"compare: {len(asked):,} scenarios, above {_MOST:,}"
        )
        raise UsageError(message, hint="--vary kv-dtype=bf16,fp8, or --scenario name:key=value,…")
    answers = [_ask(estimate, {**base, **one.changes}) for one in asked]
    errors = [one for one in answers if isinstance(one, KvplanError)]
    unknown = next((one for one in errors if isinstance(one, UnknownNameError)), None)
    if unknown is not None:
        raise unknown
    if len(errors) == len(answers):
        raise errors[0]
    fit = (index for index, one in enumerate(answers) if isinstance(one, Estimate) and one.capacity.fits)
    first = next(fit, 0)
    compared = tuple(_compared(one, answer, answers[first]) for one, answer in zip(asked, answers, strict=True))
    return Comparison(base=plain_base(base), scenarios=compared, cautions=tuple(_cautions(compared)), reference=first)


def _scenario(one: object) -> Scenario:
    if isinstance(one, Scenario):
        return one
    if isinstance(one, str):
        return read_scenario(one)
    if not isinstance(one, Mapping):
        message = f"scenario {str(one)[:80]!r}: must be fields (`gpu: l40s`), or name:key=value,…"
        raise UsageError(message)
    if not isinstance(one.get("overrides") or {}, Mapping):
        message = f"overrides: {str(one['overrides'])[:80]!r} must be config keys with values"
        raise UsageError(message)
    named = {field_name(str(key)): value for key, value in one.items() if key not in {"name", "overrides"}}
    changes = {key: _checked(key, value) for key, value in named.items()}
    changes.update({f"config.{key}": value for key, value in (one.get("overrides") or {}).items()})
    return Scenario(name=str(one.get("name") or described(changes) or "base"), changes=changes)


def _checked(key: str, value: Any) -> Any:  # noqa: ANN401 - specs pass as they are
    return value if key in {"model", "gpu", "engine"} else field_value(key, value)


def _ask(estimate: Callable[..., Estimate], fields: Mapping[str, Any]) -> Estimate | KvplanError:
    given = keywords({name: value for name, value in fields.items() if value is not None})
    missing = [name for name in ("model", "gpu") if name not in given]
    if missing:
        return UsageError(f"no {missing[0]} is given", hint=f"--{missing[0]} NAME, or as a field of each scenario")
    try:
        return estimate(given.pop("model"), given.pop("gpu"), **given)
    except KvplanError as error:
        return error


def _compared(asked: Scenario, answer: Estimate | KvplanError, first: Estimate | KvplanError) -> Compared:
    if isinstance(answer, KvplanError):
        empty: dict[str, float | None] = dict.fromkeys(QUANTITIES)
        return Compared(
            name=asked.name,
            changes=asked.changes,
            status="error",
            reason=str(answer),
            estimate=None,
            values=empty,
            change=empty,
            causes=(),
        )
    values = {name: read(answer) for name, read in QUANTITIES.items()}
    against = {name: None if isinstance(first, KvplanError) else read(first) for name, read in QUANTITIES.items()}
    status, reason = _status(answer)
    return Compared(
        name=asked.name,
        changes=asked.changes,
        status=status,
        reason=reason,
        estimate=answer,
        values=values,
        change={name: _change(against[name], value) for name, value in values.items()},
        causes=() if isinstance(first, KvplanError) or answer is first else causes(first, answer),
    )


def _status(answer: Estimate) -> tuple[str, str | None]:
    if not answer.capacity.fits:
        return "does not fit", answer.capacity.suggestions[0] if answer.capacity.suggestions else None
    return ("queues" if answer.latency is not None and answer.latency.queued else "ok"), None


def _change(before: float | None, after: float | None) -> float | None:
    return None if not before or after is None else after / before - 1


def plain_base(base: Mapping[str, Any]) -> dict[str, Any]:
    """Base fields as plain data: specs by their id, changed config keys one by one."""
    found = {name: getattr(value, "id", value) for name, value in base.items() if value is not None}
    changed = found.pop("overrides", None) or {}
    return {**found, **{f"config.{key}": value for key, value in changed.items()}}


def _cautions(compared: Sequence[Compared]) -> Iterator[str]:
    answers = [one.estimate for one in compared if one.estimate is not None]
    caches = {one.scenario.kv_dtype for one in answers}
    if len(caches) > 1 and any(kv_bits(one) < _NARROW_BITS for one in caches):
        yield "a narrower KV cache trades quality, most at long contexts; kvplan does not predict quality"
    weights = {one.scenario.dtype for one in answers}
    if len(weights) > 1 and not weights <= _AS_TRAINED:
        yield "narrower weights trade quality, by method and model; kvplan does not predict quality"
    shapes = {key for one in compared for key in one.changes if key in MODEL_FIELDS or key.startswith("config.")}
    if shapes:
        names = ", ".join(sorted(key.replace("_", "-") for key in shapes))
        extra = "; fewer KV heads (GQA, MQA) trade quality" if "kv_heads" in shapes else ""
        yield f"{names}: another model, which would have to be trained so{extra}; kvplan does not predict quality"
    if len({one.scenario.model for one in answers}) > 1:
        yield "different models answer differently well; kvplan compares cost only"
