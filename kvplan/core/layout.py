"""How a model is laid out over GPUs: tensor, pipeline, data and expert parallelism."""

from __future__ import annotations

from kvplan.core.dataclass import dataclass
from kvplan.core.model import MixtureOfExperts, Model, Recurrent
from kvplan.core.numeric import check_count
from kvplan.core.tensors import Tensor, TensorClass
from kvplan.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Ranks of one deployment.

    Attributes:
        tp: Ranks that share each layer.
        pp: Pipeline stages.
        dp: Data-parallel ranks of attention: independent replicas for a dense model, DP attention that shares the
            experts for a mixture of experts with `ep > 1`.
        ep: Ranks that the routed experts are divided over; None and 1 mean that experts follow `tp`, as engines do
            without expert parallelism.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int | None = None

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "ep"):
            value = getattr(self, name)
            if value is not None:
                check_count(name, value)

    @property
    def gpu_count(self) -> int:
        """`tp × pp × dp`."""
        return self.tp * self.pp * self.dp

    @property
    def expert_ranks(self) -> int | None:
        """Ranks that hold whole experts of their own, or None where every rank holds a slice of each."""
        return self.ep if self.ep is not None and self.ep > 1 else None

    @property
    def shared_experts_over_dp(self) -> bool:
        """True for DP attention: data-parallel ranks that share one set of experts."""
        return self.dp > 1 and self.expert_ranks is not None

    def divisor(self, tensor: Tensor) -> int:
        """Ranks that one tensor is divided over.

        Routed experts divide over `ep` (else `tp`); replicated tensors and KV projections with fewer heads than
        ranks divide over as many ranks as they can.
        """
        if tensor.tensor_class is TensorClass.EXPERTS:
            return self.expert_ranks or self.tp
        return self.tp if tensor.shards is None else min(self.tp, tensor.shards)

    def check(self, model: Model) -> None:
        """Refuse a layout that the model can't have.

        Raises:
            UsageError: tp does not divide the attention heads, pp exceeds the layers, ep does not divide the experts
                or the ranks.
        """
        for group in model.groups:
            for mixer in group.layer.mixers:
                if isinstance(mixer, Recurrent):  # a state divides over as many ranks as it has heads
                    continue
                heads = mixer.num_attention_heads
                if heads % self.tp:
                    divisors = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
                    msg = f"tp: {self.tp} does not divide the {heads} attention heads of {model.id}"
                    raise UsageError(msg, hint=f"use one of {divisors}")
        if self.pp > model.num_hidden_layers:
            msg = f"pp: {self.pp} stages are more than the {model.num_hidden_layers} layers of {model.id}"
            raise UsageError(msg)
        self._check_experts(model)

    def _check_experts(self, model: Model) -> None:
        if self.ep is None or self.expert_ranks is None:
            return
        experts = [
            g.layer.feed_forward.num_experts for g in model.groups if isinstance(g.layer.feed_forward, MixtureOfExperts)
        ]
        if not experts:
            msg = f"ep: {model.id} has no routed experts to divide over {self.ep} ranks"
            raise UsageError(msg, hint="leave ep out")
        if (self.tp * self.dp) % self.ep:
            msg = f"ep: {self.ep} does not divide the tp × dp = {self.tp * self.dp} ranks"
            raise UsageError(msg, hint=f"use ep={self.tp * self.dp}, or leave it out")
        if any(n % self.ep for n in experts):
            msg = f"ep: {self.ep} does not divide the {experts[0]} routed experts of {model.id}"
            raise UsageError(msg)


def stage_sizes(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each pipeline stage; what doesn't divide goes to the middle stages, from the back (vLLM's rule).

    >>> stage_sizes(61, 4)
    (15, 15, 16, 15)
    """
    sizes = [layers // stages] * stages
    for index in range(layers % stages):
        sizes[-(index + 2) % stages] += 1
    return tuple(sizes)
