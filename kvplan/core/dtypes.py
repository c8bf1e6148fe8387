"""Number formats: what one weight tensor or one cache element costs in memory, and which units multiply it."""

from __future__ import annotations

from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.errors import UnknownNameError


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How a weight matrix is stored and multiplied.

    Attributes:
        id: Canonical name.
        element_bits: Payload of one element [bit].
        compute: Format of the multiply-accumulate (`fp32 tf32 bf16 fp16 fp8 int8 fp4`), or None when the weight
            is expanded to the activation dtype first (weight-only quantisation: bytes fall, FLOPs do not).
        block_out, block_in: Rows and columns that share one scale; None means the whole dimension.
        scale_bits: Size of one block scale [bit]; 0 for unscaled formats.
        zero_bits: Size of one block zero point [bit].
        tensor_bits: Scales kept once per tensor (and per input activation where the checkpoint stores it) [bit].
        input_bits: Bits kept per input feature (GPTQ's `g_idx`).
        quantised: True where the format is a quantisation that leaves embeddings, norms and routers 16-bit.
    """

    id: str
    element_bits: float
    compute: str | None
    block_out: int | None = None
    block_in: int | None = None
    scale_bits: int = 0
    zero_bits: int = 0
    tensor_bits: int = 0
    input_bits: int = 0
    quantised: bool = True

    def stored_bytes(self, out_features: int, in_features: int) -> int:
        """Bytes of one stored matrix, scales and zero points counted [byte].

        `ceil((out · in · element_bits + blocks · (scale_bits + zero_bits) + extras) / 8)`. A partial block counts by
        its share; a file holds a full scale for it, which is at most a few bytes per row and below 1e-7 of a model.
        Source: layouts of the checkpoint formats (docs/formulas.md, weight formats).

        >>> FORMATS["fp8"].stored_bytes(4096, 4096) - 4096 * 4096
        4
        >>> FORMATS["nvfp4"].stored_bytes(128, 256) * 8 / (128 * 256)
        4.501953125
        """
        bits = self.element_bits * out_features * in_features
        if self.scale_bits or self.zero_bits:
            rows = out_features / self.block_out if self.block_out else 1
            columns = in_features / self.block_in if self.block_in else 1
            bits += rows * columns * (self.scale_bits + self.zero_bits)
        bits += self.tensor_bits + self.input_bits * in_features
        return int(-(-bits // 8))

    def bits_per_element(self, out_features: int = 4096, in_features: int = 4096) -> float:
        """Stored bits of one element of a matrix of this shape, scales counted [bit].

        >>> round(FORMATS["awq"].bits_per_element(), 5)
        4.15625
        """
        return 8 * self.stored_bytes(out_features, in_features) / (out_features * in_features)


def integer_format(
    name: str,
    *,
    bits: int,
    group_size: int | None = None,
    scale_bits: int = 16,
    zero_bits: int = 0,
    input_bits: int = 0,
    compute: str | None = None,
) -> Format:
    """A format of `bits`-bit integers with one scale per row and group of inputs.

    Args:
        name: Its id, to which bits and group are added: `int4_g32`.
        bits: Bits of one element.
        group_size: Inputs that share a scale; None is the whole row.
        scale_bits: Bits of a scale.
        zero_bits: Bits of a zero point.
        input_bits: Bits kept per input feature (`g_idx`).
        compute: Format of the multiplication, or None where weights are expanded first.

    >>> integer_format("int", bits=4, group_size=32).bits_per_element()
    4.5
    """
    return Format(
        id=f"{name}{bits}_g{group_size}" if group_size else f"{name}{bits}_channel",
        element_bits=bits,
        compute=compute,
        block_out=1,
        block_in=group_size,
        scale_bits=scale_bits,
        zero_bits=zero_bits,
        input_bits=input_bits,
    )


def _plain(name: str, bits: int, compute: str | None = None) -> Format:
    return Format(id=name, element_bits=bits, compute=compute or name, quantised=False)


def _gguf(name: str, bits: float) -> Format:
    """A GGUF tensor type; its block scales are inside `bits` (facts: gguf.constants.GGML_QUANT_SIZES)."""
    return Format(id=name, element_bits=bits, compute=None)


#: Weight formats by canonical id. Sources: docs/formulas.md, weight formats.
FORMATS: Final[dict[str, Format]] = {
    f.id: f
    for f in (
        _plain("fp32", 32),
        _plain("tf32", 32),
        _plain("bf16", 16),
        _plain("fp16", 16),
        Format(id="fp8", element_bits=8, compute="fp8", tensor_bits=32),
        Format(id="fp8_static", element_bits=8, compute="fp8", tensor_bits=64),
        Format(id="fp8_channel", element_bits=8, compute="fp8", block_out=1, scale_bits=32),
        Format(id="fp8_block", element_bits=8, compute="fp8", block_out=128, block_in=128, scale_bits=32),
        Format(id="fp8_block_e8m0", element_bits=8, compute="fp8", block_out=128, block_in=128, scale_bits=8),
        Format(id="mxfp8", element_bits=8, compute="fp8", block_out=1, block_in=32, scale_bits=8),
        Format(id="int8", element_bits=8, compute=None, block_out=1, scale_bits=16),
        Format(id="w8a8", element_bits=8, compute="int8", block_out=1, scale_bits=32),
        Format(id="llm_int8", element_bits=8, compute=None, block_out=1, scale_bits=32),
        Format(id="int4", element_bits=4, compute=None, block_out=1, block_in=128, scale_bits=16),
        Format(id="awq", element_bits=4, compute=None, block_out=1, block_in=128, scale_bits=16, zero_bits=4),
        # GPTQ stores packed zeros even where they are all equal; engines drop `g_idx` unless the order is `desc_act`.
        Format(id="gptq", element_bits=4, compute=None, block_out=1, block_in=128, scale_bits=16, zero_bits=4),
        Format(id="nvfp4", element_bits=4, compute="fp4", block_out=1, block_in=16, scale_bits=8, tensor_bits=64),
        Format(id="nvfp4_w4a16", element_bits=4, compute=None, block_out=1, block_in=16, scale_bits=8, tensor_bits=32),
        Format(id="mxfp4", element_bits=4, compute="fp4", block_out=1, block_in=32, scale_bits=8),
        Format(id="nf4", element_bits=4, compute=None, block_out=1, block_in=64, scale_bits=32),
        Format(id="nf4_double", element_bits=4 + 8 / 64 + 32 / 16384, compute=None),
        _gguf("q8_0", 8.5),
        _gguf("q8_k", 9.125),
        _gguf("q6_k", 6.5625),
        _gguf("q5_k", 5.5),
        _gguf("q5_1", 6.0),
        _gguf("q5_0", 5.5),
        _gguf("q4_k", 4.5),
        _gguf("q4_1", 5.0),
        _gguf("q4_0", 4.5),
        _gguf("q3_k", 3.4375),
        _gguf("q2_k", 2.625),
        _gguf("iq4_nl", 4.5),
        _gguf("iq4_xs", 4.25),
        _gguf("iq3_s", 3.4375),
        _gguf("iq3_xxs", 3.0625),
        _gguf("iq2_s", 2.5625),
        _gguf("iq2_xs", 2.3125),
        _gguf("iq2_xxs", 2.0625),
        _gguf("iq1_m", 1.75),
        _gguf("iq1_s", 1.5625),
        _gguf("tq2_0", 2.0625),
        _gguf("tq1_0", 1.6875),
        _gguf("q1_0", 1.125),
        _gguf("gguf_mxfp4", 4.25),
        _gguf("gguf_nvfp4", 4.5),
    )
}

#: Cache formats: bits of one cached element, scales included where they are kept per block.
KV_BITS: Final[dict[str, float]] = {
    "fp32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "int8": 8,
    "int4": 4,
    "nvfp4": 4 + 8 / 16,
    "mxfp4": 4 + 8 / 32,
    **{name: FORMATS[name].element_bits for name in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")},
}

_ALIASES: Final[dict[str, str]] = {
    "float32": "fp32",
    "f32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "w8a16": "int8",
    "w4a16": "int4",
    "fp4": "nvfp4",
}


def format_by_id(name: str) -> Format:
    """The weight format with this id or alias.

    >>> format_by_id("bfloat16").id
    'bf16'

    Raises:
        UnknownNameError: No such format.
    """
    key = name.lower()
    found = FORMATS.get(_ALIASES.get(key, key))
    if found is None:
        msg = f"dtype: unknown weight format {name!r}"
        raise UnknownNameError(msg, hint="known: " + ", ".join(sorted(FORMATS)))
    return found


def kv_format(name: str) -> str:
    """The canonical id of a cache format.

    >>> kv_format("fp8_e4m3")
    'fp8'

    Raises:
        UnknownNameError: No such format.
    """
    key = name.lower()
    key = _ALIASES.get(key, key)
    if key not in KV_BITS:
        msg = f"kv_dtype: unknown cache format {name!r}"
        raise UnknownNameError(msg, hint="known: " + ", ".join(sorted(KV_BITS)))
    return key


def kv_bits(name: str) -> float:
    """Bits of one cache element in a format [bit].

    >>> kv_bits("q8_0")
    8.5
    """
    return KV_BITS[kv_format(name)]
