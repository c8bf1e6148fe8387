"""Small models and cards built by hand, with sizes that can be worked out on paper."""

from __future__ import annotations

from kvplan.core.efficiency import IDEAL
from kvplan.core.engine import Engine, Settings
from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.ledger import Question
from kvplan.core.memory_rules import MemoryRules
from kvplan.core.model import (
    Attention,
    DenseFeedForward,
    Indexer,
    LatentAttention,
    Layer,
    MixtureOfExperts,
    Model,
    Recurrent,
    group_layers,
)
from kvplan.core.tensors import Tensor, TensorClass, linear, norm
from kvplan.core.units import GIB

HIDDEN, INTERMEDIATE, VOCAB = 64, 256, 1000


def attention(*, heads=8, kv_heads=2, head_dim=16, v_head_dim=None, **more):
    """GQA of 8 query and 2 KV heads of 16: q 128 × 64, k and v 32 × 64, o 64 × 128, 20,480 parameters."""
    kind = TensorClass.ATTENTION
    value = head_dim if v_head_dim is None else v_head_dim
    tensors = (
        *linear("self_attn.q_proj", kind, out_features=heads * head_dim, in_features=HIDDEN),
        *linear("self_attn.k_proj", kind, out_features=kv_heads * head_dim, in_features=HIDDEN, shards=kv_heads),
        *linear("self_attn.v_proj", kind, out_features=kv_heads * value, in_features=HIDDEN, shards=kv_heads),
        *linear("self_attn.o_proj", kind, out_features=HIDDEN, in_features=heads * value),
    )
    return Attention(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=value,
        tensors=tensors,
        **more,
    )


def latent(*, indexer=None):
    """The latent attention of DeepSeek-V3: 512 + 64 cached elements."""
    return LatentAttention(
        num_attention_heads=128,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        indexer=indexer,
    )


def indexer(*, cached=True):
    """The indexer of DeepSeek-V3.2: keys of 128, 2048 tokens picked."""
    return Indexer(num_heads=64, head_dim=128, top_k=2048, cached=cached)


def recurrent(**more):
    """A recurrent mixer with 1000 fp32 state elements and 300 convolution elements over 4 heads."""
    return Recurrent(**{"kind": "mamba2", "state_elements": 1000, "conv_elements": 300, "num_heads": 4, **more})


def dense(*, intermediate=INTERMEDIATE):
    """A gated MLP: three matrices of 256 × 64, 49,152 parameters."""
    kind = TensorClass.MLP
    return DenseFeedForward(
        tensors=(
            *linear("mlp.gate_proj", kind, out_features=intermediate, in_features=HIDDEN),
            *linear("mlp.up_proj", kind, out_features=intermediate, in_features=HIDDEN),
            *linear("mlp.down_proj", kind, out_features=HIDDEN, in_features=intermediate),
        )
    )


def experts(*, count=8, top_k=2, intermediate=INTERMEDIATE):
    """Routed experts, each as wide as the dense MLP, behind a router of `count` × 64."""
    kind = TensorClass.EXPERTS
    return MixtureOfExperts(
        num_experts=count,
        top_k=top_k,
        tensors=(
            *linear("mlp.gate", TensorClass.OTHER, out_features=count, in_features=HIDDEN, shards=1, quantisable=False),
            *linear("experts.gate_proj", kind, out_features=intermediate, in_features=HIDDEN, copies=count),
            *linear("experts.up_proj", kind, out_features=intermediate, in_features=HIDDEN, copies=count),
            *linear("experts.down_proj", kind, out_features=HIDDEN, in_features=intermediate, copies=count),
        ),
    )


def layer(mixer=None, feed_forward=None):
    """One layer with two norms of 64."""
    return Layer(
        mixers=(mixer or attention(),),
        feed_forward=feed_forward or dense(),
        tensors=(*norm("input_layernorm", HIDDEN), *norm("post_attention_layernorm", HIDDEN)),
    )


def model(*layers, tied=False, **more):
    """A bf16 decoder: embedding 1000 × 64, its layers (four plain ones by default), a norm, a head."""
    groups, order = group_layers(layers or [layer()] * 4)
    given = {
        "id": "small", "architecture": "SmallForCausalLM", "dtype": "bf16", "hidden_size": HIDDEN, "vocab_size": VOCAB,
        "max_context": 4096, "groups": groups, "layer_order": order,
        "tensors": (
            Tensor(name="model.embed_tokens", tensor_class=TensorClass.EMBEDDING, shape=(VOCAB, HIDDEN)),
            *norm("model.norm", HIDDEN),
            Tensor(
                name="lm_head", tensor_class=TensorClass.HEAD, shape=(VOCAB, HIDDEN), matmul=True, linear=True, stored=not tied
            ),
        ),
    }  # fmt: skip
    return Model(**{**given, **more})


def gpu(**more):
    """A card of 80 GiB whose peaks and links are round."""
    given = {
        "id": "card", "name": "Card", "vendor": "Maker", "architecture": "Chip", "family": "hopper",
        "memory_bytes": 81 * GIB, "framework_memory_bytes": 80 * GIB, "memory_bandwidth_bytes_per_s": 2e12,
        "peak_flops_per_s": {"bf16": 4e14, "fp16": 4e14, "fp8": 8e14, "fp32": 5e13},
        "link_name": "Link", "link_bytes_per_s": 4e11, "link_domain": 8, "pcie_bytes_per_s": 5e10,
    }  # fmt: skip
    return Gpu(**{**given, **more})


def engine(**rules):
    """An engine with these memory rules and no overheads."""
    return Engine(id="engine", version="1", memory=MemoryRules(**rules), efficiencies={}, fallback=IDEAL)


def question(rules=None, *, spec=None, card=None, layout=None, total=10**7, context=100, concurrency=1, **settings):
    """The small model on a card of ten million bytes, one sequence of 100 tokens, batches of 100 tokens."""
    given = {"gpu_memory_bytes": total, "max_num_seqs": 1, "max_num_batched_tokens": 100}
    return Question(
        model=spec or model(),
        gpu=card or gpu(),
        engine=engine(**(rules or {})),
        layout=layout or Layout(),
        settings=Settings(**{**given, **settings}),
        kv_dtype="bf16",
        context=context,
        concurrency=concurrency,
    )
