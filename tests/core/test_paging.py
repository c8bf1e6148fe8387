"""Every paging rule on sizes that can be laid out by hand; rules against real logs are in test_memory_logs.py."""

from dataclasses import replace

import pytest

from kvplan.core.blocks import BlockGroup, PoolPart
from kvplan.core.cached_layers import CachedLayer
from kvplan.core.memory_rules import MemoryRules, Paging, StateMode, Windows
from kvplan.core.paging import PoolRequest, lay_out

GROUPS = MemoryRules(paging=Paging.GROUPS)
ONE = MemoryRules(paging=Paging.ONE_GROUP)
PER_LAYER = MemoryRules(paging=Paging.PER_LAYER, window_extra_tokens=7)
POOLS = MemoryRules(paging=Paging.POOLS, state_pool_ratio=0.25, window_pool_ratio=0.5, window_extra_tokens=7)


def laid(*layers, rules=GROUPS, room=10**6, block=16, flight=100, mode=StateMode.NONE, drafts=0):
    return lay_out(
        PoolRequest(
            room_bytes=room,
            layers=layers,
            rules=rules,
            max_num_seqs=9,
            tokens_in_flight=flight,
            block_tokens=block,
            state_mode=mode,
            speculative_tokens=drafts,
        )
    )


def full(count=1, width=100, **more):
    return CachedLayer(kind="full", count=count, token_bytes=width, **more)


def window(count=1, size=64, width=100, kind="window"):
    return CachedLayer(kind=kind, count=count, token_bytes=width, window=size)


def state(count=1, size=3000):
    return CachedLayer(kind="state", count=count, state_bytes=size)


def cross(count=1, width=100, source=50):
    return CachedLayer(kind="cross", count=count, token_bytes=width, source_tokens=source)


def group(units, block=16, **more):
    return BlockGroup(units=units, block_tokens=block, **more)


@pytest.mark.parametrize("rules", [GROUPS, ONE])
def test_one_kind_is_one_group_over_all_its_layers(rules):
    pool = laid(full(3), full(2, 50.5), rules=rules)
    assert pool.parts == (PoolPart(name="kv", units=10**6 // 6416, unit_bytes=6416, groups=(group(1),)),)
    assert (pool.block_tokens, pool.room_bytes, pool.max_num_seqs) == (16, 10**6, 9)


def test_null_blocks_go_to_no_sequence():
    rules = replace(GROUPS, null_blocks=3)
    assert laid(full(), rules=rules).parts[0].units == 10**6 // 1600 - 3
    assert laid(full(), rules=rules, room=1700).parts[0].units == 0
    assert laid(full(), room=-1).parts[0].units == 0
    assert laid(full(), room=-1).room_bytes == 0
    assert laid(full(), room=1600).parts[0].units == 1


def test_layers_that_keep_nothing_are_left_out():
    assert laid(full(0), full(1, 0)).parts == ()
    assert laid().block_tokens == 16


def test_windows_alone_are_a_group_that_stops_growing():
    # before the window's last token come window − 1; a block more, for a window rarely begins with one
    [part] = laid(window(4)).parts
    assert part.groups == (group(1, limit=63 + 100, extra=1),)
    [chunked] = laid(window(4, kind="chunk")).parts
    assert chunked.groups == (group(1, limit=64 + 100),)
    [old] = laid(window(4), rules=ONE).parts
    assert old.groups == (group(1),)


def test_kinds_are_cut_into_groups_of_the_smallest():
    [part] = laid(full(2), window(5)).parts
    assert part.unit_bytes == 1600 * 2
    assert part.groups == (group(1), group(3, limit=163, extra=1))
    [old] = laid(full(2), window(5), rules=ONE).parts
    assert (old.unit_bytes, old.groups) == (1600 * 7, (group(1),))


def test_near_sizes_become_one_group_of_the_larger():
    near = replace(GROUPS, group_ratio=1.5)
    [part] = laid(full(3), window(4), rules=near).parts
    assert (part.unit_bytes, [one.units for one in part.groups]) == (1600 * 4, [1, 1])
    [far] = laid(full(2), window(3), rules=near).parts
    assert (far.unit_bytes, [one.units for one in far.groups]) == (1600 * 2, [1, 2])


def test_narrow_layers_take_larger_blocks_until_their_page_is_the_largest():
    [part] = laid(full(2, 100), window(2, width=40)).parts
    # 1600 // 640 = 2: blocks of 32 tokens, padded from 1280 to 1600 bytes
    assert part.groups == (group(1), group(1, 32, limit=163, extra=1))
    assert part.unit_bytes == 1600 * 2


def test_a_state_takes_one_page_and_attention_blocks_grow_to_hold_it():
    # 3000 B over 100 B per token: 30 tokens, rounded up to 32
    pool = laid(full(2), state(4))
    assert pool.block_tokens == 32
    [part] = pool.parts
    assert part.unit_bytes == 3200 * 2
    assert part.groups == (group(1, 32), group(2, 32, limit=0, extra=1))
    assert laid(full(2), state(4, 3201)).block_tokens == 48  # 32.01 tokens are more than 32
    assert laid(full(2), state(4), block=64).block_tokens == 64
    assert laid(full(2, 100), full(1, 50), state(4)).block_tokens == 64
    assert laid(full(2), state(4), state(1, 3300)).block_tokens == 48


@pytest.mark.parametrize(
    ("mode", "drafts", "extra"), [(StateMode.NONE, 0, 1), (StateMode.ALIGN, 0, 2), (StateMode.NONE, 3, 4), (StateMode.ALIGN, 1, 3)]
)  # fmt: skip
def test_states_of_a_sequence(mode, drafts, extra):
    [part] = laid(full(1), state(1), mode=mode, drafts=drafts).parts
    assert part.groups[1] == group(1, 32, limit=0, extra=extra)


def test_a_state_for_every_block_of_tokens():
    [part] = laid(full(1), state(3), mode=StateMode.ALL).parts
    assert part.groups == (group(1, 32), group(3, 32))


def test_states_alone():
    pool = laid(state(4))
    [part] = pool.parts
    assert (pool.block_tokens, part.unit_bytes, part.groups) == (16, 12000, (group(1, limit=0, extra=1),))


def test_states_keep_windows_even_in_old_versions():
    [part] = laid(full(1), window(1), state(1), rules=ONE).parts
    assert len(part.groups) == 3


def test_a_cross_cache_holds_its_source_whatever_the_context():
    [part] = laid(full(2), cross(2)).parts
    assert part.groups == (group(1), group(1, limit=0, extra=4))
    assert part.needed(1) == 1 + 4
    [old] = laid(cross(2), full(2), rules=ONE).parts
    assert old.unit_bytes == 6400


def test_each_kind_in_blocks_of_its_own():
    [part] = laid(full(3, 10.5), window(2), state(4), cross(2), rules=PER_LAYER).parts
    assert (part.name, part.units, part.unit_bytes) == ("kv", 10**6, 1)
    assert part.groups == (
        group(504),
        group(3200, limit=64 + 7),
        group(4 * 3000, 1, limit=0, extra=1),
        group(3200, limit=0, extra=4),
    )
    compressed = CachedLayer(kind="compressed", count=2, token_bytes=10, entry_tokens=32)
    [part] = laid(compressed, rules=PER_LAYER).parts
    assert part.groups == (group(20, 32),)
    [part] = laid(replace(compressed, entry_tokens=4), rules=PER_LAYER).parts
    assert part.groups == (group(80),)
    assert laid(full(), rules=PER_LAYER, room=-5).parts[0].units == 0


@pytest.mark.parametrize(
    ("windows", "beside_full", "alone"),
    [(Windows.ALL, 64 + 7, 64 + 7), (Windows.MIXED, 64 + 7, None), (Windows.NONE, None, None)],
)
def test_windows_that_keep_less(windows, beside_full, alone):
    rules = replace(PER_LAYER, windows=windows)
    assert laid(full(), window(), rules=rules).parts[0].groups == (group(1600), group(1600, limit=beside_full))
    assert laid(window(), state(), rules=rules).parts[0].groups[0] == group(1600, limit=alone)
    assert laid(window(), cross(), rules=rules).parts[0].groups[0] == group(1600, limit=alone)


@pytest.mark.parametrize("rules", [PER_LAYER, POOLS])
def test_a_window_keeps_a_batch_more_where_no_number_is_set(rules):
    [part] = laid(window(), rules=replace(rules, window_extra_tokens=None), flight=100).parts
    assert part.groups[0].limit == 64 + 100


def test_three_pools():
    states, tokens, windows = laid(full(2), window(3), state(4, 250), rules=POOLS, block=8).parts
    # states take 0.25 / 1.25 of the room, 200 of 1000 B though nine sequences run; the rest is 200 n + 300 · n / 2
    assert states == PoolPart(name="state", units=200, unit_bytes=1000, groups=(group(1, 1, limit=0, extra=1),))
    n = 800_000 // 350
    assert tokens == PoolPart(name="kv", units=n, unit_bytes=200, groups=(group(8, 8),))
    assert windows == PoolPart(name="window", units=n // 2, unit_bytes=300, groups=(group(8, 8, limit=64 + 7),))


def test_pools_of_one_kind_take_all_the_room():
    [tokens] = laid(full(2), rules=POOLS).parts
    assert (tokens.name, tokens.units) == ("kv", 10**6 // 200)
    [windows] = laid(window(2), window(1, 128), rules=POOLS).parts
    assert (windows.name, windows.units, windows.groups[0].limit) == ("window", 10**6 // 300, 128 + 7)
    [states] = laid(state(1, 10**5 * 2), rules=POOLS).parts
    assert states.units == 5
    some, _ = laid(state(1, 60_000), full(1), rules=POOLS).parts
    assert some.units == 3
    assert [part.units for part in laid(state(1), full(1), rules=POOLS, room=-1).parts] == [0, 0]


def test_pools_of_entries_and_sources():
    entries = CachedLayer(kind="compressed", count=2, token_bytes=10, entry_tokens=4)
    [tokens] = laid(entries, rules=POOLS).parts
    assert (tokens.unit_bytes, tokens.units) == (5, 200_000)
    [tokens] = laid(full(2), cross(2), cross(1, 10, 7), rules=POOLS, block=1).parts
    assert tokens.groups == (group(1, 1), group(50, 1, limit=0, extra=1))


def compressed(count, ratio):
    return CachedLayer(kind="compressed", count=count, token_bytes=640, entry_tokens=ratio)


def test_compressed_attention_on_paper():
    """DeepSeek-V4-Flash: 43 layers, 21 of ratio 4, 20 of ratio 128, all with a window of 128; pages of 576 B.

    A block of 256 tokens is 64 rows of 584 B and 64 index rows of 132 B per layer of ratio 4, 2 rows per layer of ratio 128.
    Groups of 21 … 43 layers: sizes 21, 43, 21, 20 pad least at 22 (1 + 1 + 1 + 2 = 5).
    """
    room = 10**9
    pool = laid(window(43, 128), compressed(20, 128), compressed(21, 4), room=room, flight=100)
    [part] = pool.parts
    assert pool.block_tokens == 256
    assert part.unit_bytes == 21 * (37_440 + 8_640) + 20 * 1_728
    assert part.units == room // part.unit_bytes
    assert part.groups == (
        group(1, 256),
        group(2, 64, limit=127 + 100, extra=1),
        group(1, 4, limit=2 * 4 - 1 + 100, extra=1),
        group(1, 8, limit=127 + 100, extra=1),
    )
