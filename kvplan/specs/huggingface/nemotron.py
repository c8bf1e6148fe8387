"""NVIDIA's hybrids Nemotron-H and Nemotron-3, whose layers are one mixer or one feed-forward each.

Reference: Nemotron-H (arXiv:2504.03624).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvplan.core.model import Attention, DenseFeedForward, Layer, MixtureOfExperts, Recurrent
from kvplan.core.tensors import Tensor, TensorClass, linear, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import MOST_LAYERS, Config
from kvplan.specs.huggingface.recurrent import Mamba2, mamba2, read_state_bits

_LETTERS: Final = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
_KINDS: Final = {"linear_attention": "mamba", "full_attention": "attention"}
_FEED_FORWARDS: Final = frozenset({"moe", "mlp"})


def nemotron_h(config: Config) -> Blueprint:
    """Nemotron-H, Nemotron Nano 2, Nemotron-3 Nano, Super and Ultra."""
    hidden, vocab_size = config.integer("hidden_size"), config.integer("vocab_size")
    kinds = _read_kinds(config)
    parts = {kind: _part(config, kind, hidden) for kind in dict.fromkeys(kinds)}
    around = norm("norm", hidden)
    layers = tuple(_layer(parts[kind], around) for kind in kinds)
    mtp = config.optional_integer("num_nextn_predict_layers", minimum=0, maximum=100) or 0
    mtp_layers = _mtp_layers(config, hidden) if mtp else ()
    config.ignore("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    _ignore_unused(config, kinds)
    if config.boolean("tie_word_embeddings", default=False):
        config.warnings.append("tie_word_embeddings: no implementation of nemotron_h ties the head: it is counted")
    mixtures = sum(kind == "moe" for kind in kinds)
    return Blueprint(
        hidden_size=hidden,
        vocab_size=vocab_size,
        max_context=blocks.read_max_context(config),
        layers=layers,
        layer_prefix="backbone.layers.{i}.",
        tensors=(
            *blocks.embedding(vocab_size, hidden, name="backbone.embeddings"),
            *norm("backbone.norm_f", hidden),
            *blocks.lm_head(vocab_size, hidden, tied=False),
        ),
        mtp_layers=mtp_layers * mtp,
        mtp_tensors=_mtp_tensors(hidden) if mtp else (),
        buffer_elements=mixtures * config.integer("n_routed_experts") if mixtures else 0,
    )


_Part = Attention | Recurrent | DenseFeedForward | MixtureOfExperts


def _layer(part: _Part, around: tuple[Tensor, ...]) -> Layer:
    if isinstance(part, DenseFeedForward | MixtureOfExperts):
        return Layer(mixers=(), feed_forward=part, tensors=around)
    return Layer(mixers=(part,), feed_forward=None, tensors=around)


def _read_kinds(config: Config) -> tuple[str, ...]:
    """What each layer is: `layers_block_type` or the letters of `hybrid_override_pattern`."""
    kinds = config.strings("layers_block_type", "layer_types")
    pattern = config.string("hybrid_override_pattern")
    if kinds is None and pattern is not None:
        kinds = _letters(config, "hybrid_override_pattern", pattern)
    if kinds is None:
        rule = "is missing: it says which layers are Mamba, attention, experts or feed-forward"
        raise config.error("hybrid_override_pattern", rule)
    kinds = tuple(_KINDS.get(kind, kind) for kind in kinds)
    if len(kinds) > MOST_LAYERS:
        raise config.error("layers_block_type", f"must have at most {MOST_LAYERS:,} entries, not {len(kinds):,}")
    for kind in kinds:
        if kind not in _LETTERS.values():
            raise config.error("layers_block_type", f"{kind!r} is not understood for {config.model_type}")
    count = config.optional_integer("num_hidden_layers")
    if count is not None and count != len(kinds):
        raise config.error("num_hidden_layers", f"is {count}, but the pattern names {len(kinds)} layers")
    return kinds


def _letters(config: Config, name: str, pattern: str) -> tuple[str, ...]:
    for letter in pattern:
        if letter not in _LETTERS:
            raise config.error(name, f"{letter!r} is none of {' '.join(_LETTERS)}")
    return tuple(_LETTERS[letter] for letter in pattern)


def _part(config: Config, kind: str, hidden: int) -> _Part:
    if kind == "mamba":
        return _mamba(config, hidden)
    if kind == "attention":
        return _attention(config, hidden)
    if kind == "moe":
        return _mixture(config, hidden)
    return DenseFeedForward(
        tensors=blocks.two_tensors(
            ("mixer.up_proj", "mixer.down_proj"),
            hidden,
            config.integer("intermediate_size"),
            bias=config.boolean("mlp_bias", default=False),
        )
    )


def _mamba(config: Config, hidden: int) -> Recurrent:
    bias = config.boolean("use_bias", default=False)
    sizes = Mamba2(
        hidden_size=hidden,
        num_heads=config.integer("mamba_num_heads"),
        head_dim=config.integer("mamba_head_dim"),
        state_size=config.integer("ssm_state_size"),
        groups=config.integer("n_groups", "mamba_n_groups"),
        kernel=config.integer("conv_kernel", "mamba_d_conv", default=4),
        conv_bias=config.boolean("use_conv_bias", "mamba_conv_bias", default=True),
        in_bias=bias,
        out_bias=bias,
    )
    return mamba2(sizes, name="mixer", state_bits=read_state_bits(config))


def _attention(config: Config, hidden: int) -> Attention:
    if config.optional_integer("sliding_window") is not None:
        raise config.error("sliding_window", f"is not understood for {config.model_type}")
    heads = config.integer("num_attention_heads")
    dims = blocks.Dimensions(
        hidden_size=hidden,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=config.integer("num_key_value_heads", default=heads),
        head_dim=config.integer("head_dim", "attention_head_dim", default=128),
        vocab_size=1,
        max_context=None,
    )
    if config.boolean("attention_bias", default=False):
        raise config.error("attention_bias", f"true is not understood for {config.model_type}")
    return blocks.gqa(dims, name="mixer")


def _mixture(config: Config, hidden: int) -> MixtureOfExperts:
    """Experts without a gate; with `moe_latent_size` they work in a narrower space that all of them share."""
    if config.optional_integer("n_shared_experts", minimum=0) not in (None, 1):
        raise config.error("n_shared_experts", "must be 1: how several are stored is not understood")
    experts = config.integer("n_routed_experts", "num_local_experts")
    latent = config.optional_integer("moe_latent_size")
    bias = config.boolean("mlp_bias", default=False)
    outer = (
        ()
        if latent is None
        else (
            *linear("mixer.fc1_latent_proj", TensorClass.MLP, out_features=latent, in_features=hidden, bias=bias),
            *linear("mixer.fc2_latent_proj", TensorClass.MLP, out_features=hidden, in_features=latent, bias=bias),
        )
    )
    return MixtureOfExperts(
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts),
        tensors=(
            *blocks.router("mixer.gate", hidden, experts),
            *blocks.two_tensors(
                ("mixer.experts.up_proj", "mixer.experts.down_proj"),
                latent or hidden,
                config.integer("moe_intermediate_size"),
                tensor_class=TensorClass.EXPERTS,
                copies=experts,
            ),
            *blocks.two_tensors(
                ("mixer.shared_experts.up_proj", "mixer.shared_experts.down_proj"),
                hidden,
                config.integer("moe_shared_expert_intermediate_size"),
                tensor_class=TensorClass.SHARED,
                bias=bias,
            ),
            *outer,
        ),
    )


def _mtp_layers(config: Config, hidden: int) -> tuple[Layer, ...]:
    """One multi-token-prediction step: its blocks, a mixer and the feed-forward after it as one layer."""
    kinds = config.strings("mtp_layers_block_type")
    pattern = config.string("mtp_hybrid_override_pattern")
    if pattern is not None:
        kinds = _letters(config, "mtp_hybrid_override_pattern", pattern)
    kinds = tuple(_KINDS.get(kind, kind) for kind in kinds or ("attention", "moe"))
    layers: list[Layer] = []
    around = norm("norm", hidden)
    for kind in kinds:
        part = _part(config, kind, hidden)
        if kind in _FEED_FORWARDS and layers and layers[-1].feed_forward is None:
            last = layers.pop()
            merged = _layer(part, around).feed_forward
            layers.append(replace(last, feed_forward=merged, tensors=(*last.tensors, *norm("norm_2", hidden))))
        else:
            layers.append(_layer(part, around))
    return tuple(layers)


def _mtp_tensors(hidden: int) -> tuple[Tensor, ...]:
    return (
        *norm("enorm", hidden),
        *norm("hnorm", hidden),
        *linear("eh_proj", TensorClass.OTHER, out_features=hidden, in_features=2 * hidden, shards=1),
        *norm("final_layernorm", hidden),
    )


def _ignore_unused(config: Config, kinds: tuple[str, ...]) -> None:
    config.ignore("chunk_size", "expand", "mamba_chunk_size", "mamba_expand", "mamba_proj_bias", "num_logits_to_keep")
    config.ignore("moe_shared_expert_overlap", "rescale_prenorm_residual", "use_mamba_kernels", "n_group", "topk_group")
    config.ignore("intermediate_size", "time_step_rank", "time_step_limit", "time_step_min", "time_step_max")
    config.ignore("time_step_floor", "mamba_dt_min", "mamba_dt_max", "mamba_dt_limit", "mamba_dt_init_floor")
    if "moe" not in kinds:
        config.ignore("n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size")
        config.ignore("moe_shared_expert_intermediate_size", "moe_latent_size", "num_local_experts")
    if "mamba" not in kinds:
        config.ignore("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel", "use_bias")
        config.ignore("use_conv_bias", "mamba_ssm_cache_dtype")
    if "attention" not in kinds:
        config.ignore("num_attention_heads", "num_key_value_heads", "head_dim", "attention_head_dim", "attention_bias")
