"""What an adapter hands over: a model's layers in order and its other tensors, before formats are assigned."""

from __future__ import annotations

from kvplan.core.dataclass import dataclass
from kvplan.core.model import Layer, Tower
from kvplan.core.tensors import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A model as its config describes it: unquantised, layers not grouped.

    Attributes:
        hidden_size: Width of the residual stream.
        vocab_size: Rows of the embedding.
        max_context: Longest sequence that the model is made for, or None.
        layers: Decoder layers in order (encoder layers of an encoder-only model).
        tensors: Model-level tensors with full names: embeddings, final norm, head.
        layer_prefix: Name of a decoder layer in the checkpoint, with `{i}` for its index; quantisation rules match
            `layer_prefix` + tensor name.
        encoder_layers: Layers of the encoder of an encoder–decoder model.
        encoder_prefix: As `layer_prefix`, for them.
        max_source_tokens: Encoder positions of an encoder–decoder model, or None.
        towers: Vision and audio networks; their tensors have full names.
        whole_item_tokens: Tokens of the longest media item, where one iteration must take it whole.
        mtp_layers: Multi-token-prediction layers that the checkpoint declares.
        mtp_tensors: Tensors of all of them beyond their decoder layers.
        buffer_elements: Persistent buffers stored with the weights.
        parallel_attention: True where attention and feed-forward run in parallel.
    """

    hidden_size: int
    vocab_size: int
    max_context: int | None
    layers: tuple[Layer, ...]
    tensors: tuple[Tensor, ...]
    layer_prefix: str = "model.layers.{i}."
    encoder_layers: tuple[Layer, ...] = ()
    encoder_prefix: str = "encoder.block.{i}."
    max_source_tokens: int | None = None
    towers: tuple[Tower, ...] = ()
    whole_item_tokens: int = 0
    mtp_layers: tuple[Layer, ...] = ()
    mtp_tensors: tuple[Tensor, ...] = ()
    buffer_elements: int = 0
    parallel_attention: bool = False
