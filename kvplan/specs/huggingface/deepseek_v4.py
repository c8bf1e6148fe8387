"""DeepSeek-V4: compressed attention, hyper-connections, hash-routed first layers.

Each layer caches raw entries of a short window (one tensor serves as key and value) and, with a compressor, one entry
per `ratio` tokens; layers of small ratio pick among those with an indexer that keeps keys at the same ratio.
Tensors of a layer are named as DeepSeek's checkpoint has them, which quantisation lists follow.
"""

from __future__ import annotations

from typing import Any, Final

from kvplan.core.model import CompressedAttention, Indexer, Layer, MixtureOfExperts
from kvplan.core.tensors import Tensor, TensorClass, linear, norm, vector
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.experts import W_NAMES
from kvplan.specs.huggingface.mla import with_own_mtp

_DEFAULTS: Final[dict[str, Any]] = {
    "vocab_size": 129280,
    "hidden_size": 4096,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "head_dim": 512,
    "q_lora_rank": 1024,
    "num_experts_per_tok": 6,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "hc_mult": 4,
    "sliding_window": 128,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 512,
}
_INDEXED: Final = "compressed_sparse_attention"
_HEAVY: Final = "heavily_compressed_attention"
_RATIOS: Final = {"sliding_attention": None, _INDEXED: 4, _HEAVY: 128}


def deepseek_v4(config: Config) -> Blueprint:
    """DeepSeek-V4-Flash, V4-Pro and their repacks (`deepseek_ref`)."""
    config.with_defaults(_DEFAULTS)
    if config.integer("num_key_value_heads", default=1) != 1:
        raise config.error("num_key_value_heads", "must be 1: all heads share one cached entry")
    for name in ("attention_bias", "mlp_bias"):
        if config.boolean(name, default=False):
            raise config.error(name, f"true is not understood for {config.model_type}")
    hidden, vocab_size = config.integer("hidden_size"), config.integer("vocab_size")
    count = config.integer("num_hidden_layers")
    mtp = config.integer("num_nextn_predict_layers", default=1, minimum=0, maximum=100)
    if config.integer("n_shared_experts") != 1:
        raise config.error("n_shared_experts", "must be 1: how several are stored is not understood")
    mixture = _mixture(config, hidden)
    hashed = _hash_layers(config, count)
    streams = config.integer("hc_mult", maximum=1000)
    around = (
        *norm("attn_norm", hidden),
        *norm("ffn_norm", hidden),
        *hyper_connection("hc_attn", streams, hidden),
        *hyper_connection("hc_ffn", streams, hidden),
    )
    layers = tuple(
        Layer(mixers=(_attention(config, ratio, indexed=indexed),), feed_forward=mixture, tensors=around)
        for ratio, indexed in _read_ratios(config, count, mtp)
    )
    config.ignore("hc_sinkhorn_iters", "compress_rope_theta", "qk_rope_head_dim", "swiglu_limit", "intermediate_size")
    made = Blueprint(
        hidden_size=hidden,
        vocab_size=vocab_size,
        max_context=blocks.read_max_context(config),
        layers=layers,
        layer_prefix="layers.{i}.",
        tensors=(
            *blocks.embedding(vocab_size, hidden),
            *norm("model.norm", hidden),
            *vector("hc_head_fn", TensorClass.OTHER, streams, streams * hidden),
            *vector("hc_head_base", TensorClass.OTHER, streams),
            *vector("hc_head_scale", TensorClass.OTHER, 1),
            *blocks.lm_head(vocab_size, hidden, tied=config.boolean("tie_word_embeddings", default=False)),
        ),
        buffer_elements=_routing_buffers(mixture, vocab_size=vocab_size, hashed=hashed),
    )
    return with_own_mtp(made, mtp)


def _mixture(config: Config, hidden: int) -> MixtureOfExperts:
    width, experts = config.integer("moe_intermediate_size"), config.integer("n_routed_experts", "num_local_experts")
    config.ignore("n_group", "topk_group")
    return blocks.gated_moe(
        hidden,
        width,
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts),
        name="ffn.experts",
        names=W_NAMES,
        routing=blocks.router("ffn.gate", hidden, experts),
        extra=blocks.gated_tensors("ffn.shared_experts", hidden, width, tensor_class=TensorClass.SHARED, names=W_NAMES),
    )


def _routing_buffers(mixture: MixtureOfExperts, *, vocab_size: int, hashed: tuple[bool, ...]) -> int:
    """A table from token to experts on hash-routed layers, a correction bias per expert on the others."""
    return sum(vocab_size * mixture.top_k if table else mixture.num_experts for table in hashed)


def _hash_layers(config: Config, count: int) -> tuple[bool, ...]:
    types = config.kinds("mlp_layer_types", known=("hash_moe", "moe"), length=count)
    if types is None:
        first = config.integer("num_hash_layers", default=3, minimum=0)
        return tuple(index < first for index in range(count))
    config.ignore("num_hash_layers")
    return tuple(kind == "hash_moe" for kind in types)


def _read_ratios(config: Config, count: int, mtp: int) -> tuple[tuple[int | None, bool], ...]:
    """For each layer, tokens per compressed entry (None: window only) and whether it has an indexer."""
    given = config.optional_integers("compress_ratios")
    if given is not None and len(given) not in {count, count + mtp}:
        raise config.error("compress_ratios", f"must have {count} entries, one per layer, not {len(given)}")
    types = config.kinds("layer_types", known=_RATIOS, length=count)
    rates = _read_rates(config)
    if types is None and given is not None:
        by_ratio = {0: "sliding_attention", 4: _INDEXED, 128: _HEAVY}
        for ratio in given:
            if ratio not in by_ratio:
                raise config.error("compress_ratios", f"{ratio} is not understood: known are 0, 4 and 128")
        types = tuple(by_ratio[ratio] for ratio in given[:count])
    if types is None:
        types = tuple(_INDEXED if index > 1 and index % 2 else _HEAVY for index in range(count))
        config.assumptions.append(f"layer_types is not in {config.source}: the pattern of DeepSeek-V4-Pro assumed")
    return tuple((rates[kind], kind == _INDEXED) for kind in types)


def _read_rates(config: Config) -> dict[str, int | None]:
    rates: dict[str, int | None] = dict(_RATIOS)
    stated = config.optional_nested("compress_rates")
    if stated is not None:
        for kind in (_INDEXED, _HEAVY):
            rates[kind] = stated.integer(kind, default=_RATIOS[kind])
    rates[_INDEXED] = config.optional_integer("compress_rate_csa") or rates[_INDEXED]
    rates[_HEAVY] = config.optional_integer("compress_rate_hca") or rates[_HEAVY]
    return rates


def _attention(config: Config, ratio: int | None, *, indexed: bool) -> CompressedAttention:
    hidden, heads, width = (config.integer(n) for n in ("hidden_size", "num_attention_heads", "head_dim"))
    rank, groups = config.integer("q_lora_rank"), config.integer("o_groups")
    grouped = groups * config.integer("o_lora_rank")
    if heads * width % groups:
        raise config.error("o_groups", f"{groups} does not divide {heads} heads of width {width}")
    indexer = Indexer(
        num_heads=config.integer("index_n_heads"),
        head_dim=config.integer("index_head_dim"),
        top_k=config.integer("index_topk"),
    )
    return CompressedAttention(
        num_attention_heads=heads,
        head_dim=width,
        window=config.integer("sliding_window"),
        ratio=ratio,
        indexer=indexer if indexed else None,
        tensors=(
            *_replicated("attn.wq_a", rank, hidden),
            *norm("attn.q_norm", rank),
            *linear("attn.wq_b", TensorClass.ATTENTION, out_features=heads * width, in_features=rank),
            *_replicated("attn.wkv", width, hidden),
            *norm("attn.kv_norm", width),
            *linear(
                "attn.wo_a",
                TensorClass.ATTENTION,
                out_features=grouped,
                in_features=heads * width // groups,
            ),
            *linear("attn.wo_b", TensorClass.ATTENTION, out_features=hidden, in_features=grouped),
            *vector("attn.attn_sink", TensorClass.OTHER, heads, shards=None),
            *(_compressor("attn.compressor", hidden, width, ratio, overlap=2 if indexed else 1) if ratio else ()),
            *(_indexer("attn.indexer", hidden, rank, ratio, indexer) if indexed and ratio else ()),
        ),
    )


def _replicated(name: str, out_features: int, in_features: int) -> tuple[Tensor, ...]:
    return linear(name, TensorClass.ATTENTION, out_features=out_features, in_features=in_features, shards=1)


def _compressor(name: str, hidden: int, width: int, ratio: int, *, overlap: int) -> tuple[Tensor, ...]:
    """Learned pooling of `ratio` tokens into one entry; with overlap 2 it also sees the block before."""
    return (
        *vector(f"{name}.ape", TensorClass.OTHER, ratio, overlap * width),
        *_replicated(f"{name}.wkv", overlap * width, hidden),
        *_replicated(f"{name}.wgate", overlap * width, hidden),
        *norm(f"{name}.norm", width),
    )


def _indexer(name: str, hidden: int, rank: int, ratio: int, indexer: Indexer) -> tuple[Tensor, ...]:
    return (
        *_compressor(f"{name}.compressor", hidden, indexer.head_dim, ratio, overlap=2),
        *_replicated(f"{name}.wq_b", indexer.num_heads * indexer.head_dim, rank),
        *_replicated(f"{name}.weights_proj", indexer.num_heads, hidden),
    )


def hyper_connection(name: str, streams: int, hidden: int) -> tuple[Tensor, ...]:
    """The mixing of `streams` residual streams around one sublayer: read, write and carry weights."""
    rows = streams * (2 + streams)
    return (
        *vector(f"{name}_fn", TensorClass.OTHER, rows, streams * hidden),
        *vector(f"{name}_base", TensorClass.OTHER, rows),
        *vector(f"{name}_scale", TensorClass.OTHER, 3),
    )
