"""Vision towers of the Qwen-VL and GLM-V lines: patches of two frames, blocks with rotary positions, a patch merger."""

from __future__ import annotations

from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.towers import Encoder


def _patch_elements(config: Config, *, patch: int) -> int:
    """Inputs of the patch embedding: `channels × frames × patch²`."""
    channels = config.integer("in_channels", "in_chans", default=3)
    size = config.integers("patch_size", length=2, default=patch, minimum=1)
    frames = config.integer("temporal_patch_size", default=2)
    return channels * frames * size[0] * size[1]


def qwen2_vl_vision(config: Config) -> Encoder:
    """Qwen2-VL: ViT with plain feed-forward; the merger ends at the text width (`hidden_size` of this config)."""
    width = config.integer("embed_dim", default=1280)
    output = config.integer("hidden_size", default=3584)
    layers = config.integer("depth", default=32)
    config.integer("num_heads", default=16)
    inner = int(width * config.number("mlp_ratio", default=4))
    merged = width * config.integer("spatial_merge_size", default=2) ** 2
    parts = Parts("visual.")
    parts.conv("patch_embed.proj", width, _patch_elements(config, patch=14), bias=False)
    parts.norms("blocks.*", ("norm1", "norm2"), width, copies=layers)
    parts.fused_attention("blocks.*.attn", width, copies=layers)
    parts.mlp("blocks.*.mlp", width, inner, copies=layers)
    parts.norm("merger.ln_q", width)
    parts.two_linears(merged, merged, output, names=("merger.mlp.0", "merger.mlp.2"))
    config.ignore("spatial_patch_size", "out_hidden_size", "fullatt_block_indexes", "window_size", "tokens_per_second")
    return Encoder(tensors=parts.done(), width=output)


def qwen2_5_vl_vision(config: Config, prefix: str = "visual.", *, fused: bool = True) -> Encoder:
    """Qwen2.5-VL: RMS norms and a gated feed-forward with biases."""
    width, inner, output, layers = _read_sizes(config, hidden=3584, inner=3420, layers=32)
    merged = width * config.integer("spatial_merge_size", default=2) ** 2
    parts = Parts(prefix)
    parts.conv("patch_embed.proj", width, _patch_elements(config, patch=14), bias=False)
    parts.norms("blocks.*", ("norm1", "norm2"), width, bias=False, copies=layers)
    if fused:
        parts.fused_attention("blocks.*.attn", width, copies=layers)
    else:
        parts.attention("blocks.*.attn", width, copies=layers, names=("q", "k", "v", "proj"))
    parts.gated("blocks.*.mlp", width, inner, copies=layers, bias=True)
    parts.norm("merger.ln_q", width, bias=False)
    parts.two_linears(merged, merged, output, names=("merger.mlp.0", "merger.mlp.2"))
    config.ignore("spatial_patch_size", "fullatt_block_indexes", "window_size", "tokens_per_second")
    return Encoder(tensors=parts.done(), width=output)


def _read_sizes(config: Config, *, hidden: int, inner: int, layers: int) -> tuple[int, int, int, int]:
    """Width, width inside the feed-forward, width handed on, and blocks, with a family's defaults."""
    config.integer("num_heads", default=16)
    return (
        config.integer("hidden_size", default=hidden),
        config.integer("intermediate_size", default=inner),
        config.integer("out_hidden_size", default=3584),
        config.integer("depth", default=layers),
    )


def qwen3_vl_vision(config: Config, prefix: str = "model.visual.", *, deepstack: bool = True) -> Encoder:
    """Qwen3-VL, Qwen3.5 (without the extra mergers that feed early decoder layers) and their MoE siblings."""
    width, inner, output, layers = _read_sizes(config, hidden=1152, inner=4304, layers=27)
    merged = width * config.integer("spatial_merge_size", default=2) ** 2
    parts = Parts(prefix)
    parts.conv("patch_embed.proj", width, _patch_elements(config, patch=16))
    parts.vector("pos_embed", config.integer("num_position_embeddings", default=2304), width)
    parts.norms("blocks.*", ("norm1", "norm2"), width, copies=layers)
    parts.fused_attention("blocks.*.attn", width, copies=layers)
    parts.mlp("blocks.*.mlp", width, inner, copies=layers, names=("linear_fc1", "linear_fc2"))
    parts.norm("merger.norm", width)
    parts.two_linears(merged, merged, output, names=("merger.linear_fc1", "merger.linear_fc2"))
    if deepstack:
        indexes = config.optional_integers("deepstack_visual_indexes")
        extra = 3 if indexes is None else len(indexes)
        if extra:
            parts.norm("deepstack_merger_list.*.norm", merged, copies=extra)
            parts.linear("deepstack_merger_list.*.linear_fc1", merged, merged, copies=extra)
            parts.linear("deepstack_merger_list.*.linear_fc2", output, merged, copies=extra)
    elif config.optional_integers("deepstack_visual_indexes"):
        raise config.error("deepstack_visual_indexes", "extra mergers are not known for this family")
    return Encoder(tensors=parts.done(), width=output)


def glm4v_vision(config: Config) -> Encoder:
    """GLM-4.1V to 4.6V: blocks whose feed-forward is as wide as the output, a convolution, a gated merger."""
    width = config.integer("hidden_size", default=1536)
    output = config.integer("out_hidden_size", default=4096)
    context = config.integer("intermediate_size", default=13696)
    layers = config.integer("depth", default=24)
    config.integer("num_heads", default=12)
    merge = config.integer("spatial_merge_size", default=2)
    image = config.integers("image_size", length=2, default=336, minimum=1)[0]
    patch = config.integers("patch_size", length=2, default=14, minimum=1)[0]
    parts = Parts("model.visual.")
    parts.vector("embeddings.position_embedding", (image // patch) ** 2, width)
    parts.conv("patch_embed.proj", width, _patch_elements(config, patch=14))
    parts.norms("blocks.*", ("norm1", "norm2"), width, bias=False, copies=layers)
    bias = config.boolean("attention_bias", default=False)
    parts.fused_attention("blocks.*.attn", width, copies=layers, bias=bias, o_bias=False)
    parts.gated("blocks.*.mlp", width, output, copies=layers)
    parts.linear("merger.proj", output, output, bias=False)
    parts.norm("merger.post_projection_norm", output)
    parts.gated("merger", output, context)
    parts.norm("post_conv_layernorm", width, bias=False)
    parts.conv("downsample", output, width, merge, merge)
    parts.norm("post_layernorm", width, bias=False)
    return Encoder(tensors=parts.done(), width=output)
