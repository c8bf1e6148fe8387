"""GLM-5.3-Flash: Kimi delta attention, MLA with a pooled indexer and hyper-connections, beside a vision tower."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kvplan.core.model import LatentAttention, Layer
from kvplan.core.tensors import norm
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.deepseek import read_indexers
from kvplan.specs.huggingface.deepseek_v4 import hyper_connection
from kvplan.specs.huggingface.experts import read_experts, read_feed_forwards, read_sparse_layers
from kvplan.specs.huggingface.kimi_linear import read_delta
from kvplan.specs.huggingface.mla import latent_attention, latent_decoder, read_latent
from kvplan.specs.huggingface.nested import MODERN, read_text, tower_config, with_towers
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.recurrent import parameter

_NAME: Final = "self_attn"
_LINEAR: Final = "linear_attention"
_INDEXED: Final = frozenset({"indexed_attention", "full_attention", "deepseek_sparse_attention"})
_DEFAULTS: Final[dict[str, Any]] = {
    "vocab_size": 154880,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 45,
    "num_attention_heads": 64,
    "n_shared_experts": 1,
    "n_routed_experts": 288,
    "num_experts_per_tok": 8,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 0,
    "qk_nope_head_dim": 256,
    "v_head_dim": 256,
    "index_topk": 2048,
    "index_head_dim": 128,
    "index_n_heads": 32,
    "index_kpool": 16,
    "hc_mult": 4,
    "linear_num_heads": 64,
    "linear_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}


def glm5_next_text(config: Config) -> Blueprint:
    """The decoder of GLM-5.3-Flash: every fourth layer attends, the others are delta attention.

    The indexer scores pools of `index_kpool` tokens. What is cached per token is what transformers 5.24 keeps: an index
    key, as many pooling gates and one mark of validity; an engine that keeps pooled keys needs less.
    """
    config.with_defaults(_DEFAULTS)
    latent = read_latent(config, q_lora_rank=1536)
    hidden, count = latent.hidden_size, config.integer("num_hidden_layers")
    if latent.q_lora_rank is None or latent.qk_rope_head_dim:
        raise config.error("qk_rope_head_dim", "must be 0, with a q_lora_rank: attention has no positions here")
    kinds = config.kinds("layer_types", known={_LINEAR, *_INDEXED}, length=count)
    if kinds is None:
        kinds = tuple(_LINEAR if (index + 1) % 4 else "indexed_attention" for index in range(count))
    sparse = read_sparse_layers(config, count, first_dense=3)
    delta = read_delta(config, hidden, num_heads=64)
    mixture = read_experts(config).block(hidden) if any(sparse) else None
    forwards = read_feed_forwards(config, hidden, sparse, mixture)
    stated = config.optional_nested("linear_attn_config")
    if stated is not None:
        stated.ignore("gate_lower_bound", "safe_gate")
    config.ignore("swiglu_limit", "hc_sinkhorn_iters", "linear_lower_bound")
    streams = config.integer("hc_mult", maximum=1000)
    around = (
        *norm("input_layernorm", hidden),
        *norm("post_attention_layernorm", hidden),
        *hyper_connection("hc_attn", streams, hidden),
        *hyper_connection("hc_ffn", streams, hidden),
    )

    attention = _attentions(config, count)
    layers = tuple(
        Layer(mixers=(delta if kind == _LINEAR else attention[index],), feed_forward=forwards[index], tensors=around)
        for index, kind in enumerate(kinds)
    )
    tied = config.boolean("tie_word_embeddings", default=False)
    buffers = sum(sparse) * mixture.num_experts if mixture is not None else 0
    return latent_decoder(config, hidden, layers, tied=tied, buffer_elements=buffers)


def _attentions(config: Config, count: int) -> tuple[LatentAttention, ...]:
    """Attention as each layer would have it; layers without an indexer of their own reuse an earlier one's picks."""
    latent = read_latent(config, q_lora_rank=1536)
    bias = config.boolean("attention_bias", default=False)
    pool = config.integer("index_kpool")
    config.ignore("index_kpool_always_select_tail")
    built = []
    for indexer in read_indexers(config, count, check_types=False):
        pooling = (
            *parameter(f"{_NAME}.indexer.index_kpool_compress_ape", pool, indexer.head_dim),
            *parameter(f"{_NAME}.indexer.index_kpool_compress_gate", indexer.head_dim, latent.hidden_size),
        )
        attention = latent_attention(latent, bias=bias, indexer=indexer, extra=pooling if indexer.cached else ())
        built.append(replace(attention, indexer=replace(indexer, head_dim=2 * indexer.head_dim + 1)))
    return tuple(built)


def glm5_next(config: Config) -> Blueprint:
    """GLM-5.3-Flash with its vision tower, or its decoder alone where the file is flat."""
    if not config.has("text_config"):
        return glm5_next_text(config)
    text, _ = read_text(config, default_type="glm5_next_text", spelling=MODERN)
    vision = tower_config(config)
    hidden = vision.integer("hidden_size", default=1024)
    layers = vision.integer("depth", "num_hidden_layers", default=24)
    heads = vision.integer("num_heads", "num_attention_heads", default=16)
    patch, frames = vision.integer("patch_size", default=14), vision.integer("temporal_patch_size", default=2)
    merge, channels = vision.integer("spatial_merge_size", default=2), vision.integer("in_channels", default=3)
    width = vision.integer("out_hidden_size", default=1536)
    bias = vision.boolean("attention_bias", default=True)
    parts = Parts("model.visual.")
    parts.conv("patch_embed.proj", hidden, channels, frames, patch, patch)
    for name in ("norm1", "norm2"):
        parts.norm(f"blocks.*.{name}", hidden, bias=False, copies=layers)
    parts.fused_attention("blocks.*.attn", hidden, copies=layers, bias=bias, o_bias=bias)
    for name in ("q_norm", "k_norm"):
        parts.norm(f"blocks.*.attn.{name}", hidden // heads, bias=False, copies=layers)
    inner = vision.integer("intermediate_size", default=4096)
    parts.gated("blocks.*.mlp", hidden, inner, copies=layers, bias=bias)
    parts.conv("downsample", width, hidden, merge, merge)
    parts.norm("post_layernorm", hidden, bias=False)
    parts.linear("merger.proj", width, width, bias=False)
    parts.norm("merger.post_projection_norm", width)
    parts.gated("merger", width, vision.integer("projection_intermediate_size", default=10240))
    vision.ignore("image_size", "swiglu_limit")
    return with_towers(config, text, {"vision": parts})
