"""MiniMax hybrids: lightning attention (Text-01, M1), block-sparse attention with an indexer (M3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kvplan.core.model import Attention, Indexer
from kvplan.core.tensors import Tensor, TensorClass, linear, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.experts import alternate, read_mixtral
from kvplan.specs.huggingface.mla import with_own_mtp
from kvplan.specs.huggingface.recurrent import lightning_attention, read_state_bits

_SPARSE: Final = "minimax_m3_sparse"
_FULL: Final = "full_attention"


def minimax(config: Config) -> Blueprint:
    """MiniMax-Text-01 and M1: lightning attention with a full layer every few layers, all feed-forwards sparse.

    Buffers are the decay tables that transformers keeps with the weights (`block_size`).
    """
    dims = blocks.read_dimensions(config)
    hidden, heads = dims.hidden_size, dims.num_attention_heads
    if config.optional_integer("shared_intermediate_size", minimum=0):
        raise config.error("shared_intermediate_size", f"a shared expert is not understood for {config.model_type}")
    if config.optional_integer("sliding_window") is not None:
        raise config.error("sliding_window", f"is not understood for {config.model_type}")
    _ignore_factors(config)
    mixture = read_mixtral(config, hidden, experts=8, top_k=2)
    lightning = lightning_attention(
        hidden_size=hidden,
        num_heads=heads,
        head_dim=dims.head_dim,
        name="self_attn",
        state_bits=read_state_bits(config),
    )
    full = blocks.gqa(dims)
    kinds = _lightning_layers(config, dims.num_hidden_layers)
    block = config.integer("block_size", default=256)
    tables = heads * (1 + 2 * block + block * block)
    return blocks.stack(
        dims,
        mixers=tuple(lightning if is_linear else full for is_linear in kinds),
        feed_forward=mixture,
        tensors=blocks.ends(config, dims),
        buffer_elements=sum(kinds) * tables,
    )


def _ignore_factors(config: Config) -> None:
    """Residual scales and other numbers without weights, in the spelling of transformers and of the remote code."""
    places = ("full_attn", "linear_attn", "mlp")
    config.ignore(*(f"{place}_{greek}_factor" for place in places for greek in ("alpha", "beta")))
    places = ("full_attention", "linear_attention", "mlp")
    config.ignore(*(f"layernorm_{place}_{greek}" for place in places for greek in ("alpha", "beta")))
    config.ignore("postnorm", "shared_moe_mode")


def _lightning_layers(config: Config, count: int) -> tuple[bool, ...]:
    kinds = config.kinds("layer_types", known=("linear_attention", _FULL), length=count)
    flags = config.optional_integers("attn_type_list", length=count)
    if kinds is not None:
        return tuple(kind == "linear_attention" for kind in kinds)
    if flags is not None:
        if any(flag not in {0, 1} for flag in flags):
            raise config.error("attn_type_list", "must hold 0 (lightning) and 1 (full attention)")
        return tuple(flag == 0 for flag in flags)
    if config.model_type != "minimax":
        raise config.error("attn_type_list", "is missing: it says which layers are full attention")
    config.assumptions.append(f"layer_types is not in {config.source}: every second layer lightning attention assumed")
    return tuple(index % 2 == 1 for index in range(count))


_M3: Final[dict[str, Any]] = {
    "vocab_size": 200064,
    "hidden_size": 6144,
    "intermediate_size": 3072,
    "num_hidden_layers": 60,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts_per_tok": 4,
    "num_local_experts": 128,
    "dense_intermediate_size": 12288,
    "shared_intermediate_size": 3072,
}


def minimax_m3(config: Config) -> Blueprint:
    """The text part of MiniMax-M3: block-sparse attention on most layers, one index key per token."""
    config.with_defaults(_M3)
    dims = blocks.read_dimensions(config)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    _check_m3(config)
    indexers = _m3_indexers(config, count)
    sparse = _m3_sparse_layers(config, count)
    shared = blocks.gated_tensors(
        "block_sparse_moe.shared_experts",
        hidden,
        config.integer("shared_intermediate_size"),
        tensor_class=TensorClass.SHARED,
    )
    mixture = read_mixtral(config, hidden, extra=shared)
    dense = blocks.gated_mlp(hidden, config.integer("dense_intermediate_size"))
    mtp = config.optional_integer("num_nextn_predict_layers", minimum=0, maximum=100)
    modules = config.optional_integer("num_mtp_modules", minimum=0, maximum=100)
    made = blocks.stack(
        dims,
        mixers=tuple(_m3_attention(dims, indexer) for indexer in indexers),
        feed_forward=alternate(sparse, mixture, dense),
        tensors=blocks.ends(config, dims),
        buffer_elements=sum(sparse) * mixture.num_experts,
    )
    return with_own_mtp(made, mtp if mtp is not None else modules or 0)


def _check_m3(config: Config) -> None:
    """Refuse the switches that would change tensors."""
    if config.boolean("attention_output_gate", default=False):
        raise config.error("attention_output_gate", f"true is not understood for {config.model_type}")
    if not config.boolean("use_qk_norm", default=True) or config.string("qk_norm_type", default="per_head") != (
        "per_head"
    ):
        raise config.error("qk_norm_type", "must be per_head, with use_qk_norm")
    if not config.boolean("use_routing_bias", default=True):
        raise config.error("use_routing_bias", f"false is not understood for {config.model_type}")
    if config.optional_integer("n_shared_experts", minimum=0) not in (None, 1):
        raise config.error("n_shared_experts", "must be 1")
    if config.optional_integer("moe_intermediate_size") not in (None, config.integer("intermediate_size")):
        raise config.error("moe_intermediate_size", "must equal intermediate_size, the width of an expert")
    config.ignore("use_gemma_norm", "swiglu_alpha", "swiglu_limit")


def _m3_indexers(config: Config, count: int) -> tuple[Indexer | None, ...]:
    stated = config.optional_nested("sparse_attention_config")
    kinds = config.kinds("layer_types", known=(_SPARSE, _FULL), length=count)
    place, names = (
        (config, ("index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks"))
        if stated is None
        else (stated, ("sparse_num_index_heads", "sparse_index_dim", "sparse_block_size", "sparse_topk_blocks"))
    )
    heads, width, block, top_k = (
        place.integer(name, default=default) for name, default in zip(names, (4, 128, 128, 16), strict=True)
    )
    indexer = Indexer(num_heads=heads, head_dim=width, top_k=block * top_k)
    config.ignore("index_local_blocks")
    flags = None if stated is None else stated.optional_integers("sparse_attention_freq", length=count)
    if kinds is not None:
        sparse = tuple(kind == _SPARSE for kind in kinds)
    elif flags is not None:
        sparse = tuple(bool(flag) for flag in flags)
    else:
        config.assumptions.append(f"layer_types is not in {config.source}: full attention on all layers assumed")
        sparse = (False,) * count
    if stated is not None:
        _check_sparse_attention(stated, sparse)
    return tuple(indexer if each else None for each in sparse)


def _check_sparse_attention(stated: Config, sparse: tuple[bool, ...]) -> None:
    """Refuse what is not understood: sparse layers with index values (a second cached vector)."""
    stated.ignore("sparse_score_type", "sparse_init_block", "sparse_local_block")
    if not stated.boolean("use_sparse_attention", default=True):
        raise stated.error("use_sparse_attention", "false is not understood")
    no_value = stated.optional_integers("sparse_disable_index_value", length=len(sparse))
    if no_value is not None and any(each and not off for each, off in zip(sparse, no_value, strict=True)):
        raise stated.error("sparse_disable_index_value", "index values are not understood")


def _m3_sparse_layers(config: Config, count: int) -> tuple[bool, ...]:
    config.ignore("first_k_dense_replace")
    kinds = config.strings("mlp_layer_types", length=count)
    flags = config.optional_integers("moe_layer_freq", length=count)
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    if flags is not None:
        return tuple(flag != 0 for flag in flags)
    return (True,) * count


def _m3_attention(dims: blocks.Dimensions, indexer: Indexer | None) -> Attention:
    tensors: tuple[Tensor, ...] = ()
    if indexer is not None:
        hidden, width = dims.hidden_size, indexer.num_heads * indexer.head_dim
        attention = TensorClass.ATTENTION
        tensors = (
            *linear("self_attn.index_q_proj", attention, out_features=width, in_features=hidden, shards=1),
            *linear("self_attn.index_k_proj", attention, out_features=indexer.head_dim, in_features=hidden, shards=1),
            *norm("self_attn.index_q_norm", indexer.head_dim),
            *norm("self_attn.index_k_norm", indexer.head_dim),
        )
    return replace(blocks.gqa(dims, extra=(*blocks.qk_norm(dims), *tensors)), indexer=indexer)
