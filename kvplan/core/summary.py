"""A model in numbers: what `models show` tells, whole and per group of equal layers."""

from __future__ import annotations

from typing import Any, assert_never

from kvplan.core import cache, parameters
from kvplan.core.model import (
    Attention,
    CompressedAttention,
    CrossAttention,
    DenseFeedForward,
    LatentAttention,
    LayerGroup,
    Mixer,
    MixtureOfExperts,
    Model,
    Recurrent,
)

SCHEMA = "kvplan.model/1"


def model_summary(model: Model) -> dict[str, Any]:
    """The figures of a model under the names of `models show --json`.

    Counts are exact integers; bytes are of the whole model, not of one GPU. `layer_groups` has one row per group of
    equal layers, in the order of their first appearance.
    """
    return {
        "schema": SCHEMA,
        "id": model.id,
        "architecture": model.architecture,
        "params_total": parameters.parameters_total(model),
        "params_active": parameters.parameters_active(model),
        "params_embedding": parameters.parameters_embedding(model),
        "weights_bytes": parameters.weights_bytes_model(model),
        "layers": model.num_hidden_layers,
        "kv_elements_per_token": cache.kv_elements_per_token(model),
        "kv_elements_per_token_full": cache.kv_elements_per_token(model, full_only=True),
        "kv_window_layers": cache.window_layers(model),
        "state_elements_per_sequence": cache.state_elements_per_sequence(model),
        "cross_kv_elements_per_source_token": cache.cross_kv_elements_per_source_token(model),
        "dtype": model.dtype,
        "kv_dtype_default": model.kv_dtype or model.dtype,
        "quantization": model.quantization,
        "max_context": model.max_context,
        "layer_groups": layer_table(model),
        "assumptions": list(model.assumptions),
        "warnings": list(model.warnings),
    }


def layer_table(model: Model) -> list[dict[str, Any]]:
    """One row per group of equal layers: how many, where the first is, what it is made of, what it weighs and caches.

    `parameters`, `weights_bytes` and the cache columns are of ONE layer of the group.
    """
    first = {index: model.layer_order.index(index) for index in range(len(model.groups))}
    rows = [_row(model, group, "decoder", first[index]) for index, group in enumerate(model.groups)]
    rows += [_row(model, group, "encoder", None) for group in model.encoder_groups]
    return rows


def _row(model: Model, group: LayerGroup, stack: str, first: int | None) -> dict[str, Any]:
    layer = group.layer
    tensors = list(layer.all_tensors())
    windows = [window for mixer in layer.mixers if (window := cache.window_tokens(mixer)) is not None]
    per_token = sum(cache.elements_per_token(mixer) for mixer in layer.mixers)
    return {
        "stack": stack,
        "layers": group.count,
        "first": first,
        "mixer": " + ".join(describe_mixer(mixer) for mixer in layer.mixers) or "none",
        "feed_forward": _describe_feed_forward(layer.feed_forward),
        "parameters": sum(tensor.parameters for tensor in tensors),
        "weights_bytes": sum(parameters.tensor_bytes(tensor, model.dtype) for tensor in tensors),
        "kv_elements_per_token": int(per_token) if per_token == int(per_token) else per_token,
        "window": min(windows, default=None),
        "state_elements": sum(cache.state_elements(mixer) for mixer in layer.mixers),
    }


def describe_mixer(mixer: Mixer) -> str:
    """A mixer in a few words: `GQA 32/8 x 128`, `MLA 512 + 64`, `mamba2`.

    >>> describe_mixer(Attention(num_attention_heads=32, num_key_value_heads=8, head_dim=128, v_head_dim=128))
    'GQA 32/8 x 128'
    """
    match mixer:
        case Attention():
            return _describe_attention(mixer)
        case LatentAttention():
            sparse = "" if mixer.indexer is None else f", top {mixer.indexer.top_k}"
            return f"MLA {mixer.kv_lora_rank} + {mixer.qk_rope_head_dim}{sparse}"
        case CompressedAttention():
            return f"compressed 1/{mixer.ratio}, window {mixer.window}"
        case CrossAttention():
            return f"cross {mixer.num_attention_heads}/{mixer.num_key_value_heads} x {mixer.head_dim}"
        case Recurrent():
            return mixer.kind
        case _:
            assert_never(mixer)


def _describe_attention(mixer: Attention) -> str:
    heads, kv_heads = mixer.num_attention_heads, mixer.num_key_value_heads
    kind = "MHA" if heads == kv_heads else "MQA" if kv_heads == 1 else "GQA"
    width = f"{mixer.head_dim}" if mixer.head_dim == mixer.v_head_dim else f"{mixer.head_dim}/{mixer.v_head_dim}"
    parts = [f"{kind} {heads}/{kv_heads} x {width}"]
    if mixer.window is not None:
        parts.append(f"window {mixer.window}")
    if mixer.chunk is not None:
        parts.append(f"chunk {mixer.chunk}")
    if mixer.indexer is not None:
        parts.append(f"top {mixer.indexer.top_k}")
    if not mixer.causal:
        parts.append("bidirectional")
    elif not mixer.cached:
        parts.append("shared cache")
    return ", ".join(parts)


def _describe_feed_forward(feed_forward: DenseFeedForward | MixtureOfExperts | None) -> str:
    match feed_forward:
        case None:
            return "none"
        case DenseFeedForward():
            return "dense"
        case MixtureOfExperts():
            return f"{feed_forward.top_k} of {feed_forward.num_experts} experts"
        case _:
            assert_never(feed_forward)
