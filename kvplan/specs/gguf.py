"""From the header of a GGUF file to a `Model`: tensors as they are stored, caches from the architecture's keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvplan.core.dtypes import FORMATS, Format
from kvplan.core.model import (
    Attention,
    DenseFeedForward,
    FeedForward,
    Indexer,
    LatentAttention,
    Layer,
    Mixer,
    MixtureOfExperts,
    Model,
    Recurrent,
    Tensor,
    TensorClass,
    group_layers,
)
from kvplan.errors import SpecError, UnsupportedModelError
from kvplan.specs.gguf_header import GgufFile, GgufTensor, read_gguf
from kvplan.specs.huggingface.config import Config

#: Architectures whose caches are those of softmax attention with the standard keys.
_ATTENTION: Final = frozenset(
    {
        "apertus", "arcee", "baichuan", "bailingmoe", "bailingmoe2", "bloom", "chatglm", "codeshell", "cohere2", "command-r",
        "dbrx", "deci", "deepseek", "dots1", "ernie4_5", "ernie4_5-moe", "exaone", "exaone4", "falcon", "gemma", "gemma2",
        "gemma3", "gemma3n", "gemma4", "glm4", "glm4moe", "gpt-oss", "gpt2", "gptj", "gptneox", "granite", "granitemoe", "grok",
        "hunyuan-dense", "hunyuan-moe", "internlm2", "jais", "llama", "llama4", "minicpm", "minimax-m2", "mistral3", "mpt",
        "nemotron", "olmo", "olmo2", "olmoe", "openelm", "orion", "phi2", "phi3", "phimoe", "plamo", "qwen", "qwen2",
        "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "refact", "seed_oss", "smollm3", "stablelm",
        "starcoder", "starcoder2", "xverse",
    }
)  # fmt: skip
_LATENT: Final = frozenset({"deepseek2", "minicpm3", "glm-dsa", "deepseek32"})
_MAMBA1: Final = frozenset({"mamba", "jamba"})
_MAMBA2: Final = frozenset({"mamba2", "falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe"})
_DELTA: Final = frozenset({"qwen3next", "qwen35", "qwen35moe"})
_SHORT: Final = frozenset({"lfm2", "lfm2moe"})
ARCHITECTURES: Final = _ATTENTION | _LATENT | _MAMBA1 | _MAMBA2 | _DELTA | _SHORT
#: Windowed layers between full ones where the file does not say: every n-th layer is full, the last of its group.
_PERIODS: Final = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "cohere2": 4,
    "llama4": 4,
    "exaone4": 4,
    "olmo2": 4,
}
_ALL_WINDOWED: Final = frozenset({"phi3"})
_PARALLEL: Final = frozenset({"falcon", "phi2", "command-r", "cohere2", "gptj"})
_LLAMA4_CHUNK: Final = 8192
#: `general.file_type` → name. Source: gguf 0.19 `LlamaFileType`.
FILE_TYPES: Final = {
    2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k", 11: "q3_k_s", 12: "q3_k_m", 13: "q3_k_l", 14: "q4_k_s",
    15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 19: "iq2_xxs", 20: "iq2_xs", 21: "q2_k_s", 22: "iq3_xs",
    23: "iq3_xxs", 24: "iq1_s", 25: "iq4_nl", 26: "iq3_s", 27: "iq3_m", 28: "iq2_s", 29: "iq2_m", 30: "iq4_xs", 31: "iq1_m",
    36: "tq1_0", 37: "tq2_0", 38: "mxfp4", 39: "nvfp4", 40: "q1_0",
}  # fmt: skip
#: Keys that say nothing about memory or work.
_HARMLESS: Final = re.compile(
    r"^(rope\..*|.*_epsilon|.*eps|attention\.(scale|clamp_kqv|max_alibi_bias|causal|logit_.*|output_scale|temperature_.*"
    r"|group_norm_.*)|.*_scale|.*soft_?capping|expert_(gating_func|group_.*|weights_.*)|experts_per_group|tensor_data_layout"
    r"|use_parallel_residual|pooling_type|.*router_.*|swiglu_clamp_.*|activation_.*|decoder_start_token_id|ssm\.dt_b_c_rms"
    r"|embedding_length_out|attn_logit.*|final_logit.*|n_deepstack_layers|interleave_moe_layer_step|moe_every_n_layers"
    r"|full_attention_interval|xielu.*|altup\..*|rescale_every_n_layers|swin_norm|.*token_id|vocab_size|size_label)$"
)
_BLOCK: Final = re.compile(r"^blk\.(\d+)\.(.+)$")
_NO_PARAMETERS: Final = re.compile(r"^(rope_freqs|rope_factors_\w+)(\.weight)?$")
_STORED_FULL: Final = Format(id="fp32", element_bits=32, compute=None, quantised=False)
_EXPERT_AXES: Final = 3
_MATRIX: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """What the layers share.

    Attributes:
        arch: `general.architecture`.
        config: Keys of the architecture without its prefix.
        heads, kv_heads: Per layer.
        layers: Decoder layers.
        hidden: Width of the residual stream.
    """

    arch: str
    config: Config
    layers: int
    hidden: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    windowed: tuple[bool, ...]
    window: int | None


def load_gguf(path: Path, *, model_id: str | None = None) -> Model:
    """The model that a GGUF file holds.

    Args:
        path: The file, or any part of a split one.
        model_id: Its id; None takes the file's name.

    Raises:
        SpecError: The file is broken, or its keys and tensors disagree.
        UnsupportedModelError: An architecture, or a key that changes memory, is not understood.
    """
    return model_from_gguf(read_gguf(path), model_id=model_id or default_id(path))


def default_id(path: Path) -> str:
    """The id of a file: its stem in lower case without the number of its part.

    >>> default_id(Path("Qwen3-8B-Q4_K_M-00001-of-00002.gguf"))
    'qwen3-8b-q4_k_m'
    """
    return re.sub(r"-\d{5}-of-\d{5}$", "", path.stem).lower()


def model_from_gguf(file: GgufFile, *, model_id: str) -> Model:
    """The model that a header describes; see `load_gguf`."""
    arch = _architecture(file)
    data = {key.removeprefix(f"{arch}."): value for key, value in file.metadata.items() if key.startswith(f"{arch}.")}
    config = Config(data, source=file.source, path=arch)
    blocks = config.integer("block_count")
    predicted = config.optional_integer("nextn_predict_layers", minimum=0) or 0
    if predicted >= blocks:
        raise config.error("nextn_predict_layers", f"{predicted} is not less than block_count")
    by_layer, rest = _by_layer(file, blocks)
    keys = _read_keys(arch, config, blocks - predicted)
    tensors = _model_tensors(file, rest, keys.hidden)
    layers = [_layer(keys, index, by_layer[index]) for index in range(blocks - predicted)]
    max_context = config.optional_integer("context_length")
    _judge(config)
    kept = sum(t.stored_bytes for t in rest) + sum(t.stored_bytes for part in by_layer[: keys.layers] for t in part)
    groups, order = group_layers(layers)
    name = FILE_TYPES.get(_file_type(file))
    dtype = "bf16" if any(t.type == "bf16" for t in file.tensors) else "fp16"
    if all(t.type == "fp32" for t in file.tensors):
        dtype = "fp32"
    quantized = any(FORMATS[t.type].quantised for t in file.tensors if t.type in FORMATS)
    return Model(
        id=model_id,
        architecture=arch,
        dtype=dtype,
        hidden_size=keys.hidden,
        vocab_size=next(t.shape[0] for t in tensors if t.tensor_class is TensorClass.EMBEDDING),
        max_context=max_context,
        groups=groups,
        layer_order=order,
        tensors=tensors,
        quantization=(name or "gguf") if quantized else None,
        exact_weight_bytes=kept,
        parallel_attention=arch in _PARALLEL or bool(data.get("use_parallel_residual")),
        assumptions=tuple(config.assumptions),
        warnings=tuple(config.warnings),
    )


def _architecture(file: GgufFile) -> str:
    arch = file.metadata.get("general.architecture")
    if not isinstance(arch, str):
        msg = f"{file.source}: general.architecture: is missing"
        raise SpecError(msg)
    if file.metadata.get("general.type", "model") != "model":
        msg = f"{file.source}: general.type: {file.metadata['general.type']!r} is not a model"
        raise UnsupportedModelError(msg)
    if arch not in ARCHITECTURES:
        msg = f"{file.source}: general.architecture: {arch[:60]!r} is not one that kvplan knows"
        raise UnsupportedModelError(msg, hint="use the model's config.json with --dtype instead")
    return arch


def _file_type(file: GgufFile) -> int:
    value = file.metadata.get("general.file_type")
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _by_layer(file: GgufFile, blocks: int) -> tuple[list[list[GgufTensor]], list[GgufTensor]]:
    by_layer: list[list[GgufTensor]] = [[] for _ in range(blocks)]
    rest: list[GgufTensor] = []
    for tensor in file.tensors:
        match = _BLOCK.match(tensor.name)
        if match is None:
            rest.append(tensor)
            continue
        if int(match[1]) >= blocks:
            msg = f"{file.source}: {tensor.name[:80]!r}: there are only {blocks} layers"
            raise SpecError(msg)
        by_layer[int(match[1])].append(tensor)
    empty = next((index for index, part in enumerate(by_layer) if not part), None)
    if empty is not None:
        msg = f"{file.source}: layer {empty} has no tensors"
        raise SpecError(msg)
    return by_layer, rest


def _read_keys(arch: str, config: Config, layers: int) -> _Keys:
    blocks = config.integer("block_count")

    def per_layer(name: str, default: int | None) -> tuple[int, ...]:
        found = config.integers(name, length=blocks, default=default)
        return found[:layers]

    heads = per_layer("attention.head_count", 0 if arch in _MAMBA1 | _MAMBA2 else None)
    kv_default = heads[0] if len(set(heads)) == 1 else None
    kv_heads = per_layer("attention.head_count_kv", kv_default) if config.has("attention.head_count_kv") else heads
    window, windowed = _windows(arch, config, layers)
    config.ignore("feed_forward_length", "expert_feed_forward_length", "expert_shared_feed_forward_length")
    config.ignore(
        "leading_dense_block_count",
        "expert_shared_count",
        "attention.shared_kv_layers",
        "expert_chunk_feed_forward_length",
    )
    return _Keys(
        arch=arch,
        config=config,
        layers=layers,
        hidden=config.integer("embedding_length"),
        heads=heads,
        kv_heads=kv_heads,
        windowed=windowed,
        window=window,
    )


def _windows(arch: str, config: Config, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    window = config.optional_integer("attention.sliding_window", minimum=0) or None
    pattern = config.raw("attention.sliding_window_pattern")
    if arch == "llama4":
        window = window or _LLAMA4_CHUNK
    if window is None:
        return None, (False,) * layers
    if isinstance(pattern, tuple):
        if len(pattern) < layers or not all(isinstance(item, bool | int) for item in pattern):
            raise config.error("attention.sliding_window_pattern", "must have one entry per layer")
        return window, tuple(bool(item) for item in pattern[:layers])
    if arch in _ALL_WINDOWED:
        return window, (True,) * layers
    period = config.integer("attention.sliding_window_pattern") if pattern is not None else _PERIODS.get(arch)
    if period is None:
        msg = f"{config.source}: {arch}.attention.sliding_window: which layers it applies to is not known for this architecture"
        raise UnsupportedModelError(msg)
    return window, tuple(index % period < period - 1 for index in range(layers))


def _layer(keys: _Keys, index: int, stored: list[GgufTensor]) -> Layer:
    tensors = [_tensor(keys, t, index) for t in stored]
    names = {t.name for t in tensors}
    attention = tuple(t for t in tensors if t.tensor_class is TensorClass.ATTENTION and not _is_recurrent(t.name))
    recurrent = tuple(t for t in tensors if t.tensor_class is TensorClass.ATTENTION and _is_recurrent(t.name))
    feeding = tuple(
        t for t in tensors if t.tensor_class is not TensorClass.ATTENTION and t.name.startswith(("ffn_", "exp_probs"))
    )
    others = tuple(t for t in tensors if t not in attention and t not in recurrent and t not in feeding)
    mixers: list[Mixer] = []
    if recurrent:
        # The projections of a gated delta net are called `attn_qkv` and `attn_gate`.
        own = (*recurrent, *attention) if keys.arch in _DELTA else recurrent
        mixers.append(_recurrent(keys, own))
    if (
        keys.heads[index]
        and (names & {"attn_q", "attn_qkv", "attn_q_a", "attn_k"})
        and not (recurrent and keys.arch in _DELTA)
    ):
        mixers.append(_attention(keys, index, attention))
    elif attention and not (recurrent and keys.arch in _DELTA):
        others = (*others, *attention)
    return Layer(mixers=tuple(mixers), feed_forward=_feed_forward(keys, feeding), tensors=others)


def _is_recurrent(name: str) -> bool:
    return name.startswith(("ssm_", "shortconv."))


def _attention(keys: _Keys, index: int, tensors: tuple[Tensor, ...]) -> Mixer:
    config, heads, kv_heads = keys.config, keys.heads[index], keys.kv_heads[index]
    if keys.arch in _LATENT:
        return _latent(keys, index, tensors)
    if kv_heads < 1 or heads % kv_heads:
        raise config.error("attention.head_count_kv", f"{kv_heads} does not divide the {heads} heads of layer {index}")
    default = keys.hidden // heads
    windowed = keys.windowed[index]
    key_dim = config.optional_integer("attention.key_length") or default
    value_dim = config.optional_integer("attention.value_length") or default
    swa_key = config.optional_integer("attention.key_length_swa")
    swa_value = config.optional_integer("attention.value_length_swa")
    if windowed:
        key_dim, value_dim = swa_key or key_dim, swa_value or value_dim
    for name, width in (("attn_k", key_dim), ("attn_v", value_dim)):
        stored = next((t for t in tensors if t.name == name), None)
        if stored is not None and stored.shape[0] != kv_heads * width:
            msg = (
                f"{config.source}: blk.{index}.{name}: is {stored.shape[0]} wide, but the keys say "
                f"{kv_heads} heads of {width}"
            )
            raise SpecError(msg)
    shared = config.data.get("attention.shared_kv_layers", 0)
    cached = not (isinstance(shared, int) and index >= keys.layers - shared)
    chunked = keys.arch == "llama4"
    return Attention(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=key_dim,
        v_head_dim=value_dim,
        window=keys.window if windowed and not chunked else None,
        chunk=keys.window if windowed and chunked else None,
        cached=cached,
        tensors=tensors,
    )


def _latent(keys: _Keys, index: int, tensors: tuple[Tensor, ...]) -> LatentAttention:
    config = keys.config
    rope = config.integer("rope.dimension_count")
    key = (
        config.integer("attention.key_length_mla", "attention.key_length")
        if not config.has("attention.key_length_mla")
        else config.integer("attention.key_length_mla")
    )
    value = config.integer(
        "attention.value_length_mla" if config.has("attention.value_length_mla") else "attention.value_length"
    )
    config.ignore("attention.key_length", "attention.value_length", "attention.q_lora_rank")
    indexer = None
    if config.has("attention.indexer.head_count"):
        indexer = Indexer(
            num_heads=config.integer("attention.indexer.head_count"),
            head_dim=config.integer("attention.indexer.key_length"),
            top_k=config.integer("attention.indexer.top_k"),
            cached=any(t.name.startswith("indexer.") for t in tensors),
        )
    if key <= rope:
        raise config.error("attention.key_length", f"{key} is not more than rope.dimension_count {rope}")
    return LatentAttention(
        num_attention_heads=keys.heads[index],
        kv_lora_rank=config.integer("attention.kv_lora_rank"),
        qk_nope_head_dim=key - rope,
        qk_rope_head_dim=rope,
        v_head_dim=value,
        indexer=indexer,
        tensors=tensors,
    )


def _recurrent(keys: _Keys, tensors: tuple[Tensor, ...]) -> Recurrent:
    config = keys.config
    if keys.arch in _SHORT:
        kernel = config.integer("shortconv.l_cache")
        return Recurrent(
            kind="short_conv", state_elements=0, conv_elements=(kernel - 1) * keys.hidden, num_heads=1, tensors=tensors
        )
    kernel, inner = config.integer("ssm.conv_kernel"), config.integer("ssm.inner_size")
    state, rank = config.integer("ssm.state_size"), config.integer("ssm.time_step_rank")
    groups = config.optional_integer("ssm.group_count", minimum=0) or 1
    if keys.arch in _MAMBA1:
        width, kind, heads = inner, "mamba", inner
    elif keys.arch in _MAMBA2:
        width, kind, heads = inner + 2 * groups * state, "mamba2", rank
    else:
        width, kind, heads = inner + 2 * groups * state, "gated_delta_net", rank
    convolution = next((t for t in tensors if t.name == "ssm_conv1d"), None)
    if convolution is not None and convolution.elements != width * kernel:
        msg = f"{config.source}: ssm_conv1d: has {convolution.elements} elements, but the keys say {width} × {kernel}"
        raise SpecError(msg)
    return Recurrent(
        kind=kind, state_elements=inner * state, conv_elements=(kernel - 1) * width, num_heads=heads, tensors=tensors
    )


def _feed_forward(keys: _Keys, tensors: tuple[Tensor, ...]) -> FeedForward | None:
    routed = [t for t in tensors if t.tensor_class is TensorClass.EXPERTS]
    if routed:
        experts = keys.config.integer("expert_count")
        if any(t.copies != experts for t in routed):
            raise keys.config.error("expert_count", f"{experts} is not the {routed[0].copies} of the tensors")
        top_k = keys.config.integer("expert_used_count", maximum=experts)
        return MixtureOfExperts(num_experts=experts, top_k=top_k, tensors=tensors)
    keys.config.ignore("expert_count", "expert_used_count")
    return DenseFeedForward(tensors=tensors) if tensors else None


def _class(name: str) -> TensorClass:
    if "norm" in name:
        return TensorClass.OTHER
    if re.search(r"_(ch)?exps(\.bias)?$", name):
        return TensorClass.EXPERTS
    if "_shexp" in name and "gate_inp" not in name:
        return TensorClass.SHARED
    if name.startswith(("attn_", "ssm_", "shortconv.", "indexer.")):
        return TensorClass.ATTENTION
    if name.startswith("ffn_") and "gate_inp" not in name:
        return TensorClass.MLP
    return TensorClass.OTHER


def _format(tensor: GgufTensor, source: str) -> Format:
    if tensor.type == "fp32":
        return _STORED_FULL
    found = FORMATS.get(tensor.type)
    if found is None:
        msg = f"{source}: {tensor.name[:80]!r}: weights of type {tensor.type} are not understood"
        raise UnsupportedModelError(msg)
    return found


def _tensor(keys: _Keys, stored: GgufTensor, index: int) -> Tensor:
    match = _BLOCK.match(stored.name)
    name = (match[2] if match else stored.name).removesuffix(".weight")
    kind = _class(name)
    stacked = kind is TensorClass.EXPERTS
    shape, copies = (stored.shape[1:], stored.shape[0]) if stacked and len(stored.shape) > 1 else (stored.shape, 1)
    matrix = len(shape) == _MATRIX and not name.endswith((".bias", "conv1d", "shortconv.conv", "ssm_a", "_sinks"))
    matrix = (matrix and kind is not TensorClass.OTHER) or ("ffn_gate_inp" in name and len(shape) == _MATRIX)
    shards: int | None = 1 if kind is TensorClass.OTHER else None
    if name in {"attn_k", "attn_v", "attn_k.bias", "attn_v.bias"}:
        shards = max(1, keys.kv_heads[index])
    return Tensor(
        name=name,
        tensor_class=kind,
        shape=shape,
        copies=copies,
        matmul=matrix,
        linear=matrix and kind is not TensorClass.OTHER,
        shards=shards,
        format=_format(stored, keys.config.source),
    )


def _model_tensors(file: GgufFile, rest: list[GgufTensor], hidden: int) -> tuple[Tensor, ...]:
    by_name = {t.name: t for t in rest}
    embedding = by_name.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != _MATRIX or embedding.shape[1] != hidden:
        msg = f"{file.source}: token_embd.weight: is missing, or not {hidden} wide as embedding_length says"
        raise SpecError(msg)
    found: list[Tensor] = []
    for stored in rest:
        if _NO_PARAMETERS.match(stored.name):
            continue
        name = stored.name.removesuffix(".weight")
        kind = TensorClass.OTHER
        if name in {"token_embd", "position_embd", "per_layer_token_embd", "token_types"}:
            kind = TensorClass.EMBEDDING
        elif name in {"output", "output.bias"}:
            kind = TensorClass.HEAD
        head = kind is TensorClass.HEAD and len(stored.shape) == _MATRIX
        other = kind is TensorClass.OTHER and len(stored.shape) == _MATRIX and "norm" not in name
        found.append(
            Tensor(
                name=name,
                tensor_class=kind,
                shape=stored.shape,
                matmul=head or other,
                linear=head or other,
                shards=1 if kind is TensorClass.OTHER else None,
                format=_format(stored, file.source),
            )
        )
    found.sort(key=lambda t: t.name != "token_embd")
    if "output.weight" not in by_name:
        head_format = _format(embedding, file.source)
        found.append(
            Tensor(
                name="output",
                tensor_class=TensorClass.HEAD,
                shape=embedding.shape,
                matmul=True,
                stored=False,
                format=head_format,
            )
        )
    return tuple(found)


def _judge(config: Config) -> None:
    """Refuse keys that nobody read and that may change memory."""
    for owner, name, value in config.unread():
        if _HARMLESS.match(name) or value in (0, False, "") or isinstance(value, Mapping):
            continue
        msg = f"{owner.source}: {owner.field(name)}: not understood, and it may change memory or work"
        raise UnsupportedModelError(msg, hint="use the model's config.json with --dtype instead")
