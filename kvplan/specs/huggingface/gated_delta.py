"""Hybrids of gated delta nets and attention: Qwen3-Next, Qwen3.5 and 3.6, OLMo Hybrid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kvplan.core.model import Attention, Layer, MixtureOfExperts, Recurrent
from kvplan.core.tensors import Tensor, TensorClass, linear, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.experts import read_feed_forwards
from kvplan.specs.huggingface.recurrent import DeltaNet, gated_delta_net, parameter, project, read_state_bits

_NAME: Final = "linear_attn"
_DELTA_NET: Final[dict[str, Any]] = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "head_dim": 256,
}
#: Spellings of the two kinds of layer.
_LINEAR: Final = "linear_attention"
_FULL: Final = "full_attention"


def qwen3_next(config: Config) -> Blueprint:
    """Qwen3-Next: sparse feed-forward on every layer (or every `decoder_sparse_step`-th), fused projections."""
    config.with_defaults({**_DELTA_NET, "num_experts": 512, "num_experts_per_tok": 10})
    count = config.integer("num_hidden_layers")
    step = config.optional_integer("decoder_sparse_step") or 1
    dense_layers = config.optional_integers("mlp_only_layers") or ()
    sparse = tuple(index not in dense_layers and (index + 1) % step == 0 for index in range(count))
    return _qwen(config, sparse, fused=True)


def qwen3_5(config: Config) -> Blueprint:
    """The text part of dense Qwen3.5 and 3.6."""
    config.with_defaults(_DELTA_NET)
    _no_dense_exceptions(config)
    return _qwen(config, (False,) * config.integer("num_hidden_layers"), fused=False)


def qwen3_5_moe(config: Config) -> Blueprint:
    """The text part of sparse Qwen3.5 and 3.6."""
    config.with_defaults({**_DELTA_NET, "num_experts": 256, "num_experts_per_tok": 8})
    _no_dense_exceptions(config)
    return _qwen(config, (True,) * config.integer("num_hidden_layers"), fused=False)


def _no_dense_exceptions(config: Config) -> None:
    if config.optional_integers("mlp_only_layers"):
        raise config.error("mlp_only_layers", f"is not understood for {config.model_type}")


def _qwen(config: Config, sparse: tuple[bool, ...], *, fused: bool) -> Blueprint:
    dims = blocks.read_dimensions(config, head_dim=256)
    hidden = dims.hidden_size
    attention, delta = _gated_attention(config, dims), _qwen_delta_net(config, hidden, fused=fused)
    forwards = read_feed_forwards(config, hidden, sparse, _mixture(config, hidden) if any(sparse) else None)
    kinds = _read_kinds(config, dims.num_hidden_layers)
    mtp = config.optional_integer("mtp_num_hidden_layers", "num_nextn_predict_layers", minimum=0, maximum=100) or 0
    mtp_tensors = (
        *linear("fc", TensorClass.OTHER, out_features=hidden, in_features=2 * hidden, shards=1),
        *norm("pre_fc_norm_embedding", hidden),
        *norm("pre_fc_norm_hidden", hidden),
        *norm("norm", hidden),
    )
    if config.boolean("mtp_use_dedicated_embeddings", default=False):
        mtp_tensors = (*mtp_tensors, *blocks.embedding(dims.vocab_size, hidden, name="embed_tokens"))
    made = blocks.stack(
        dims,
        mixers=tuple(delta if kind == _LINEAR else attention for kind in kinds),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
    )
    predictor = replace(made.layers[-1], mixers=(attention,))
    return replace(made, mtp_layers=(predictor,) * mtp, mtp_tensors=mtp_tensors if mtp else ())


def _read_kinds(config: Config, count: int) -> tuple[str, ...]:
    kinds = config.kinds("layer_types", "layers_block_type", known=(_LINEAR, _FULL), length=count)
    interval = config.optional_integer("full_attention_interval") or 4
    return kinds or tuple(_LINEAR if (index + 1) % interval else _FULL for index in range(count))


def _gated_attention(config: Config, dims: blocks.Dimensions) -> Attention:
    """Grouped-query attention whose query projection also makes an output gate of the same width."""
    if not config.boolean("attn_output_gate", default=True):
        raise config.error("attn_output_gate", f"false is not understood for {config.model_type}")
    if config.string("output_gate_type", default="swish") not in {"swish", "silu", "sigmoid"}:
        raise config.error("output_gate_type", "must name an activation: swish, silu or sigmoid")
    bias = config.boolean("attention_bias", default=False)
    width = dims.num_attention_heads * dims.head_dim
    plain = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims))
    query = project("self_attn.q_proj", 2 * width, dims.hidden_size, bias=bias)
    return replace(plain, tensors=(*query, *plain.tensors[len(query) :]))


def _read_delta_net(config: Config, hidden_size: int) -> DeltaNet:
    sizes = DeltaNet(
        hidden_size=hidden_size,
        num_key_heads=config.integer("linear_num_key_heads"),
        key_head_dim=config.integer("linear_key_head_dim"),
        num_value_heads=config.integer("linear_num_value_heads"),
        value_head_dim=config.integer("linear_value_head_dim"),
        kernel=config.integer("linear_conv_kernel_dim"),
    )
    if sizes.num_value_heads % sizes.num_key_heads:
        rule = f"{sizes.num_value_heads} is no multiple of linear_num_key_heads {sizes.num_key_heads}"
        raise config.error("linear_num_value_heads", rule)
    return sizes


def _qwen_delta_net(config: Config, hidden_size: int, *, fused: bool) -> Recurrent:
    sizes = _read_delta_net(config, hidden_size)
    key, value, heads = sizes.key_width, sizes.value_width, sizes.num_value_heads
    widths = (
        {"in_proj_qkvz": 2 * key + 2 * value, "in_proj_ba": 2 * heads}
        if fused
        else {"in_proj_qkv": 2 * key + value, "in_proj_z": value, "in_proj_b": heads, "in_proj_a": heads}
    )
    projections: tuple[Tensor, ...] = tuple(
        tensor for name, width in widths.items() for tensor in project(f"{_NAME}.{name}", width, hidden_size)
    )
    output = (*norm(f"{_NAME}.norm", sizes.value_head_dim), *project(f"{_NAME}.out_proj", hidden_size, value))
    return gated_delta_net(
        sizes,
        name=_NAME,
        projections=(*projections, *output),
        state_bits=read_state_bits(config),
    )


def _mixture(config: Config, hidden_size: int) -> MixtureOfExperts:
    experts = config.integer("num_experts", "num_local_experts")
    return blocks.gated_moe(
        hidden_size,
        config.integer("moe_intermediate_size"),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts),
        shared_size=config.integer("shared_expert_intermediate_size"),
        shared_name="mlp.shared_expert",
        extra=linear(
            "mlp.shared_expert_gate",
            TensorClass.SHARED,
            out_features=1,
            in_features=hidden_size,
            shards=1,
            quantisable=False,
        ),
    )


def olmo_hybrid(config: Config) -> Blueprint:
    """OLMo Hybrid: delta-net layers with norms before, attention layers with norms after their sublayers."""
    dims = blocks.read_dimensions(config)
    hidden, heads = dims.hidden_size, dims.num_attention_heads
    key_heads = config.integer("linear_num_key_heads", default=heads)
    width = config.integer("linear_key_head_dim", default=int(0.75 * hidden / key_heads))
    config.with_defaults(
        {
            "linear_num_key_heads": key_heads,
            "linear_num_value_heads": heads,
            "linear_key_head_dim": width,
            "linear_value_head_dim": 2 * width,
            "linear_conv_kernel_dim": 4,
        }
    )
    sizes = _read_delta_net(config, hidden)
    config.ignore("linear_allow_neg_eigval", "linear_use_gate", "fla_hybrid_attention_indices")
    config.ignore("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor")
    key, value = sizes.key_width, sizes.value_width
    widths = {"q_proj": key, "k_proj": key, "v_proj": value, "a_proj": sizes.num_value_heads}
    widths |= {"b_proj": sizes.num_value_heads, "g_proj": value}
    projections = tuple(tensor for name, rows in widths.items() for tensor in project(f"{_NAME}.{name}", rows, hidden))
    output = (*parameter(f"{_NAME}.o_norm", sizes.value_head_dim), *project(f"{_NAME}.o_proj", hidden, value))
    delta = gated_delta_net(sizes, name=_NAME, projections=(*projections, *output), state_bits=read_state_bits(config))
    bias = config.boolean("attention_bias", default=False)
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims, full_width=True))
    mlp = blocks.gated_mlp(hidden, config.integer("intermediate_size"))
    linear_layer = Layer(
        mixers=(delta,),
        feed_forward=mlp,
        tensors=(*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden)),
    )
    full_layer = Layer(
        mixers=(attention,),
        feed_forward=mlp,
        tensors=(*norm("post_attention_layernorm", hidden), *norm("post_feedforward_layernorm", hidden)),
    )
    kinds = _read_kinds(config, dims.num_hidden_layers)
    if not config.has("layer_types") and _FULL not in kinds:
        kinds = (*kinds[:-1], _FULL)
    return Blueprint(
        hidden_size=hidden,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context,
        layers=tuple(linear_layer if kind == _LINEAR else full_layer for kind in kinds),
        tensors=blocks.ends(config, dims),
    )
