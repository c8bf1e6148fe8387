"""Building blocks of decoders with multi-head latent attention (MLA) and DeepSeek's mixture of experts.

Reference: DeepSeek-V2 (arXiv:2405.04434) section 2.1, DeepSeek-V3.2 for the indexer of sparse attention.
"""

from __future__ import annotations

from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.core.model import DenseFeedForward, Indexer, LatentAttention, Layer, MixtureOfExperts
from kvplan.core.tensors import Tensor, TensorClass, linear, norm
from kvplan.specs.huggingface import blocks
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


def read_moe(
    config: Config,
    *,
    bias: bool = False,
    experts: tuple[str, ...] = ("n_routed_experts", "num_local_experts", "num_experts"),
    top_k: tuple[str, ...] = ("num_experts_per_tok",),
    shared: tuple[str, ...] = ("n_shared_experts",),
    default_top_k: int | None = None,
    extra: tuple[Tensor, ...] = (),
) -> MixtureOfExperts:
    """DeepSeek's mixture: routed experts beside shared ones that are stored as one wider expert."""
    hidden = config.integer("hidden_size")
    num_experts = config.integer(*experts)
    width = config.integer("moe_intermediate_size", "expert_ffn_hidden_size")
    shared_width = width * (config.optional_integer(*shared, minimum=0) or 0)
    shared_tensors = (
        blocks.gated_tensors("mlp.shared_experts", hidden, shared_width, tensor_class=TensorClass.SHARED, bias=bias)
        if shared_width
        else ()
    )
    config.ignore("n_group", "topk_group", "num_expert_group", "ep_size")
    return blocks.gated_moe(
        hidden,
        width,
        num_experts=num_experts,
        top_k=blocks.read_top_k(config, num_experts, *top_k, default=default_top_k),
        extra=(*shared_tensors, *extra),
    )


def read_sparse_layers(config: Config, count: int, *, first_dense: int) -> tuple[bool, ...]:
    """For each layer, whether its feed-forward is a mixture of experts.

    `mlp_layer_types` counts where it is there; else layers from `first_k_dense_replace` on, every `moe_layer_freq`-th.

    Raises:
        SpecError: An unknown type of layer.
    """
    types = config.strings("mlp_layer_types", length=count)
    frequency = config.optional_integer("moe_layer_freq") or 1
    if types is None:
        first = config.integer("first_k_dense_replace", default=first_dense, minimum=0)
        return tuple(index >= first and index % frequency == 0 for index in range(count))
    config.ignore("first_k_dense_replace")
    for kind in types:
        if kind not in {"dense", "sparse"}:
            raise config.error("mlp_layer_types", f"{kind!r} is neither 'dense' nor 'sparse'")
    return tuple(kind == "sparse" for kind in types)


def decoder_layer(
    attention: LatentAttention, feed_forward: DenseFeedForward | MixtureOfExperts | None, hidden_size: int
) -> Layer:
    """One layer with the two norms of a Llama layer."""
    return Layer(
        mixers=(attention,),
        feed_forward=feed_forward,
        tensors=(*norm("input_layernorm", hidden_size), *norm("post_attention_layernorm", hidden_size)),
    )


def mtp_tensors(hidden_size: int, vocab_size: int) -> tuple[Tensor, ...]:
    """What DeepSeek's multi-token-prediction layer has beyond a decoder layer, copies of embedding and head too."""
    return (
        *blocks.embedding(vocab_size, hidden_size, name="embed_tokens"),
        *norm("enorm", hidden_size),
        *norm("hnorm", hidden_size),
        *linear("eh_proj", TensorClass.OTHER, out_features=hidden_size, in_features=2 * hidden_size, shards=1),
        *norm("shared_head.norm", hidden_size),
        *blocks.lm_head(vocab_size, hidden_size, tied=False, name="shared_head.head"),
    )
