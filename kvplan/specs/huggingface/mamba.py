"""Pure Mamba models and hybrids of Mamba and attention: Jamba, Bamba, Granite 4, Falcon-H1."""

from __future__ import annotations

from typing import Final

from kvplan.core.model import Attention, DenseFeedForward, Layer, MixtureOfExperts, Recurrent
from kvplan.core.tensors import TensorClass, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.recurrent import Mamba1, Mamba2, mamba1, mamba2, read_rank, read_state_bits

_LINEAR: Final = frozenset({"mamba", "linear_attention"})
_FULL: Final = frozenset({"attention", "full_attention"})


def mamba(config: Config) -> Blueprint:
    """Mamba and Falcon-Mamba: one mixer per layer, no feed-forward, no cache.

    A stated `intermediate_size` wins over `expand` (Falcon-Mamba-7B: 8192, though `expand` says 16).
    """
    hidden = config.integer("hidden_size", "d_model")
    inner = config.optional_integer("intermediate_size", "d_inner")
    if inner is None:
        inner = int(config.number("expand", default=2) * hidden)
    config.ignore("expand")
    bias = config.boolean("use_bias", default=False)
    sizes = Mamba1(
        hidden_size=hidden,
        intermediate_size=inner,
        state_size=config.integer("state_size", default=16),
        kernel=config.integer("conv_kernel", default=4),
        rank=read_rank(config, "time_step_rank", hidden_size=hidden),
        conv_bias=config.boolean("use_conv_bias", default=True),
        bias=bias,
    )
    _ignore_steps(config)
    return _pure(config, hidden, mamba1(sizes, name="mixer", state_bits=read_state_bits(config)), tied=True)


def mamba2_family(config: Config) -> Blueprint:
    """Mamba 2 and Codestral Mamba."""
    hidden = config.integer("hidden_size", "d_model")
    sizes = Mamba2(
        hidden_size=hidden,
        num_heads=config.integer("num_heads", default=128),
        head_dim=config.integer("head_dim", default=64),
        state_size=config.integer("state_size", default=128),
        groups=config.integer("n_groups", default=8),
        kernel=config.integer("conv_kernel", default=4),
        conv_bias=config.boolean("use_conv_bias", default=True),
        in_bias=config.boolean("use_bias", default=False),
        out_bias=config.boolean("use_bias", default=False),
    )
    _check_inner(config, "num_heads", sizes, config.number("expand", default=2) * hidden)
    config.ignore("chunk_size", "intermediate_size")
    _ignore_steps(config)
    return _pure(config, hidden, mamba2(sizes, name="mixer", state_bits=read_state_bits(config)), tied=False)


def _check_inner(config: Config, name: str, sizes: Mamba2, inner: float) -> None:
    if sizes.num_heads * sizes.head_dim != inner:
        rule = f"{sizes.num_heads} heads of width {sizes.head_dim} don't make up the {inner:g} channels"
        raise config.error(name, rule)


def _ignore_steps(config: Config) -> None:
    """Numbers that only shape initial values."""
    steps = ("rank", "scale", "min", "max", "init_scheme", "floor", "limit")
    config.ignore(*(f"time_step_{step}" for step in steps))
    config.ignore("rescale_prenorm_residual", "use_mambapy", "use_falcon_mambapy", "use_associative_scan", "rms_norm")
    config.ignore(
        "fused_add_norm",
        "num_logits_to_keep",
        "mixer_rms_eps",
        "use_mamba_kernels",
        "norm_before_gate",
        "residual_in_fp32",
    )


def _pure(config: Config, hidden: int, mixer: Recurrent, *, tied: bool) -> Blueprint:
    vocab_size = config.integer("vocab_size")
    layer = Layer(mixers=(mixer,), feed_forward=None, tensors=norm("norm", hidden))
    return Blueprint(
        hidden_size=hidden,
        vocab_size=vocab_size,
        max_context=blocks.read_max_context(config),
        layers=(layer,) * config.integer("num_hidden_layers", "n_layer"),
        layer_prefix="backbone.layers.{i}.",
        tensors=(
            *blocks.embedding(vocab_size, hidden, name="backbone.embeddings"),
            *norm("backbone.norm_f", hidden),
            *blocks.lm_head(vocab_size, hidden, tied=config.boolean("tie_word_embeddings", default=tied)),
        ),
    )


def read_mamba1(config: Config, hidden: int) -> Mamba1:
    """The sizes of a Mamba 1 mixer under their `mamba_…` names."""
    return Mamba1(
        hidden_size=hidden,
        intermediate_size=config.integer("mamba_expand", default=2) * hidden,
        state_size=config.integer("mamba_d_state", default=16),
        kernel=config.integer("mamba_d_conv", default=4),
        rank=read_rank(config, "mamba_dt_rank", hidden_size=hidden),
        conv_bias=config.boolean("mamba_conv_bias", default=True),
        bias=config.boolean("mamba_proj_bias", default=False),
    )


def read_mamba2(
    config: Config, hidden: int, *, inner: int | None = None, out_bias: str = "mamba_proj_bias", gated_norm: bool = True
) -> Mamba2:
    """The sizes of a Mamba 2 mixer under their `mamba_…` names.

    Args:
        config: The (text) config.
        hidden: Width of the residual stream.
        inner: Channels; None is `mamba_expand × hidden`.
        out_bias: Field that gives the output projection its bias.
        gated_norm: False where there is no norm before the output projection.

    Raises:
        SpecError: A field is invalid, or heads don't make up the channels.
    """
    expand = config.integer("mamba_expand", default=2)
    channels = inner if inner is not None else expand * hidden
    heads = config.integer("mamba_n_heads", default=128)
    width = config.raw("mamba_d_head")
    sizes = Mamba2(
        hidden_size=hidden,
        num_heads=heads,
        head_dim=channels // heads if width in (None, "auto") else config.integer("mamba_d_head"),
        state_size=config.integer("mamba_d_state", default=256),
        groups=config.integer("mamba_n_groups", default=1),
        kernel=config.integer("mamba_d_conv", default=4),
        conv_bias=config.boolean("mamba_conv_bias", default=True),
        in_bias=config.boolean("mamba_proj_bias", default=False),
        out_bias=config.boolean(out_bias, default=False),
        gated_norm=gated_norm,
    )
    _check_inner(config, "mamba_n_heads", sizes, channels)
    config.ignore("mamba_chunk_size")
    _ignore_steps(config)
    return sizes


def read_kinds(config: Config, count: int, *names: str) -> tuple[bool, ...] | None:
    """For each layer whether it is attention, or None where the config doesn't say.

    Raises:
        SpecError: An unknown type of layer.
    """
    kinds = config.kinds(*names, known=_LINEAR | _FULL, length=count)
    return None if kinds is None else tuple(kind in _FULL for kind in kinds)


def _hybrid(
    config: Config,
    dims: blocks.Dimensions,
    layers: tuple[Layer, ...],
    *,
    tied: bool = False,
    final_norm: str = "model.final_layernorm",
) -> Blueprint:
    return Blueprint(
        hidden_size=dims.hidden_size,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context,
        layers=layers,
        tensors=blocks.ends(config, dims, tied_default=tied, final_norm=norm(final_norm, dims.hidden_size)),
    )


def _jamba_layer(
    mixers: tuple[Attention | Recurrent, ...],
    feed_forward: DenseFeedForward | MixtureOfExperts,
    hidden: int,
) -> Layer:
    return Layer(
        mixers=mixers,
        feed_forward=feed_forward,
        tensors=(*norm("input_layernorm", hidden), *norm("pre_ff_layernorm", hidden)),
    )


def jamba(config: Config) -> Blueprint:
    """Jamba: Mamba 1 with norms inside, attention every `attn_layer_period`, experts every `expert_layer_period`."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    sizes = read_mamba1(config, hidden)
    inner_norms = (
        *norm("mamba.dt_layernorm", sizes.rank),
        *norm("mamba.b_layernorm", sizes.state_size),
        *norm("mamba.c_layernorm", sizes.state_size),
    )
    recurrent, attention = (
        mamba1(sizes, name="mamba", state_bits=read_state_bits(config), extra=inner_norms),
        blocks.gqa(dims),
    )
    dense = blocks.gated_mlp(hidden, config.integer("intermediate_size"), name="feed_forward")
    mixture = _jamba_mixture(config, hidden, dense)
    period, offset = (
        config.integer("attn_layer_period", default=8),
        config.integer("attn_layer_offset", default=4, minimum=0),
    )
    expert_period = config.integer("expert_layer_period", default=2)
    expert_offset = config.integer("expert_layer_offset", default=1, minimum=0)
    _ignore_steps(config)
    config.ignore("layers_block_type", "layer_types", "mamba_inner_layernorms", "sliding_window", "n_ctx")
    layers = tuple(
        _jamba_layer(
            (attention if index % period == offset else recurrent,),
            mixture if index % expert_period == expert_offset else dense,
            hidden,
        )
        for index in range(count)
    )
    return _hybrid(config, dims, layers)


def _jamba_mixture(config: Config, hidden: int, dense: DenseFeedForward) -> DenseFeedForward | MixtureOfExperts:
    experts = config.integer("num_experts", "num_local_experts", default=16)
    top_k = blocks.read_top_k(config, max(experts, 2), default=2)
    if experts == 1:
        return dense
    return blocks.gated_moe(
        hidden,
        config.integer("intermediate_size"),
        num_experts=experts,
        top_k=top_k,
        name="feed_forward.experts",
        routing=blocks.router("feed_forward.router", hidden, experts),
    )


def bamba(config: Config) -> Blueprint:
    """Bamba: Mamba 2 with attention on the layers of `attn_layer_indices`."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8)
    hidden = dims.hidden_size
    recurrent = mamba2(read_mamba2(config, hidden), name="mamba", state_bits=read_state_bits(config))
    bias = config.boolean("attention_bias", default=False)
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias)
    mlp = blocks.gated_mlp(
        hidden,
        config.integer("intermediate_size"),
        name="feed_forward",
        bias=config.boolean("mlp_bias", default=False),
    )
    full = config.optional_integers("attn_layer_indices") or ()
    if any(index >= dims.num_hidden_layers for index in full):
        raise config.error("attn_layer_indices", f"names a layer beyond the {dims.num_hidden_layers} that there are")
    layers = tuple(
        _jamba_layer((attention if index in full else recurrent,), mlp, hidden)
        for index in range(dims.num_hidden_layers)
    )
    return _hybrid(config, dims, layers)


def granitemoehybrid(config: Config) -> Blueprint:
    """Granite 4: Mamba 2 or attention, then a shared feed-forward beside routed experts (or alone)."""
    dims = blocks.read_dimensions(config)
    hidden = dims.hidden_size
    full = read_kinds(config, dims.num_hidden_layers, "layer_types", "layers_block_type")
    if full is None:
        config.assumptions.append(f"layer_types is not in {config.source}: Mamba on all layers assumed")
        full = (False,) * dims.num_hidden_layers
    recurrent = (
        mamba2(read_mamba2(config, hidden), name="mamba", state_bits=read_state_bits(config)) if not all(full) else None
    )
    if recurrent is None:
        names = ("n_heads", "n_groups", "d_state", "d_head", "d_conv", "expand", "chunk_size", "conv_bias", "proj_bias")
        config.ignore(*(f"mamba_{name}" for name in names))
    bias = config.boolean("attention_bias", default=False)
    attention = blocks.gqa(dims, qkv_bias=bias, o_bias=bias)
    feed_forward = _granite_feed_forward(config, hidden)
    around = (*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden))
    config.ignore("normalization_function", "init_method", "position_embedding_type")
    layers = tuple(
        Layer(
            mixers=(attention if is_full or recurrent is None else recurrent,),
            feed_forward=feed_forward,
            tensors=around,
        )
        for is_full in full
    )
    return _hybrid(config, dims, layers, final_norm="model.norm")


def _granite_feed_forward(config: Config, hidden: int) -> DenseFeedForward | MixtureOfExperts:
    shared = blocks.two_tensors(
        ("shared_mlp.input_linear", "shared_mlp.output_linear"),
        hidden,
        config.integer("shared_intermediate_size", default=1024),
        up_factor=2,
        tensor_class=TensorClass.SHARED,
    )
    experts = config.integer("num_local_experts", "num_experts", default=8, minimum=0)
    if experts == 0:
        config.ignore("intermediate_size", "num_experts_per_tok")
        return DenseFeedForward(tensors=shared)
    top_k = blocks.read_top_k(config, experts, default=2)
    routed = blocks.two_tensors(
        ("block_sparse_moe.input_linear", "block_sparse_moe.output_linear"),
        hidden,
        config.integer("intermediate_size"),
        up_factor=2,
        tensor_class=TensorClass.EXPERTS,
        copies=experts,
    )
    gate = blocks.router("block_sparse_moe.router.layer", hidden, experts)
    return MixtureOfExperts(num_experts=experts, top_k=top_k, tensors=(*gate, *routed, *shared))


def falcon_h1(config: Config) -> Blueprint:
    """Falcon-H1: attention and Mamba 2 side by side in every layer."""
    dims = blocks.read_dimensions(config, num_key_value_heads=8)
    hidden = dims.hidden_size
    inner = config.integer("mamba_d_ssm", default=1024) if config.data.get("mamba_d_ssm", 0) is not None else None
    gated_norm = config.boolean("mamba_rms_norm", default=False)
    sizes = read_mamba2(config, hidden, inner=inner, out_bias="projectors_bias", gated_norm=gated_norm)
    bias = config.boolean("attention_bias", default=False)
    config.ignore("mamba_norm_before_gate", "mlp_expansion_factor", "mamba_use_mlp", "attn_layer_indices")
    config.ignore("mlp_multipliers", "ssm_multipliers")
    mlp = blocks.gated_mlp(
        hidden,
        config.integer("intermediate_size"),
        name="feed_forward",
        bias=config.boolean("mlp_bias", default=False),
    )
    mixers = (
        blocks.gqa(dims, qkv_bias=bias, o_bias=bias),
        mamba2(sizes, name="mamba", state_bits=read_state_bits(config)),
    )
    return _hybrid(config, dims, (_jamba_layer(mixers, mlp, hidden),) * dims.num_hidden_layers)
