"""The architectures of GGUF files that kvplan knows, and the metadata keys that their layers share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.errors import UnsupportedModelError
from kvplan.specs.huggingface.config import MOST_LAYERS, Config

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
LATENT: Final = frozenset({"deepseek2", "minicpm3", "glm-dsa", "deepseek32"})
MAMBA1: Final = frozenset({"mamba", "jamba"})
MAMBA2: Final = frozenset({"mamba2", "falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe"})
DELTA: Final = frozenset({"qwen3next", "qwen35", "qwen35moe"})
SHORT: Final = frozenset({"lfm2", "lfm2moe"})
ARCHITECTURES: Final = _ATTENTION | LATENT | MAMBA1 | MAMBA2 | DELTA | SHORT
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
_ALL_WINDOWED: Final = frozenset({"phi3", "phimoe"})
#: Architectures with layers that are a feed-forward alone.
MAY_LACK_MIXERS: Final = frozenset({"deci", "nemotron_h", "nemotron_h_moe"})
PARALLEL: Final = frozenset({"falcon", "phi2", "command-r", "cohere2", "gptj"})
_LLAMA4_CHUNK: Final = 8192
#: Keys that say nothing about memory or work.
_HARMLESS: Final = re.compile(
    r"^(rope\..*|.*_epsilon|.*eps|attention\.(scale|clamp_kqv|max_alibi_bias|causal|logit_.*|output_scale|temperature_.*"
    r"|group_norm_.*)|.*_scale|.*soft_?capping|expert_(gating_func|group_.*|weights_.*)|experts_per_group|tensor_data_layout"
    r"|use_parallel_residual|pooling_type|.*router_.*|swiglu_clamp_.*|activation_.*|decoder_start_token_id|ssm\.dt_b_c_rms"
    r"|embedding_length_out|attn_logit.*|final_logit.*|n_deepstack_layers|interleave_moe_layer_step|moe_every_n_layers"
    r"|full_attention_interval|xielu.*|altup\..*|rescale_every_n_layers|swin_norm|.*token_id|vocab_size|size_label)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
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


def read_keys(arch: str, config: Config, layers: int) -> Keys:
    """Read what the layers share; heads may be one number or one per layer.

    Raises:
        SpecError: A key is missing, invalid, or a list of another length.
        UnsupportedModelError: A window whose layers are not known for this architecture.
    """
    blocks = config.integer("block_count", maximum=MOST_LAYERS)

    def per_layer(name: str, default: int | None) -> tuple[int, ...]:
        found = config.integers(name, length=blocks, default=default)
        return found[:layers]

    heads = per_layer("attention.head_count", 0 if arch in MAMBA1 | MAMBA2 else None)
    kv_default = heads[0] if len(set(heads)) == 1 else None
    kv_heads = per_layer("attention.head_count_kv", kv_default) if config.has("attention.head_count_kv") else heads
    window, windowed = read_windows(arch, config, layers)
    config.ignore("feed_forward_length", "expert_feed_forward_length", "expert_shared_feed_forward_length")
    config.ignore(
        "leading_dense_block_count",
        "expert_shared_count",
        "attention.shared_kv_layers",
        "expert_chunk_feed_forward_length",
    )
    return Keys(
        arch=arch,
        config=config,
        layers=layers,
        hidden=config.integer("embedding_length"),
        heads=heads,
        kv_heads=kv_heads,
        windowed=windowed,
        window=window,
    )


def read_windows(arch: str, config: Config, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    """The window, and for each layer whether it has it: from the file's array or period, else as llama.cpp has it."""
    window = config.optional_integer("attention.sliding_window", minimum=0) or None
    pattern = config.raw("attention.sliding_window_pattern")
    if arch == "llama4":
        window = window or _LLAMA4_CHUNK
    longest = config.optional_integer("context_length")
    if window is not None and longest is not None and window >= longest:
        window = None  # never closes
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


def judge_leftovers(config: Config) -> None:
    """Refuse keys that nobody read and that may change memory."""
    for owner, name, value in config.unread():
        if _HARMLESS.match(name) or value in (0, False, "") or isinstance(value, Mapping):
            continue
        msg = f"{owner.source}: {owner.field(name)}: not understood, and it may change memory or work"
        raise UnsupportedModelError(msg, hint="use the model's config.json with --dtype instead")
