"""A list of tower tensors under construction: what vision and audio networks are made of."""

from __future__ import annotations

from kvplan.core.tensors import Tensor, TensorClass, linear, vector
from kvplan.specs.huggingface.config import Config


class Parts:
    """Collects the tensors of one tower.

    Names are full checkpoint names with `*` for the layer index; the `copies` of a tensor are its layers.

    Args:
        prefix: Dotted name of the tower's module, with its last dot.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.tensors: list[Tensor] = []

    def linear(self, name: str, out_features: int, in_features: int, *, bias: bool = True, copies: int = 1) -> None:
        """An `nn.Linear` (biased unless told otherwise: most vision towers are)."""
        self.tensors += linear(
            self.prefix + name,
            TensorClass.OTHER,
            out_features=out_features,
            in_features=in_features,
            bias=bias,
            copies=copies,
        )

    def vector(self, name: str, *shape: int, copies: int = 1) -> None:
        """A parameter that is no matrix product: positions, convolutions, scales."""
        self.tensors += vector(self.prefix + name, TensorClass.OTHER, *shape, copies=copies)

    def conv(self, name: str, *shape: int, bias: bool = True) -> None:
        """A convolution of shape `(out, in, kernel…)`."""
        self.vector(name, *shape)
        if bias:
            self.vector(f"{name}.bias", shape[0])

    def norm(self, name: str, size: int, *, bias: bool = True, copies: int = 1) -> None:
        """A layer norm, or an RMS norm without bias."""
        self.vector(name, size, copies=copies)
        if bias:
            self.vector(f"{name}.bias", size, copies=copies)

    def norms(self, name: str, parts: tuple[str, ...], size: int, *, bias: bool = True, copies: int = 1) -> None:
        """Several norms of one width below one module."""
        for part in parts:
            self.norm(f"{name}.{part}", size, bias=bias, copies=copies)

    def attention(
        self,
        name: str,
        hidden_size: int,
        *,
        copies: int,
        names: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "out_proj"),
        bias: bool = True,
        k_bias: bool | None = None,
        o_bias: bool | None = None,
        width: int | None = None,
    ) -> None:
        """Q, K, V and output projections of `copies` layers; biases of K and output as Q's unless told otherwise."""
        query, key, value, output = (f"{name}.{part}" for part in names)
        inner = width or hidden_size
        self.linear(query, inner, hidden_size, bias=bias, copies=copies)
        self.linear(key, inner, hidden_size, bias=bias if k_bias is None else k_bias, copies=copies)
        self.linear(value, inner, hidden_size, bias=bias, copies=copies)
        self.linear(output, hidden_size, inner, bias=bias if o_bias is None else o_bias, copies=copies)

    def fused_attention(
        self,
        name: str,
        hidden_size: int,
        *,
        copies: int,
        names: tuple[str, str] = ("qkv", "proj"),
        bias: bool = True,
        o_bias: bool = True,
    ) -> None:
        """One matrix for Q, K and V, and the output projection."""
        self.linear(f"{name}.{names[0]}", 3 * hidden_size, hidden_size, bias=bias, copies=copies)
        self.linear(f"{name}.{names[1]}", hidden_size, hidden_size, bias=o_bias, copies=copies)

    def mlp(
        self,
        name: str,
        hidden_size: int,
        intermediate_size: int,
        *,
        copies: int = 1,
        names: tuple[str, str] = ("fc1", "fc2"),
        bias: bool = True,
    ) -> None:
        """A plain feed-forward."""
        up, down = (f"{name}.{part}" if name else part for part in names)
        self.linear(up, intermediate_size, hidden_size, bias=bias, copies=copies)
        self.linear(down, hidden_size, intermediate_size, bias=bias, copies=copies)

    def gated(
        self, name: str, hidden_size: int, intermediate_size: int, *, copies: int = 1, bias: bool = False
    ) -> None:
        """A gated feed-forward."""
        for part in ("gate_proj", "up_proj"):
            self.linear(f"{name}.{part}", intermediate_size, hidden_size, bias=bias, copies=copies)
        self.linear(f"{name}.down_proj", hidden_size, intermediate_size, bias=bias, copies=copies)

    def two_linears(
        self,
        in_features: int,
        inner: int,
        out_features: int,
        *,
        names: tuple[str, str] = ("linear_1", "linear_2"),
        bias: bool = True,
        gated: bool = False,
    ) -> None:
        """A projector of two matrices; a gated one makes value and gate, each half of `inner`, with the first."""
        self.linear(names[0], inner, in_features, bias=bias)
        self.linear(names[1], out_features, inner // 2 if gated else inner, bias=bias)

    def done(self) -> tuple[Tensor, ...]:
        """The tensors."""
        return tuple(self.tensors)


def read_vit(
    config: Config,
    *,
    hidden: int | None = 768,
    inner: int | None = 3072,
    layers: int | None = 12,
    heads: int | None = 12,
) -> tuple[int, int, int, int]:
    """Width, width inside the feed-forward, layers and heads of a vision transformer; None is a size without default."""
    return (
        config.integer("hidden_size", default=hidden),
        config.integer("intermediate_size", default=inner),
        config.integer("num_hidden_layers", default=layers),
        config.integer("num_attention_heads", default=heads),
    )


def read_patches(config: Config, *, image: int, patch: int) -> tuple[int, int]:
    """Patches of one image and inputs of one patch (channels × pixels); sizes are integers or `[height, width]`."""
    image_size = config.integers("image_size", length=2, default=image, minimum=1)
    patch_size = config.integers("patch_size", length=2, default=patch, minimum=1)
    count = (image_size[0] // patch_size[0]) * (image_size[1] // patch_size[1])
    return count, config.integer("num_channels", default=3) * patch_size[0] * patch_size[1]


def parameters(tensors: tuple[Tensor, ...]) -> int:
    """Parameters of a list of tensors [parameter]."""
    return sum(tensor.parameters for tensor in tensors)
