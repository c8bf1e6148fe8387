"""LongCat-Flash: two MLA and dense blocks per layer beside one mixture with experts that do nothing."""

from __future__ import annotations

from typing import Any, Final

from kvplan.core.model import Layer
from kvplan.core.tensors import TensorClass, norm
from kvplan.specs.huggingface import blocks
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.mla import latent_attention, latent_decoder, read_latent

_DEFAULTS: Final[dict[str, Any]] = {
    "vocab_size": 131072,
    "hidden_size": 6144,
    "num_layers": 28,
    "num_attention_heads": 64,
    "ffn_hidden_size": 12288,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_topk": 12,
    "n_routed_experts": 512,
    "zero_expert_num": 256,
    "expert_ffn_hidden_size": 2048,
}


def longcat_flash(config: Config) -> Blueprint:
    """LongCat-Flash. Each layer has two caches; a token's choices that fall on zero experts cost nothing.

    `num_experts` counts the experts with weights; the router also scores the zero experts. Active parameters take all
    `moe_topk` choices as real ones, which is the upper bound (about 27 B of the 18.6 to 31.3 B that the authors
    state). transformers 5.24 allocates gate and up projections for zero experts too, which checkpoints don't hold.
    """
    config.with_defaults(_DEFAULTS)
    latent = read_latent(config, q_lora_rank=1536)
    hidden = latent.hidden_size
    bias = config.boolean("attention_bias", default=False)
    dense = config.integer("ffn_hidden_size", "intermediate_size")
    experts, zero = config.integer("n_routed_experts"), config.integer("zero_expert_num", minimum=0)
    if config.string("attention_method", default="MLA") != "MLA":
        raise config.error("attention_method", "must be MLA")
    config.ignore("zero_expert_type", "mla_scale_q_lora", "mla_scale_kv_lora", "num_hidden_layers")
    mixture = blocks.gated_moe(
        hidden,
        config.integer("expert_ffn_hidden_size", "moe_intermediate_size"),
        num_experts=experts,
        top_k=blocks.read_top_k(config, experts, "moe_topk", "num_experts_per_tok"),
        routing=blocks.router(
            "mlp.router.classifier", hidden, experts + zero, bias=config.boolean("router_bias", default=False)
        ),
        extra=(
            *blocks.gated_tensors("mlps.0", hidden, dense, tensor_class=TensorClass.MLP),
            *blocks.gated_tensors("mlps.1", hidden, dense, tensor_class=TensorClass.MLP),
        ),
    )
    layer = Layer(
        mixers=tuple(latent_attention(latent, name=f"self_attn.{part}", bias=bias) for part in (0, 1)),
        feed_forward=mixture,
        tensors=tuple(
            tensor
            for name in ("input_layernorm", "post_attention_layernorm")
            for part in (0, 1)
            for tensor in norm(f"{name}.{part}", hidden)
        ),
    )
    count = config.integer("num_layers")
    tied = config.boolean("tie_word_embeddings", default=False)
    return latent_decoder(config, hidden, (layer,) * count, tied=tied, buffer_elements=count * (experts + zero))
