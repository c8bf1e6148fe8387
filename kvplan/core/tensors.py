"""Weight tensors as data: what each is for, its shape, how it is stored and over how many ranks it divides.

Parameters, weight bytes and matrix work are all read off these.
"""

from __future__ import annotations

import math
from enum import StrEnum

from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import Format


class TensorClass(StrEnum):
    """What a weight tensor is for; precision is stated per class."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    MLP = "mlp"
    EXPERTS = "experts"
    SHARED = "shared"
    HEAD = "head"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One weight tensor of a layer (or `copies` equal ones, as the experts of a layer are).

    Attributes:
        name: Dotted module name inside its layer as in the checkpoint (`self_attn.q_proj`); model-level tensors have
            their full name. Biases are tensors of their own (`self_attn.q_proj.bias`).
        tensor_class: What it is for.
        shape: `(out_features, in_features)` of a matrix, `(n,)` of a vector; other ranks for convolutions.
        copies: How many equal tensors there are (experts).
        matmul: True where each token is multiplied with it (linear layers, router); False for norms, biases,
            convolutions and embedding look-ups.
        linear: True where it is an `nn.Linear` that a quantiser would quantise unless told to leave it.
        shards: The most tensor-parallel ranks it can be divided over: 1 for replicated tensors, the number of KV heads
            for K and V projections, None for any.
        format: How it is stored; None is the model's own dtype.
        stored: False where the weights are another tensor's (tied head, layers that share one block): read and
            multiplied, but neither stored nor counted again.
        of_source: True where it multiplies the encoder's output, once per request (K and V of cross attention).
    """

    name: str
    tensor_class: TensorClass
    shape: tuple[int, ...]
    copies: int = 1
    matmul: bool = False
    linear: bool = False
    shards: int | None = None
    format: Format | None = None
    stored: bool = True
    of_source: bool = False

    @property
    def elements(self) -> int:
        """Elements of all copies, stored or not [element]."""
        return self.copies * math.prod(self.shape)

    @property
    def parameters(self) -> int:
        """Elements that count as parameters: zero where the storage is another tensor's [element]."""
        return self.elements if self.stored else 0


def linear(
    name: str,
    tensor_class: TensorClass,
    *,
    out_features: int,
    in_features: int,
    bias: bool = False,
    copies: int = 1,
    shards: int | None = None,
    quantisable: bool = True,
) -> tuple[Tensor, ...]:
    """The tensors of one `nn.Linear` (or `copies` equal ones).

    >>> sum(t.elements for t in linear("q", TensorClass.ATTENTION, out_features=8, in_features=4, bias=True))
    40
    """
    weight = Tensor(
        name=name,
        tensor_class=tensor_class,
        shape=(out_features, in_features),
        copies=copies,
        matmul=True,
        linear=quantisable,
        shards=shards,
    )
    if not bias:
        return (weight,)
    return (
        weight,
        Tensor(name=f"{name}.bias", tensor_class=tensor_class, shape=(out_features,), copies=copies, shards=shards),
    )


def vector(
    name: str, tensor_class: TensorClass, *shape: int, copies: int = 1, shards: int | None = 1
) -> tuple[Tensor, ...]:
    """A norm, scale, bias or convolution: stored and counted, not a matrix product. Replicated unless told otherwise."""
    return (Tensor(name=name, tensor_class=tensor_class, shape=shape, copies=copies, shards=shards),)


def norm(name: str, size: int, *, bias: bool = False) -> tuple[Tensor, ...]:
    """The weight (and bias) of a normalisation layer."""
    tensors = vector(name, TensorClass.OTHER, size)
    return (*tensors, *vector(f"{name}.bias", TensorClass.OTHER, size)) if bias else tensors
