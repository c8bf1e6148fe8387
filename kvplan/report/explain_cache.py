"""What one more token adds to the cache, with the numbers put in, and what a sequence keeps at any length."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterator

from kvplan.core.cache import (
    cross_elements_per_source_token,
    elements_per_token,
    kv_shards,
    state_bytes,
    window_tokens,
)
from kvplan.core.dtypes import kv_bits
from kvplan.core.engine import Settings
from kvplan.core.model import CompressedAttention, Mixer, Model, Recurrent
from kvplan.core.results import Estimate, Scenario
from kvplan.report.layers import cache_formula, layer_numbers, mixer_words, window_words
from kvplan.report.text import exact, plural, whole


def cache_lines(model: Model, estimate: Estimate, *, settings: Settings | None = None) -> Iterator[str]:
    """Bytes that one token adds, by group of layers, for the model (and what guesses its tokens) and for one GPU."""
    asked, memory = estimate.scenario, estimate.memory
    ranks = 1 if settings is None else settings.dcp
    total = 0.0
    for index, group in enumerate(model.groups):
        name = f"layers {layer_numbers(model, index)}"
        for mixer in group.layer.mixers:
            total += yield from _mixer_lines(mixer, name, group.count, asked=asked, ranks=ranks)
    yield f"whole model = {exact(total)} bytes per token"
    beside = 0.0
    for name, count, mixer in _guessing(model, settings):
        beside += yield from _mixer_lines(mixer, name, count, asked=asked, ranks=ranks)
    if beside:
        yield f"with the layers that guess = {exact(total)} + {exact(beside)} = {exact(total + beside)} bytes per token"
    if asked.tp > 1 or asked.pp > 1:
        stage = ", fullest pipeline stage" if asked.pp > 1 else ""
        yield f"one GPU{stage} = {exact(memory.kv_bytes_per_token)} bytes per token"
    if memory.kv_bytes_per_token_reserved != memory.kv_bytes_per_token:
        yield f"reserved after the engine's page rules = {exact(memory.kv_bytes_per_token_reserved)} bytes per token"
    yield from _state_lines(model, estimate)


def _guessing(model: Model, settings: Settings | None) -> Iterator[tuple[str, int, Mixer]]:
    """Layers that cache because tokens are guessed: the model's own prediction layers, and a draft model's."""
    if settings is None:
        return
    if settings.speculative_tokens:
        for mixer, count in Counter(mixer for layer in model.mtp_layers for mixer in layer.mixers).items():
            yield "prediction layers", count, mixer
    draft = settings.draft_model
    if draft is not None:
        for index, group in enumerate(draft.groups):
            name = f"draft model, layers {layer_numbers(draft, index)}"
            yield from ((name, group.count, mixer) for mixer in group.layer.mixers)


def _mixer_lines(mixer: Mixer, name: str, count: int, *, asked: Scenario, ranks: int) -> Generator[str, None, float]:
    """Bytes that one token adds on `count` equal layers, and on one of the ranks that share them; returns the former."""
    formula = cache_formula(mixer)
    if formula is None:
        if not isinstance(mixer, Recurrent):
            yield f"{name} ({mixer_words(mixer)}): no cache per token"
        return 0.0
    bits = kv_bits(asked.kv_dtype)
    value = count * elements_per_token(mixer) * bits / 8
    lead = f"{name}: {plural(count, 'layer')} × {formula} × {exact(bits)} bits ÷ 8"
    yield f"{lead} = {exact(value)} bytes per token{window_words(mixer)}"
    if asked.tp > 1:
        yield f"  on one of {asked.tp} tp ranks: {_kept(mixer, value, tp=asked.tp, ranks=ranks)}"
    return value


def _kept(mixer: Mixer, value: float, *, tp: int, ranks: int) -> str:
    """What one tensor-parallel rank keeps: heads are divided, tokens too with decode context parallelism."""
    shards = kv_shards(mixer, tp)
    windowed = isinstance(mixer, CompressedAttention) or window_tokens(mixer) is not None
    divisors = [*([shards] if shards > 1 else []), *([ranks] if ranks > 1 and not windowed else [])]
    if not divisors:
        return "copied on each"
    said = " ÷ ".join(str(one) for one in divisors)
    tokens = ", a share of the tokens (dcp)" if ranks > 1 and not windowed else ""
    return f"{exact(value)} ÷ {said} = {exact(value / math.prod(divisors))} bytes{tokens}"


def _state_lines(model: Model, estimate: Estimate) -> Iterator[str]:
    for index, group in enumerate(model.groups):
        for mixer in group.layer.mixers:
            if isinstance(mixer, Recurrent):
                one = f"({whole(mixer.state_elements)} × {mixer.state_bits} + {whole(mixer.conv_elements)} × {mixer.conv_bits}) bits ÷ 8"
                total = group.count * state_bytes(mixer)
                numbers = layer_numbers(model, index)
                yield f"layers {numbers}: {plural(group.count, 'layer')} × {one} = {whole(total)} bytes per sequence, at any length"
            cross = cross_elements_per_source_token(mixer)
            if cross:
                bits = kv_bits(estimate.scenario.kv_dtype)
                value = exact(group.count * cross * bits / 8)
                lead = f"cross attention: {plural(group.count, 'layer')} × {cross} elements × {exact(bits)} bits ÷ 8"
                yield f"{lead} = {value} bytes per source token"
