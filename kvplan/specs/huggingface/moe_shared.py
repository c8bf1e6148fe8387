"""Mixtures of experts of the DeepSeek kind over plain attention: dense layers first, shared experts, biased routers."""

from __future__ import annotations

from kvplan.core.dataclass import dataclass
from kvplan.core.model import FeedForward, MixtureOfExperts
from kvplan.core.tensors import TensorClass
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.llama import exaone_windows
from kvplan.specs.huggingface.moe import alternate


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Sizes of a DeepSeek-style mixture.

    Attributes:
        count: Routed experts.
        top_k: Experts that a token is sent to.
        size: Width inside one of them.
        shared: Shared experts, each as wide as a routed one.
    """

    count: int
    top_k: int
    size: int
    shared: int

    def block(self, hidden_size: int, *, shared_bias: bool = False) -> MixtureOfExperts:
        """The feed-forward under the usual names, optionally with biases in the shared experts."""
        shared = blocks.gated_tensors(
            "mlp.shared_experts",
            hidden_size,
            self.shared * self.size,
            tensor_class=TensorClass.SHARED,
            bias=shared_bias,
        )
        return blocks.gated_moe(
            hidden_size,
            self.size,
            num_experts=self.count,
            top_k=self.top_k,
            extra=shared if self.shared else (),
        )


def read_experts(config: Config, *, shared_default: int | None = None) -> Experts:
    """Read a mixture's sizes under their spellings."""
    count = config.integer("n_routed_experts", "num_experts", "num_local_experts")
    shared = config.optional_integer("n_shared_experts", "num_shared_experts", minimum=0)
    if shared is None:
        shared = shared_default or 0
    config.ignore("n_group", "topk_group", "num_expert_group", "scoring_func", "topk_method", "ep_size")
    config.ignore("norm_topk_prob", "routed_scaling_factor", "score_function", "router_dtype")
    return Experts(
        count=count,
        top_k=blocks.read_top_k(config, count, "num_experts_per_tok", "num_experts_per_token"),
        size=config.integer("moe_intermediate_size"),
        shared=shared,
    )


def dense_first(
    config: Config, dims: Dimensions, sparse: FeedForward, *, default: int = 0, dense_bias: bool = False
) -> tuple[FeedForward, ...]:
    """The feed-forward of each layer: `mlp_layer_types`, or the first `first_k_dense_replace` layers dense."""
    count = dims.num_hidden_layers
    kinds = config.strings("mlp_layer_types", length=count)
    first = config.optional_integer("first_k_dense_replace", "num_dense_layers", minimum=0)
    if kinds is not None:
        for kind in kinds:
            if kind not in {"dense", "sparse"}:
                raise config.unsupported("mlp_layer_types", f"{kind!r} is not understood")
        sparse_layers = tuple(kind == "sparse" for kind in kinds)
    else:
        if first is None:
            first = default
        sparse_layers = tuple(index >= first for index in range(count))
    if all(sparse_layers):
        config.ignore("intermediate_size")
        return (sparse,) * count
    dense = blocks.gated_mlp(dims.hidden_size, config.integer("intermediate_size"), bias=dense_bias)
    return alternate(sparse_layers, sparse, dense)


def count_sparse(forwards: tuple[FeedForward, ...]) -> int:
    """How many layers are sparse."""
    return sum(isinstance(forward, MixtureOfExperts) for forward in forwards)


def deepseek(config: Config) -> Blueprint:
    """DeepSeek 1: DeepSeekMoE over multi-head attention, or a plain Llama without experts."""
    dims = blocks.read_dimensions(config)
    bias = config.boolean("attention_bias", default=False)
    forwards: tuple[FeedForward, ...]
    if config.has("n_routed_experts"):
        if config.integer("moe_layer_freq", default=1) != 1:
            raise config.unsupported("moe_layer_freq", "only 1 is understood")
        forwards = dense_first(config, dims, read_experts(config).block(dims.hidden_size))
    else:
        config.ignore("moe_intermediate_size", "n_shared_experts", "num_experts_per_tok", "first_k_dense_replace")
        config.ignore("moe_layer_freq")
        forwards = (blocks.gated_mlp(dims.hidden_size, config.integer("intermediate_size")),) * dims.num_hidden_layers
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
    )


def glm4_moe(config: Config) -> Blueprint:
    """GLM-4.5 to 4.7 and INTELLECT-3: biases on Q, K, V and norms of queries and keys by switches."""
    return _glm_like(config, norms_default=False, dense_default=1)


def sarvam_moe(config: Config) -> Blueprint:
    """Sarvam MoE: GLM-4.5 with norms of queries and keys by default."""
    return _glm_like(config, norms_default=True, dense_default=1, head_dim=64, kv_heads=4)


def solar_open(config: Config) -> Blueprint:
    """Solar Open: GLM-4.5 with all layers sparse."""
    return _glm_like(config, norms_default=False, dense_default=0, head_dim=128)


def _glm_like(
    config: Config,
    *,
    norms_default: bool,
    dense_default: int,
    head_dim: int | None = None,
    kv_heads: int = 8,
) -> Blueprint:
    dims = blocks.read_dimensions(config, num_key_value_heads=kv_heads, head_dim=head_dim)
    experts = read_experts(config, shared_default=1)
    forwards = dense_first(config, dims, experts.block(dims.hidden_size), default=dense_default)
    extra = blocks.qk_norm(dims) if config.boolean("use_qk_norm", default=norms_default) else ()
    made = blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=config.boolean("attention_bias", default=False), extra=extra),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
        buffer_elements=experts.count * count_sparse(forwards),
    )
    return blocks.with_mtp(made, config.optional_integer("num_nextn_predict_layers", minimum=0) or 0)


def dots1(config: Config) -> Blueprint:
    """dots.llm1: norms of queries and keys, windows by Qwen's late-layer rule."""
    dims = blocks.read_dimensions(config)
    experts = read_experts(config)
    forwards = dense_first(config, dims, experts.block(dims.hidden_size))
    bias = config.boolean("attention_bias", default=False)
    window = blocks.read_window(config)
    first = config.optional_integer("max_window_layers", minimum=0)
    config.ignore("use_sliding_window", "moe_layer_freq")
    limit = 62 if first is None else first
    windows = blocks.read_windows(
        config,
        dims.num_hidden_layers,
        window=window,
        default=tuple(window is not None and index >= limit for index in range(dims.num_hidden_layers)),
    )
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims))
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
        buffer_elements=experts.count * count_sparse(forwards),
    )


def exaone_moe(config: Config) -> Blueprint:
    """K-EXAONE: EXAONE 4's windows and norms of queries and keys over a DeepSeek-style mixture."""
    dims = blocks.read_dimensions(config)
    window = blocks.read_window(config, default=4096)
    windows = exaone_windows(config, dims, window)
    experts = read_experts(config, shared_default=1)
    config.ignore("is_moe_layer")
    forwards = dense_first(config, dims, experts.block(dims.hidden_size), default=1)
    made = blocks.stack(
        dims,
        mixers=blocks.windowed(blocks.gqa(dims, extra=blocks.qk_norm(dims)), windows),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
        buffer_elements=experts.count * count_sparse(forwards),
    )
    return blocks.with_mtp(made, config.optional_integer("num_nextn_predict_layers", minimum=0) or 0)


def hy_v3(config: Config) -> Blueprint:
    """Hunyuan 3: norms of queries and keys, optional biases everywhere but in routed experts."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8, head_dim=128)
    experts = read_experts(config, shared_default=1)
    bias = config.boolean("attention_bias", default=False)
    mlp_bias = config.boolean("mlp_bias", default=False)
    config.ignore("router_scaling_factor", "enable_moe_fp32_combine")
    sparse = experts.block(dims.hidden_size, shared_bias=mlp_bias)
    forwards = dense_first(config, dims, sparse, default=1, dense_bias=mlp_bias)
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims)),
        feed_forward=forwards,
        tensors=blocks.ends(config, dims),
        buffer_elements=experts.count * count_sparse(forwards),
    )


def mellum(config: Config) -> Blueprint:
    """Mellum 2: Qwen 3 MoE with windows and sparse layers by type."""
    dims = blocks.read_dimensions(config, num_key_value_heads=4, head_dim=128)
    experts = read_experts(config)
    bias = config.boolean("attention_bias", default=False)
    windows = blocks.read_windows(config, dims.num_hidden_layers, window=blocks.read_window(config, default=1024))
    config.ignore("mtp_layer_types", "mtp_mlp_layer_types")
    if config.optional_integer("num_nextn_predict_layers", minimum=0):
        config.warnings.append("num_nextn_predict_layers: prediction layers are not counted")
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias, extra=blocks.qk_norm(dims))
    return blocks.stack(
        dims,
        mixers=blocks.windowed(attention, windows),
        feed_forward=dense_first(config, dims, experts.block(dims.hidden_size)),
        tensors=blocks.ends(config, dims),
    )


def kolibri1(config: Config) -> Blueprint:
    """Kolibri 1: four norms, norms of queries and keys, windows on all but each fifth layer, one shared expert."""
    dims = blocks.read_dimensions(config, num_key_value_heads=4, head_dim=128)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    experts = config.integer("num_local_experts", "num_experts", default=384)
    sparse = blocks.gated_moe(
        hidden,
        config.integer("moe_intermediate_size", default=512),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, default=6),
        shared_size=config.integer("shared_expert_intermediate_size", default=512),
    )
    windows = blocks.read_windows(
        config, count, window=blocks.read_window(config, default=513), default=blocks.patterned(count, 5)
    )
    config.ignore("attention_bias")
    names = (*blocks.TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")
    return blocks.stack(
        dims,
        mixers=blocks.windowed(blocks.gqa(dims, extra=blocks.qk_norm(dims)), windows),
        feed_forward=sparse,
        layer_tensors=blocks.norms(names, hidden),
        tensors=blocks.ends(config, dims),
        buffer_elements=experts * count,
    )


def aria_text(config: Config) -> Blueprint:
    """Aria's decoder: fused experts, shared ones with biases by `mlp_bias`."""
    dims = blocks.read_dimensions(config)
    hidden = dims.hidden_size
    bias = config.boolean("attention_bias", default=False)
    experts = config.integer("moe_num_experts", default=8)
    size = config.integer("intermediate_size")
    shared = config.integer("moe_num_shared_experts", default=2, minimum=0)
    sparse = blocks.gated_moe(
        hidden,
        size,
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, "moe_topk", default=2),
        routing=blocks.router("mlp.router", hidden, experts),
        extra=blocks.gated_tensors(
            "mlp.shared_experts",
            hidden,
            shared * size,
            tensor_class=TensorClass.SHARED,
            bias=config.boolean("mlp_bias", default=False),
        )
        if shared
        else (),
    )
    return blocks.stack(
        dims,
        mixers=blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        feed_forward=sparse,
        tensors=blocks.ends(config, dims),
    )
