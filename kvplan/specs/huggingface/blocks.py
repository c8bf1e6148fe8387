"""Building blocks that the adapters share: attention, feed-forward and embedding tensors under checkpoint names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvplan.core.model import Attention, CrossAttention, DenseFeedForward, FeedForward, Layer, Mixer, MixtureOfExperts
from kvplan.core.tensors import Tensor, TensorClass, linear, norm, vector
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.dimensions import (
    Dimensions,
    patterned,
    read_dimensions,
    read_max_context,
    read_periodic_windows,
    read_top_k,
    read_window,
    read_windows,
)

__all__ = [
    "Dimensions",
    "patterned",
    "read_dimensions",
    "read_max_context",
    "read_periodic_windows",
    "read_top_k",
    "read_window",
    "read_windows",
]

#: Norms of a plain decoder layer.
TWO_NORMS = ("input_layernorm", "post_attention_layernorm")
_SOURCE_PROJECTIONS = frozenset({"k_proj", "v_proj", "k", "v"})


def gqa(
    dims: Dimensions,
    *,
    name: str = "self_attn",
    names: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    qkv_bias: bool = False,
    o_bias: bool = False,
    window: int | None = None,
    chunk: int | None = None,
    cached: bool = True,
    v_head_dim: int | None = None,
    extra: tuple[Tensor, ...] = (),
) -> Attention:
    """Attention with separate Q, K, V and output projections (MHA, GQA, MQA).

    `extra` holds what the family adds (norms of queries and keys, sinks, gates); see `qk_norm`.
    """
    q, k, v, o = (f"{name}.{part}" for part in names)
    hidden, heads, kv_heads = dims.hidden_size, dims.num_attention_heads, dims.num_key_value_heads
    value_dim = v_head_dim or dims.head_dim
    attention = TensorClass.ATTENTION
    tensors = (
        *linear(q, attention, out_features=heads * dims.head_dim, in_features=hidden, bias=qkv_bias),
        *linear(
            k, attention, out_features=kv_heads * dims.head_dim, in_features=hidden, bias=qkv_bias, shards=kv_heads
        ),
        *linear(v, attention, out_features=kv_heads * value_dim, in_features=hidden, bias=qkv_bias, shards=kv_heads),
        *linear(o, attention, out_features=hidden, in_features=heads * value_dim, bias=o_bias),
        *extra,
    )
    return Attention(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=dims.head_dim,
        v_head_dim=value_dim,
        window=window,
        chunk=chunk,
        cached=cached,
        tensors=tensors,
    )


def fused_gqa(
    dims: Dimensions,
    *,
    qkv: str,
    output: str,
    qkv_bias: bool = False,
    o_bias: bool = False,
    window: int | None = None,
    extra: tuple[Tensor, ...] = (),
) -> Attention:
    """Attention whose checkpoint stores Q, K and V as one matrix.

    Under tensor parallelism the K and V rows divide over the KV heads only; the matrix is priced as one that divides
    over all ranks, which is low by less than a percent of the layer where ranks outnumber KV heads, except for
    multi-query models, whose K and V rows are few.
    """
    rows = (dims.num_attention_heads + 2 * dims.num_key_value_heads) * dims.head_dim
    width = dims.num_attention_heads * dims.head_dim
    return Attention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        v_head_dim=dims.head_dim,
        window=window,
        tensors=(
            *linear(qkv, TensorClass.ATTENTION, out_features=rows, in_features=dims.hidden_size, bias=qkv_bias),
            *linear(output, TensorClass.ATTENTION, out_features=dims.hidden_size, in_features=width, bias=o_bias),
            *extra,
        ),
    )


def cross_attention(dims: Dimensions, tensors: Iterable[Tensor]) -> CrossAttention:
    """Attention over the encoder's output; its K and V projections (`k_proj` or `k`, …) take the source, not the prompt."""
    return CrossAttention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        tensors=tuple(
            replace(tensor, of_source=True) if tensor.name.rpartition(".")[2] in _SOURCE_PROJECTIONS else tensor
            for tensor in tensors
        ),
    )


def qk_norm(dims: Dimensions, *, name: str = "self_attn", full_width: bool = False) -> tuple[Tensor, ...]:
    """Norms of queries and keys: one head wide (Qwen3), or over all heads at once (OLMo 2)."""
    q = dims.num_attention_heads * dims.head_dim if full_width else dims.head_dim
    k = dims.num_key_value_heads * dims.head_dim if full_width else dims.head_dim
    return (*norm(f"{name}.q_norm", q), *norm(f"{name}.k_norm", k))


def gated_tensors(
    name: str,
    hidden_size: int,
    intermediate_size: int,
    *,
    tensor_class: TensorClass = TensorClass.MLP,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    bias: bool = False,
    copies: int = 1,
) -> tuple[Tensor, ...]:
    """Gate, up and down projections of a gated feed-forward (or of `copies` experts)."""
    gate, up, down = (f"{name}.{part}" for part in names)
    return (
        *linear(gate, tensor_class, out_features=intermediate_size, in_features=hidden_size, bias=bias, copies=copies),
        *linear(up, tensor_class, out_features=intermediate_size, in_features=hidden_size, bias=bias, copies=copies),
        *linear(down, tensor_class, out_features=hidden_size, in_features=intermediate_size, bias=bias, copies=copies),
    )


def two_tensors(
    names: tuple[str, str],
    hidden_size: int,
    intermediate_size: int,
    *,
    tensor_class: TensorClass = TensorClass.MLP,
    up_factor: int = 1,
    bias: bool = False,
    copies: int = 1,
) -> tuple[Tensor, ...]:
    """Up and down projections of a plain feed-forward; `up_factor` 2 for a checkpoint that fuses gate and up."""
    up, down = names
    rows = up_factor * intermediate_size
    return (
        *linear(up, tensor_class, out_features=rows, in_features=hidden_size, bias=bias, copies=copies),
        *linear(down, tensor_class, out_features=hidden_size, in_features=intermediate_size, bias=bias, copies=copies),
    )


def gated_mlp(
    hidden_size: int,
    intermediate_size: int,
    *,
    name: str = "mlp",
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    bias: bool = False,
) -> DenseFeedForward:
    """A dense gated feed-forward."""
    return DenseFeedForward(tensors=gated_tensors(name, hidden_size, intermediate_size, names=names, bias=bias))


def plain_mlp(
    names: tuple[str, str], hidden_size: int, intermediate_size: int, *, bias: bool = False, up_factor: int = 1
) -> DenseFeedForward:
    """A dense feed-forward of two matrices; `up_factor` 2 for fused gate and up."""
    return DenseFeedForward(tensors=two_tensors(names, hidden_size, intermediate_size, bias=bias, up_factor=up_factor))


def router(name: str, hidden_size: int, num_experts: int, *, bias: bool = False) -> tuple[Tensor, ...]:
    """The router of a mixture of experts: multiplied, replicated on every rank, left alone by quantisers."""
    return linear(
        name,
        TensorClass.OTHER,
        out_features=num_experts,
        in_features=hidden_size,
        bias=bias,
        shards=1,
        quantisable=False,
    )


def gated_moe(
    hidden_size: int,
    intermediate_size: int,
    *,
    num_experts: int,
    top_k: int,
    shared_size: int | None = None,
    shared_name: str = "mlp.shared_experts",
    name: str = "mlp.experts",
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    bias: bool = False,
    routing: tuple[Tensor, ...] | None = None,
    extra: tuple[Tensor, ...] = (),
) -> MixtureOfExperts:
    """Routed gated experts, optionally with a shared one.

    Args:
        hidden_size: Width of the residual stream.
        intermediate_size: Width inside one routed expert.
        num_experts: Routed experts.
        top_k: Experts that a token is sent to.
        shared_size: Width inside the shared expert (of all of them together), or None.
        shared_name: Its module.
        name: Module of the routed experts.
        names: Projections of an expert.
        bias: True where the experts' projections have biases.
        routing: Tensors of the router; None is one plain matrix `mlp.gate`.
        extra: What the family adds (gate of the shared expert, correction bias).
    """
    experts = gated_tensors(
        name,
        hidden_size,
        intermediate_size,
        tensor_class=TensorClass.EXPERTS,
        names=names,
        bias=bias,
        copies=num_experts,
    )
    shared = (
        gated_tensors(shared_name, hidden_size, shared_size, tensor_class=TensorClass.SHARED) if shared_size else ()
    )
    gate = routing if routing is not None else router("mlp.gate", hidden_size, num_experts)
    return MixtureOfExperts(num_experts=num_experts, top_k=top_k, tensors=(*gate, *experts, *shared, *extra))


def embedding(vocab_size: int, hidden_size: int, *, name: str = "model.embed_tokens") -> tuple[Tensor, ...]:
    """The token embedding: looked up, not multiplied."""
    return vector(name, TensorClass.EMBEDDING, vocab_size, hidden_size, shards=None)


def lm_head(
    vocab_size: int, hidden_size: int, *, tied: bool, name: str = "lm_head", bias: bool = False
) -> tuple[Tensor, ...]:
    """The output head; a tied one is multiplied but its weights are the embedding's. Its bias never is."""
    weight = Tensor(
        name=name,
        tensor_class=TensorClass.HEAD,
        shape=(vocab_size, hidden_size),
        matmul=True,
        linear=not tied,
        stored=not tied,
    )
    return (weight, *vector(f"{name}.bias", TensorClass.HEAD, vocab_size, shards=None)) if bias else (weight,)


def ends(
    config: Config,
    dims: Dimensions,
    *,
    tied_default: bool = False,
    final_norm: tuple[Tensor, ...] | None = None,
    embedding_name: str = "model.embed_tokens",
    head_name: str = "lm_head",
    head_bias: bool = False,
) -> tuple[Tensor, ...]:
    """Embedding, final norm (and what else stands there) and head with the config's tying."""
    tied = config.boolean("tie_word_embeddings", default=tied_default)
    return (
        *embedding(dims.vocab_size, dims.hidden_size, name=embedding_name),
        *(final_norm if final_norm is not None else norm("model.norm", dims.hidden_size)),
        *lm_head(dims.vocab_size, dims.hidden_size, tied=tied, name=head_name, bias=head_bias),
    )


def windowed(attention: Attention, windows: Iterable[int | None]) -> tuple[Attention, ...]:
    """One attention per layer, equal but for their windows."""
    return tuple(attention if window is None else replace(attention, window=window) for window in windows)


def sinks(heads: int, *, name: str = "self_attn") -> tuple[Tensor, ...]:
    """One learned attention sink per head."""
    return vector(f"{name}.sinks", TensorClass.ATTENTION, heads, shards=None)


def norms(names: Iterable[str], size: int, *, bias: bool = False) -> tuple[Tensor, ...]:
    """Several norms of one width."""
    return tuple(tensor for name in names for tensor in norm(name, size, bias=bias))


def stack(
    dims: Dimensions,
    *,
    mixers: Mixer | Sequence[Mixer],
    feed_forward: FeedForward | Sequence[FeedForward],
    tensors: tuple[Tensor, ...],
    layer_tensors: tuple[Tensor, ...] | None = None,
    prefix: str = "model.layers.{i}.",
    buffer_elements: int = 0,
    parallel_attention: bool = False,
) -> Blueprint:
    """Decoder layers of one mixer and one feed-forward each, and the tensors around them.

    Args:
        dims: Sizes.
        mixers: One for all layers, or one per layer.
        feed_forward: One for all layers, or one per layer.
        tensors: Model-level tensors, see `ends`.
        layer_tensors: Norms of each layer; None means the two of a plain layer.
        prefix: Checkpoint name of a layer.
        buffer_elements: Persistent buffers of the whole model.
        parallel_attention: True where attention and feed-forward run side by side.
    """
    count = dims.num_hidden_layers
    per_layer_mixers = list(mixers) if isinstance(mixers, Sequence) else [mixers] * count
    per_layer_forwards = list(feed_forward) if isinstance(feed_forward, Sequence) else [feed_forward] * count
    around = norms(TWO_NORMS, dims.hidden_size) if layer_tensors is None else layer_tensors
    made: dict[tuple[int, int], Layer] = {}
    layers = []
    for mixer, forward in zip(per_layer_mixers, per_layer_forwards, strict=True):
        key = (id(mixer), id(forward))
        if key not in made:
            made[key] = Layer(mixers=(mixer,), feed_forward=forward, tensors=around)
        layers.append(made[key])
    return Blueprint(
        hidden_size=dims.hidden_size,
        vocab_size=dims.vocab_size,
        max_context=dims.max_context,
        layers=tuple(layers),
        tensors=tensors,
        layer_prefix=prefix,
        buffer_elements=buffer_elements,
        parallel_attention=parallel_attention,
    )


def with_mtp(blueprint: Blueprint, count: int) -> Blueprint:
    """Add prediction layers of the DeepSeek kind.

    Each is a decoder layer like the last one plus a projection of two streams and three norms; embedding and head are
    shared with the model.
    """
    hidden = blueprint.hidden_size
    own = (
        *linear("eh_proj", TensorClass.OTHER, out_features=hidden, in_features=2 * hidden, quantisable=False),
        *norms(("enorm", "hnorm", "shared_head.norm"), hidden),
    )
    return replace(blueprint, mtp_layers=(blueprint.layers[-1],) * count, mtp_tensors=own * count)
