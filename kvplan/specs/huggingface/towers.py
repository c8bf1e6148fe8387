"""Vision towers, one function per architecture: config and module name in, tensors and the width they hand on out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.core.tensors import Tensor
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.parts import Parts, read_patches, read_vit

#: Spelling of the projections where the output is not `out_proj`.
_PROJECTIONS: Final = ("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """A tower as its projector sees it.

    Attributes:
        tensors: Its weights.
        width: Width of the features that it hands to the projector.
        buffer_elements: Persistent buffers.
    """

    tensors: tuple[Tensor, ...]
    width: int
    buffer_elements: int = 0


def siglip(config: Config, prefix: str = "vision_tower.vision_model.") -> Encoder:
    """SigLIP: ViT without class token; an attention-pooling head only where `vision_use_head` says so."""
    hidden, inner, layers, _ = read_vit(config)
    count, inputs = read_patches(config, image=224, patch=16)
    parts = Parts(prefix)
    parts.conv("embeddings.patch_embedding", hidden, inputs)
    parts.vector("embeddings.position_embedding", count, hidden)
    _siglip_layers(parts, config, hidden, inner, layers)
    return Encoder(tensors=parts.done(), width=hidden)


def siglip_headless(config: Config, *, small: bool = False) -> Encoder:
    """SigLIP as Idefics builds it: no pooling head whatever the config says; Idefics 2 has a smaller default."""
    config.with_defaults({"patch_size": 32})
    if not small:
        config.with_defaults({"hidden_size": 1152, "num_attention_heads": 16})
    return siglip(config.with_fields({"vision_use_head": False}), "model.vision_model.")


def siglip2(config: Config) -> Encoder:
    """SigLIP 2 with native resolution: a linear patch embedding and a square of `num_patches` positions."""
    hidden, inner, layers, _ = read_vit(config)
    patch = config.integer("patch_size", default=16)
    parts = Parts("vision_tower.vision_model.")
    parts.linear("embeddings.patch_embedding", hidden, config.integer("num_channels", default=3) * patch * patch)
    parts.vector("embeddings.position_embedding", config.integer("num_patches", default=256), hidden)
    _siglip_layers(parts, config, hidden, inner, layers)
    config.ignore("image_size")
    return Encoder(tensors=parts.done(), width=hidden)


def _siglip_layers(parts: Parts, config: Config, hidden: int, inner: int, layers: int) -> None:
    """What follows the embeddings: layers, a norm and the pooling head."""
    _clip_layers(parts, "encoder.layers.*", hidden, inner, copies=layers)
    parts.norm("post_layernorm", hidden)
    if config.boolean("vision_use_head", default=True):
        parts.vector("head.probe", hidden)
        parts.vector("head.attention.in_proj_weight", 3 * hidden, hidden)
        parts.vector("head.attention.in_proj_bias", 3 * hidden)
        parts.linear("head.attention.out_proj", hidden, hidden)
        parts.norm("head.layernorm", hidden)
        parts.mlp("head.mlp", hidden, inner)
    config.ignore("projection_dim", "vocab_size")


def clip(config: Config, prefix: str = "vision_tower.vision_model.") -> Encoder:
    """CLIP: ViT with a class token, norms before and after."""
    hidden, inner, layers, _ = read_vit(config)
    count, inputs = read_patches(config, image=224, patch=32)
    parts = Parts(prefix)
    parts.vector("embeddings.class_embedding", hidden)
    parts.conv("embeddings.patch_embedding", hidden, inputs, bias=False)
    parts.vector("embeddings.position_embedding", count + 1, hidden)
    parts.norm("pre_layrnorm", hidden)
    _clip_layers(parts, "encoder.layers.*", hidden, inner, copies=layers)
    parts.norm("post_layernorm", hidden)
    config.ignore("projection_dim", "vocab_size")
    return Encoder(tensors=parts.done(), width=hidden)


def _clip_layers(parts: Parts, layer: str, hidden: int, inner: int, *, copies: int) -> None:
    parts.norm(f"{layer}.layer_norm1", hidden, copies=copies)
    parts.attention(f"{layer}.self_attn", hidden, copies=copies)
    parts.norm(f"{layer}.layer_norm2", hidden, copies=copies)
    parts.mlp(f"{layer}.mlp", hidden, inner, copies=copies)


def pixtral(config: Config) -> Encoder:
    """Pixtral: ViT with RMS norms, gated feed-forward and rotary positions, no biases."""
    hidden, inner, layers, heads = read_vit(config, hidden=1024, inner=4096, layers=24, heads=16)
    _, inputs = read_patches(config, image=1024, patch=16)
    parts = Parts("vision_tower.")
    parts.conv("patch_conv", hidden, inputs, bias=False)
    parts.norm("ln_pre", hidden, bias=False)
    layer = "transformer.layers.*"
    parts.norm(f"{layer}.attention_norm", hidden, bias=False, copies=layers)
    parts.attention(
        f"{layer}.attention",
        hidden,
        copies=layers,
        names=_PROJECTIONS,
        bias=False,
    )
    parts.norm(f"{layer}.ffn_norm", hidden, bias=False, copies=layers)
    parts.gated(f"{layer}.feed_forward", hidden, inner, copies=layers)
    if (head_dim := config.optional_integer("head_dim")) is not None and head_dim * heads != hidden:
        raise config.error("head_dim", f"{head_dim} × {heads} heads is not the hidden_size {hidden}")
    config.ignore("vocab_size", "projection_dim")
    return Encoder(tensors=parts.done(), width=hidden)


def llama4_vision(config: Config) -> Encoder:
    """Llama 4: ViT with class token, then a pixel-shuffle adapter."""
    hidden, inner, layers, _ = read_vit(config, inner=5632, layers=34, heads=16)
    output = config.integer("vision_output_dim", default=7680)
    count, inputs = read_patches(config, image=448, patch=14)
    parts = Parts("vision_model.")
    parts.vector("class_embedding", hidden)
    parts.vector("positional_embedding_vlm", count + 1, hidden)
    parts.linear("patch_embedding.linear", hidden, inputs, bias=False)
    parts.norm("layernorm_pre", hidden)
    parts.norm("layernorm_post", hidden)
    layer = "model.layers.*"
    parts.attention(f"{layer}.self_attn", hidden, copies=layers, names=_PROJECTIONS)
    parts.mlp(f"{layer}.mlp", hidden, inner, copies=layers)
    parts.norm(f"{layer}.input_layernorm", hidden, copies=layers)
    parts.norm(f"{layer}.post_attention_layernorm", hidden, copies=layers)
    projected = config.integer("projector_output_dim", default=4096)
    parts.linear("vision_adapter.mlp.fc1", config.integer("projector_input_dim", default=4096), inner, bias=False)
    parts.linear("vision_adapter.mlp.fc2", projected, projected, bias=False)
    config.ignore("pixel_shuffle_ratio", "vision_feature_layer", "vision_feature_select_strategy", "norm_eps")
    config.ignore("multi_modal_projector_bias")
    return Encoder(tensors=parts.done(), width=output)


def internvl_vision(config: Config) -> Encoder:
    """InternViT in transformers' spelling: layer scales, optional query and key norms."""
    hidden, inner, layers, _ = read_vit(config, hidden=1024, inner=4096, layers=24, heads=16)
    count, inputs = read_patches(config, image=448, patch=14)
    norm_bias = config.string("norm_type", default="layer_norm") == "layer_norm"
    parts = Parts("vision_tower.")
    parts.vector("embeddings.cls_token", hidden)
    if config.boolean("use_mask_token", default=False):
        parts.vector("embeddings.mask_token", hidden)
    if config.boolean("use_absolute_position_embeddings", default=True):
        parts.vector("embeddings.position_embeddings", count + 1, hidden)
    parts.conv("embeddings.patch_embeddings.projection", hidden, inputs)
    layer = "encoder.layer.*"
    parts.vector(f"{layer}.lambda_1", hidden, copies=layers)
    parts.vector(f"{layer}.lambda_2", hidden, copies=layers)
    parts.attention(
        f"{layer}.attention",
        hidden,
        copies=layers,
        names=("q_proj", "k_proj", "v_proj", "projection_layer"),
        bias=config.boolean("attention_bias", default=False),
        o_bias=True,
    )
    if config.boolean("use_qk_norm", default=False):
        parts.norm(f"{layer}.attention.q_norm", hidden, bias=False, copies=layers)
        parts.norm(f"{layer}.attention.k_norm", hidden, bias=False, copies=layers)
    parts.mlp(f"{layer}.mlp", hidden, inner, copies=layers)
    parts.norm(f"{layer}.layernorm_before", hidden, bias=norm_bias, copies=layers)
    parts.norm(f"{layer}.layernorm_after", hidden, bias=norm_bias, copies=layers)
    if not config.boolean("use_mean_pooling", default=True):
        parts.norm("layernorm", hidden)
    config.ignore("layer_scale_init_value")
    return Encoder(tensors=parts.done(), width=hidden)


def intern_vit(config: Config) -> Encoder:
    """InternViT as its authors publish it (`internvl_chat`): fused projections."""
    hidden, inner, layers, _ = read_vit(config, hidden=None, inner=None, layers=None, heads=None)
    count, inputs = read_patches(config, image=448, patch=14)
    norm_bias = config.string("norm_type", default="layer_norm") == "layer_norm"
    parts = Parts("vision_model.")
    parts.vector("embeddings.class_embedding", hidden)
    parts.conv("embeddings.patch_embedding", hidden, inputs)
    parts.vector("embeddings.position_embedding", count + 1, hidden)
    layer = "encoder.layers.*"
    bias = config.boolean("qkv_bias", default=False)
    parts.fused_attention(f"{layer}.attn", hidden, copies=layers, bias=bias)
    if config.boolean("qk_normalization", default=False):
        parts.norm(f"{layer}.attn.q_norm", hidden, bias=False, copies=layers)
        parts.norm(f"{layer}.attn.k_norm", hidden, bias=False, copies=layers)
    parts.mlp(f"{layer}.mlp", hidden, inner, copies=layers)
    for name in ("norm1", "norm2"):
        parts.norm(f"{layer}.{name}", hidden, bias=norm_bias, copies=layers)
    for name in ("ls1", "ls2"):
        parts.vector(f"{layer}.{name}", hidden, copies=layers)
    config.ignore("shared_expert_intermediate_size", "num_experts", "num_shared_experts", "num_routed_experts")
    config.ignore("moe_coeff_ratio", "moe_intermediate_size", "moe_output_scale", "ep_size", "use_moe")
    config.ignore("use_residual", "use_rts", "use_weighted_residual", "laux_allreduce", "noisy_gate_policy")
    config.ignore("capacity_factor", "eval_capacity_factor")
    if config.boolean("use_moe", default=False):
        raise config.error("use_moe", "experts in this tower are not known to kvplan")
    return Encoder(tensors=parts.done(), width=hidden)


def step_vision(config: Config) -> Encoder:
    """Step-3.7: ViT with layer scales and two strided convolutions behind it."""
    hidden = config.integer("hidden_size", "width", default=1536)
    layers = config.integer("num_hidden_layers", "layers", default=47)
    config.integer("num_attention_heads", "heads", default=16)
    inner = int(hidden * config.number("mlp_ratio", default=8960 / 1536))
    _, inputs = read_patches(config, image=728, patch=14)
    parts = Parts("model.vision_model.")
    parts.conv("embeddings.patch_embedding", hidden, inputs, bias=False)
    parts.vector("embeddings.position_embedding", config.integer("max_position_embeddings", default=2704), hidden)
    parts.norm("pre_layernorm", hidden)
    layer = "layers.*"
    parts.vector(f"{layer}.lambda_1", hidden, copies=layers)
    parts.vector(f"{layer}.lambda_2", hidden, copies=layers)
    parts.attention(f"{layer}.self_attn", hidden, copies=layers)
    parts.mlp(f"{layer}.mlp", hidden, inner, copies=layers)
    parts.norm(f"{layer}.layernorm_before", hidden, copies=layers)
    parts.norm(f"{layer}.layernorm_after", hidden, copies=layers)
    parts.conv("downsampler1", 2 * hidden, hidden, 3, 3)
    parts.conv("downsampler2", 4 * hidden, 2 * hidden, 3, 3)
    config.ignore("intermediate_size", "layer_scale_init_value", "ls_init_value")
    return Encoder(tensors=parts.done(), width=4 * hidden)


def minimax_vision(config: Config) -> Encoder:
    """MiniMax-M3: CLIP-like ViT over patches of two frames, rotary positions."""
    hidden, inner, layers, _ = read_vit(config, hidden=1280, inner=5120, layers=32, heads=16)
    compression = config.optional_nested("img_token_compression_config")
    frames = (compression or config).integer("temporal_patch_size", default=2)
    (compression or config).integer("spatial_merge_size", default=2)
    _, inputs = read_patches(config, image=2016, patch=14)
    parts = Parts("vision_tower.")
    parts.conv("embeddings.proj", hidden, frames * inputs, bias=False)
    parts.norm("pre_layrnorm", hidden)
    _clip_layers(parts, "layers.*", hidden, inner, copies=layers)
    config.ignore("projection_dim", "vocab_size", "initializer_factor", "rope_mode", "vision_segment_max_frames")
    if compression is not None:
        compression.ignore("image_token_compression_method")
    return Encoder(tensors=parts.done(), width=hidden)


def kimi_vision(config: Config) -> Encoder:
    """Kimi-K2.5 (MoonViT-3d): ViT with learned 2D positions; fields carry a `vt_` in the published files."""
    hidden = config.integer("vt_hidden_size", "hidden_size", default=1152)
    inner = config.integer("vt_intermediate_size", "intermediate_size", default=4304)
    layers = config.integer("vt_num_hidden_layers", "num_hidden_layers", default=27)
    config.integer("vt_num_attention_heads", "num_attention_heads", default=16)
    height = config.integer("init_pos_emb_height", "pos_emb_height", default=64)
    width = config.integer("init_pos_emb_width", "pos_emb_width", default=64)
    patch = config.integer("patch_size", default=14)
    parts = Parts("vision_tower.")
    parts.conv("patch_embed.proj", hidden, 3 * patch * patch)
    parts.vector("patch_embed.pos_emb.position_embeddings", height, width, hidden)
    layer = "encoder.blocks.*"
    parts.norm(f"{layer}.norm0", hidden, copies=layers)
    parts.norm(f"{layer}.norm1", hidden, copies=layers)
    parts.fused_attention(layer, hidden, copies=layers, names=("wqkv", "wo"))
    parts.mlp(f"{layer}.mlp", hidden, inner, copies=layers, names=("fc0", "fc1"))
    parts.norm("encoder.final_layernorm", hidden)
    config.ignore(
        "init_pos_emb_time", "pos_emb_time", "pos_emb_type", "video_attn_type", "merge_type", "vision_attn_type"
    )
    return Encoder(tensors=parts.done(), width=hidden)


def mllama_vision(config: Config) -> Encoder:
    """Llama 3.2 Vision: a local and a global encoder over up to four tiles."""
    hidden = config.integer("hidden_size", default=1280)
    inner = config.integer("intermediate_size", default=5120)
    layers = config.integer("num_hidden_layers", default=32)
    global_layers = config.integer("num_global_layers", default=8)
    config.integer("attention_heads", "num_attention_heads", default=16)
    tiles = config.integer("max_num_tiles", default=4)
    ratios = config.raw("supported_aspect_ratios")
    kinds = (len(ratios) if isinstance(ratios, list) else 8) + 1
    output = config.integer("vision_output_dim", default=7680)
    count, inputs = read_patches(config, image=448, patch=14)
    parts = Parts("vision_model.")
    parts.vector("class_embedding", hidden)
    parts.conv("patch_embedding", hidden, inputs, bias=False)
    parts.vector("gated_positional_embedding.gate", 1)
    parts.vector("gated_positional_embedding.embedding", count + 1, hidden)
    parts.vector("gated_positional_embedding.tile_embedding", kinds, tiles * (count + 1) * hidden)
    for place in ("pre", "post"):
        parts.vector(f"{place}_tile_positional_embedding.gate", 1)
        parts.vector(f"{place}_tile_positional_embedding.embedding", kinds, tiles * hidden)
        parts.norm(f"layernorm_{place}", hidden)
    for name, number in (("transformer", layers), ("global_transformer", global_layers)):
        layer = f"{name}.layers.*"
        parts.attention(f"{layer}.self_attn", hidden, copies=number, names=_PROJECTIONS, bias=False)
        parts.mlp(f"{layer}.mlp", hidden, inner, copies=number)
        parts.norm(f"{layer}.input_layernorm", hidden, copies=number)
        parts.norm(f"{layer}.post_attention_layernorm", hidden, copies=number)
    parts.vector("global_transformer.layers.*.gate_attn", 1, copies=global_layers)
    parts.vector("global_transformer.layers.*.gate_ffn", 1, copies=global_layers)
    config.ignore("intermediate_layers_indices", "norm_eps")
    return Encoder(tensors=parts.done(), width=output)


TowerReader = Callable[[Config], Encoder]

#: Towers that several families choose among by the `model_type` of their vision config.
_BY_TYPE: Final[dict[str, TowerReader]] = {
    "clip_vision_model": clip,
    "internvl_vision": internvl_vision,
    "pixtral": pixtral,
    "siglip_vision_model": siglip,
    "siglip2_vision_model": siglip2,
}


def by_type(default: str) -> TowerReader:
    """A reader that looks at the tower's own `model_type`; `default` is meant where there is none.

    Raises:
        SpecError: A tower of a type that is not known here.
    """

    def read(vision: Config) -> Encoder:
        model_type = vision.model_type or default
        if model_type not in _BY_TYPE:
            raise vision.error("model_type", f"{model_type!r} is not a vision tower that kvplan knows")
        return _BY_TYPE[model_type](vision)

    return read
