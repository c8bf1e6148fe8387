"""MLA decoders: DeepSeek V2, V3 and V3.2, Kimi K2, GLM-4.7-Flash, GLM-5, Mistral 4, A.X-K1, MiniCPM3, Youtu, Sarvam."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kvplan.core.dataclass import dataclass
from kvplan.core.model import Indexer, Layer, MixtureOfExperts
from kvplan.core.tensors import TensorClass, linear, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.experts import read_experts, read_feed_forwards, read_sparse_layers
from kvplan.specs.huggingface.mla import (
    latent_attention,
    latent_decoder,
    read_indexer,
    read_latent,
    with_own_mtp,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How one family of MLA decoders differs from the others.

    Attributes:
        defaults: Values of fields that its configs may leave out.
        q_lora_rank: Default rank of the query's latent; None where queries are projected directly by default.
        first_dense: Leading dense layers by default.
        sparse: False for dense families.
        correction_bias: True where the router keeps a bias per expert as a buffer.
        indexer: True where attention is sparse.
        tied: Default of `tie_word_embeddings`.
        mlp_bias: True where the feed-forward obeys `mlp_bias`.
    """

    defaults: Mapping[str, Any]
    q_lora_rank: int | None
    first_dense: int = 0
    sparse: bool = True
    correction_bias: bool = True
    indexer: bool = False
    tied: bool = False
    mlp_bias: bool = False


def decoder(
    config: Config, family: Family, *, post_mlp_norm: bool = False, change: Callable[[Layer], Layer] | None = None
) -> Blueprint:
    """Read a decoder of one of the MLA families.

    Args:
        config: The (text) config.
        family: How the family differs.
        post_mlp_norm: True where a norm follows the mixture of experts.
        change: What else the family changes in a finished layer.
    """
    config.with_defaults(family.defaults)
    latent = read_latent(config, q_lora_rank=family.q_lora_rank)
    count = config.integer("num_hidden_layers")
    bias = config.boolean("attention_bias", default=False)
    mlp_bias = family.mlp_bias and config.boolean("mlp_bias", default=False)
    if not family.mlp_bias and config.boolean("mlp_bias", default=False):
        raise config.error("mlp_bias", f"true is not understood for {config.model_type}")
    indexers = read_indexers(config, count) if family.indexer else (None,) * count
    sparse = read_sparse_layers(config, count, first_dense=family.first_dense) if family.sparse else (False,) * count
    post = norm("mlp.post_mlp_layernorm", latent.hidden_size) if post_mlp_norm else ()
    mixture = None
    if any(sparse):
        mixture = read_experts(config).block(latent.hidden_size, shared_bias=mlp_bias, extra=post)
    forwards = read_feed_forwards(config, latent.hidden_size, sparse, mixture, dense_bias=mlp_bias)
    layers = tuple(
        Layer(
            mixers=(latent_attention(latent, bias=bias, indexer=indexer),),
            feed_forward=forward,
            tensors=blocks.norms(blocks.TWO_NORMS, latent.hidden_size),
        )
        for indexer, forward in zip(indexers, forwards, strict=True)
    )
    layers = layers if change is None else tuple(change(layer) for layer in layers)
    mtp = config.optional_integer("num_nextn_predict_layers", "num_mtp_layers", minimum=0, maximum=100) or 0
    tied = config.boolean("tie_word_embeddings", default=family.tied)
    buffers = sum(sparse) * mixture.num_experts if mixture is not None and family.correction_bias else 0
    made = latent_decoder(config, latent.hidden_size, layers, tied=tied, buffer_elements=buffers)
    return with_own_mtp(made, mtp)


def read_indexers(config: Config, count: int, *, check_types: bool = True) -> tuple[Indexer, ...]:
    """The indexer of each layer; layers that reuse the picks of an earlier one have none of their own (GLM-5.2).

    Args:
        config: The (text) config.
        count: Layers.
        check_types: True where `layer_types` must say that all layers have sparse attention.
    """
    full = read_indexer(config)
    shared = Indexer(num_heads=full.num_heads, head_dim=full.head_dim, top_k=full.top_k, cached=False)
    if check_types:
        config.kinds("layer_types", known=("indexed_attention", "deepseek_sparse_attention"), length=count)
    config.ignore("indexer_rope_interleave", "index_share_for_mtp_iteration", "moe_router_dtype")
    return tuple(full if own else shared for own in _own_indexer(config, count))


def _own_indexer(config: Config, count: int) -> tuple[bool, ...]:
    modes = config.kinds("indexer_types", known=("full", "shared"), length=count)
    pattern = config.raw("index_topk_pattern")
    frequency = config.optional_integer("index_topk_freq", minimum=0) or 1
    offset = config.optional_integer("index_skip_topk_offset", minimum=0)
    if modes is None and pattern is not None:
        if isinstance(pattern, str):
            pattern = [{"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern]
        if not isinstance(pattern, list) or len(pattern) != count or not {"full", "shared"}.issuperset(pattern):
            raise config.error("index_topk_pattern", f"must name the indexer of each of the {count} layers")
        modes = tuple(pattern)
    if modes is None:
        first = 2 if offset is None else offset
        return tuple(max(index - first + 1, 0) % frequency == 0 for index in range(count))
    return tuple(mode == "full" for mode in modes)


_V3_SIZES: Final[dict[str, Any]] = {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
_INDEXER: Final[dict[str, Any]] = {"index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}
_GLM5_SIZES: Final[dict[str, Any]] = {
    **_V3_SIZES,
    **_INDEXER,
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "num_hidden_layers": 78,
    "num_attention_heads": 64,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "vocab_size": 154880,
    "index_n_heads": 32,
}
_AXK2_SIZES: Final[dict[str, Any]] = {
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "n_routed_experts": 128,
    "kv_lora_rank": 128,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 64,
    "v_head_dim": 64,
    "vocab_size": 163840,
    "index_n_heads": 16,
}
_LITE_SIZES: Final[dict[str, Any]] = {
    **_V3_SIZES,
    "hidden_size": 2048,
    "intermediate_size": 10240,
    "moe_intermediate_size": 1536,
    "num_hidden_layers": 47,
    "num_attention_heads": 20,
    "n_routed_experts": 64,
    "num_experts_per_tok": 4,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "vocab_size": 154880,
}
_MISTRAL4_SIZES: Final[dict[str, Any]] = {
    **_V3_SIZES,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "n_routed_experts": 128,
    "num_experts_per_tok": 4,
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 64,
    "vocab_size": 131072,
}


def deepseek_v2(config: Config) -> Blueprint:
    """DeepSeek-V2, V2-Lite, Coder-V2, V2.5."""
    defaults = {"n_shared_experts": 2, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    defaults["v_head_dim"] = 128
    family = Family(defaults=defaults, q_lora_rank=1536, correction_bias=False, mlp_bias=True)
    return decoder(config, family)


def deepseek_v3(config: Config) -> Blueprint:
    """DeepSeek-V3, V3.1, R1 and what is published under `deepseek_v3` and `kimi_k2` (same layout)."""
    return decoder(config, Family(defaults=_V3_SIZES, q_lora_rank=1536, first_dense=3))


def deepseek_v32(config: Config) -> Blueprint:
    """DeepSeek-V3.2: V3 with an indexer on every layer."""
    family = Family(defaults={**_V3_SIZES, **_INDEXER}, q_lora_rank=1536, first_dense=3, indexer=True)
    return decoder(config, family)


def glm_moe_dsa(config: Config) -> Blueprint:
    """GLM-5: as DeepSeek-V3.2, from 5.2 on with layers that reuse the picks of an earlier indexer."""
    return decoder(config, Family(defaults=_GLM5_SIZES, q_lora_rank=2048, first_dense=3, indexer=True))


def glm4_moe_lite(config: Config) -> Blueprint:
    """GLM-4.7-Flash."""
    return decoder(config, Family(defaults=_LITE_SIZES, q_lora_rank=768, first_dense=1))


def mistral4(config: Config) -> Blueprint:
    """Mistral 4."""
    return decoder(config, Family(defaults=_MISTRAL4_SIZES, q_lora_rank=1024, correction_bias=False))


def axk1(config: Config) -> Blueprint:
    """A.X-K1: DeepSeek-V3 with a norm after the mixture of experts."""
    defaults = {**_V3_SIZES, "num_attention_heads": 64, "n_routed_experts": 192, "vocab_size": 163840}
    return decoder(config, Family(defaults=defaults, q_lora_rank=1536, first_dense=1), post_mlp_norm=True)


def axk2(config: Config) -> Blueprint:
    """A.X-K2: sparse attention, an output gate made with the queries, low-rank gates after norms."""
    defaults = {**_V3_SIZES, **_INDEXER, **_AXK2_SIZES}
    config.with_defaults(defaults)
    hidden, rank = config.integer("hidden_size"), config.integer("gated_norm_rank", default=16)
    latent = read_latent(config, q_lora_rank=384)
    if latent.q_lora_rank is None:
        raise config.error("q_lora_rank", "must be there: queries and the output gate come from it")
    width = latent.num_attention_heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim + latent.v_head_dim)
    queries = linear(
        "self_attn.q_gate_proj", TensorClass.ATTENTION, out_features=width, in_features=2 * latent.q_lora_rank
    )

    def change(layer: Layer) -> Layer:
        mixer = layer.mixers[0]
        kept = tuple(queries[0] if t.name == "self_attn.q_b_proj" else t for t in mixer.tensors)
        gated = ["input_layernorm"]
        if isinstance(layer.feed_forward, MixtureOfExperts):
            gated.append("post_attention_layernorm")
        gates = tuple(
            tensor
            for name in gated
            for part, rows, columns in (("fc1", rank, hidden), ("fc2", hidden, rank))
            for tensor in linear(
                f"{name}.mlp.{part}", TensorClass.OTHER, out_features=rows, in_features=columns, shards=1
            )
        )
        return replace(layer, mixers=(replace(mixer, tensors=kept),), tensors=(*layer.tensors, *gates))

    family = Family(defaults=defaults, q_lora_rank=384, first_dense=1, indexer=True)
    return decoder(config, family, change=change)


def sarvam_mla(config: Config) -> Blueprint:
    """Sarvam's MLA models: DeepSeek-V3 without a query latent."""
    return decoder(config, Family(defaults={"n_shared_experts": 1}, q_lora_rank=None, first_dense=1))


def minicpm3(config: Config) -> Blueprint:
    """MiniCPM3: dense MLA. The value width defaults to `hidden_size / num_attention_heads`."""
    if not config.has("v_head_dim"):
        width = config.integer("hidden_size") // config.integer("num_attention_heads")
        config.with_defaults({"v_head_dim": width})
    config.ignore("scale_emb", "scale_depth", "dim_model_base")
    defaults = {"kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
    return decoder(config, Family(defaults=defaults, q_lora_rank=768, sparse=False, tied=True, mlp_bias=True))


def youtu(config: Config) -> Blueprint:
    """Youtu-LLM: dense MLA."""
    defaults = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    return decoder(config, Family(defaults=defaults, q_lora_rank=1536, sparse=False, tied=True))
