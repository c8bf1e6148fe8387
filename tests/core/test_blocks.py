import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.blocks import BlockGroup, Pool, PoolPart
from kvplan.core.cached_layers import CachedLayer
from kvplan.core.memory_rules import MemoryRules, Paging, StateMode
from kvplan.core.paging import PoolRequest, lay_out
from kvplan.core.units import GIB

VLLM = MemoryRules(paging=Paging.GROUPS, group_ratio=1.25)
HEAD = 2 * 128 * 2


def request_for(*layers, rules=VLLM, room=10 * GIB, block=16, flight=8192, state_mode=StateMode.NONE):
    return PoolRequest(
        room_bytes=room,
        layers=layers,
        rules=rules,
        max_num_seqs=256,
        tokens_in_flight=flight,
        block_tokens=block,
        state_mode=state_mode,
    )


def full(count, width=8 * HEAD):
    return CachedLayer(kind="full", count=count, token_bytes=width)


def window(count, size, width=8 * HEAD):
    return CachedLayer(kind="window", count=count, token_bytes=width, window=size)


def test_plain_model_is_one_group_of_whole_blocks():
    pool = lay_out(request_for(full(32)))
    [part] = pool.parts
    assert part.unit_bytes == 16 * 32 * 8 * HEAD
    assert part.units == 10 * GIB // part.unit_bytes
    assert pool.sequences(1000) == part.units / 63


def test_gemma3_27b_is_cut_into_seven_groups_of_ten_layers():
    # 62 layers become 70: vLLM 0.19 logs "Add 8 padding layers", and 2 blocks of 573,440 B/token
    pool = lay_out(request_for(full(10, 16 * HEAD), window(52, 1024, 16 * HEAD)))
    [part] = pool.parts
    assert sum(group.units for group in part.groups) == 7
    assert pool.token_bytes() == 573_440
    assert part.needed(8192) == 512 + 6 * (512 + 1)


def test_sliding_layers_save_once_the_context_passes_window_and_batch():
    pool = lay_out(request_for(full(10), window(50, 1024)))
    [part] = pool.parts
    assert part.needed(131072) == 8192 + 5 * (-(-(1023 + 8192) // 16) + 1)


def test_older_versions_reserve_windows_like_full_layers():
    pool = lay_out(request_for(full(10), window(50, 1024), rules=MemoryRules(paging=Paging.ONE_GROUP)))
    assert pool.sequence_bytes(131072) == 131072 * 60 * 8 * HEAD


def test_hybrid_block_grows_until_its_page_holds_a_state():
    # Qwen3-Next TP2 in vLLM 0.11 logs "Setting attention block size to 544 tokens", from 548,864 B of state
    state = CachedLayer(kind="state", count=36, state_bytes=548_864)
    pool = lay_out(request_for(full(12, 1024), state))
    [part] = pool.parts
    assert pool.block_tokens == 544
    assert part.unit_bytes == 544 * 1024 * 12
    assert part.needed(262_144) == 482 + 3
    align = lay_out(request_for(full(12, 1024), state, state_mode=StateMode.ALIGN))
    assert align.parts[0].needed(262_144) == 482 + 6


def test_narrower_layers_take_larger_blocks():
    # Gemma-4: global layers of 2 × 512, local ones of 8 × 256: full blocks of 32 tokens
    pool = lay_out(request_for(full(5, 2 * 1024 * 2), window(25, 1024, 8 * 512 * 2)))
    assert {group.block_tokens for group in pool.parts[0].groups} == {16, 32}


def test_a_pool_without_room_holds_nothing():
    pool = lay_out(request_for(full(32), room=-5))
    assert pool.sequences(100) == 0
    assert pool.longest() == 0


def test_a_model_without_cache_is_limited_by_the_scheduler():
    pool = lay_out(request_for())
    assert pool.sequences(512) == 256
    assert pool.sequences(np.array([1, 512])).tolist() == [256, 256]


def test_sglang_keeps_three_pools():
    rules = MemoryRules(paging=Paging.POOLS, state_pool_ratio=0.9, window_pool_ratio=0.8)
    state = CachedLayer(kind="state", count=10, state_bytes=2**20)
    pool = lay_out(request_for(full(5), window(5, 128), state, rules=rules, block=1))
    assert [part.name for part in pool.parts] == ["state", "kv", "window"]
    assert pool.parts[2].units == int(pool.parts[1].units * 0.8)


layers_drawn = st.lists(
    st.one_of(
        st.builds(full, st.integers(1, 40)),
        st.builds(window, st.integers(1, 40), st.integers(16, 4096)),
        st.builds(
            lambda c, s: CachedLayer(kind="state", count=c, state_bytes=s), st.integers(1, 40), st.integers(1, 2**21)
        ),
    ),
    min_size=1,
    max_size=4,
)
pagings = st.sampled_from([Paging.GROUPS, Paging.ONE_GROUP, Paging.PER_LAYER, Paging.POOLS])


def drawn_pool(layers, paging, room=40 * GIB):
    rules = MemoryRules(paging=paging, state_pool_ratio=0.9, window_pool_ratio=0.8)
    return lay_out(request_for(*layers, rules=rules, room=room))


@given(layers_drawn, pagings, st.lists(st.integers(1, 10**6), min_size=1, max_size=8))
def test_arrays_answer_as_numbers_do(layers, paging, contexts):
    pool = drawn_pool(layers, paging)
    assert pool.sequences(np.array(contexts)).tolist() == pytest.approx([pool.sequences(c) for c in contexts])


@given(layers_drawn, pagings, st.integers(1, 10**6), st.integers(1, 10**5))
def test_a_longer_context_never_needs_less(layers, paging, context, more):
    pool = drawn_pool(layers, paging)
    assert pool.sequence_bytes(context + more) >= pool.sequence_bytes(context)
    assert pool.sequences(context + more) <= pool.sequences(context)


@given(layers_drawn, pagings, st.integers(1, 4096), st.integers(0, 40 * GIB))
def test_more_room_never_hurts(layers, paging, context, more):
    """Separate pools take a whole state out of the tokens' room: `1 + 0.9` states of more room make up for one."""
    if paging is Paging.POOLS:
        more += 2 * sum(one.count * one.state_bytes for one in layers)
    assert drawn_pool(layers, paging, 10 * GIB + more).sequences(context) >= drawn_pool(
        layers, paging, 10 * GIB
    ).sequences(context)


@given(layers_drawn, pagings, st.integers(1, 64))
def test_the_longest_context_fits_and_one_more_token_does_not(layers, paging, sequences):
    pool = drawn_pool(layers, paging)
    longest = pool.longest(sequences=sequences, cap=10**7)
    assert longest == 0 or pool.holds(longest, sequences=sequences)
    assert longest == 10**7 or not pool.holds(longest + 1, sequences=sequences)


def test_binding_part():
    parts = tuple(
        PoolPart(name=name, units=units, unit_bytes=1, groups=(BlockGroup(units=1, block_tokens=1),))
        for name, units in (("kv", 100), ("state", 10))
    )
    pool = Pool(parts=parts, max_num_seqs=1, block_tokens=1, room_bytes=110)
    assert pool.binding(5).name == "state"


def test_a_pool_of_100_blocks_on_paper():
    groups = (BlockGroup(units=1, block_tokens=16), BlockGroup(units=2, block_tokens=16, limit=0, extra=3))
    part = PoolPart(name="kv", units=100, unit_bytes=10, groups=groups)
    pool = Pool(parts=(part,), max_num_seqs=9, block_tokens=16, room_bytes=1000)
    # four sequences have 25 blocks each: 6 of state and 19 of tokens
    assert [pool.holds(19 * 16 + more, sequences=4) for more in (-20, 0, 1)] == [True, True, False]
    assert (pool.longest(sequences=4), pool.longest(), pool.longest(cap=100)) == (19 * 16, 94 * 16, 100)
    assert (pool.token_bytes(), pool.sequence_bytes(17), pool.sequences(17)) == (1, 80, 12.5)
    wide = PoolPart(name="kv", units=2**30, unit_bytes=1, groups=(BlockGroup(units=1, block_tokens=1),))
    assert Pool(parts=(wide,), max_num_seqs=1, block_tokens=1, room_bytes=2**30).longest() == 2**30
