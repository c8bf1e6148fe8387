"""Text parts of Gemma 3, Gemma 3n and Gemma 4: alternating windows, shared KV layers, per-layer inputs."""

from __future__ import annotations

from dataclasses import replace

from kvplan.core.model import Attention, FeedForward, Layer, MixtureOfExperts
from kvplan.core.tensors import Tensor, TensorClass, linear, norm, vector
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config

NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
_SLIDING = "sliding_attention"
_FULL = "full_attention"


def gemma3_text(config: Config) -> Blueprint:
    """Gemma 3: five windowed layers, then one full; norms of queries and keys; four norms a layer.

    With `use_bidirectional_attention` (EmbeddingGemma) it is an encoder without a cache.
    """
    config.with_defaults({"vocab_size": 262_208, "hidden_size": 2304, "num_hidden_layers": 26})
    config.with_defaults({"num_attention_heads": 8, "intermediate_size": 9216})
    dims = blocks.read_dimensions(config, num_key_value_heads=4, head_dim=256)
    window = config.integer("sliding_window", default=4096)
    types = _layer_types(config, dims.num_hidden_layers, pattern=6)
    bidirectional = config.boolean("use_bidirectional_attention", default=False)
    bias = config.boolean("attention_bias", default=False)
    inner = config.integer("intermediate_size")
    layers = []
    for kind in types:
        attention = blocks.gqa(
            dims,
            qkv_bias=bias,
            o_bias=bias,
            window=window if kind == _SLIDING else None,
            extra=blocks.qk_norm(dims),
        )
        layers.append(
            Layer(
                mixers=(replace(attention, causal=not bidirectional),),
                feed_forward=blocks.gated_mlp(dims.hidden_size, inner),
                tensors=_norms(dims.hidden_size),
            )
        )
    config.ignore("cache_implementation", "sliding_window_pattern", "_sliding_window_pattern")
    return Blueprint(
        hidden_size=dims.hidden_size,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context or config.integer("max_position_embeddings", default=131_072),
        layers=tuple(layers),
        tensors=blocks.ends(config, dims, tied_default=True),
    )


def gemma3n_text(config: Config) -> Blueprint:
    """Gemma 3n: AltUp streams, LAuReL branch, per-layer embeddings; the last layers reuse earlier caches."""
    config.with_defaults({"vocab_size": 262_400, "hidden_size": 2048, "num_hidden_layers": 35})
    config.with_defaults({"num_attention_heads": 8})
    dims = blocks.read_dimensions(config, num_key_value_heads=2, head_dim=256)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    window = config.integer("sliding_window", default=512)
    types = _layer_types(config, count, pattern=5)
    shared = _shared_layers(config, types, default=15)
    inner = config.integers("intermediate_size", length=count, default=16_384, minimum=1)
    per_layer = config.integer("hidden_size_per_layer_input", default=256)
    streams = config.integer("altup_num_inputs", default=4)
    rank = config.integer("laurel_rank", default=64)
    bias = config.boolean("attention_bias", default=False)
    shape = {"qkv_bias": bias, "o_bias": bias}
    extra = (
        *_norms(hidden),
        *vector("altup.correct_output_scale", TensorClass.OTHER, hidden),
        *_small("altup.correction_coefs", streams, streams),
        *_small("altup.prediction_coefs", streams * streams, streams),
        *_small("altup.modality_router", streams, hidden),
        *norm("altup.router_norm", hidden),
        *linear("laurel.linear_left", TensorClass.OTHER, out_features=rank, in_features=hidden, shards=1),
        *linear("laurel.linear_right", TensorClass.OTHER, out_features=hidden, in_features=rank, shards=1),
        *norm("laurel.post_laurel_norm", hidden),
        *_per_layer_input(hidden, per_layer),
    )
    layers = tuple(
        Layer(
            mixers=(
                _attention(
                    dims,
                    window=window if types[i] == _SLIDING else None,
                    reuse=i >= count - shared,
                    k_eq_v=False,
                    **shape,
                ),
            ),
            feed_forward=blocks.gated_mlp(hidden, inner[i]),
            tensors=extra,
        )
        for i in range(count)
    )
    config.ignore("activation_sparsity_pattern", "altup_active_idx", "altup_coef_clip", "altup_correct_scale")
    return Blueprint(
        hidden_size=hidden,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context or config.integer("max_position_embeddings", default=32_768),
        layers=layers,
        tensors=(
            *blocks.ends(config, dims, tied_default=True),
            *_per_layer_embedding(config, count, hidden, per_layer),
            *_projections("model.altup_projections", hidden, streams - 1),
            *_projections("model.altup_unembed_projections", hidden, streams - 1),
        ),
    )


def gemma4_text(config: Config) -> Blueprint:
    """Gemma 4: full layers with their own head width and KV heads, keys serving as values, optional experts.

    `attention_k_eq_v` drops the value projection of full layers; keys and values are still both cached, since they
    are normalised differently.
    """
    config.with_defaults({"vocab_size": 262_144, "hidden_size": 2304, "num_hidden_layers": 30})
    config.with_defaults({"num_attention_heads": 8, "intermediate_size": 9216})
    dims = blocks.read_dimensions(config, num_key_value_heads=4, head_dim=256)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    types = _layer_types(config, count, pattern=6)
    if types[-1] != _FULL:
        config.warnings.append(f"{config.field('layer_types')}: the last layer is taken as full attention")
        types = (*types[:-1], _FULL)
    shared = _shared_layers(config, types, default=0)
    window = config.integer("sliding_window", default=512)
    causal = config.string("use_bidirectional_attention") != "all"
    if not causal:
        window = window // 2 + 1
    config.ignore("vocab_size_per_layer_input")
    k_eq_v = config.boolean("attention_k_eq_v", default=False)
    full_dims = _global_dimensions(config, dims, types, k_eq_v=k_eq_v)
    per_layer = config.integer("hidden_size_per_layer_input", default=256, minimum=0)
    bias = config.boolean("attention_bias", default=False)
    wide = config.boolean("use_double_wide_mlp", default=False)
    inner = config.integer("intermediate_size")
    experts, norms = _gemma4_experts(config, hidden)
    layers = []
    for i, kind in enumerate(types):
        reuse = i >= count - shared
        full = kind == _FULL
        attention = _attention(
            full_dims if full else dims,
            window=None if full else window,
            reuse=reuse,
            k_eq_v=k_eq_v and full,
            qkv_bias=bias,
            o_bias=bias,
        )
        dense = blocks.gated_mlp(hidden, 2 * inner if wide and reuse else inner)
        feed_forward: FeedForward = dense
        if experts is not None:
            feed_forward = replace(experts, tensors=(*experts.tensors, *dense.tensors))
        extra = _per_layer_input(hidden, per_layer) if per_layer else ()
        layers.append(
            Layer(
                mixers=(replace(attention, causal=causal),),
                feed_forward=feed_forward,
                tensors=(*_norms(hidden), *norms, *extra),
            )
        )
    return Blueprint(
        hidden_size=hidden,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context or config.integer("max_position_embeddings", default=131_072),
        layers=tuple(layers),
        tensors=(
            *blocks.ends(config, dims, tied_default=True),
            *(_per_layer_embedding(config, count, hidden, per_layer) if per_layer else ()),
        ),
        buffer_elements=count,
    )


def _global_dimensions(config: Config, dims: Dimensions, types: tuple[str, ...], *, k_eq_v: bool) -> Dimensions:
    """Head width and KV heads of full layers: own fields, or a table of layers as transformers 5 saves it."""
    kv_heads = config.optional_integer("num_global_key_value_heads")
    if kv_heads is None or not k_eq_v:
        kv_heads = dims.num_key_value_heads
    table = config.optional_nested("per_layer_config")
    if table is None:
        head_dim = config.integer("global_head_dim", default=512)
    else:
        head_dim, kv_heads = _read_table(table, dims, types)
    if dims.num_attention_heads % kv_heads:
        rule = f"{kv_heads} does not divide the {dims.num_attention_heads} attention heads"
        raise config.error("num_global_key_value_heads", rule)
    return replace(dims, num_key_value_heads=kv_heads, head_dim=head_dim)


def _read_table(table: Config, dims: Dimensions, types: tuple[str, ...]) -> tuple[int, int]:
    """Head width and KV heads that the table states alike for all full layers and for no other."""
    full = [str(i) for i, kind in enumerate(types) if kind == _FULL]
    if sorted(table.data) != sorted(full):
        raise table.error(full[0], "the table must name the full layers and no others")
    rows = {
        (row.integer("head_dim", default=dims.head_dim), row.optional_integer("num_key_value_heads"))
        for row in map(table.nested, full)
    }
    if len(rows) != 1:
        raise table.error(full[0], "full layers of different shapes are not known to kvplan")
    head_dim, kv_heads = rows.pop()
    return head_dim, kv_heads or dims.num_key_value_heads


def _gemma4_experts(config: Config, hidden: int) -> tuple[MixtureOfExperts | None, tuple[Tensor, ...]]:
    """Experts beside the dense feed-forward (which every token passes) and the norms that come with them."""
    if not config.boolean("enable_moe_block", default=False):
        config.ignore("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
        return None, ()
    experts = config.integer("num_experts")
    routing = (
        *blocks.router("router.proj", hidden, experts),
        *vector("router.scale", TensorClass.OTHER, hidden),
        *vector("router.per_expert_scale", TensorClass.OTHER, experts),
    )
    moe = blocks.gated_moe(
        hidden,
        config.integer("moe_intermediate_size", "expert_intermediate_size"),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, "top_k_experts"),
        name="experts",
        routing=routing,
    )
    names = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
    return moe, tuple(tensor for name in names for tensor in norm(name, hidden))


def _layer_types(config: Config, count: int, *, pattern: int) -> tuple[str, ...]:
    """`layer_types`, or every `pattern`-th layer full."""
    types = config.kinds("layer_types", known=(_SLIDING, _FULL), length=count)
    if types is not None:
        return types
    every = config.optional_integer("sliding_window_pattern", "_sliding_window_pattern") or pattern
    return tuple(_FULL if (i + 1) % every == 0 else _SLIDING for i in range(count))


def _shared_layers(config: Config, types: tuple[str, ...], *, default: int) -> int:
    """Layers at the end that reuse the cache of the last earlier layer of their type."""
    shared = config.integer("num_kv_shared_layers", default=default, minimum=0, maximum=len(types) - 1)
    if shared and set(types[: len(types) - shared]) != set(types):
        raise config.error("num_kv_shared_layers", f"{shared} leaves a layer type without a layer that has a cache")
    if shared:
        config.assumptions.append(
            f"the last {shared} layers reuse earlier caches and have no K and V projections of their own; some published "
            "files carry unused ones, which are not counted"
        )
    return shared


def _attention(
    dims: Dimensions, *, window: int | None, reuse: bool, k_eq_v: bool, qkv_bias: bool, o_bias: bool
) -> Attention:
    """Attention with norms of queries and keys; no K and V tensors on layers that reuse a cache."""
    attention = blocks.gqa(
        dims, qkv_bias=qkv_bias, o_bias=o_bias, window=window, cached=not reuse, extra=blocks.qk_norm(dims)
    )
    absent: tuple[str, ...] = ()
    if reuse:
        absent = ("self_attn.k_proj", "self_attn.v_proj", "self_attn.k_norm")
    elif k_eq_v:
        absent = ("self_attn.v_proj",)
    kept = tuple(t for t in attention.tensors if t.name.removesuffix(".bias") not in absent)
    return replace(attention, tensors=kept)


def _norms(hidden: int) -> tuple[Tensor, ...]:
    return tuple(tensor for name in NORMS for tensor in norm(name, hidden))


def _small(name: str, out_features: int, in_features: int) -> tuple[Tensor, ...]:
    return linear(
        name, TensorClass.OTHER, out_features=out_features, in_features=in_features, shards=1, quantisable=False
    )


def _per_layer_input(hidden: int, per_layer: int) -> tuple[Tensor, ...]:
    """What mixes a layer's own token embedding into the stream."""
    other = TensorClass.OTHER
    return (
        *linear("per_layer_input_gate", other, out_features=per_layer, in_features=hidden, shards=1),
        *linear("per_layer_projection", other, out_features=hidden, in_features=per_layer, shards=1),
        *norm("post_per_layer_input_norm", hidden),
    )


def _per_layer_embedding(config: Config, count: int, hidden: int, per_layer: int) -> tuple[Tensor, ...]:
    """The table of per-layer token embeddings (looked up; engines may keep it in host memory) and its projection."""
    vocab = config.integer("vocab_size_per_layer_input", default=262_144)
    width = count * per_layer
    return (
        *vector("model.embed_tokens_per_layer", TensorClass.OTHER, vocab, width, shards=None),
        *linear("model.per_layer_model_projection", TensorClass.OTHER, out_features=width, in_features=hidden),
        *norm("model.per_layer_projection_norm", per_layer),
    )


def _projections(name: str, hidden: int, copies: int) -> tuple[Tensor, ...]:
    if not copies:
        return ()
    return linear(f"{name}.*", TensorClass.OTHER, out_features=hidden, in_features=hidden, copies=copies)
