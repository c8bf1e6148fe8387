"""Building blocks of recurrent mixers: Mamba 1 and 2, gated delta net, Kimi delta attention, lightning, short convolution.

State sizes follow the engines: the recurrent state, and a convolution state of `kernel − 1` columns.
"""

from __future__ import annotations

from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import format_by_id
from kvplan.core.model import Recurrent
from kvplan.core.tensors import Tensor, TensorClass, linear, norm, vector
from kvplan.specs.huggingface.config import Config

_ATTENTION: Final = TensorClass.ATTENTION


def project(name: str, out_features: int, in_features: int, *, bias: bool = False) -> tuple[Tensor, ...]:
    """A linear layer of a mixer that divides over all tensor-parallel ranks."""
    return linear(name, _ATTENTION, out_features=out_features, in_features=in_features, bias=bias)


def parameter(name: str, *shape: int) -> tuple[Tensor, ...]:
    """A small weight of a mixer (decay, skip, time step) that divides with its heads and stays unquantised."""
    return vector(name, TensorClass.OTHER, *shape, shards=None)


def depthwise(name: str, channels: int, kernel: int, *, bias: bool) -> tuple[Tensor, ...]:
    """A causal convolution, one filter per channel."""
    tensors = parameter(name, channels, 1, kernel)
    return (*tensors, *parameter(f"{name}.bias", channels)) if bias else tensors


def read_state_bits(config: Config) -> int:
    """Bits of one state element: what the config says, else those of the model's dtype, as vLLM's `auto` keeps it [bit].

    Seen in logs: vLLM 0.11 gives Qwen3-Next, whose config says nothing, attention blocks of 544 tokens (a bf16 state),
    Qwen3.6, whose config says float32, blocks of 1600. SGLang keeps fp32 unless told otherwise.

    Raises:
        SpecError: Not a floating-point format.
    """
    name = config.string("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    if name is None or name == "auto":
        name = config.string("torch_dtype", "dtype") or "bfloat16"
    name = name.removeprefix("torch.")
    if name not in {"float32", "bfloat16", "float16"}:
        raise config.error("mamba_ssm_dtype", f"must be float32, bfloat16 or float16, not {name!r}")
    return int(format_by_id(name).element_bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """The sizes of a Mamba 1 mixer.

    Attributes:
        hidden_size: Width of the residual stream.
        intermediate_size: Channels.
        state_size: State per channel.
        kernel: Taps of the convolution.
        rank: Rank of the time step.
        conv_bias, bias: Whether the convolution and the projections have biases.
    """

    hidden_size: int
    intermediate_size: int
    state_size: int
    kernel: int
    rank: int
    conv_bias: bool
    bias: bool


def mamba1(sizes: Mamba1, *, name: str, state_bits: int, extra: tuple[Tensor, ...] = ()) -> Recurrent:
    """A Mamba 1 mixer (arXiv:2312.00752): state `channels × state_size`."""
    inner, state = sizes.intermediate_size, sizes.state_size
    return Recurrent(
        kind="mamba",
        state_elements=inner * state,
        conv_elements=inner * (sizes.kernel - 1),
        num_heads=inner,
        state_bits=state_bits,
        tensors=(
            *parameter(f"{name}.A_log", inner, state),
            *parameter(f"{name}.D", inner),
            *depthwise(f"{name}.conv1d", inner, sizes.kernel, bias=sizes.conv_bias),
            *project(f"{name}.in_proj", 2 * inner, sizes.hidden_size, bias=sizes.bias),
            *project(f"{name}.x_proj", sizes.rank + 2 * state, inner),
            *project(f"{name}.dt_proj", inner, sizes.rank, bias=True),
            *project(f"{name}.out_proj", sizes.hidden_size, inner, bias=sizes.bias),
            *extra,
        ),
    )


def read_rank(config: Config, *names: str, hidden_size: int) -> int:
    """Rank of Mamba's time step; `auto` (and missing) is `ceil(hidden_size / 16)`."""
    if config.raw(*names) in (None, "auto"):
        return -(-hidden_size // 16)
    return config.integer(*names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """The sizes of a Mamba 2 mixer.

    Attributes:
        hidden_size: Width of the residual stream.
        num_heads: Heads.
        head_dim: Channels of a head.
        state_size: State per channel.
        groups: Groups that share the input and output maps.
        kernel: Taps of the convolution.
        conv_bias: True where the convolution has a bias.
        in_bias, out_bias: True where the projections have biases.
        gated_norm: False where there is no norm before the output projection.
    """

    hidden_size: int
    num_heads: int
    head_dim: int
    state_size: int
    groups: int
    kernel: int
    conv_bias: bool
    in_bias: bool
    out_bias: bool
    gated_norm: bool = True


def mamba2(sizes: Mamba2, *, name: str, state_bits: int) -> Recurrent:
    """A Mamba 2 mixer (arXiv:2405.21060): state `heads × head_dim × state_size`."""
    inner, heads = sizes.num_heads * sizes.head_dim, sizes.num_heads
    channels = inner + 2 * sizes.groups * sizes.state_size
    return Recurrent(
        kind="mamba2",
        state_elements=inner * sizes.state_size,
        conv_elements=channels * (sizes.kernel - 1),
        num_heads=heads,
        state_bits=state_bits,
        tensors=(
            *parameter(f"{name}.dt_bias", heads),
            *parameter(f"{name}.A_log", heads),
            *parameter(f"{name}.D", heads),
            *depthwise(f"{name}.conv1d", channels, sizes.kernel, bias=sizes.conv_bias),
            *project(f"{name}.in_proj", inner + channels + heads, sizes.hidden_size, bias=sizes.in_bias),
            *(parameter(f"{name}.norm", inner) if sizes.gated_norm else ()),
            *project(f"{name}.out_proj", sizes.hidden_size, inner, bias=sizes.out_bias),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNet:
    """The sizes of a gated delta net.

    Attributes:
        hidden_size: Width of the residual stream.
        num_key_heads, key_head_dim: Query and key heads.
        num_value_heads, value_head_dim: Value heads; each has a state of `key_head_dim × value_head_dim`.
        kernel: Taps of the convolution over queries, keys and values.
    """

    hidden_size: int
    num_key_heads: int
    key_head_dim: int
    num_value_heads: int
    value_head_dim: int
    kernel: int

    @property
    def key_width(self) -> int:
        """Width of all keys."""
        return self.num_key_heads * self.key_head_dim

    @property
    def value_width(self) -> int:
        """Width of all values."""
        return self.num_value_heads * self.value_head_dim


def gated_delta_net(sizes: DeltaNet, *, name: str, projections: tuple[Tensor, ...], state_bits: int) -> Recurrent:
    """A gated delta net (arXiv:2412.06464) without its projections, which each family names and fuses its own way."""
    heads = sizes.num_value_heads
    channels = 2 * sizes.key_width + sizes.value_width
    return Recurrent(
        kind="gated_delta_net",
        state_elements=heads * sizes.key_head_dim * sizes.value_head_dim,
        conv_elements=channels * (sizes.kernel - 1),
        num_heads=heads,
        state_bits=state_bits,
        tensors=(
            *parameter(f"{name}.dt_bias", heads),
            *parameter(f"{name}.A_log", heads),
            *depthwise(f"{name}.conv1d", channels, sizes.kernel, bias=False),
            *projections,
        ),
    )


def kimi_delta_attention(
    *, hidden_size: int, num_heads: int, head_dim: int, kernel: int, name: str, gates: tuple[Tensor, ...]
) -> Recurrent:
    """Kimi delta attention (arXiv:2510.26692): a delta net with a decay per channel; `gates` are the family's.

    Engines keep its state in fp32.
    """
    width = num_heads * head_dim
    return Recurrent(
        kind="kda",
        state_elements=num_heads * head_dim * head_dim,
        conv_elements=3 * width * (kernel - 1),
        num_heads=num_heads,
        tensors=(
            *(t for part in ("q_proj", "k_proj", "v_proj") for t in project(f"{name}.{part}", width, hidden_size)),
            *(t for part in "qkv" for t in depthwise(f"{name}.{part}_conv1d", width, kernel, bias=False)),
            *parameter(f"{name}.A_log", num_heads),
            *parameter(f"{name}.dt_bias", width),
            *project(f"{name}.b_proj", num_heads, hidden_size),
            *gates,
            *norm(f"{name}.o_norm", head_dim),
            *project(f"{name}.o_proj", hidden_size, width),
        ),
    )


def lightning_attention(*, hidden_size: int, num_heads: int, head_dim: int, name: str, state_bits: int) -> Recurrent:
    """Lightning attention of MiniMax-01 (arXiv:2501.08313): state `heads × head_dim²`, no convolution."""
    width = num_heads * head_dim
    return Recurrent(
        kind="lightning",
        state_elements=num_heads * head_dim * head_dim,
        conv_elements=0,
        num_heads=num_heads,
        state_bits=state_bits,
        tensors=(
            *parameter(f"{name}.norm", width),
            *project(f"{name}.qkv_proj", 3 * width, hidden_size),
            *project(f"{name}.out_proj", hidden_size, width),
            *project(f"{name}.output_gate", width, hidden_size),
        ),
    )


def short_convolution(*, hidden_size: int, kernel: int, bias: bool, name: str) -> Recurrent:
    """LFM2's gated short convolution: only the last `kernel − 1` inputs are kept."""
    return Recurrent(
        kind="short_conv",
        state_elements=0,
        conv_elements=hidden_size * (kernel - 1),
        num_heads=hidden_size,
        tensors=(
            *depthwise(f"{name}.conv", hidden_size, kernel, bias=bias),
            *project(f"{name}.in_proj", 3 * hidden_size, hidden_size, bias=bias),
            *project(f"{name}.out_proj", hidden_size, hidden_size, bias=bias),
        ),
    )
