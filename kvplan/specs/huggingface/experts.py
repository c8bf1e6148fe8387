"""Mixtures of experts as configs describe them: Mixtral's fields, DeepSeek's fields, which layers are sparse."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.core.dataclass import dataclass
from kvplan.core.model import FeedForward, MixtureOfExperts
from kvplan.core.tensors import Tensor, TensorClass
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blocks import Dimensions
from kvplan.specs.huggingface.config import Config

#: Mixtral's spelling of gate, up and down projection.
W_NAMES = ("w1", "w3", "w2")


def read_mixtral(
    config: Config,
    hidden_size: int,
    *,
    experts: int | None = None,
    top_k: int | None = None,
    extra: tuple[Tensor, ...] = (),
) -> MixtureOfExperts:
    """A mixture with Mixtral's fields and tensor names: every expert as wide as `intermediate_size` says.

    Args:
        config: The (text) config.
        hidden_size: Width of the residual stream.
        experts: The family's number of them; None has no default.
        top_k: Experts that a token is sent to; None likewise.
        extra: What the family adds (an expert that all tokens pass).
    """
    count = config.integer("num_local_experts", "num_experts", default=experts)
    return blocks.gated_moe(
        hidden_size,
        config.integer("intermediate_size"),
        num_experts=count,
        top_k=blocks.read_top_k(config, count, default=top_k),
        name="block_sparse_moe.experts",
        names=W_NAMES,
        routing=blocks.router("block_sparse_moe.gate", hidden_size, count),
        extra=extra,
    )


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

    def block(self, hidden_size: int, *, shared_bias: bool = False, extra: tuple[Tensor, ...] = ()) -> MixtureOfExperts:
        """The feed-forward under the usual names, shared experts stored as one wider expert, and what the family adds."""
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
            extra=(*(shared if self.shared else ()), *extra),
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


def read_sparse_layers(config: Config, count: int, *, first_dense: int = 0) -> tuple[bool, ...]:
    """For each layer, whether its feed-forward is a mixture of experts.

    `mlp_layer_types` counts where it is there; else layers from `first_k_dense_replace` on, every `moe_layer_freq`-th.

    Args:
        config: The (text) config.
        count: Layers.
        first_dense: The family's default of `first_k_dense_replace`.
    """
    frequency = config.optional_integer("moe_layer_freq") or 1
    types = config.kinds("mlp_layer_types", known=("dense", "sparse"), length=count)
    if types is None:
        first = config.integer("first_k_dense_replace", "num_dense_layers", default=first_dense, minimum=0)
        return tuple(index >= first and index % frequency == 0 for index in range(count))
    config.ignore("first_k_dense_replace", "num_dense_layers")
    return tuple(kind == "sparse" for kind in types)


def read_feed_forwards(
    config: Config,
    hidden_size: int,
    sparse_layers: Sequence[bool],
    sparse: FeedForward | None,
    *,
    dense_bias: bool = False,
) -> tuple[FeedForward, ...]:
    """The feed-forward of each layer; the width of the dense ones is read where there are any."""
    if all(sparse_layers):
        config.ignore("intermediate_size")
        return alternate(sparse_layers, sparse, None)
    dense = blocks.gated_mlp(hidden_size, config.integer("intermediate_size"), bias=dense_bias)
    return alternate(sparse_layers, sparse, dense)


def dense_first(
    config: Config, dims: Dimensions, sparse: FeedForward, *, default: int = 0, dense_bias: bool = False
) -> tuple[FeedForward, ...]:
    """The feed-forward of each layer of a family that starts with `default` dense layers unless told otherwise."""
    sparse_layers = read_sparse_layers(config, dims.num_hidden_layers, first_dense=default)
    return read_feed_forwards(config, dims.hidden_size, sparse_layers, sparse, dense_bias=dense_bias)


def alternate(
    sparse_layers: Sequence[bool], sparse: FeedForward | None, dense: FeedForward | None
) -> tuple[FeedForward, ...]:
    """The feed-forward of each layer; a kind that no layer has may be None."""
    chosen = (sparse if is_sparse else dense for is_sparse in sparse_layers)
    return tuple(forward for forward in chosen if forward is not None)


def count_sparse(forwards: Sequence[FeedForward]) -> int:
    """How many layers are sparse."""
    return sum(isinstance(forward, MixtureOfExperts) for forward in forwards)
