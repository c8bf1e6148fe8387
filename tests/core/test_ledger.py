"""The account of one small card, to the byte: 814,208 B of weights, 128 B per token and layer, four layers."""

import pytest

from kvplan.core.layout import Layout
from kvplan.core.ledger import account, pool_request
from kvplan.core.memory_rules import Budget, Paging, StateMode
from kvplan.core.model import Tower
from kvplan.core.paging import lay_out
from kvplan.core.tensors import Tensor, TensorClass
from tests.core.builders import attention, gpu, latent, layer, model, question, recurrent

WEIGHTS, TOKEN, TABLE = 814_208, 4 * 128, 4096 * 16 * 2
#: Activation 100 tokens × 1000 logits × 1 B, runtime 1000 B, a rotary table, graphs 500 + 102 · 4 layers · 3 captures / 102.
RESERVES = {
    "compute_bytes_per_logit": 1, "runtime_bytes": 1000, "rope_table_elements": 16, "graph_fixed_bytes": 500,
    "graph_bytes_per_layer": 102,
}  # fmt: skip
TOTAL = {**RESERVES, "budget": Budget.TOTAL, "utilization": 0.9, "paging": Paging.GROUPS, "block_tokens": 16}
UP_FRONT = {"budget": Budget.UP_FRONT}


def sums(found):
    return found.fixed_bytes + found.kv_pool_bytes + found.unused_bytes == found.usable_bytes


def lines(found):
    return {line.name: (line.bytes, line.formula) for line in found.lines}


def test_a_share_of_the_total():
    found = account(question({**TOTAL, "log_words": {"weights": "Model loading took"}}))
    room = 9_000_000 - WEIGHTS - 100_000 - 1000 - TABLE
    assert (found.gpu_bytes, found.usable_bytes, found.fraction, found.room_bytes) == (10**7, 9 * 10**6, 0.9, room)
    assert (found.weights.bytes, found.beside_weights_bytes) == (WEIGHTS, TABLE)
    assert (found.activation.bytes, found.runtime.bytes) == (100_000, 1000 + TABLE)
    assert (found.graph.bytes, found.graph_outside.bytes) == (0, 512)
    blocks = room // (16 * TOKEN)
    assert (found.kv_pool_bytes, found.unused_bytes) == (blocks * 16 * TOKEN, room - blocks * 16 * TOKEN)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (1, 100)
    assert sums(found)
    assert lines(found) == {
        "usable": (9 * 10**6, "0.01 GiB × 0.9"),
        "weights": (WEIGHTS, "parameters of the fullest rank (tp1 × pp1) 0.00 GiB"),
        "activation": (100_000, "100 tokens × (1 B × 1000 + 0 B × 64)"),
        "runtime": (1000 + TABLE, "one rank: 0.00 GiB + rotary table 4096 × 16 × 2 B"),
        "kv_pool": (blocks * 16 * TOKEN, f"0.01 GiB left: {blocks} blocks × 8192 B"),
        "unused": (room % (16 * TOKEN), "beyond the pool"),
        "graph_outside": (512, "0.00 GiB + 0.0 MiB × 4 layers × 3 captures / 102"),
    }
    assert [line.log_line for line in found.lines][:3] == [None, "Model loading took", None]


def test_the_users_fraction_and_card_win():
    assert account(question(TOTAL, gpu_memory_utilization=0.5)).usable_bytes == 5 * 10**6
    assert account(question(TOTAL, gpu_memory_utilization=0.5)).fraction == 0.5
    whole = account(question(TOTAL, total=None))
    assert whole.gpu_bytes == gpu().framework_memory_bytes
    computed = {**TOTAL, "utilization": None, "reserve_fixed_mib": 2}
    assert account(question(computed, total=20 * 2**20)).fraction == 0.9


def test_graphs_inside_the_budget_and_none_when_eager():
    found = account(question({**TOTAL, "graph_inside": True}))
    assert (found.graph.bytes, found.graph_outside.bytes) == (512, 0)
    assert found.room_bytes == account(question(TOTAL)).room_bytes - 512
    assert sums(found)
    eager = account(question({**TOTAL, "graph_inside": True}, enforce_eager=True))
    assert (eager.graph.bytes, eager.graph_outside.bytes) == (0, 0)


def test_a_share_of_what_is_free_before_loading():
    rules = {**RESERVES, "budget": Budget.FREE_BEFORE, "utilization": 0.9, "paging": Paging.POOLS}
    rules |= {"context_bytes": 1000, "runtime_bytes": 0}
    found = account(question(rules))
    usable = int((10**7 - 1000) * 0.9)
    assert (found.usable_bytes, found.room_bytes) == (usable, usable - WEIGHTS - TABLE)
    assert (found.activation.bytes, found.runtime.bytes, found.graph.bytes) == (0, TABLE, 0)
    assert lines(found)["usable"] == (usable, "(0.01 GiB − device context 0.00 GiB) × 0.9")
    assert "activation" not in lines(found)
    assert lines(found)["kv_pool"][1] == f"0.01 GiB left: {(usable - WEIGHTS - TABLE) // TOKEN} tokens × 512 B"
    assert found.activation.formula == "from the headroom"
    assert sums(found)
    rules["amd_long_context_factor"] = 0.5
    amd = account(question(rules, card=gpu(vendor="AMD"), spec=model(max_context=10_000)))
    assert (amd.usable_bytes, amd.fraction) == (int((10**7 - 1000) * 0.9 * 0.5), 0.9)
    assert lines(amd)["usable"][1].endswith(" × 0.9 × 0.5 (AMD, long context)")


def test_a_share_of_what_is_free_after_loading():
    rules = {**RESERVES, "budget": Budget.FREE_AFTER, "utilization": 0.75, "graph_inside": True}
    found = account(question(rules))
    left = 10**7 - WEIGHTS - 100_000 - 1000 - TABLE
    assert found.room_bytes == left - 512 - left // 4
    assert found.usable_bytes == 10**7
    assert found.unused_bytes == left // 4
    assert lines(found)["kv_pool"][1] == "0.01 GiB left"
    assert lines(found)["usable"][1] == "all of 0.01 GiB"
    assert sums(found)
    full = account(question(rules, total=10**6))
    assert full.room_bytes == 10**6 - WEIGHTS - 100_000 - 1000 - TABLE - 512


def test_caches_allocated_up_front_leave_the_rest_unused():
    found = account(question(UP_FRONT, context=100, concurrency=3, max_num_seqs=None))
    assert found.max_num_seqs == 3
    assert found.kv_pool_bytes == 3 * 100 * TOKEN
    assert found.weights.bytes == WEIGHTS - 128_000  # an embedding beside its own head is looked up on the CPU
    assert found.weights.formula.endswith("− embedding table on the CPU 0.00 GiB")
    assert found.unused_bytes == 10**7 - WEIGHTS + 128_000 - 3 * 100 * TOKEN
    assert sums(found)
    given = account(question(UP_FRONT, concurrency=3, max_num_seqs=5))
    assert given.kv_pool_bytes == 5 * 100 * TOKEN
    replicas = account(question(UP_FRONT, concurrency=3, max_num_seqs=None, layout=Layout(dp=2)))
    assert replicas.max_num_seqs == 2
    small = account(question(UP_FRONT, concurrency=10**6, max_num_seqs=None))
    assert small.kv_pool_bytes == small.room_bytes


def test_layers_left_on_the_cpu():
    found = account(question(UP_FRONT, n_gpu_layers=3))
    assert found.weights.bytes == (WEIGHTS - 128_000) * 3 // 4
    assert found.pool.sequence_bytes(10) == 10 * TOKEN * 3 // 4
    shared = account(question(UP_FRONT, n_gpu_layers=3, card=gpu(unified_memory=True)))
    assert shared.pool.sequence_bytes(10) == 10 * TOKEN


def test_the_floor_leaves_everything_to_the_pool():
    found = account(question())
    assert (found.room_bytes, found.usable_bytes, found.fraction) == (10**7 - WEIGHTS, 10**7, 1.0)
    assert found.fixed_bytes == WEIGHTS
    assert set(lines(found)) == {"usable", "weights", "kv_pool"}


@pytest.mark.parametrize("rules", [TOTAL, {}, UP_FRONT, {**TOTAL, "null_blocks": 3}])
def test_what_does_not_fit_is_missing(rules):
    found = account(question(rules, total=500_000))
    assert found.room_bytes < 0
    assert found.kv_pool_bytes == 0
    assert found.unused_bytes == found.room_bytes
    assert lines(found)["unused"][1] == "missing"
    assert lines(found)["kv_pool"][1].startswith("nothing: 0.00 GiB of weights and reserves against 0.00 GiB")
    assert sums(found)


def test_null_blocks_are_part_of_the_pool():
    plain, found = account(question(TOTAL)), account(question({**TOTAL, "null_blocks": 3}))
    assert found.kv_pool_bytes == plain.kv_pool_bytes
    assert found.pool.parts[0].units == plain.pool.parts[0].units - 3
    barely = {"budget": Budget.TOTAL, "paging": Paging.GROUPS, "null_blocks": 3}
    assert account(question(barely, total=WEIGHTS + 1000)).kv_pool_bytes == 1000


def test_nothing_cached_needs_no_pool():
    encoder = model(layer(attention(causal=False)))
    found = account(question(TOTAL, spec=encoder))
    assert found.pool.parts == ()
    assert lines(found)["kv_pool"] == (0, "0.01 GiB left, nothing is cached")


def test_pools_are_told_in_their_own_units():
    mixed = model(layer(), layer(attention(window=16)), layer(recurrent()))
    rules = {"paging": Paging.POOLS, "state_pool_ratio": 0.25, "window_pool_ratio": 0.5}
    told = lines(account(question(rules, spec=mixed)))["kv_pool"][1]
    assert [part.split(" × ")[0].split(" ", 1)[1] for part in told.split(": ")[1].split(" + ")] == [
        "states", "tokens", "window tokens",
    ]  # fmt: skip


def request(rules, **more):
    asked = question(rules, **more)
    found = account(asked)
    return pool_request(asked, found.limits, found.layers, room=12345)


def test_what_a_pool_is_laid_out_for():
    rules = {**TOTAL, "latent_block_tokens": 64, "state_mode": StateMode.ALIGN}
    plain = request(rules)
    assert (plain.room_bytes, plain.max_num_seqs, plain.tokens_in_flight, plain.block_tokens) == (12345, 1, 100, 16)
    assert (plain.state_mode, plain.speculative_tokens) == (StateMode.ALIGN, 0)
    assert request(rules, block_size=32).block_tokens == 32
    assert request(rules, spec=model(layer(), layer(latent()))).block_tokens == 64
    assert request(rules, state_mode=StateMode.ALL, speculative_tokens=2).state_mode is StateMode.ALL
    assert request(rules, speculative_tokens=2).speculative_tokens == 2


@pytest.mark.parametrize(
    ("batches", "stages", "flight"), [(1, 1, 100), (1, 4, 100), (2, 1, 200), (2, 4, 400), (3, 2, 300)]
)
def test_batches_in_flight_follow_the_stages(batches, stages, flight):
    asked = request({**TOTAL, "batches_in_flight": batches}, layout=Layout(pp=stages))
    assert asked.tokens_in_flight == flight
    assert lay_out(asked).room_bytes == 12345


def test_towers_are_copied_beside_the_weights():
    rules = {**TOTAL, "rope_table_elements": 0, "tower_copy_bytes": 77, "runtime_bytes": 0}
    assert account(question(rules)).beside_weights_bytes == 0
    tensors = (Tensor(name="v", tensor_class=TensorClass.OTHER, shape=(1000,)),)
    found = account(question(rules, spec=model(towers=(Tower(name="vision", tensors=tensors),))))
    assert (found.beside_weights_bytes, found.runtime.formula) == (77, "towers 0.00 GiB")


def test_a_draft_model_weighs_and_caches_beside_the_model():
    draft = model(layer(), id="draft")
    plain, found = account(question(TOTAL)), account(question(TOTAL, draft_model=draft))
    assert found.weights.bytes - plain.weights.bytes == 2 * (69_760 + 128_064)
    assert found.pool.sequence_bytes(16) == 16 * 128 * 5
    assert sums(found)


def test_context_parallel_ranks_keep_every_second_token():
    plain = account(question(layout=Layout(tp=4)))
    found = account(question(layout=Layout(tp=4), dcp=2))
    assert found.pool.sequence_bytes(16) * 2 == plain.pool.sequence_bytes(16) == 16 * 64 * 4
    assert found.room_bytes == plain.room_bytes
    windowed = {"spec": model(layer(attention(window=8))), "layout": Layout(tp=4)}
    whole = account(question(**windowed)).pool.sequence_bytes(4)
    assert account(question(dcp=2, **windowed)).pool.sequence_bytes(4) == whole
