"""How engines lay caches into a pool: one group, groups of one page size, separate pools, or each kind by itself."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from kvplan.core.blocks import BlockGroup, Pool, PoolPart
from kvplan.core.cached_layers import CachedLayer
from kvplan.core.dataclass import dataclass
from kvplan.core.memory_rules import MemoryRules, Paging, StateMode, Windows
from kvplan.core.units import ceil_div, round_up

_ALIGNMENT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequest:
    """What a pool is laid out for.

    Attributes:
        room_bytes: Bytes for caches; not above zero means an empty pool.
        layers: Caching layers of the rank.
        rules: The engine's rules.
        max_num_seqs: Resolved limit.
        tokens_in_flight: Tokens that iterations under way may write beyond a window.
        block_tokens: Tokens of one block.
        state_mode: State blocks of a sequence.
        speculative_tokens: Drafted tokens, each with a state block of its own.
    """

    room_bytes: int
    layers: tuple[CachedLayer, ...]
    rules: MemoryRules
    max_num_seqs: int
    tokens_in_flight: int
    block_tokens: int
    state_mode: StateMode
    speculative_tokens: int = 0


def lay_out(request: PoolRequest) -> Pool:
    """The pool of one rank after the engine's paging."""
    layers = [one for one in request.layers if one.count and (one.token_bytes or one.state_bytes)]
    block = request.block_tokens
    parts: list[PoolPart] = []
    if not layers:
        pass
    elif request.rules.paging is Paging.POOLS:
        parts = _pools(request, layers)
    elif request.rules.paging is Paging.PER_LAYER:
        parts = [_per_layer(request, layers)]
    elif any(one.kind == "compressed" for one in layers):
        block, parts = _V4_BLOCK, [_compressed(request, layers)]
    else:
        block = _attention_block(request, layers)
        parts = [_groups(request, layers, block=block)]
    return Pool(
        parts=tuple(parts),
        max_num_seqs=request.max_num_seqs,
        block_tokens=block,
        room_bytes=max(0, request.room_bytes),
    )


def _part(request: PoolRequest, *, unit_bytes: int, groups: Sequence[BlockGroup]) -> PoolPart:
    units = max(0, max(0, request.room_bytes) // unit_bytes - request.rules.null_blocks)
    return PoolPart(name="kv", units=units, unit_bytes=unit_bytes, groups=tuple(groups))


def _window_limit(request: PoolRequest, layer: CachedLayer) -> int:
    if layer.window is None:
        raise AssertionError(layer)
    before = layer.window if layer.kind == "chunk" else layer.window - 1
    return before + request.tokens_in_flight


def _window_extra(request: PoolRequest) -> int:
    extra = request.rules.window_extra_tokens
    return request.tokens_in_flight if extra is None else extra


def _state_blocks(request: PoolRequest) -> int:
    return (2 if request.state_mode is StateMode.ALIGN else 1) + request.speculative_tokens


def _attention_block(request: PoolRequest, layers: list[CachedLayer]) -> int:
    """Tokens of a block: with recurrent layers the smallest multiple of 16 whose page holds one state."""
    narrowest = min((one.token_bytes for one in layers if one.kind != "state"), default=0.0)
    largest_state = max((one.state_bytes for one in layers if one.kind == "state"), default=0)
    if not (narrowest and largest_state):
        return request.block_tokens
    return max(request.block_tokens, round_up(ceil(largest_state / narrowest), _ALIGNMENT))


def _groups(request: PoolRequest, layers: list[CachedLayer], *, block: int) -> PoolPart:
    """Blocks over groups of equal size and one page size (vLLM's hybrid cache manager).

    1. With recurrent layers the attention block has grown (`_attention_block`).
    2. Layers of other widths take larger blocks until their page is the largest, padded where it doesn't divide.
    3. Layers of one kind are cut into groups of the smallest kind's size (the largest kind's where that is near).
    4. One block id is a page on each layer of a group.
    """
    attention = [one for one in layers if one.kind != "state"]
    states = [one for one in layers if one.kind == "state"]
    largest_state = max((one.state_bytes for one in states), default=0)
    kinds = {(one.kind, one.window, one.source_tokens) for one in attention}
    whole = request.rules.paging is Paging.ONE_GROUP and not states
    if not states and (len(kinds) == 1 or whole):
        per_block = ceil(block * sum(one.count * one.token_bytes for one in attention))
        group = _group(request, attention[0], block=block, count=1, whole=whole)
        return _part(request, unit_bytes=per_block, groups=[group])
    page = ceil(max((one.token_bytes * block for one in attention), default=largest_state))
    merged: dict[tuple[str, int, int | None, int], int] = {}
    sample: dict[tuple[str, int, int | None, int], CachedLayer] = {}
    for one in layers:
        tokens = block if one.kind == "state" else block * max(1, int(page // (one.token_bytes * block)))
        key = (one.kind, tokens, one.window, one.source_tokens)
        merged[key] = merged.get(key, 0) + one.count
        sample[key] = one
    smallest, largest = min(merged.values()), max(merged.values())
    size = largest if largest < smallest * request.rules.group_ratio else smallest
    groups = [_group(request, sample[key], block=key[1], count=ceil_div(count, size)) for key, count in merged.items()]
    return _part(request, unit_bytes=page * size, groups=groups)


def _group(request: PoolRequest, layer: CachedLayer, *, block: int, count: int, whole: bool = False) -> BlockGroup:
    if layer.kind == "state":
        if request.state_mode is StateMode.ALL:
            return BlockGroup(units=count, block_tokens=block)
        return BlockGroup(units=count, block_tokens=block, limit=0, extra=_state_blocks(request))
    if layer.kind == "cross":
        return BlockGroup(units=count, block_tokens=block, limit=0, extra=ceil_div(layer.source_tokens, block))
    if layer.window is None or whole:
        return BlockGroup(units=count, block_tokens=block)
    extra = 0 if layer.kind == "chunk" else 1
    return BlockGroup(units=count, block_tokens=block, limit=_window_limit(request, layer), extra=extra)


def _per_layer(request: PoolRequest, layers: list[CachedLayer]) -> PoolPart:
    """Each kind of layer in blocks of its own, in bytes: nothing is padded but the last block."""
    windows, groups = request.rules.windows, []
    mixed = any(one.grows and one.window is None for one in layers)
    saved = windows is Windows.ALL or (windows is Windows.MIXED and mixed)
    for one in layers:
        if one.kind == "state":
            groups.append(BlockGroup(units=one.count * one.state_bytes, block_tokens=1, limit=0, extra=1))
            continue
        block = max(one.entry_tokens, request.block_tokens)
        units = ceil(one.count * one.token_bytes * block / one.entry_tokens)
        if one.kind == "cross":
            groups.append(
                BlockGroup(units=units, block_tokens=block, limit=0, extra=ceil_div(one.source_tokens, block))
            )
            continue
        limit = None if one.window is None or not saved else one.window + _window_extra(request)
        groups.append(BlockGroup(units=units, block_tokens=block, limit=limit))
    return PoolPart(name="kv", units=max(0, request.room_bytes), unit_bytes=1, groups=tuple(groups))


def _pools(request: PoolRequest, layers: list[CachedLayer]) -> list[PoolPart]:
    """Separate pools for full layers, windows and states (SGLang).

    States take `ratio / (1 + ratio)` of the room, however few sequences may run; of the rest, full layers hold n tokens
    and windows `window_pool_ratio · n`.
    """
    room, parts, block = max(0, request.room_bytes), [], request.block_tokens
    state = sum(one.count * one.state_bytes for one in layers if one.kind == "state")
    full = sum(one.count * one.token_bytes / one.entry_tokens for one in layers if one.grows and one.window is None)
    windows = [one for one in layers if one.window is not None]
    cross = [one for one in layers if one.kind == "cross"]
    if state:
        ratio = request.rules.state_pool_ratio
        share = ratio / (1 + ratio) if full or windows else 1.0
        slots = int(room * share // state)
        parts.append(PoolPart(name="state", units=slots, unit_bytes=state, groups=(_one_slot(),)))
        room -= slots * state
    window_bytes = sum(one.count * one.token_bytes for one in windows)
    ratio = request.rules.window_pool_ratio if full else 1.0
    if full or windows:
        tokens = int(room // (full + ratio * window_bytes))
        if full:
            groups = [BlockGroup(units=block, block_tokens=block)]
            groups += [BlockGroup(units=one.source_tokens, block_tokens=1, limit=0, extra=1) for one in cross[:1]]
            parts.append(PoolPart(name="kv", units=tokens, unit_bytes=ceil(full), groups=tuple(groups)))
        if windows:
            widest = max(one.window or 0 for one in windows)
            group = BlockGroup(units=block, block_tokens=block, limit=widest + _window_extra(request))
            units = int(tokens * ratio)
            parts.append(PoolPart(name="window", units=units, unit_bytes=ceil(window_bytes), groups=(group,)))
    return parts


def _one_slot() -> BlockGroup:
    return BlockGroup(units=1, block_tokens=1, limit=0, extra=1)


# DeepSeek-V4 in vLLM: logical blocks of 256 tokens, pages aligned to 576 B, fp8 rows of 584 B and index rows of 132 B.
_V4_BLOCK, _V4_PAGE, _V4_ROW, _V4_INDEX_ROW, _V4_STATE = 256, 64, 584, 132, 576


def _compressed(request: PoolRequest, layers: list[CachedLayer]) -> PoolPart:
    """Groups of a model with compressed attention (DeepSeek-V4), with windows and compressor states in small pages.

    Sizes are those of its fp8 cache, the only one that the engine has.
    """
    by_ratio = sorted(((one.entry_tokens, one.count) for one in layers if one.kind == "compressed"), key=lambda r: r[0])
    window_layers = sum(one.count for one in layers if one.kind == "window")
    window = max(one.window or 0 for one in layers if one.kind == "window")
    main = round_up(_V4_PAGE * _V4_ROW, _V4_STATE)
    index = round_up(_V4_PAGE * _V4_INDEX_ROW, _V4_STATE)
    per_block, groups = 0, [BlockGroup(units=1, block_tokens=_V4_BLOCK)]
    counts = [count for _, count in by_ratio]
    size = _group_size([max(counts), window_layers, *counts], max(counts))
    flight = request.tokens_in_flight
    groups.append(_window_group(ceil_div(window_layers, size), window=window, block=_V4_PAGE, flight=flight))
    for position, (ratio, count) in enumerate(by_ratio):
        rows = _V4_BLOCK // ratio
        if position == 0:
            per_block += count * (main + index)
            groups.append(_window_group(ceil_div(count, size), window=2 * ratio, block=4, flight=flight))
        else:
            per_block += count * round_up(rows * _V4_ROW, _V4_STATE)
            groups.append(_window_group(ceil_div(count, size), window=ratio, block=8, flight=flight))
    return _part(request, unit_bytes=per_block, groups=groups)


def _window_group(units: int, *, window: int, block: int, flight: int) -> BlockGroup:
    return BlockGroup(units=units, block_tokens=block, limit=window - 1 + flight, extra=1)


def _group_size(values: list[int], low: int) -> int:
    """The group size from `low` on with the least padding over all values; of equal ones the largest."""
    return min(range(low, max(values) + 1), key=lambda size: (sum(-value % size for value in values), -size))
