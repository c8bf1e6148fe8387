"""Building blocks of decoders with multi-head latent attention (MLA).

Reference: DeepSeek-V2 (arXiv:2405.04434) section 2.1, DeepSeek-V3.2 for the indexer of sparse attention.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.core.model import Indexer, LatentAttention, Layer
from kvplan.core.tensors import Tensor, TensorClass, linear, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config

_ATTENTION: Final = TensorClass.ATTENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """The sizes of latent attention.

    Attributes:
        hidden_size: Width of the residual stream.
        num_attention_heads: Query heads.
        q_lora_rank: Width of the query's latent, or None where queries are projected directly.
        kv_lora_rank: Width of the cached latent.
        qk_nope_head_dim: Width of a query and key head without position.
        qk_rope_head_dim: Width of the shared rotary key (0 where attention has no positions).
        v_head_dim: Width of a value head.
    """

    hidden_size: int
    num_attention_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


def read_latent(config: Config, *, q_lora_rank: int | None = None) -> Latent:
    """Read the sizes of latent attention.

    Args:
        config: The (text) config.
        q_lora_rank: The family's default; an explicit null means no query latent.

    Raises:
        SpecError: A field is missing or invalid.
    """
    config.ignore("qk_head_dim", "head_dim", "num_key_value_heads")
    rank = config.optional_integer("q_lora_rank")
    if rank is None and q_lora_rank is not None and "q_lora_rank" not in config.data:
        rank = config.integer("q_lora_rank", default=q_lora_rank)
    return Latent(
        hidden_size=config.integer("hidden_size"),
        num_attention_heads=config.integer("num_attention_heads"),
        q_lora_rank=rank,
        kv_lora_rank=config.integer("kv_lora_rank"),
        qk_nope_head_dim=config.integer("qk_nope_head_dim"),
        qk_rope_head_dim=config.integer("qk_rope_head_dim", minimum=0),
        v_head_dim=config.integer("v_head_dim"),
    )


def latent_attention(
    latent: Latent,
    *,
    name: str = "self_attn",
    bias: bool = False,
    indexer: Indexer | None = None,
    extra: tuple[Tensor, ...] = (),
) -> LatentAttention:
    """Latent attention with DeepSeek's tensor names.

    Down-projections (and the indexer) are copied on every tensor-parallel rank, the rest divides over the heads.

    Args:
        latent: Its sizes.
        name: Module of the attention.
        bias: True where the down-projections and the output have biases.
        indexer: Scorer of sparse attention; its tensors are added where it keeps keys of its own.
        extra: What the family adds (gates, further norms).
    """
    hidden, heads = latent.hidden_size, latent.num_attention_heads
    query_width = heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
    if latent.q_lora_rank is None:
        query = linear(f"{name}.q_proj", _ATTENTION, out_features=query_width, in_features=hidden)
    else:
        query = (
            *linear(
                f"{name}.q_a_proj",
                _ATTENTION,
                out_features=latent.q_lora_rank,
                in_features=hidden,
                bias=bias,
                shards=1,
            ),
            *norm(f"{name}.q_a_layernorm", latent.q_lora_rank),
            *linear(f"{name}.q_b_proj", _ATTENTION, out_features=query_width, in_features=latent.q_lora_rank),
        )
    return LatentAttention(
        num_attention_heads=heads,
        kv_lora_rank=latent.kv_lora_rank,
        qk_nope_head_dim=latent.qk_nope_head_dim,
        qk_rope_head_dim=latent.qk_rope_head_dim,
        v_head_dim=latent.v_head_dim,
        indexer=indexer,
        tensors=(
            *query,
            *linear(
                f"{name}.kv_a_proj_with_mqa",
                _ATTENTION,
                out_features=latent.kv_lora_rank + latent.qk_rope_head_dim,
                in_features=hidden,
                bias=bias,
                shards=1,
            ),
            *norm(f"{name}.kv_a_layernorm", latent.kv_lora_rank),
            *linear(
                f"{name}.kv_b_proj",
                _ATTENTION,
                out_features=heads * (latent.qk_nope_head_dim + latent.v_head_dim),
                in_features=latent.kv_lora_rank,
            ),
            *linear(
                f"{name}.o_proj", _ATTENTION, out_features=hidden, in_features=heads * latent.v_head_dim, bias=bias
            ),
            *(indexer_tensors(latent, indexer, name=f"{name}.indexer") if indexer and indexer.cached else ()),
            *extra,
        ),
    )


def read_indexer(config: Config) -> Indexer:
    """The scorer of DeepSeek sparse attention."""
    return Indexer(
        num_heads=config.integer("index_n_heads"),
        head_dim=config.integer("index_head_dim"),
        top_k=config.integer("index_topk"),
    )


def indexer_tensors(latent: Latent, indexer: Indexer, *, name: str) -> tuple[Tensor, ...]:
    """Weights of an indexer: queries from the query latent, one key and one weight per head from the stream."""
    hidden = latent.hidden_size
    rank = latent.q_lora_rank or hidden
    width = indexer.num_heads * indexer.head_dim
    return (
        *linear(f"{name}.wq_b", _ATTENTION, out_features=width, in_features=rank, shards=1),
        *linear(f"{name}.wk", _ATTENTION, out_features=indexer.head_dim, in_features=hidden, shards=1),
        *norm(f"{name}.k_norm", indexer.head_dim, bias=True),
        *linear(f"{name}.weights_proj", _ATTENTION, out_features=indexer.num_heads, in_features=hidden, shards=1),
    )


def latent_decoder(
    config: Config, hidden_size: int, layers: tuple[Layer, ...], *, tied: bool, buffer_elements: int = 0
) -> Blueprint:
    """A decoder of these layers between embedding, final norm and head under DeepSeek's names."""
    vocab_size = config.integer("vocab_size")
    return Blueprint(
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        max_context=blocks.read_max_context(config),
        layers=layers,
        tensors=(
            *blocks.embedding(vocab_size, hidden_size),
            *norm("model.norm", hidden_size),
            *blocks.lm_head(vocab_size, hidden_size, tied=tied),
        ),
        buffer_elements=buffer_elements,
    )


def with_own_mtp(blueprint: Blueprint, count: int, *, layer: Layer | None = None) -> Blueprint:
    """Add DeepSeek's prediction layers with a head each and one embedding, none the model's (`blocks.with_mtp` shares these).

    Source: `DeepSeekMultiTokenPredictor` of vLLM (`deepseek_mtp.py`).

    Args:
        blueprint: The model.
        count: Prediction layers.
        layer: Decoder layer of each; None is one like the model's last.
    """
    if not count:
        return blueprint
    hidden, vocab = blueprint.hidden_size, blueprint.vocab_size
    own = (
        *norm("enorm", hidden),
        *norm("hnorm", hidden),
        *linear("eh_proj", TensorClass.OTHER, out_features=hidden, in_features=2 * hidden, shards=1),
        *norm("shared_head.norm", hidden),
        *blocks.lm_head(vocab, hidden, tied=False, name="shared_head.head"),
    )
    tensors = (*blocks.embedding(vocab, hidden, name="embed_tokens"), *own * count)
    return replace(blueprint, mtp_layers=(layer or blueprint.layers[-1],) * count, mtp_tensors=tensors)
