"""Which function reads which `model_type`; modules are imported when a config needs them."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Final, cast

from kvplan.errors import UnsupportedModelError
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config

Adapter = Callable[[Config], Blueprint]

#: `model_type` → (module in this package, function). One line per type; keep each kin's block sorted.
FAMILIES: Final[dict[str, tuple[str, str]]] = {
    # llama.py: plain decoders with gated feed-forward
    "aquila": ("llama", "llama"),
    "aquila2": ("llama", "llama"),
    "bitnet": ("llama", "bitnet"),
    "cwm": ("llama", "cwm"),
    "ernie4_5": ("llama", "ernie4_5"),
    "exaone": ("llama", "llama"),
    "exaone4": ("llama", "exaone4"),
    "granite": ("llama", "granite"),
    "granite_swa": ("llama", "granite_swa"),
    "helium": ("llama", "helium"),
    "hunyuan_v1_dense": ("llama", "hunyuan_dense"),
    "hyperclovax": ("llama", "hyperclovax"),
    "internlm3": ("llama", "internlm3"),
    "iquestcoder": ("llama", "iquestcoder"),
    "llama": ("llama", "llama"),
    "mimo": ("llama", "qwen2"),
    "minicpm": ("llama", "minicpm"),
    "ministral": ("llama", "ministral"),
    "ministral3": ("llama", "ministral3"),
    "mistral": ("llama", "mistral"),
    "nanochat": ("llama", "nanochat"),
    "qwen2": ("llama", "qwen2"),
    "qwen3": ("llama", "qwen3"),
    "seed_oss": ("llama", "seed_oss"),
    "smollm3": ("llama", "smollm3"),
    "xverse": ("llama", "llama"),
    "Yi": ("llama", "llama"),
    # normed.py: decoders with other norms, biases or feed-forward
    "apertus": ("normed", "apertus"),
    "apertus1p5_text": ("normed", "apertus"),
    "arcee": ("normed", "arcee"),
    "cohere": ("normed", "cohere"),
    "cohere2": ("normed", "cohere2"),
    "diffllama": ("normed", "diffllama"),
    "gemma": ("normed", "gemma"),
    "gemma2": ("normed", "gemma2"),
    "glm": ("normed", "glm"),
    "glm4": ("normed", "glm4"),
    "jais2": ("normed", "jais2"),
    "nemotron": ("normed", "nemotron"),
    "olmo": ("normed", "olmo"),
    "olmo2": ("normed", "olmo2"),
    "olmo3": ("normed", "olmo3"),
    "orion": ("normed", "orion"),
    "phi3": ("normed", "phi3"),
    "stablelm": ("normed", "stablelm"),
    "stablelm_epoch": ("normed", "stablelm"),
    "starcoder2": ("normed", "starcoder2"),
    "vaultgemma": ("normed", "vaultgemma"),
    # gpt.py, neox.py, opt.py: layer norms with biases, two-matrix feed-forward
    "biogpt": ("opt", "biogpt"),
    "bloom": ("neox", "bloom"),
    "codegen": ("gpt", "codegen"),
    "falcon": ("neox", "falcon"),
    "gpt2": ("gpt", "gpt2"),
    "gpt_bigcode": ("gpt", "gpt_bigcode"),
    "gpt_neo": ("gpt", "gpt_neo"),
    "gpt-sw3": ("gpt", "gpt2"),
    "gpt_neox": ("neox", "gpt_neox"),
    "gpt_neox_japanese": ("neox", "gpt_neox_japanese"),
    "openai-gpt": ("gpt", "openai_gpt"),
    "gptj": ("gpt", "gptj"),
    "mpt": ("neox", "mpt"),
    "opt": ("opt", "opt"),
    "persimmon": ("neox", "persimmon"),
    "phi": ("opt", "phi"),
    "phi-msft": ("opt", "phi_msft"),
    "RefinedWeb": ("neox", "falcon"),
    "RefinedWebModel": ("neox", "falcon"),
    "xglm": ("opt", "xglm"),
    # remote.py: families published with their own code
    "baichuan": ("remote", "baichuan"),
    "chatglm": ("remote", "chatglm"),
    "internlm": ("remote", "internlm"),
    "internlm2": ("remote", "internlm2"),
    "qwen": ("remote", "qwen"),
    # mixtral.py, fused_moe.py, qwen_moe.py: experts over plain attention
    "arctic": ("mixtral", "arctic"),
    "dbrx": ("mixtral", "dbrx"),
    "flex_olmo": ("qwen_moe", "flex_olmo"),
    "flint": ("qwen_moe", "flint"),
    "gpt_oss": ("fused_moe", "gpt_oss"),
    "granitemoe": ("fused_moe", "granitemoe"),
    "granitemoe_swa": ("fused_moe", "granitemoe_swa"),
    "granitemoeshared": ("fused_moe", "granitemoe"),
    "grok-1": ("mixtral", "grok1"),
    "jetmoe": ("fused_moe", "jetmoe"),
    "minimax_m2": ("mixtral", "minimax_m2"),
    "mixtral": ("mixtral", "mixtral"),
    "olmoe": ("qwen_moe", "olmoe"),
    "phimoe": ("mixtral", "phimoe"),
    "qwen2_moe": ("qwen_moe", "qwen2_moe"),
    "qwen3_moe": ("qwen_moe", "qwen3_moe"),
    # deepseek_moe.py, moe_layers.py: DeepSeek-style experts over plain attention
    "afmoe": ("moe_layers", "afmoe"),
    "bailing_moe": ("moe_layers", "bailing_moe"),
    "bailing_moe_v2": ("moe_layers", "bailing_moe"),
    "cohere2_moe": ("deepseek_moe", "cohere2_moe"),
    "deepseek": ("deepseek_moe", "deepseek"),
    "dots1": ("deepseek_moe", "dots1"),
    "ernie4_5_moe": ("moe_layers", "ernie4_5_moe"),
    "exaone_moe": ("deepseek_moe", "exaone_moe"),
    "glm4_moe": ("deepseek_moe", "glm4_moe"),
    "hunyuan_v1_moe": ("moe_layers", "hunyuan_moe"),
    "hy_v3": ("deepseek_moe", "hy_v3"),
    "aria_text": ("deepseek_moe", "aria_text"),
    "kolibri1": ("deepseek_moe", "kolibri1"),
    "laguna": ("moe_layers", "laguna"),
    "mellum": ("deepseek_moe", "mellum"),
    "mimo_v2_flash": ("moe_layers", "mimo_v2_flash"),
    "sarvam_moe": ("deepseek_moe", "sarvam_moe"),
    "solar_open": ("deepseek_moe", "solar_open"),
    # deepseek.py: multi-head latent attention
    "axk1": ("deepseek", "axk1"),
    "axk2": ("deepseek", "axk2"),
    "deepseek_v2": ("deepseek", "deepseek_v2"),
    "deepseek_v3": ("deepseek", "deepseek_v3"),
    "deepseek_v32": ("deepseek", "deepseek_v32"),
    "glm4_moe_lite": ("deepseek", "glm4_moe_lite"),
    "glm_moe_dsa": ("deepseek", "glm_moe_dsa"),
    "kimi_k2": ("deepseek", "deepseek_v3"),
    "minicpm3": ("deepseek", "minicpm3"),
    "mistral4": ("deepseek", "mistral4"),
    "sarvam_mla": ("deepseek", "sarvam_mla"),
    "youtu": ("deepseek", "youtu"),
    # deepseek_v4.py: compressed attention, hyper-connections
    "deepseek_ref": ("deepseek_v4", "deepseek_v4"),
    "deepseek_v4": ("deepseek_v4", "deepseek_v4"),
    # longcat.py: MLA twice per layer, zero experts
    "longcat_flash": ("longcat", "longcat_flash"),
    # gated_delta.py: gated delta nets
    "olmo_hybrid": ("gated_delta", "olmo_hybrid"),
    "qwen3_5_moe_text": ("gated_delta", "qwen3_5_moe"),
    "qwen3_5_text": ("gated_delta", "qwen3_5"),
    "qwen3_next": ("gated_delta", "qwen3_next"),
    # kimi_linear.py: Kimi delta attention beside MLA
    "bailing_hybrid": ("kimi_linear", "bailing_hybrid"),
    "kimi_linear": ("kimi_linear", "kimi_linear"),
    # glm5_next.py: delta attention, pooled indexer, hyper-connections
    "glm5_next": ("glm5_next", "glm5_next"),
    "glm5_next_text": ("glm5_next", "glm5_next_text"),
    # minimax.py: lightning attention; block-sparse attention
    "minimax": ("minimax", "minimax"),
    "minimax_m1": ("minimax", "minimax"),
    "minimax_m3": ("minimax", "minimax_m3"),
    "minimax_m3_vl_text": ("minimax", "minimax_m3"),
    "minimax_text_01": ("minimax", "minimax"),
    # mamba.py: pure Mamba and hybrids of Mamba and attention
    "bamba": ("mamba", "bamba"),
    "falcon_h1": ("mamba", "falcon_h1"),
    "falcon_mamba": ("mamba", "mamba"),
    "granitemoehybrid": ("mamba", "granitemoehybrid"),
    "jamba": ("mamba", "jamba"),
    "mamba": ("mamba", "mamba"),
    "mamba2": ("mamba", "mamba2_family"),
    # nemotron.py: Nemotron-H and Nemotron-3; nas.py: layers of sizes of their own
    "deci": ("nas", "deci"),
    "nemotron-nas": ("nas", "nemotron_nas"),
    "nemotron_h": ("nemotron", "nemotron_h"),
    # zamba.py: Mamba with shared attention blocks
    "zamba": ("zamba", "zamba"),
    "zamba2": ("zamba", "zamba2"),
    # griffin.py: RG-LRU; lfm.py: short convolutions; rwkv.py
    "lfm2": ("lfm", "lfm2"),
    "lfm2_moe": ("lfm", "lfm2_moe"),
    "lfm3": ("lfm", "lfm3"),
    "recurrent_gemma": ("griffin", "recurrent_gemma"),
    "rwkv": ("rwkv", "rwkv"),
    # step3.py
    "step3p5": ("step3", "step3p5"),
    "step3p7_text": ("step3", "step3p5"),
    # gemma3.py, llama4.py, mllama.py: decoders of multimodal families
    "gemma3_text": ("gemma3", "gemma3_text"),
    "gemma3n_text": ("gemma3", "gemma3n_text"),
    "gemma4_text": ("gemma3", "gemma4_text"),
    "llama4_text": ("llama4", "llama4_text"),
    "mllama": ("mllama", "mllama"),
    "mllama_text_model": ("mllama", "mllama_text"),
    # multimodal.py: a decoder, a vision tower, a projector
    "aya_vision": ("multimodal", "aya_vision"),
    "cohere2_vision": ("multimodal", "cohere2_vision"),
    "gemma3": ("multimodal", "gemma3"),
    "internvl": ("multimodal", "internvl"),
    "internvl_chat": ("multimodal", "internvl_chat"),
    "kimi_k25": ("multimodal", "kimi_k25"),
    "lfm2_vl": ("multimodal", "lfm2_vl"),
    "llama4": ("multimodal", "llama4"),
    "llava": ("multimodal", "llava"),
    "llava_next": ("multimodal", "llava_next"),
    "llava_next_video": ("multimodal", "llava_next"),
    "llava_onevision": ("multimodal", "llava_onevision"),
    "minimax_m3_vl": ("multimodal", "minimax_m3_vl"),
    "mistral3": ("multimodal", "mistral3"),
    "paddleocr_vl": ("multimodal", "paddleocr_vl"),
    "paligemma": ("multimodal", "paligemma"),
    "step3p7": ("multimodal", "step3p7"),
    "vipllava": ("multimodal", "vipllava"),
    # idefics.py, phi_multimodal.py
    "idefics2": ("idefics", "idefics2"),
    "idefics3": ("idefics", "idefics3"),
    "phi4_multimodal": ("phi_multimodal", "phi4_multimodal"),
    "smolvlm": ("idefics", "idefics3"),
    # qwen_vl.py: towers that end at the decoder's width
    "glm46v": ("qwen_vl", "glm4v"),
    "glm4v": ("qwen_vl", "glm4v"),
    "glm4v_moe": ("qwen_vl", "glm4v_moe"),
    "glm4v_moe_text": ("qwen_vl", "glm4v_moe_text"),
    "glm4v_text": ("qwen_vl", "glm4v_text"),
    "qwen2_5_vl": ("qwen_vl", "qwen2_5_vl"),
    "qwen2_vl": ("qwen_vl", "qwen2_vl"),
    "qwen3_5": ("qwen_vl", "qwen3_5"),
    "qwen3_5_moe": ("qwen_vl", "qwen3_5_moe"),
    "qwen3_vl": ("qwen_vl", "qwen3_vl"),
    "qwen3_vl_moe": ("qwen_vl", "qwen3_vl_moe"),
    # omni.py: models that also hear
    "gemma3n": ("omni", "gemma3n"),
    "gemma4": ("omni", "gemma4"),
    "qwen2_5_omni": ("omni", "refuse"),
    "qwen2_5_omni_thinker": ("omni", "qwen2_5_omni_thinker"),
    "qwen2_audio": ("omni", "qwen2_audio"),
    "qwen3_omni_moe": ("omni", "refuse"),
    "qwen3_omni_moe_thinker": ("omni", "qwen3_omni_moe_thinker"),
    "voxtral": ("omni", "voxtral"),
    # contrastive.py: text and image encoders
    "clip": ("contrastive", "clip"),
    "siglip": ("contrastive", "siglip"),
    # encoder.py: encoders and embedding models without a cache
    "albert": ("encoder", "albert"),
    "bert": ("encoder", "bert"),
    "camembert": ("encoder", "roberta"),
    "deberta-v2": ("encoder", "deberta_v2"),
    "distilbert": ("encoder", "distilbert"),
    "electra": ("encoder", "electra"),
    "eurobert": ("encoder_modern", "eurobert"),
    "modernbert": ("encoder_modern", "modernbert"),
    "modernbert-decoder": ("encoder_modern", "modernbert_decoder"),
    "mpnet": ("encoder", "mpnet"),
    "nomic_bert": ("encoder_modern", "nomic_bert"),
    "roberta": ("encoder", "roberta"),
    "xlm-roberta": ("encoder", "roberta"),
    # seq2seq.py: encoder–decoder models
    "bart": ("seq2seq", "bart"),
    "blenderbot": ("seq2seq", "bart"),
    "blenderbot-small": ("seq2seq", "bart"),
    "m2m_100": ("seq2seq", "bart"),
    "marian": ("seq2seq", "bart"),
    "mbart": ("seq2seq", "bart"),
    "mt5": ("seq2seq", "t5"),
    "pegasus": ("seq2seq", "bart"),
    "plbart": ("seq2seq", "bart"),
    "t5": ("seq2seq", "t5"),
    "umt5": ("seq2seq", "umt5"),
    "whisper": ("seq2seq", "whisper"),
}


def adapt(config: Config, *, assume_plain: bool = False, model_type: str | None = None) -> Blueprint:
    """Read a config with the adapter of its `model_type` (also for nested text configs).

    Args:
        config: The config.
        assume_plain: Read an unknown type as a plain decoder if it has only plain fields.
        model_type: Read it as this family instead (outer configs that hold the fields of their decoder themselves).

    Raises:
        SpecError: A field is missing or invalid.
        UnsupportedModelError: No adapter for this type.
    """
    model_type = model_type or config.model_type
    if not model_type:
        raise config.error("model_type", "is missing", hint="kvplan reads the family from it")
    entry = FAMILIES.get(model_type)
    if entry is None and assume_plain:
        entry = ("plain", "plain")
    if entry is None:
        near = difflib.get_close_matches(model_type, FAMILIES, n=1, cutoff=0.5)
        nearest = f"nearest known type: {near[0]!r}; " if near else ""
        hint = f"{nearest}--assume-plain reads it as a plain decoder if all its fields are those of one"
        msg = f"{config.source}: {config.field('model_type')}: {model_type!r} is not a family that kvplan knows"
        raise UnsupportedModelError(msg, hint=hint)
    return _load(*entry)(config)


def adapter_of(model_type: str) -> Adapter:
    """The adapter of a known type, for files that carry another one's layout under their own type."""
    return _load(*FAMILIES[model_type])


def _load(module: str, function: str) -> Adapter:
    return cast("Adapter", getattr(importlib.import_module(f"{__package__}.{module}"), function))
