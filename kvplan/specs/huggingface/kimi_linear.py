"""Hybrids of Kimi delta attention and MLA: Kimi Linear, Ling (Bailing hybrid)."""

from __future__ import annotations

from typing import Any, Final

from kvplan.core.model import LatentAttention, Layer, MixtureOfExperts, Recurrent
from kvplan.core.tensors import norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.mla import (
    Latent,
    latent_attention,
    mtp_tensors,
    read_latent,
    read_moe,
    read_sparse_layers,
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
    hidden = latent.hidden_size
    stated = config.optional_nested("linear_attn_config")
    heads = (stated or config).integer(*_linear_names(stated, "num_heads"), default=32)
    width = (stated or config).integer(*_linear_names(stated, "head_dim"), default=128)
    kernel = (stated or config).integer(
        *(("short_conv_kernel_size",) if stated is not None else ("linear_conv_kernel_dim",)), default=4
    )
    gates = (
        *project(f"{_NAME}.f_a_proj", width, hidden),
        *project(f"{_NAME}.f_b_proj", heads * width, width),
        *project(f"{_NAME}.g_a_proj", width, hidden),
        *project(f"{_NAME}.g_b_proj", heads * width, width),
    )
    delta = kimi_delta_attention(
        hidden_size=hidden, num_heads=heads, head_dim=width, kernel=kernel, name=_NAME, gates=gates
    )
    if stated is not None:
        config.ignore("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    config.ignore("mla_use_nope", "use_grouped_topk", "moe_router_activation_func", "moe_renormalize")
    attention = latent_attention(latent, bias=config.boolean("attention_bias", default=False))
    return _hybrid(config, latent, delta, attention, _kimi_kinds(config, stated, count))


def _linear_names(stated: Config | None, name: str) -> tuple[str, ...]:
    return (name,) if stated is not None else (f"linear_{name}",)


def _kimi_kinds(config: Config, stated: Config | None, count: int) -> tuple[str, ...]:
    kinds = config.strings("layer_types", length=count)
    full = stated.optional_integers("full_attn_layers", minimum=1) if stated is not None else None
    delta = stated.optional_integers("kda_layers", minimum=1) if stated is not None else None
    if kinds is not None:
        return _checked(config, kinds)
    if stated is not None and full is not None and delta is not None:
        if sorted((*full, *delta)) != list(range(1, count + 1)):
            raise stated.error("kda_layers", f"must name, with full_attn_layers, each of the layers 1 to {count} once")
        return tuple(_FULL if index + 1 in full else _LINEAR for index in range(count))
    config.assumptions.append(f"layer_types is not in {config.source}: every fourth layer full attention assumed")
    return tuple(_FULL if index and index % 4 == 0 else _LINEAR for index in range(count))


def _checked(config: Config, kinds: tuple[str, ...]) -> tuple[str, ...]:
    for kind in kinds:
        if kind not in {_LINEAR, _FULL}:
            raise config.error("layer_types", f"{kind!r} is not understood for {config.model_type}")
    return kinds


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
    kinds = config.strings("layer_types", length=count)
    if kinds is None:
        kinds = tuple(_LINEAR if (index + 1) % group else _FULL for index in range(count))
    attention = latent_attention(
        latent,
        bias=config.boolean("attention_bias", default=False),
        extra=project(f"{_NAME}.g_proj", heads, hidden),
    )
    return _hybrid(config, latent, delta, attention, _checked(config, kinds), first_dense=2, mtp=1)


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
    mixture = _mixture(config) if any(sparse) else None
    dense = None if all(sparse) else blocks.gated_mlp(hidden, config.integer("intermediate_size"))
    config.ignore("intermediate_size")
    around = (*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden))
    layers = tuple(
        Layer(
            mixers=(delta if kind == _LINEAR else attention,),
            feed_forward=mixture if is_sparse else dense,
            tensors=around,
        )
        for kind, is_sparse in zip(kinds, sparse, strict=True)
    )
    vocab_size = config.integer("vocab_size")
    if config.boolean("tie_word_embeddings", default=False):
        config.warnings.append(
            f"tie_word_embeddings: transformers does not tie the head of {config.model_type}: counted"
        )
    stated = config.optional_integer("num_nextn_predict_layers", "num_mtp_layers", minimum=0, maximum=100)
    mtp = mtp if stated is None else stated
    mtp_layer = Layer(mixers=(attention,), feed_forward=mixture or dense, tensors=around)
    return Blueprint(
        hidden_size=hidden,
        vocab_size=vocab_size,
        max_context=blocks.read_max_context(config),
        layers=layers,
        tensors=(
            *blocks.embedding(vocab_size, hidden),
            *norm("model.norm", hidden),
            *blocks.lm_head(vocab_size, hidden, tied=False),
        ),
        mtp_layers=(mtp_layer,) * mtp,
        mtp_tensors=mtp_tensors(hidden, vocab_size) if mtp else (),
        buffer_elements=sum(sparse) * mixture.num_experts if mixture is not None else 0,
    )


def _mixture(config: Config) -> MixtureOfExperts:
    return read_moe(
        config,
        experts=("num_experts", "n_routed_experts", "num_local_experts"),
        top_k=("num_experts_per_token", "num_experts_per_tok"),
        shared=("num_shared_experts", "n_shared_experts"),
    )
