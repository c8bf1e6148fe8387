"""What a plan costs: GPU-hours, the user's prices, and a bound on energy."""

from __future__ import annotations

from typing import Final

from kvplan.planning.plan_result import Cost, Demand

_SECONDS_PER_HOUR: Final = 3600.0
_MILLION: Final = 1e6
_WATTS_PER_KILOWATT: Final = 1e3


def cost(
    demand: Demand,
    *,
    gpus: int,
    price_per_gpu_hour: float | None,
    rate_per_s: float,
    full_rate_per_s: float,
    prefill_share: float,
    tdp_w: float | None,
) -> Cost:
    """Cost of `gpus` that serve `rate_per_s`, spares included.

    An hour makes `3600 · rate · tokens`. Of the price, prompts carry the share of GPU time that prefill takes and answers
    the rest: a convention, since both run in the same iterations. Energy is `GPUs · TDP`, an upper bound.

    Args:
        demand: Lengths.
        gpus: GPUs in all.
        price_per_gpu_hour: In the user's currency, or None.
        rate_per_s: Requests that are served.
        full_rate_per_s: Requests that could be.
        prefill_share: Share of GPU time that prompts take.
        tdp_w: Board power, or None.
    """

    def per_million(hourly: float, rate: float, tokens: float) -> float:
        return hourly / (rate * tokens * _SECONDS_PER_HOUR) * _MILLION

    hourly = None if price_per_gpu_hour is None else price_per_gpu_hour * gpus

    def priced(share: float, rate: float, tokens: float) -> float | None:
        return None if hourly is None else per_million(hourly * share, rate, tokens)

    made, given = demand.output_tokens, demand.input_tokens
    return Cost(
        gpu_hours_per_million_output_tokens=per_million(gpus, rate_per_s, made),
        gpu_hours_per_million_output_tokens_full=per_million(gpus, full_rate_per_s, made),
        per_hour=hourly,
        per_million_input_tokens=priced(prefill_share, rate_per_s, given),
        per_million_output_tokens=priced(1 - prefill_share, rate_per_s, made),
        per_million_input_tokens_full=priced(prefill_share, full_rate_per_s, given),
        per_million_output_tokens_full=priced(1 - prefill_share, full_rate_per_s, made),
        energy_kwh_per_million_output_tokens=(
            None if tdp_w is None else per_million(gpus * tdp_w / _WATTS_PER_KILOWATT, rate_per_s, made)
        ),
    )
