"""A model as data: groups of equal layers, each with its mixers and one feed-forward, plus embeddings, head and towers.

Every part carries its own weight tensors (`kvplan.core.tensors`), so nothing else in the house asks which family a
model is of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any

from kvplan.core.dataclass import dataclass
from kvplan.core.tensors import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The small scorer of sparse attention that picks which cached tokens (or blocks) a query attends to.

    Attributes:
        num_heads: Scoring heads.
        head_dim: Width of one index key.
        top_k: Cached tokens that a query attends to at most.
        cached: False on layers that reuse the picks of an earlier layer and keep no index keys.
    """

    num_heads: int
    head_dim: int
    top_k: int
    cached: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention over a cache of keys and values: MHA, GQA, MQA; full, windowed or chunked.

    Attributes:
        num_attention_heads: Query heads.
        num_key_value_heads: KV heads.
        head_dim: Width of a query and key head.
        v_head_dim: Width of a value head.
        window: Tokens that a query sees at most (sliding window), or None.
        chunk: Length of the fixed chunks that attention is confined to (Llama 4), or None.
        cached: False where the layer reads the cache of an earlier layer (shared KV).
        causal: False in encoders, which see all tokens and keep no cache.
        indexer: Sparse scorer, or None.
        tensors: Its weights.
    """

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None
    chunk: int | None = None
    cached: bool = True
    causal: bool = True
    indexer: Indexer | None = None
    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one compressed latent per token serves keys and values of all heads.

    Reference: DeepSeek-V2 (arXiv:2405.04434) section 2.1; DeepSeek-V3.2 for the indexer.

    Attributes:
        num_attention_heads: Query heads.
        kv_lora_rank: Width of the cached latent.
        qk_nope_head_dim: Width of a query and key head without position.
        qk_rope_head_dim: Width of the shared rotary key, cached beside the latent.
        v_head_dim: Width of a value head.
        indexer: Sparse scorer (DSA), or None.
        tensors: Its weights.
    """

    num_attention_heads: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    indexer: Indexer | None = None
    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """Attention over a short window of raw entries plus every `ratio`-th compressed entry (DeepSeek-V4).

    Attributes:
        num_attention_heads: Query heads.
        head_dim: Width of one cached entry, which serves as key and value.
        window: Raw entries kept.
        ratio: Tokens per compressed entry; None on layers that have the window only.
        indexer: Scorer over the compressed entries with its own compressed keys, or None (all entries are read).
        tensors: Its weights.
    """

    num_attention_heads: int
    head_dim: int
    window: int
    ratio: int | None
    indexer: Indexer | None = None
    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttention:
    """Decoder attention over the encoder's output: K and V of the source are computed once and kept.

    Attributes:
        num_attention_heads: Query heads.
        num_key_value_heads: KV heads.
        head_dim: Width of a head.
        tensors: Its weights.
    """

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """A mixer with a state of fixed size: Mamba 1/2, gated delta net, lightning attention, RG-LRU, short convolution.

    Attributes:
        kind: `mamba`, `mamba2`, `gated_delta_net`, `lightning`, `rg_lru`, `short_conv`, `kda`, …
        state_elements: Recurrent state of one sequence and layer [element].
        conv_elements: Convolution state, `kernel − 1` columns as engines keep it [element].
        num_heads: Heads that the state divides over under tensor parallelism.
        state_bits: Bits of one state element (32 where the state is kept in fp32).
        conv_bits: Bits of one element of the convolution state.
        tensors: Its weights.
    """

    kind: str
    state_elements: int
    conv_elements: int
    num_heads: int
    state_bits: int = 32
    conv_bits: int = 16
    tensors: tuple[Tensor, ...] = ()


Mixer = Attention | LatentAttention | CompressedAttention | CrossAttention | Recurrent


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseFeedForward:
    """A feed-forward that every token passes."""

    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Routed experts, of which each token passes `top_k`, plus what every token passes (router, shared experts).

    Attributes:
        num_experts: Routed experts of the layer.
        top_k: Experts that a token is sent to.
        tensors: Router, routed (`TensorClass.EXPERTS`, `copies = num_experts`) and shared tensors.
    """

    num_experts: int
    top_k: int
    tensors: tuple[Tensor, ...] = ()


FeedForward = DenseFeedForward | MixtureOfExperts


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer: its mixers (two where attention and a recurrence run side by side), feed-forward and norms."""

    mixers: tuple[Mixer, ...]
    feed_forward: FeedForward | None
    tensors: tuple[Tensor, ...] = ()

    def all_tensors(self) -> Iterator[Tensor]:
        """Every weight tensor of the layer."""
        for mixer in self.mixers:
            yield from mixer.tensors
        if self.feed_forward is not None:
            yield from self.feed_forward.tensors
        yield from self.tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """`count` equal layers."""

    count: int
    layer: Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """An extra network beside the decoder (vision or audio encoder with its projector), held in memory.

    Attributes:
        name: `vision`, `audio`, `projector`, …
        tensors: Its weights.
    """

    name: str
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model, ready to be counted.

    Attributes:
        id: Canonical id (file stem, repo name in lower case).
        architecture: Class name of the checkpoint (`LlamaForCausalLM`).
        dtype: Format id of unquantised weights and activations.
        hidden_size: Width of the residual stream.
        vocab_size: Rows of the embedding.
        max_context: Longest sequence that the model is made for, or None.
        groups: Decoder layers (or encoder layers of an encoder-only model), equal ones grouped.
        layer_order: For each decoder layer, the index of its group.
        encoder_groups: Layers of the encoder of an encoder–decoder model; no cache.
        max_source_tokens: Encoder positions of an encoder–decoder model (cross cache), or None.
        tensors: Model-level tensors: embeddings, final norm, head.
        towers: Vision and audio networks.
        mtp_layers: Multi-token-prediction layers that the checkpoint declares; not counted in `params_total`.
        mtp_tensors: Tensors of all of them beyond their decoder layers (projections, norms, copies of embeddings).
        quantization: Name of the checkpoint's quantisation (`fp8`, `modelopt`, …), or None.
        kv_dtype: Cache format that the checkpoint asks for, or None (the engine's rule: the model's dtype).
        state_dtype: Format of recurrent states that the config names, or None (the engine's rule).
        whole_item_tokens: Tokens of the longest media item, where one iteration must take it whole because its tokens
            see each other both ways; 0 elsewhere [token].
        buffer_elements: Persistent buffers stored with the weights (not parameters).
        exact_weight_bytes: Bytes read from file headers, which win over arithmetic, or None.
        keeps_fp32: True where fp32 was asked for, which engines then load although they would narrow it.
        parallel_attention: True where attention and feed-forward run in parallel (one all-reduce per layer).
        assumptions: Defaults that were used because the config left a field out.
        warnings: What the reader should doubt.
    """

    id: str
    architecture: str
    dtype: str
    hidden_size: int
    vocab_size: int
    max_context: int | None
    groups: tuple[LayerGroup, ...]
    layer_order: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    encoder_groups: tuple[LayerGroup, ...] = ()
    max_source_tokens: int | None = None
    towers: tuple[Tower, ...] = ()
    mtp_layers: tuple[Layer, ...] = ()
    mtp_tensors: tuple[Tensor, ...] = ()
    quantization: str | None = None
    kv_dtype: str | None = None
    state_dtype: str | None = None
    whole_item_tokens: int = 0
    buffer_elements: int = 0
    exact_weight_bytes: int | None = None
    keeps_fp32: bool = False
    parallel_attention: bool = False
    assumptions: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())

    @property
    def num_hidden_layers(self) -> int:
        """Decoder layers."""
        return len(self.layer_order)

    @property
    def has_routed_experts(self) -> bool:
        """True where a decoder layer is a mixture of experts."""
        return any(isinstance(group.layer.feed_forward, MixtureOfExperts) for group in self.groups)

    @property
    def encodes_only(self) -> bool:
        """True where all tokens see each other both ways: nothing is generated, and no prompt can be cut into chunks."""
        mixers = (mixer for group in self.groups for mixer in group.layer.mixers)
        return all(isinstance(mixer, Attention) and not mixer.causal for mixer in mixers)

    def summary(self) -> dict[str, Any]:
        """The figures that `models show --json` prints: `kvplan.core.summary.model_summary` of this model."""
        from kvplan.core.summary import model_summary  # noqa: PLC0415 - it counts with modules that import this one

        return model_summary(self)


def group_layers(layers: Iterable[Layer]) -> tuple[tuple[LayerGroup, ...], tuple[int, ...]]:
    """Group equal layers in the order of their first appearance.

    Returns:
        The groups, and for each layer the index of its group.
    """
    places: dict[Layer, int] = {}
    seen: dict[int, tuple[Layer, int]] = {}  # by identity: to hash a layer is to hash all its tensors
    order: list[int] = []
    for layer in layers:
        if id(layer) not in seen:
            seen[id(layer)] = layer, places.setdefault(layer, len(places))
        order.append(seen[id(layer)][1])
    counts = Counter(order)
    return tuple(LayerGroup(count=counts[place], layer=layer) for layer, place in places.items()), tuple(order)
