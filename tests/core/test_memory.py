from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from kvplan.core.engine import Settings
from kvplan.core.layout import Layout
from kvplan.core.ledger import Question
from kvplan.core.memory import plan_memory, pool_follows_load, resolve_kv_dtype
from kvplan.core.memory_rules import Budget, Paging
from kvplan.core.model import Attention, DenseFeedForward, Layer, Model, group_layers
from kvplan.core.parameters import weights_bytes_per_rank
from kvplan.core.precision import apply_dtype
from kvplan.core.tensors import TensorClass, linear
from kvplan.core.units import GIB
from kvplan.specs.engines import load_engine
from kvplan.specs.hardware import load_gpu
from kvplan.specs.models import load_model
from tests.core.builders import attention, layer, question, recurrent
from tests.core.builders import engine as small_engine
from tests.core.builders import model as small_model

ENGINES = (
    "vllm",
    "vllm@0.6",
    "vllm@0.11",
    "vllm@0.15",
    "vllm@0.19",
    "vllm@0.21",
    "sglang",
    "sglang@0.4",
    "tensorrt-llm",
    "llama.cpp",
    "ideal",
)
MODELS = (
    "llama-3.1-8b",
    "gemma-3-27b-it",
    "deepseek-v3",
    "qwen3-next-80b-a3b",
    "gpt-oss-20b",
    "whisper-large-v3",
    "qwen3-30b-a3b",
)
FIXED = Settings(max_num_seqs=128, max_num_batched_tokens=4096)


def plain_model(*, kv_heads=8, layers=32, heads=32, window=None):
    """A small dense model built by hand: hidden 4096, head_dim 128, gated MLP of 14336."""
    attention = TensorClass.ATTENTION
    mixer = Attention(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=128,
        v_head_dim=128,
        window=window,
        tensors=(
            *linear("q", attention, out_features=heads * 128, in_features=4096),
            *linear("k", attention, out_features=kv_heads * 128, in_features=4096, shards=kv_heads),
            *linear("v", attention, out_features=kv_heads * 128, in_features=4096, shards=kv_heads),
            *linear("o", attention, out_features=4096, in_features=heads * 128),
        ),
    )
    mlp = DenseFeedForward(
        tensors=(
            *linear("gate", TensorClass.MLP, out_features=14336, in_features=4096),
            *linear("up", TensorClass.MLP, out_features=14336, in_features=4096),
            *linear("down", TensorClass.MLP, out_features=4096, in_features=14336),
        )
    )
    groups, order = group_layers([Layer(mixers=(mixer,), feed_forward=mlp)] * layers)
    return Model(
        id="plain", architecture="Plain", dtype="bf16", hidden_size=4096, vocab_size=32000, max_context=2**20,
        groups=groups, layer_order=order, tensors=linear("lm_head", TensorClass.HEAD, out_features=32000, in_features=4096),
    )  # fmt: skip


@cache
def bundled(name):
    return load_model(name)


def plan(
    model,
    gpu="h100-80g-sxm",
    engine="vllm",
    *,
    settings=FIXED,
    kv_dtype=None,
    context=8192,
    concurrency=1,
    advise=True,
    **layout,
):
    spec = bundled(model) if isinstance(model, str) else model
    loaded = load_engine(engine)
    asked = Question(
        model=spec,
        gpu=load_gpu(gpu),
        engine=loaded,
        layout=Layout(**layout),
        settings=settings,
        kv_dtype=resolve_kv_dtype(spec, loaded, kv_dtype),
        context=min(context, spec.max_context or context),
        concurrency=concurrency,
    )
    return plan_memory(asked, advise=advise)


def parts_sum(memory):
    return (
        memory.weights_bytes
        + memory.activation_bytes
        + memory.runtime_bytes
        + memory.graph_bytes
        + memory.kv_pool_bytes
        + memory.unused_bytes
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_ledger_sums_exactly(engine, model):
    for gpu in ("t4", "h100-80g-sxm", "dgx-spark"):
        memory = plan(model, gpu, engine, advise=False).memory
        assert parts_sum(memory) == memory.usable_bytes
        inside = [line for line in memory.ledger if line.name not in {"usable", "graph_outside"}]
        assert sum(line.bytes for line in inside) == memory.usable_bytes
        assert all(isinstance(line.bytes, int) for line in memory.ledger)


@examples(max_examples=60)
@given(
    st.sampled_from(ENGINES),
    st.integers(8, 300),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 100_000),
    st.floats(0.3, 1.0),
)
def test_ledger_sums_exactly_for_any_card(engine, gib, tp, context, fraction):
    settings = replace(FIXED, gpu_memory_bytes=gib * GIB, gpu_memory_utilization=fraction)
    memory = plan("llama-3.1-8b", engine=engine, settings=settings, context=context, tp=tp, advise=False).memory
    assert parts_sum(memory) == memory.usable_bytes


@examples(max_examples=60)
@given(st.sampled_from(ENGINES), st.integers(24, 200), st.integers(0, 100))
def test_more_memory_never_hurts(engine, gib, more):
    # Limits and fraction given: an engine's own defaults jump with the card and may take more than a GiB adds.
    def at(total):
        settings = replace(FIXED, gpu_memory_bytes=total * GIB, gpu_memory_utilization=0.85)
        return plan("llama-3.1-8b", engine=engine, settings=settings, advise=False).capacity

    assert at(gib + more).max_concurrency >= at(gib).max_concurrency
    assert at(gib + more).max_context >= at(gib).max_context


@examples(max_examples=60)
@given(st.sampled_from(ENGINES), st.sampled_from(MODELS[:5]), st.integers(1, 60_000), st.integers(1, 60_000))
def test_more_context_never_needs_less_memory(engine, model, context, more):
    kwargs = {"engine": engine, "gpu": "b200", "tp": 8, "advise": False}
    shorter, longer = plan(model, context=context, **kwargs), plan(model, context=context + more, **kwargs)
    assert longer.memory.sequence_bytes >= shorter.memory.sequence_bytes


def test_tp1_is_no_tp():
    assert plan("llama-3.1-8b", tp=1) == plan("llama-3.1-8b")


def test_weights_are_those_of_the_one_count():
    model = load_model("llama-3.1-8b")
    rotary = 131072 * 128 * 2
    memory = plan(model).memory
    assert memory.weights_bytes == weights_bytes_per_rank(model, Layout())
    assert memory.weights_logged_bytes == memory.weights_bytes + rotary


def test_memory_is_not_only_weights():
    memory = plan("llama-3.1-8b", settings=Settings()).memory
    assert memory.activation_bytes > GIB
    assert memory.runtime_bytes > 0
    assert memory.usable_bytes < memory.gpu_bytes


def test_gqa_cuts_the_cache_by_the_ratio_of_heads():
    mha, gqa = plan(plain_model(kv_heads=32)), plan(plain_model(kv_heads=8))
    assert mha.memory.kv_bytes_per_token == 4 * gqa.memory.kv_bytes_per_token


def test_fp8_weights_do_not_halve_the_cache():
    model = apply_dtype(load_model("llama-3.1-8b"), "fp8")
    assert plan(model).memory.kv_bytes_per_token == plan("llama-3.1-8b").memory.kv_bytes_per_token
    assert plan(model, kv_dtype="fp8").memory.kv_bytes_per_token * 2 == plan(model).memory.kv_bytes_per_token


def test_doubling_the_card_more_than_doubles_the_room():
    # The weights are there once: 24 GiB to 48 GiB of Llama-3.1-8B is not twice the sequences.
    def at(gib):
        return plan("llama-3.1-8b", settings=replace(FIXED, gpu_memory_bytes=gib * GIB)).capacity.max_concurrency

    assert at(48) > 4 * at(24)


def test_latent_cache_does_not_shrink_with_tp():
    one = plan("deepseek-v3", "h200-141g-sxm", tp=1, kv_dtype="fp8")
    eight = plan("deepseek-v3", "h200-141g-sxm", tp=8, kv_dtype="fp8")
    assert one.memory.kv_bytes_per_token == eight.memory.kv_bytes_per_token == 61 * 576
    [warning] = [text for text in eight.warnings if "latent cache" in text]
    assert "data-parallel attention (dp=8) would hold" in warning
    held = float(warning.rsplit(" ", 1)[1])
    assert held > 4 * eight.capacity.max_concurrency


def test_kv_heads_divide_down_to_one_per_rank():
    per_token = [plan("llama-3.1-8b", tp=tp).memory.kv_bytes_per_token for tp in (1, 8, 16)]
    assert per_token == [131072, 16384, 16384]
    assert any("kept 2 times" in text for text in plan("llama-3.1-8b", tp=16).warnings)


def test_windows_save_on_the_floor_but_not_in_short_blocks():
    floor = plan("gemma-3-27b-it", engine="ideal", context=8192)
    served = plan("gemma-3-27b-it", engine="vllm@0.19", context=8192, settings=Settings())
    assert floor.memory.sequence_bytes == (10 * 8192 + 52 * 1024) * 2 * 16 * 128 * 2
    assert served.memory.kv_bytes_per_token_reserved == 573_440 > served.memory.kv_bytes_per_token
    assert any("windows save nothing" in text for text in served.warnings)


def test_floor_holds_the_most():
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        for model in ("llama-3.1-8b", "gemma-3-1b-it"):
            assert (
                plan(model, engine="ideal").capacity.max_concurrency
                >= plan(model, engine=engine).capacity.max_concurrency
            )


def test_encoder_only_models_are_limited_by_the_scheduler():
    model = plain_model()
    layer = model.groups[0].layer
    encoder = replace(layer, mixers=(replace(layer.mixers[0], causal=False),))
    groups, order = group_layers([encoder] * 12)
    found = plan(replace(model, groups=groups, layer_order=order))
    assert found.capacity.max_concurrency == 128
    assert found.capacity.limited_by == "max_num_seqs"
    assert found.memory.kv_pool_bytes == 0


def test_it_does_not_fit_and_says_what_would():
    found = plan("llama-3.1-70b", settings=Settings())
    assert not found.capacity.fits
    assert found.capacity.limited_by == "weights"
    assert found.capacity.short_by_bytes > 50 * GIB
    assert found.memory.unused_bytes < 0
    assert any(text.startswith("--tensor-parallel-size 2") for text in found.capacity.suggestions)


def test_one_sequence_too_long_tells_the_longest():
    found = plan("llama-3.1-8b", "rtx-4090", context=131072)
    capacity = found.capacity
    assert not capacity.fits
    assert capacity.limited_by == "kv_pool"
    assert 0 < capacity.max_context < 131072
    assert any(f"--max-model-len {capacity.max_context}" in text for text in capacity.suggestions)
    assert plan("llama-3.1-8b", "rtx-4090", context=capacity.max_context).capacity.fits
    assert not plan("llama-3.1-8b", "rtx-4090", context=capacity.max_context + 16).capacity.fits


def test_every_suggestion_speaks_the_engines_own_words():
    for engine, words, concurrency in (
        ("sglang", "--mem-fraction-static", 6),
        ("llama.cpp", "-ctk q8_0 -ctv q8_0", 12),
        ("vllm", "--kv-cache-dtype fp8", 8),
        ("tensorrt-llm", "--kv_cache_free_gpu_memory_fraction", 6),
    ):
        found = plan("llama-3.1-8b", "rtx-4090", engine, settings=Settings(), concurrency=concurrency)
        assert any(words in text for text in found.capacity.suggestions), engine


def test_max_num_seqs_limits_and_is_raised():
    found = plan("llama-3.1-8b", settings=Settings(max_num_seqs=4), context=2048, concurrency=32)
    assert found.capacity.limited_by == "max_num_seqs"
    assert found.capacity.suggestions[0].startswith("--max-num-seqs 32 (now 4)")


def test_llama_cpp_takes_the_cache_of_all_slots_up_front():
    found = plan("llama-3.1-8b", "rtx-4090", "llama.cpp", settings=Settings(), context=4096, concurrency=4)
    assert found.memory.kv_pool_bytes == 4 * 4096 * 131072
    assert found.memory.kv_pool_tokens == 16384
    assert any("-c 16384 -np 4" in text for text in found.assumptions)
    half = plan(
        "llama-3.1-8b", "rtx-4090", "llama.cpp", settings=Settings(n_gpu_layers=16), context=4096, concurrency=4
    )
    assert half.memory.kv_pool_bytes == found.memory.kv_pool_bytes // 2


def test_unified_memory_is_charged_and_doubted():
    found = plan("llama-3.1-8b", "dgx-spark", "vllm@0.21")
    assert found.memory.runtime_bytes > 5 * GIB
    assert any("shared with the CPU" in text for text in found.warnings)


def test_mtp_layers_count_when_they_draft():
    plain = plan("deepseek-v3", "b200", tp=8)
    drafting = plan("deepseek-v3", "b200", tp=8, settings=replace(FIXED, speculative_tokens=1))
    assert drafting.memory.weights_bytes > plain.memory.weights_bytes
    assert drafting.memory.kv_bytes_per_token * 61 == plain.memory.kv_bytes_per_token * 62


def test_lora_slots_are_allocated_up_front():
    plain, slots = plan("llama-3.1-8b"), plan("llama-3.1-8b", settings=replace(FIXED, max_loras=4))
    # rank 16: q 8192, k and v 5120, o 8192, gate, up and down 18432 each = 81920 a layer
    assert slots.memory.weights_bytes - plain.memory.weights_bytes == 4 * 16 * 32 * 81920 * 2


@pytest.mark.parametrize(("gpu", "fraction"), [("h100-80g-sxm", "0.836"), ("rtx-4090", "0.847")])
def test_sglang_computes_its_own_fraction(gpu, fraction):
    # published defaults, from totals of 81559 and 24564 MiB as nvidia-smi prints them
    settings = Settings(gpu_memory_bytes=load_gpu(gpu).memory_bytes)
    found = plan("llama-3.1-8b", gpu, "sglang", settings=settings)
    told = next(text for text in found.assumptions if text.startswith("memory fraction"))
    assert float(told.split()[2].rstrip(":")) == pytest.approx(float(fraction), abs=0.0015)


GROUPS = {"budget": Budget.TOTAL, "utilization": 0.9, "paging": Paging.GROUPS, "block_tokens": 16}
WEIGHTS, TOKEN = 814_208, 4 * 128


def small(rules=None, *, advise=False, **more):
    """A plan of the small model: 814,208 B of weights, 512 B per token."""
    return plan_memory(question(rules, **more), advise=advise)


def test_capacity_of_a_small_card_on_paper():
    found = small(GROUPS, concurrency=4, max_num_seqs=9)
    blocks = (9_000_000 - WEIGHTS) // (16 * TOKEN)
    assert found.capacity.fits
    assert found.capacity.max_concurrency == blocks / 7
    assert found.capacity.max_context == 4096  # the model's own limit
    assert found.capacity.max_context_at_concurrency == blocks // 4 * 16
    assert (found.capacity.limited_by, found.capacity.short_by_bytes) == ("max_num_seqs", 0)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (9, 100)
    memory = found.memory
    assert (memory.gpu_bytes, memory.usable_bytes, memory.weights_bytes) == (10**7, 9 * 10**6, WEIGHTS)
    assert (memory.kv_bytes_per_token, memory.kv_bytes_per_token_reserved) == (TOKEN, TOKEN)
    assert (memory.sequence_bytes, memory.state_bytes_per_sequence) == (7 * 16 * TOKEN, 0)
    assert (memory.kv_pool_tokens, memory.kv_logged_tokens, memory.kv_block_tokens) == (blocks * 16, None, 16)
    assert found.capacity.suggestions == ()


def test_what_runs_out():
    assert small(GROUPS, max_num_seqs=10**6).capacity.limited_by == "kv_pool"
    assert small(GROUPS, total=800_000).capacity.limited_by == "weights"
    assert small(GROUPS, context=4096, max_num_seqs=10**6).capacity.limited_by == "kv_pool"
    assert small(GROUPS, context=4097, max_num_seqs=10**6).capacity.limited_by == "model_max_context"
    assert small(GROUPS, spec=small_model(layer(attention(causal=False)))).capacity.limited_by == "max_num_seqs"
    up_front = {"budget": Budget.UP_FRONT}
    assert small(up_front, max_num_seqs=None).capacity.limited_by == "kv_pool"  # its slots are those asked for
    assert small(up_front, max_num_seqs=2).capacity.limited_by == "max_num_seqs"
    endless = small(GROUPS, spec=small_model(max_context=None), context=5000, max_num_seqs=10**6)
    assert endless.capacity.limited_by == "kv_pool"


def test_states_run_out_where_they_are_most_of_a_sequence():
    # one full layer of 128 B per token beside a state of 4600 B: equal at 36 tokens
    hybrid = small_model(layer(), layer(recurrent()))
    by_context = {
        n: small({}, spec=hybrid, context=n, max_num_seqs=10**6).capacity.limited_by for n in (1, 35, 36, 1000)
    }
    assert by_context == {1: "state_blocks", 35: "state_blocks", 36: "kv_pool", 1000: "kv_pool"}
    even = small_model(layer(), layer(recurrent(state_elements=1088, conv_elements=0, state_bits=8)), max_context=10)
    assert small({}, spec=even, context=8, max_num_seqs=10**6).capacity.limited_by == "state_blocks"
    assert small({}, spec=even, context=9, max_num_seqs=10**6).capacity.limited_by == "kv_pool"
    short = small({}, spec=hybrid, total=2 * (69_760 + 49_280 + 128_064) + 4000, context=1)
    assert (short.capacity.fits, short.capacity.limited_by) == (False, "state_blocks")


def test_states_that_are_just_half_of_a_sequence_do_not_run_out():
    even = small_model(layer(), layer(recurrent(state_elements=1024, conv_elements=0, state_bits=8)))
    found = {n: small({}, spec=even, context=n, max_num_seqs=10**6).capacity.limited_by for n in (7, 8)}
    assert found == {7: "state_blocks", 8: "kv_pool"}


def test_logged_weights_are_those_with_the_rotary_table():
    memory = small({**GROUPS, "rope_table_elements": 128}, spec=small_model(max_context=9000)).memory
    assert memory.weights_logged_bytes == memory.weights_bytes + 9000 * 16 * 2


def test_what_is_missing():
    short = small({}, total=WEIGHTS + 1000, context=100)
    assert (short.capacity.fits, short.capacity.short_by_bytes) == (False, 100 * TOKEN - 1000)
    assert (short.capacity.max_context, short.capacity.max_context_at_concurrency) == (1, 1)
    none = small({}, total=WEIGHTS, context=100)
    assert (none.capacity.fits, none.capacity.short_by_bytes) == (False, 100 * TOKEN)
    assert (none.capacity.max_concurrency, none.capacity.max_context, none.capacity.max_context_at_concurrency) == (
        0,
        0,
        0,
    )
    assert small({}, total=WEIGHTS + 100 * TOKEN, context=100).capacity.fits


def test_without_a_limit_of_the_model_the_pool_says_how_long():
    endless = small({}, spec=small_model(max_context=None), total=WEIGHTS + 10**6)
    assert endless.capacity.max_context == 10**6 // TOKEN
    fixed = small({}, spec=small_model(layer(recurrent()), max_context=None), context=77)
    assert fixed.capacity.max_context == 77


MIXED = small_model(layer(), layer(attention(window=64)))


def test_tokens_of_a_pool_and_of_the_log():
    # one group of pages each: 16 tokens of 128 B; 100 tokens take 7 pages and, with 100 in flight, 7 + 1
    rules = {**GROUPS, "budget": Budget.TOTAL}
    found = small(rules, spec=MIXED)
    pages = found.pool.parts[0].units
    assert found.memory.kv_pool_tokens == pages * 100 // 15
    assert found.memory.kv_logged_tokens == pages // 2 * 16
    assert small({**rules, "prints_concurrency": True}, spec=MIXED).memory.kv_logged_tokens is None
    assert small({**rules, "budget": Budget.FREE_AFTER}, spec=MIXED).memory.kv_logged_tokens is None
    pools = small({"paging": Paging.POOLS, "window_pool_ratio": 0.5}, spec=MIXED)
    assert pools.memory.kv_logged_tokens == pools.pool.parts[0].units
    tokens, windows = pools.pool.parts
    assert pools.memory.kv_pool_tokens == min(tokens.units, windows.units * 100 // 64)
    assert small({"paging": Paging.POOLS}, spec=small_model(layer(recurrent()))).memory.kv_logged_tokens is None
    assert small(GROUPS, spec=small_model(layer(attention(causal=False)))).memory.kv_pool_tokens == 0


def test_tokens_of_slots_allocated_up_front():
    rules = {"budget": Budget.UP_FRONT, "block_tokens": 32}
    assert small(rules, max_num_seqs=3).memory.kv_pool_tokens == 3 * 128
    assert small(rules, max_num_seqs=3, total=10**5).memory.kv_pool_tokens == 0


def test_whether_the_pool_follows_the_load():
    free, given_ = Settings(), Settings(max_num_batched_tokens=8)
    assert pool_follows_load(small_engine(budget=Budget.UP_FRONT), given_)
    assert pool_follows_load(small_engine(batched_tokens_follow_context=32768), free)
    assert not pool_follows_load(small_engine(batched_tokens_follow_context=32768), given_)
    assert not pool_follows_load(small_engine(), free)


def test_which_cache_format():
    eight = small_model(kv_dtype="fp8", dtype="fp16")
    assert resolve_kv_dtype(eight, small_engine(kv_dtype="q8_0"), "int8") == "int8"
    assert resolve_kv_dtype(eight, small_engine(kv_dtype="q8_0"), None) == "q8_0"
    assert resolve_kv_dtype(eight, small_engine(), None) == "fp8"
    assert resolve_kv_dtype(small_model(dtype="float16"), small_engine(), None) == "fp16"
