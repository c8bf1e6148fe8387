"""Which tensor type llama.cpp gives each tensor of a file: the names `Q4_K_M`, `IQ3_XS`, … stand for mixtures.

The rules are those of `llama_tensor_get_type` in llama.cpp's `src/llama-quant.cpp`, with an importance matrix for the
types below 4 bits, which need one, and without for the others. They reproduce the bits per weight that llama.cpp prints
for Llama-3.1-8B (`tools/quantize/README.md`) within 0.01 %.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import FORMATS, Format
from kvplan.core.model import Attention, LayerGroup, MixtureOfExperts, Model
from kvplan.core.tensors import Tensor, TensorClass

#: File type → type of a tensor for which no rule says otherwise.
FILE_TYPES: Final[dict[str, str]] = {
    "q2_k": "q2_k",
    "q2_k_s": "q2_k",
    "q3_k_s": "q3_k",
    "q3_k_m": "q3_k",
    "q3_k_l": "q3_k",
    "q4_0": "q4_0",
    "q4_1": "q4_1",
    "q4_k_s": "q4_k",
    "q4_k_m": "q4_k",
    "q5_0": "q5_0",
    "q5_1": "q5_1",
    "q5_k_s": "q5_k",
    "q5_k_m": "q5_k",
    "q6_k": "q6_k",
    "q8_0": "q8_0",
    "iq1_s": "iq1_s",
    "iq1_m": "iq1_m",
    "iq2_xxs": "iq2_xxs",
    "iq2_xs": "iq2_xs",
    "iq2_s": "iq2_xs",
    "iq2_m": "iq2_s",
    "iq3_xxs": "iq3_xxs",
    "iq3_xs": "iq3_s",
    "iq3_s": "iq3_s",
    "iq3_m": "iq3_s",
    "iq4_nl": "iq4_nl",
    "iq4_xs": "iq4_xs",
    "tq1_0": "tq1_0",
    "tq2_0": "tq2_0",
    "mxfp4_moe": "q8_0",
}
_TINY: Final = frozenset({"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m"})
#: What a type falls back to when a row is no multiple of 256.
_FALLBACK: Final = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0", "tq1_0": "q4_0", "tq2_0": "q4_0"}
_SMALL_BLOCKS: Final = frozenset({"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "gguf_mxfp4"})
_SUPER_BLOCK: Final = 256
_BLOCK: Final = 32
_MIXTRAL_EXPERTS: Final = 8
_LAYERS_OF_70B: Final = 80
_GQA: Final = 4
#: Norms, biases, routers and convolutions are written in 32 bits.
FULL_PRECISION: Final = Format(id="fp32", element_bits=32, compute=None, quantised=False)


class Role(StrEnum):
    """What llama.cpp's rules tell apart."""

    Q = "attn_q"
    K = "attn_k"
    V = "attn_v"
    QKV = "attn_qkv"
    O = "attn_output"  # noqa: E741 - the field's letter
    GATE = "ffn_gate"
    UP = "ffn_up"
    DOWN = "ffn_down"
    EMBEDDING = "token_embd"
    OUTPUT = "output"
    OTHER = "other"
    FULL = "full"


_ATTENTION_ROLES: Final = {
    "q_proj": Role.Q, "k_proj": Role.K, "v_proj": Role.V, "o_proj": Role.O, "wq": Role.Q, "wk": Role.K, "wv": Role.V,
    "wo": Role.O, "query": Role.Q, "key": Role.K, "value": Role.V, "out_proj": Role.O, "dense": Role.O, "c_proj": Role.O,
    "qkv_proj": Role.QKV, "query_key_value": Role.QKV, "c_attn": Role.QKV, "Wqkv": Role.QKV, "W_pack": Role.QKV,
    "wqkv": Role.QKV, "qkv": Role.QKV,
    "attn_q": Role.Q, "attn_k": Role.K, "attn_v": Role.V, "attn_output": Role.O, "attn_qkv": Role.QKV,
}  # fmt: skip
_FEED_FORWARD_ROLES: Final = {
    "gate_proj": Role.GATE, "up_proj": Role.UP, "down_proj": Role.DOWN, "w1": Role.GATE, "w3": Role.UP, "w2": Role.DOWN,
    "gate_up_proj": Role.UP, "fc1": Role.UP, "fc2": Role.DOWN, "c_fc": Role.UP, "c_proj": Role.DOWN,
    "dense_h_to_4h": Role.UP, "dense_4h_to_h": Role.DOWN, "fc_in": Role.UP, "fc_out": Role.DOWN,
    "ffn_gate": Role.GATE, "ffn_up": Role.UP, "ffn_down": Role.DOWN, "ffn_gate_exps": Role.GATE,
    "ffn_up_exps": Role.UP, "ffn_down_exps": Role.DOWN, "ffn_gate_shexp": Role.GATE, "ffn_up_shexp": Role.UP,
    "ffn_down_shexp": Role.DOWN,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the rules ask about the whole model.

    Attributes:
        layers: Decoder layers.
        gqa: Query heads per KV head.
        experts: Routed experts, 0 for a dense model.
        has_output: True where the head has weights of its own.
    """

    layers: int
    gqa: int
    experts: int
    has_output: bool


def model_shape(model: Model) -> Shape:
    """Read the shape off a model."""
    attention = [m for g in model.groups for m in g.layer.mixers if isinstance(m, Attention)]
    experts = [_experts(g) for g in model.groups]
    first = attention[0] if attention else None
    return Shape(
        layers=model.num_hidden_layers,
        gqa=first.num_attention_heads // first.num_key_value_heads if first else 1,
        experts=max(experts, default=0),
        has_output=any(t.tensor_class is TensorClass.HEAD and t.stored for t in model.tensors),
    )


def _experts(group: LayerGroup) -> int:
    feed_forward = group.layer.feed_forward
    return feed_forward.num_experts if isinstance(feed_forward, MixtureOfExperts) else 0


def role(tensor: Tensor) -> Role:
    """What a tensor is to the rules."""
    last = tensor.name.rpartition(".")[2]
    if tensor.tensor_class is TensorClass.EMBEDDING and len(tensor.shape) == 2:  # noqa: PLR2004 - a matrix
        return Role.EMBEDDING
    if tensor.tensor_class is TensorClass.HEAD and len(tensor.shape) == 2:  # noqa: PLR2004
        return Role.OUTPUT
    if not tensor.linear:
        return Role.FULL
    if tensor.tensor_class is TensorClass.ATTENTION:
        return _ATTENTION_ROLES.get(last, Role.OTHER)
    return _FEED_FORWARD_ROLES.get(last, Role.OTHER)


def use_more_bits(index: int, layers: int) -> bool:
    """True for the first and last eighth of the layers and every third between.

    >>> sum(use_more_bits(i, 32) for i in range(32))
    16
    """
    return index < layers // 8 or index >= 7 * layers // 8 or (index - layers // 8) % 3 == 2  # noqa: PLR2004 - theirs


def tensor_type(file_type: str, tensor: Tensor, *, index: int, shape: Shape) -> Format:
    """The format that llama.cpp writes a tensor in.

    Args:
        file_type: Canonical name of the file type (`q4_k_m`).
        tensor: The tensor.
        index: Its layer.
        shape: The model's shape.
    """
    kind = role(tensor)
    if kind is Role.FULL:
        return FULL_PRECISION
    base = FILE_TYPES[file_type]
    chosen = _special(file_type, kind, index, shape) or base
    if file_type == "mxfp4_moe" and tensor.tensor_class is TensorClass.EXPERTS:
        chosen = "gguf_mxfp4"
    columns = tensor.shape[-1]
    if chosen not in _SMALL_BLOCKS and columns % _SUPER_BLOCK:
        chosen = _FALLBACK.get(chosen, "iq4_nl")
    if columns % _BLOCK:
        return FORMATS["fp16"]
    return FORMATS[chosen]


def _special(file_type: str, kind: Role, index: int, shape: Shape) -> str | None:  # noqa: C901, PLR0911 - one branch per role
    """The type that a rule gives, or None for the file type's own."""
    if kind is Role.OUTPUT or (kind is Role.EMBEDDING and not shape.has_output):
        if FILE_TYPES[file_type] == "q8_0":
            return None
        return "q5_k" if file_type in _TINY or file_type == "iq3_xxs" else "q6_k"
    if kind is Role.EMBEDDING:
        return _embedding(file_type)
    if file_type in _TINY:
        return _tiny(file_type, kind, index, shape)
    match kind:
        case Role.V:
            return _value(file_type, index, shape)
        case Role.Q | Role.K:
            if kind is Role.K and shape.experts == _MIXTRAL_EXPERTS:
                return "q8_0"
            return {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}.get(file_type)
        case Role.DOWN:
            return _down(file_type, index, shape)
        case Role.O:
            return _output(file_type, shape)
        case Role.QKV:
            return {"q3_k_m": "q4_k", "q3_k_l": "q4_k", "iq3_m": "q4_k", "q4_k_m": "q5_k", "q5_k_m": "q6_k"}.get(
                file_type
            )
        case Role.GATE | Role.UP:
            middle = shape.layers // 8 <= index < 7 * shape.layers // 8
            return "iq3_xxs" if file_type == "iq3_xs" and middle else None
        case _:
            return None


def _embedding(file_type: str) -> str | None:
    if file_type in {"iq2_xxs", "iq2_xs", "iq1_s", "iq1_m"}:
        return "q2_k"
    if file_type in {"iq2_s", "iq2_m", "iq3_xxs"}:
        return "iq3_s"
    return "q4_k" if file_type in {"tq1_0", "tq2_0"} else None


def _tiny(file_type: str, kind: Role, index: int, shape: Shape) -> str | None:  # noqa: PLR0911 - a table
    better = file_type in {"iq2_s", "iq2_m"}
    eight = shape.experts == _MIXTRAL_EXPERTS
    match kind:
        case Role.V:
            if shape.gqa >= _GQA or shape.experts >= _GQA:
                return "q4_k"
            return "iq3_s" if better else "q2_k"
        case Role.K:
            return "q4_k" if eight else None
        case Role.DOWN:
            return ("iq3_s" if better else "q2_k") if index < shape.layers // 8 else None
        case Role.O:
            if eight:
                return "q5_k"
            return "iq2_xxs" if file_type in {"iq1_s", "iq1_m"} else ("iq3_s" if better else None)
        case _:
            return None


def _value(file_type: str, index: int, shape: Shape) -> str | None:
    grouped = shape.gqa >= _GQA
    found: str | None = None
    match file_type:
        case "q2_k":
            found = "q4_k" if grouped else "q3_k"
        case "q2_k_s" | "iq3_xs" | "iq3_s" | "iq3_xxs":
            found = "q4_k" if grouped else None
        case "iq3_m":
            found = "q4_k"
        case "q3_k_m":
            found = "q5_k" if index < 2 else "q4_k"  # noqa: PLR2004 - theirs
        case "q3_k_l":
            found = "q5_k"
        case "iq4_nl" | "iq4_xs":
            found = "q5_k" if grouped else None
        case "q4_k_m" | "q5_k_m":
            found = "q6_k" if use_more_bits(index, shape.layers) else None
        case "q4_k_s":
            found = "q5_k" if index < 4 else None  # noqa: PLR2004 - theirs
    if shape.layers == _LAYERS_OF_70B and grouped and (found or FILE_TYPES[file_type]) in {"q3_k", "q4_k"}:
        found = "q5_k"
    return "q8_0" if shape.experts == _MIXTRAL_EXPERTS else found


def _down(file_type: str, index: int, shape: Shape) -> str | None:  # noqa: PLR0911 - a table
    first_eighth = index < shape.layers // 8
    more = use_more_bits(index, shape.layers)
    match file_type:
        case "q2_k":
            return "q3_k"
        case "q2_k_s":
            return "q4_k" if first_eighth else None
        case "q3_k_m":
            return "q5_k" if index < shape.layers // 16 else "q4_k"
        case "iq3_m":
            return "q4_k" if first_eighth or (shape.experts == _MIXTRAL_EXPERTS and more) else None
        case "q3_k_l":
            return "q5_k"
        case "q4_k_m" | "q5_k_m":
            return "q6_k" if more else None
        case "q4_k_s" | "iq4_nl" | "iq4_xs":
            return "q5_k" if first_eighth else None
        case _:
            return None


def _output(file_type: str, shape: Shape) -> str | None:
    if shape.experts == _MIXTRAL_EXPERTS:
        better = {
            "q2_k",
            "iq3_xs",
            "iq3_xxs",
            "q3_k_s",
            "q3_k_m",
            "iq4_nl",
            "q4_k_s",
            "q4_k_m",
            "iq3_s",
            "iq3_m",
            "iq4_xs",
        }
        return "q5_k" if file_type in better else None
    return {"q2_k": "q3_k", "iq3_xxs": "iq3_s", "q3_k_m": "q4_k", "q3_k_l": "q5_k", "iq3_m": "q4_k"}.get(file_type)
