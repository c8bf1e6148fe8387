"""A hand-made estimate: what a planner might say about Llama 3 8B on one A100, so that reports need no core."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.core.model import Attention, DenseFeedForward, Layer, Model, group_layers
from kvplan.core.results import (
    Capacity,
    Estimate,
    Latency,
    LedgerLine,
    Memory,
    ModelFigures,
    OpTime,
    Range,
    Scenario,
    Throughput,
)
from kvplan.core.tensors import TensorClass, linear, norm

WEIGHTS = 16_060_522_496
PER_TOKEN = 131_072
SEQUENCE = 80 * 16 * PER_TOKEN


def around(mid: float, *, rate: bool = False) -> Range:
    return Range(floor=mid * (1.4 if rate else 0.7), low=mid * 0.9, mid=mid, high=mid * 1.2)


@pytest.fixture
def model() -> Model:
    attention = TensorClass.ATTENTION
    mixer = Attention(
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        v_head_dim=128,
        tensors=(
            *linear("self_attn.q_proj", attention, out_features=4096, in_features=4096),
            *linear("self_attn.k_proj", attention, out_features=1024, in_features=4096, shards=8),
            *linear("self_attn.v_proj", attention, out_features=1024, in_features=4096, shards=8),
            *linear("self_attn.o_proj", attention, out_features=4096, in_features=4096),
        ),
    )
    feed_forward = DenseFeedForward(
        tensors=(
            *linear("mlp.gate_proj", TensorClass.MLP, out_features=14336, in_features=4096),
            *linear("mlp.up_proj", TensorClass.MLP, out_features=14336, in_features=4096),
            *linear("mlp.down_proj", TensorClass.MLP, out_features=4096, in_features=14336),
        )
    )
    layer = Layer(
        mixers=(mixer,),
        feed_forward=feed_forward,
        tensors=(*norm("input_layernorm", 4096), *norm("post_attention_layernorm", 4096)),
    )
    groups, order = group_layers([layer] * 32)
    return Model(
        id="llama-3-8b",
        architecture="LlamaForCausalLM",
        dtype="bf16",
        hidden_size=4096,
        vocab_size=128_256,
        max_context=8192,
        groups=groups,
        layer_order=order,
        tensors=(
            *linear(
                "model.embed_tokens", TensorClass.EMBEDDING, out_features=128_256, in_features=4096, quantisable=False
            ),
            *norm("model.norm", 4096),
            *linear("lm_head", TensorClass.HEAD, out_features=128_256, in_features=4096),
        ),
    )


@pytest.fixture
def estimate() -> Estimate:
    usable = 76_588_646_400
    parts = {"weights": WEIGHTS, "activation": 1_320_000_000, "runtime": 300_000_000, "graph": 0}
    pool = (usable - sum(parts.values())) // (16 * PER_TOKEN) * 16 * PER_TOKEN
    unused = usable - sum(parts.values()) - pool
    tpot, ttft, out = 10.0, 90.0, 256
    e2e = ttft + (out - 1) * tpot
    rate = 1000 / e2e
    return Estimate(
        scenario=Scenario(
            model="llama-3-8b",
            gpu="a100-80g-sxm",
            gpu_count=1,
            engine="vllm@0.21",
            dtype="bf16",
            kv_dtype="bf16",
            tp=1,
            pp=1,
            dp=1,
            ep=None,
            input_tokens=1024,
            output_tokens=out,
            concurrency=1,
            context=1280,
        ),
        model=ModelFigures(
            id="llama-3-8b",
            architecture="LlamaForCausalLM",
            params_total=8_030_261_248,
            params_active=8_030_261_248,
            layers=32,
            kv_bytes_per_token_model=PER_TOKEN,
            state_bytes_per_sequence_model=0,
            max_context=8192,
        ),
        memory=Memory(
            gpu_bytes=85_098_496_000,
            usable_bytes=usable,
            weights_bytes=parts["weights"],
            weights_logged_bytes=parts["weights"],
            activation_bytes=parts["activation"],
            graph_bytes=parts["graph"],
            runtime_bytes=parts["runtime"],
            kv_pool_bytes=pool,
            unused_bytes=unused,
            graph_outside_bytes=600_000_000,
            kv_bytes_per_token=PER_TOKEN,
            kv_bytes_per_token_reserved=PER_TOKEN,
            state_bytes_per_sequence=0,
            sequence_bytes=SEQUENCE,
            kv_pool_tokens=pool // PER_TOKEN,
            kv_logged_tokens=None,
            kv_block_tokens=16,
            ledger=(
                LedgerLine(
                    name="weights",
                    bytes=WEIGHTS,
                    formula="8,030,261,248 × 2 bytes",
                    log_line="Model loading took 14.96 GiB",
                ),
                LedgerLine(name="kv_pool", bytes=pool, formula="usable − weights − activation − runtime"),
            ),
        ),
        capacity=Capacity(
            fits=True,
            max_concurrency=pool / SEQUENCE,
            max_context=8192,
            max_context_at_concurrency=8192,
            limited_by="kv_pool",
        ),
        latency=Latency(
            ttft_ms=around(ttft),
            tpot_ms=around(tpot),
            e2e_ms=around(e2e),
            prefill_ms=around(75.0),
            decode_step_ms=around(9.9),
            bound_prefill="compute",
            bound_decode="memory",
            ttft_parts_ms={"queue": 0.0, "prefill": 75.0, "engine": 15.0, "network": 0.0},
            running=1.0,
            queued=False,
        ),
        throughput=Throughput(
            output_tokens_per_second=around(rate * out, rate=True),
            total_tokens_per_second=around(rate * (out + 1024), rate=True),
            requests_per_second=around(rate, rate=True),
            per_gpu_output_tokens_per_second=around(rate * out, rate=True),
        ),
        breakdown=(
            OpTime(phase="prefill", op="feed_forward_gemm", flops=1.15e13, bytes=1.2e10, ms=60.0, bound="compute"),
            OpTime(phase="prefill", op="attention_prefill", flops=2.7e11, bytes=1.3e8, ms=15.0, bound="compute"),
            OpTime(phase="decode", op="feed_forward_gemm", flops=1.1e10, bytes=1.13e10, ms=7.9, bound="memory"),
            OpTime(phase="decode", op="host", flops=0.0, bytes=0.0, ms=2.0, bound="overhead"),
        ),
        assumptions=("context = input + output = 1,280 tokens",),
        warnings=("the range is wide: one measurement of this card",),
    )


@pytest.fixture
def too_big(estimate: Estimate) -> Estimate:
    memory = replace(estimate.memory, kv_pool_bytes=0, unused_bytes=-3 * 2**30, kv_pool_tokens=0)
    capacity = Capacity(
        fits=False,
        max_concurrency=0.0,
        max_context=0,
        max_context_at_concurrency=0,
        limited_by="weights",
        short_by_bytes=3 * 2**30,
        suggestions=("--tensor-parallel-size 2", "--dtype fp8"),
    )
    return replace(estimate, memory=memory, capacity=capacity, latency=None, throughput=None, breakdown=(), warnings=())
