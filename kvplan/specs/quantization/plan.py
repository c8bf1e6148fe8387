"""A checkpoint's quantisation as data: which modules are stored in which format, and what the cache is asked to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import StrEnum

from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import Format
from kvplan.core.tensors import Tensor, TensorClass
from kvplan.specs.quantization.names import NameList


class Part(StrEnum):
    """Where in the model a tensor sits."""

    LAYER = "layer"
    MODEL = "model"
    TOWER = "tower"


#: Modules that look like linear layers and are routers or scalar gates: left alone unless named.
_ROUTERS = ("gate", "router", "shared_expert_gate", "classifier")


def matches(names: NameList, name: str, tensor: Tensor) -> bool:
    """True where a list names a tensor's module; every head is also called `lm_head` (`embed_out`, `output`, …)."""
    if names.matches(name, copies=tensor.copies):
        return True
    return tensor.tensor_class is TensorClass.HEAD and names.matches("lm_head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One format and the modules that are stored in it.

    Attributes:
        format: The stored format; None keeps the model's dtype (a rule that excepts).
        names: Modules that it applies to by name, or None.
        linears: True where it applies to every linear layer of the decoder.
        head: True where `linears` includes the output head.
        towers: True where `linears` includes vision and audio towers.
        only: Restricts `linears` further, or None.
    """

    format: Format | None
    names: NameList | None = None
    linears: bool = False
    head: bool = False
    towers: bool = False
    only: Callable[[Tensor], bool] | None = None

    def applies(self, name: str, tensor: Tensor, part: Part) -> bool:
        """True where a tensor is stored by this rule."""
        matrix = len(tensor.shape) >= 2 and not name.endswith(".bias")  # noqa: PLR2004 - a matrix
        if matrix and self.names is not None and matches(self.names, name, tensor):
            return tensor.linear or tensor.tensor_class in {TensorClass.EMBEDDING, TensorClass.HEAD}
        if not (self.linears and tensor.linear):
            return False
        if tensor.tensor_class is TensorClass.HEAD and not self.head:
            return False
        if part is Part.TOWER and not self.towers:
            return False
        if name.rpartition(".")[2] in _ROUTERS:
            return False
        return self.only is None or self.only(tensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationPlan:
    """A checkpoint's quantisation.

    Attributes:
        name: What it is called (`fp8`, `nvfp4`, `compressed-tensors`, …).
        rules: Tried in order; the first that applies counts.
        ignore: Modules that stay in the model's dtype, or None.
        kv_dtype: Cache format that the checkpoint asks for, or None.
        warnings: What the reader should doubt.
    """

    name: str
    rules: tuple[Rule, ...]
    ignore: NameList | None = None
    kv_dtype: str | None = None
    warnings: tuple[str, ...] = field(default=())

    def format_for(self, name: str, tensor: Tensor, part: Part = Part.LAYER) -> Format | None:
        """The format that a tensor is stored in, or None for the model's dtype.

        Args:
            name: Full module name as in the checkpoint.
            tensor: The tensor.
            part: Where it sits.
        """
        if not tensor.linear and tensor.tensor_class not in {TensorClass.EMBEDDING, TensorClass.HEAD}:
            return None
        if self.ignore is not None and matches(self.ignore, name, tensor):
            return None
        return next((rule.format for rule in self.rules if rule.applies(name, tensor, part)), None)
