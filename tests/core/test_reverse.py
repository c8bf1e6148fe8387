from dataclasses import replace

import pytest

from kvplan.core.engine import Settings
from kvplan.core.layout import Layout
from kvplan.core.ledger import Question, account
from kvplan.core.memory_rules import Budget, Paging
from kvplan.core.reverse import (
    gpus_for,
    holds,
    kv_dtype_for,
    longest_useful,
    max_model_len_for,
    needs,
    sequences_for,
    utilization_for,
)
from kvplan.errors import UsageError
from kvplan.specs.engines import load_engine
from kvplan.specs.hardware import load_gpu
from kvplan.specs.models import load_model
from tests.core.builders import attention, layer, model, recurrent
from tests.core.builders import question as small


@pytest.fixture
def question():
    return Question(
        model=load_model("llama-3.1-8b"),
        gpu=load_gpu("a100-80g-sxm"),
        engine=load_engine("vllm@0.19"),
        layout=Layout(),
        settings=Settings(),
        kv_dtype="bf16",
        context=8192,
        concurrency=16,
    )


def test_utilization_is_the_smallest_that_holds(question):
    fraction = utilization_for(question)
    assert fraction is not None

    def at(value):
        asked = replace(question, settings=Settings(gpu_memory_utilization=value))
        return holds(account(asked), asked)

    assert at(fraction)
    assert not at(fraction - 0.01)


def test_no_utilization_holds_too_much(question):
    assert utilization_for(replace(question, concurrency=5000)) is None


def test_gpus_is_the_smallest_tp_that_holds(question):
    many = replace(question, concurrency=120, settings=Settings(max_num_seqs=256))
    tp = gpus_for(many)
    assert tp == 2
    assert gpus_for(replace(many, concurrency=256, context=131072)) is None


def test_gpus_skips_layouts_that_the_model_cannot_have(question):
    seven = replace(question, model=load_model("qwen2.5-7b"))  # 28 heads
    assert gpus_for(seven, choices=(8, 7)) == 7


@pytest.mark.parametrize("context", [1024, 8192, 100_000])
def test_sequences_are_the_most_that_hold(question, context):
    asked = replace(question, context=context, settings=Settings(max_num_seqs=100))
    most = sequences_for(asked)
    assert 0 < most <= 100
    assert holds(account(asked), replace(asked, concurrency=most))
    assert not holds(account(asked), replace(asked, concurrency=most + 1))


def test_no_sequence_runs_where_the_weights_do_not_fit(question):
    assert sequences_for(replace(question, model=load_model("llama-3.1-70b"))) == 0


def test_the_cache_format_is_the_widest_that_holds(question):
    """At 8,192 tokens of 128 KiB a sequence takes 1 GiB: 54 in 16 bits, twice as many in 8."""
    most = sequences_for(question)
    assert kv_dtype_for(replace(question, concurrency=most)) == "bf16"
    assert kv_dtype_for(replace(question, concurrency=most + 1)) == "fp8"
    assert kv_dtype_for(replace(question, concurrency=3 * most)) is None
    narrow = replace(question, kv_dtype="int4", concurrency=3 * most)
    assert kv_dtype_for(narrow) == "int4"
    assert kv_dtype_for(replace(narrow, concurrency=5 * most)) is None


def test_max_model_len_is_exact(question):
    longest = max_model_len_for(question)
    assert holds(account(replace(question, context=longest)), replace(question, context=longest))
    assert not account(question).pool.holds(longest + 1, sequences=16)


def test_dp_shares_the_sequences(question):
    assert replace(question, layout=Layout(dp=4)).per_replica == 4
    assert replace(question, layout=Layout(dp=3)).per_replica == 6


WEIGHTS, TOKEN = 814_208, 4 * 128
GROUPS = {"budget": Budget.TOTAL, "utilization": 0.9, "paging": Paging.GROUPS}


def test_the_smallest_whole_percent_on_paper():
    # 5 sequences of 100 tokens take 256,000 B: 1,070,208 B of 2,000,000 are 53.5 %
    five = {"total": 2_000_000, "concurrency": 5, "max_num_seqs": 5}
    assert utilization_for(small(GROUPS, **five)) == 0.54
    assert utilization_for(small(GROUPS, **{**five, "total": 1_105_000})) == 0.97
    assert utilization_for(small(GROUPS, **{**five, "total": 1_103_000})) is None
    assert utilization_for(small({**GROUPS, "highest_utilization": 0.99}, **{**five, "total": 1_103_000})) == 0.98
    assert utilization_for(small(GROUPS, **{**five, "total": 10**9})) == 0.01


def test_engines_without_a_fraction_are_asked_for_none_and_take_what_they_fill():
    """100 tokens on weights of 814,208 B; of the rest a fraction of 0.75 leaves a quarter free, slots leave all."""
    rest = 2_000_000 - WEIGHTS
    asked = {"total": 2_000_000, "max_num_seqs": 1}
    slots = needs(small({"budget": Budget.UP_FRONT}, **{**asked, "max_num_seqs": None}), dtype="bf16")
    assert (slots.gpu_memory_utilization, slots.fits) == (None, True)
    table = 128_000  # embeddings, looked up on the CPU
    assert slots.reserved_bytes == WEIGHTS - table + 100 * TOKEN
    after = needs(small({"budget": Budget.FREE_AFTER, "utilization": 0.75}, **asked), dtype="bf16")
    assert after.reserved_bytes == WEIGHTS + rest * 3 // 4 // TOKEN * TOKEN
    everything = needs(small(**asked), dtype="bf16")
    assert (everything.gpu_memory_utilization, everything.reserved_bytes) == (None, 2_000_000)


def test_what_holding_means():
    def held(**more):
        asked = small(total=WEIGHTS + 300 * TOKEN, **more)
        return holds(account(asked), asked)

    assert held(concurrency=3, max_num_seqs=3)
    assert not held(concurrency=4, max_num_seqs=4)
    assert not held(concurrency=3, max_num_seqs=2)
    assert held(concurrency=6, max_num_seqs=3, layout=Layout(dp=2))
    encoder = small(spec=model(layer(attention(causal=False))), total=10)
    assert not holds(account(encoder), encoder)


def test_the_smallest_tensor_parallel_size_on_paper():
    # two ranks hold 407,680 B of weights and 256 B per token each
    assert gpus_for(small(total=WEIGHTS + 100 * TOKEN)) == 1
    assert gpus_for(small(total=407_680 + 100 * 256)) == 2
    assert gpus_for(small(total=407_680 + 100 * 256 - 1)) == 4
    assert gpus_for(small(total=1000)) is None
    assert gpus_for(small(total=WEIGHTS + 100 * TOKEN), choices=(8, 1)) == 8


def test_the_longest_context_of_all_asked_on_paper():
    asked = small(total=WEIGHTS + 300 * TOKEN, concurrency=3)
    assert max_model_len_for(asked) == 100
    assert max_model_len_for(replace(asked, concurrency=1)) == 300
    assert max_model_len_for(small(total=WEIGHTS, concurrency=3)) == 0
    assert max_model_len_for(small()) == longest_useful(small()) == 4096
    assert longest_useful(small(spec=model(max_context=None))) is None
    assert longest_useful(small(spec=model(layer(recurrent()), max_context=None), context=77)) == 77


def test_needs_on_paper():
    rules = {**GROUPS, "runtime_bytes": 1000, "graph_fixed_bytes": 500, "graph_bytes_per_layer": 102}
    asked = small(rules, total=2_000_000, concurrency=10, max_num_seqs=5, layout=Layout(dp=2))
    found = needs(asked, dtype="bf16")
    # captured batches: 1, 2, 4, 8 up to 10, and 1, 2, 4 up to 5
    assert found.needed_bytes == WEIGHTS + 1000 + (500 + 4 * 7) + 5 * 100 * TOKEN
    assert found.reserved_bytes == 1_800_000 + 500 + 4 * 7
    assert (found.fits, found.gpu_memory_utilization, found.tp_needed, found.gpu_count_needed) == (True, 0.54, 1, 2)
    assert found.max_model_len == (1_800_000 - WEIGHTS - 1000) // TOKEN // 5
    assert (found.model, found.gpu, found.engine, found.dtype, found.kv_dtype) == (
        "small",
        "card",
        "engine@1",
        "bf16",
        "bf16",
    )
    assert (found.tp, found.pp, found.dp, found.concurrency, found.context) == (1, 1, 2, 10, 100)
    assert found.model_dump()["schema"] == "kvplan.needs/1"
    none = needs(small(GROUPS, total=1000), dtype="bf16")
    assert (none.fits, none.gpu_memory_utilization, none.tp_needed, none.gpu_count_needed) == (False, None, None, None)
    stages = needs(small(GROUPS, total=700_000, layout=Layout(pp=2, dp=3)), dtype="bf16")
    assert (stages.tp_needed, stages.gpu_count_needed) == (1, 6)


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16, 32])
def test_sizes_that_are_tried(tp):
    wide = small(spec=model(layer(attention(heads=32, kv_heads=32))), layout=Layout(tp=tp), total=10**6)
    total = account(wide).weights.bytes + 100 * 2 * 32 // tp * 16 * 2
    assert gpus_for(replace(wide, settings=replace(wide.settings, gpu_memory_bytes=total))) == tp


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"concurrency": 10**400}, {"context": -5}, {"context": 10**400}])
def test_sequences_and_lengths_beyond_all_measure_are_refused(question, wrong):
    (name,) = wrong
    with pytest.raises(UsageError, match=f"^{name}: must be at (least|most) 1"):
        needs(replace(question, **wrong), dtype="bf16")
