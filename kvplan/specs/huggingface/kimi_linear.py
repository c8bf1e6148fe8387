"""Hybrids of Kimi delta attention and MLA: Kimi Linear, Ling (Bailing hybrid)."""

from __future__ import annotations

from typing import Any, Final

from kvplan.core.model import LatentAttention, Layer, Recurrent
from kvplan.core.tensors import norm
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.experts import read_experts, read_feed_forwards, read_sparse_layers
from kvplan.specs.huggingface.mla import (
    Latent,
    latent_attention,
    latent_decoder,
    read_latent,
    with_own_mtp,
)
from kvplan.specs.huggingface.recurrent import kimi_delta_attention, project

_NAME: Final = "self_attn"
_LINEAR: Final = "linear_attention"
_FULL: Final = "full_attention"
_LATENT: Final[dict[str, Any]] = {
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}


def kimi_linear(config: Config) -> Blueprint:
    """Kimi Linear: three delta-attention layers to one MLA layer."""
    config.with_defaults({**_LATENT, "num_shared_experts": 1, "num_experts": 256, "num_experts_per_token": 8})
    latent = read_latent(config)
    count = config.integer("num_hidden_layers")
    delta = read_delta(config, latent.hidden_size, num_heads=32)
    config.ignore("mla_use_nope", "use_grouped_topk", "moe_router_activation_func", "moe_renormalize")
    attention = latent_attention(latent, bias=config.boolean("attention_bias", default=False))
    return _hybrid(config, latent, delta, attention, _kimi_kinds(config, count))


def read_delta(config: Config, hidden_size: int, *, num_heads: int) -> Recurrent:
    """Delta attention with gates of low rank; its sizes stand in `linear_attn_config` or under `linear_…` names.

    Args:
        config: The (text) config.
        hidden_size: Width of the residual stream.
        num_heads: The family's default.
    """
    stated = config.optional_nested("linear_attn_config")
    flat = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    place, names = (config, flat) if stated is None else (stated, ("num_heads", "head_dim", "short_conv_kernel_size"))
    heads = place.integer(names[0], default=num_heads)
    width = place.integer(names[1], default=128)
    config.ignore(*flat)
    return kimi_delta_attention(
        hidden_size=hidden_size,
        num_heads=heads,
        head_dim=width,
        kernel=place.integer(names[2], default=4),
        name=_NAME,
        gates=(
            *project(f"{_NAME}.f_a_proj", width, hidden_size),
            *project(f"{_NAME}.f_b_proj", heads * width, width),
            *project(f"{_NAME}.g_a_proj", width, hidden_size),
            *project(f"{_NAME}.g_b_proj", heads * width, width),
        ),
    )


def _kimi_kinds(config: Config, count: int) -> tuple[str, ...]:
    stated = config.optional_nested("linear_attn_config")
    kinds = config.kinds("layer_types", known=(_LINEAR, _FULL), length=count)
    full = stated.optional_integers("full_attn_layers", minimum=1) if stated is not None else None
    delta = stated.optional_integers("kda_layers", minimum=1) if stated is not None else None
    if kinds is not None:
        return kinds
    if stated is not None and full is not None and delta is not None:
        if sorted((*full, *delta)) != list(range(1, count + 1)):
            raise stated.error("kda_layers", f"must name, with full_attn_layers, each of the layers 1 to {count} once")
        return tuple(_FULL if index + 1 in full else _LINEAR for index in range(count))
    config.assumptions.append(f"layer_types is not in {config.source}: every fourth layer full attention assumed")
    return tuple(_FULL if index and index % 4 == 0 else _LINEAR for index in range(count))


def bailing_hybrid(config: Config) -> Blueprint:
    """Ling hybrids: delta attention with a plain decay gate, MLA with an output gate per head."""
    config.with_defaults(
        {**_LATENT, "num_shared_experts": 1, "num_experts": 512, "num_experts_per_token": 8, "layer_group_size": 6}
    )
    latent = read_latent(config)
    hidden, heads = latent.hidden_size, latent.num_attention_heads
    count = config.integer("num_hidden_layers")
    if config.integer("linear_num_heads", default=heads) != heads:
        raise config.error("linear_num_heads", f"must equal num_attention_heads {heads}")
    width = config.optional_integer("linear_head_dim") or config.integer("head_dim", default=128)
    gates = (
        *project(f"{_NAME}.f_proj", heads * width, hidden),
        *project(f"{_NAME}.g_proj", heads * width, hidden),
    )
    delta = kimi_delta_attention(
        hidden_size=hidden,
        num_heads=heads,
        head_dim=width,
        kernel=config.integer("short_conv_kernel_size", "linear_conv_kernel_dim", default=4),
        name=_NAME,
        gates=gates,
    )
    config.ignore("kda_safe_gate", "kda_lower_bound", "moe_renormalize", "mtp_loss_scaling_factor")
    group = config.integer("layer_group_size")
    kinds = config.kinds("layer_types", known=(_LINEAR, _FULL), length=count)
    if kinds is None:
        kinds = tuple(_LINEAR if (index + 1) % group else _FULL for index in range(count))
    attention = latent_attention(
        latent,
        bias=config.boolean("attention_bias", default=False),
        extra=project(f"{_NAME}.g_proj", heads, hidden),
    )
    return _hybrid(config, latent, delta, attention, kinds, first_dense=2, mtp=1)


def _hybrid(
    config: Config,
    latent: Latent,
    delta: Recurrent,
    attention: LatentAttention,
    kinds: tuple[str, ...],
    *,
    first_dense: int = 1,
    mtp: int = 0,
) -> Blueprint:
    hidden, count = latent.hidden_size, len(kinds)
    sparse = read_sparse_layers(config, count, first_dense=first_dense)
    mixture = read_experts(config).block(hidden) if any(sparse) else None
    forwards = read_feed_forwards(config, hidden, sparse, mixture)
    around = (*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden))
    layers = tuple(
        Layer(
            mixers=(delta if kind == _LINEAR else attention,),
            feed_forward=forward,
            tensors=around,
        )
        for kind, forward in zip(kinds, forwards, strict=True)
    )
    if config.boolean("tie_word_embeddings", default=False):
        config.warnings.append(
            f"tie_word_embeddings: transformers does not tie the head of {config.model_type}: counted"
        )
    stated = config.optional_integer("num_nextn_predict_layers", "num_mtp_layers", minimum=0, maximum=100)
    buffers = sum(sparse) * mixture.num_experts if mixture is not None else 0
    made = latent_decoder(config, hidden, layers, tied=False, buffer_elements=buffers)
    predictor = Layer(mixers=(attention,), feed_forward=mixture or forwards[-1], tensors=around)
    return with_own_mtp(made, mtp if stated is None else stated, layer=predictor)
