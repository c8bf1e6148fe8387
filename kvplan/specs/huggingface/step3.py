"""The text part of Step-3.5 and 3.7: gated attention, more heads on windowed layers, experts with a shared one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kvplan.core.model import Attention, MixtureOfExperts
from kvplan.core.tensors import TensorClass, linear
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.experts import alternate
from kvplan.specs.huggingface.mla import with_own_mtp

_DEFAULTS: Final[dict[str, Any]] = {
    "vocab_size": 128815,
    "hidden_size": 4096,
    "intermediate_size": 11264,
    "num_hidden_layers": 45,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts_per_tok": 8,
    "n_routed_experts": 288,
    "moe_intermediate_size": 1280,
    "share_expert_dim": 1280,
}
_SLIDING: Final = "sliding_attention"


def step3p5(config: Config) -> Blueprint:
    """Step-3.5-Flash and the decoder of Step-3.7-Flash. Lists may carry entries of the MTP layers at their end."""
    config.with_defaults(_DEFAULTS)
    dims = _dimensions(config)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    mtp = config.optional_integer("num_nextn_predict_layers", "num_mtp_layers", minimum=0, maximum=100) or 0
    kinds = _read_kinds(config, count, mtp)
    sparse = _read_sparse(config, count, mtp)
    attention = _attentions(config, dims, kinds)
    bias = config.boolean("mlp_bias", default=False)
    mixture = _mixture(config, hidden, bias=bias)
    dense = blocks.gated_mlp(hidden, config.integer("intermediate_size"), bias=bias)
    _ignore_numbers(config)
    made = blocks.stack(
        dims,
        mixers=tuple(attention[kind] for kind in kinds[:count]),
        feed_forward=alternate(sparse[:count], mixture, dense),
        tensors=blocks.ends(config, dims),
        buffer_elements=sum(sparse[:count]) * mixture.num_experts,
    )
    return with_own_mtp(made, mtp)


def _dimensions(config: Config) -> blocks.Dimensions:
    heads = config.integer("num_attention_heads")
    groups = config.integer("num_key_value_heads", "num_attention_groups")
    if heads % groups:
        raise config.error("num_attention_groups", f"{groups} does not divide the {heads} attention heads")
    return blocks.Dimensions(
        hidden_size=config.integer("hidden_size"),
        num_hidden_layers=config.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=config.integer("head_dim"),
        vocab_size=config.integer("vocab_size"),
        max_context=blocks.read_max_context(config),
    )


def _read_kinds(config: Config, count: int, mtp: int) -> tuple[str, ...]:
    kinds = config.kinds("layer_types", known=("full_attention", _SLIDING))
    if kinds is None:
        return ("full_attention",) * count
    if len(kinds) not in {count, count + mtp}:
        raise config.error("layer_types", f"must have {count} entries, one per layer, not {len(kinds)}")
    return kinds


def _read_sparse(config: Config, count: int, mtp: int) -> tuple[bool, ...]:
    types = config.strings("mlp_layer_types")
    if types is not None:
        if len(types) not in {count, count + mtp}:
            raise config.error("mlp_layer_types", f"must have {count} entries, one per layer, not {len(types)}")
        return tuple(kind == "sparse" for kind in types)
    named = config.raw("moe_layers_enum")
    if named is not None:
        items = named.split(",") if isinstance(named, str) else named
        try:
            chosen = {int(item) for item in items if str(item).strip()}
        except (TypeError, ValueError):
            raise config.error("moe_layers_enum", "must list the numbers of layers") from None
        return tuple(index in chosen for index in range(count))
    first = config.integer("first_k_dense_replace", default=3, minimum=0)
    return tuple(index >= first for index in range(count))


def _attentions(config: Config, dims: blocks.Dimensions, kinds: tuple[str, ...]) -> dict[str, Attention]:
    """Attention of full and of windowed layers; the output gate has one value per head."""
    if not config.boolean("use_head_wise_attn_gate", default=True):
        raise config.error("use_head_wise_attn_gate", f"false is not understood for {config.model_type}")
    if config.boolean("use_qk_norm", default=True) is False:
        raise config.error("use_qk_norm", f"false is not understood for {config.model_type}")
    bias = config.boolean("attention_bias", default=False)
    heads = config.optional_integer("num_sliding_attention_heads")
    other = config.optional_nested("attention_other_setting")
    if other is not None:
        other.ignore("attention_type", "true_head_dim")
        groups = other.integer("num_attention_groups", "num_key_value_heads", default=dims.num_key_value_heads)
        if groups != dims.num_key_value_heads or other.integer("head_dim", default=dims.head_dim) != dims.head_dim:
            raise other.error("num_attention_groups", "other KV heads on windowed layers are not understood")
        heads = heads or other.integer("num_attention_heads", default=dims.num_attention_heads)
    window = config.optional_integer("sliding_window")
    if _SLIDING in kinds and window is None:
        raise config.error("sliding_window", "is missing, but some layers are windowed")
    sliding = replace(dims, num_attention_heads=heads or dims.num_attention_heads)
    _check_per_layer(config, {"full_attention": dims, _SLIDING: sliding}, kinds)

    def build(sizes: blocks.Dimensions, window: int | None) -> Attention:
        gate = linear(
            "self_attn.g_proj",
            TensorClass.ATTENTION,
            out_features=sizes.num_attention_heads,
            in_features=sizes.hidden_size,
        )
        return blocks.gqa(sizes, qkv_bias=bias, o_bias=bias, window=window, extra=(*blocks.qk_norm(sizes), *gate))

    return {"full_attention": build(dims, None), _SLIDING: build(sliding, window)}


def _check_per_layer(config: Config, sizes: Mapping[str, blocks.Dimensions], kinds: tuple[str, ...]) -> None:
    """Refuse `per_layer_config` (as transformers saves it) where it says more than the heads of windowed layers."""
    stated = config.optional_nested("per_layer_config")
    for name in stated.data if stated is not None else ():
        layer = stated.nested(name) if stated is not None else config
        if not name.isdigit() or int(name) >= len(kinds):
            raise config.error("per_layer_config", f"{name!r} is no layer")
        expected = sizes[kinds[int(name)]].num_attention_heads
        if layer.integer("num_attention_heads", default=expected) != expected:
            raise layer.error("num_attention_heads", f"must be {expected}, as on the other layers of its kind")


def _mixture(config: Config, hidden: int, *, bias: bool) -> MixtureOfExperts:
    experts = config.integer("n_routed_experts", "moe_num_experts", "num_experts", "num_local_experts")
    if config.optional_integer("n_shared_experts", minimum=0) not in (None, 1):
        raise config.error("n_shared_experts", "must be 1")
    return blocks.gated_moe(
        hidden,
        config.integer("moe_intermediate_size"),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, "num_experts_per_tok", "moe_top_k"),
        extra=blocks.gated_tensors(
            "mlp.shared_experts",
            hidden,
            config.integer("share_expert_dim", "share_expert_dims"),
            tensor_class=TensorClass.SHARED,
            bias=bias,
        ),
    )


def _ignore_numbers(config: Config) -> None:
    config.ignore(
        "swiglu_limits", "swiglu_limits_shared", "partial_rotary_factors", "use_rope_layers", "yarn_only_types"
    )
    config.ignore(
        "use_moe_router_bias", "moe_router_scaling_factor", "moe_router_activation", "use_moe", "moe_every_n_layer"
    )
    config.ignore("norm_expert_weight", "need_fp32_gate", "mtp_layer_types", "mtp_mlp_layer_types", "zero_centered")
    if config.raw("gating") not in (None, True, "per-head"):
        raise config.error("gating", "must be per-head")
    config.ignore("use_bidirectional_attention", "attention_dropout", "max_seq_len", "sink", "att_impl_type", "use_mfa")
