"""GGUF against config.json: the tensors of a real config, renamed as llama.cpp's converter does, give the same model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("gguf")
import gguf
from gguf.constants import MODEL_ARCH_NAMES

from kvplan.core.cache import kv_elements_per_token, state_elements_per_sequence, window_layers
from kvplan.core.model import Attention, MixtureOfExperts
from kvplan.core.parameters import parameters_active, parameters_embedding, parameters_total
from kvplan.core.tensors import Tensor
from kvplan.specs.gguf import load_gguf
from kvplan.specs.huggingface import from_config
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.registry import adapt
from tests.specs.gguf_writing import write_gguf

ORACLE = Path(__file__).resolve().parents[1] / "oracle" / "models.jsonl"
ARCHS = {name: number for number, name in MODEL_ARCH_NAMES.items()}


def mamba2(kernel, inner, state, heads, groups):
    def keys(data):
        width = 1
        for name in inner:
            width *= data[name] if isinstance(name, str) else name
        return {
            "ssm.conv_kernel": data[kernel], "ssm.inner_size": width, "ssm.state_size": data[state],
            "ssm.time_step_rank": data[heads], "ssm.group_count": data[groups],
        }  # fmt: skip

    return keys


def mla(data):
    rope, rank = data["qk_rope_head_dim"], data["kv_lora_rank"]
    return {
        "attention.head_count": data["num_attention_heads"], "attention.head_count_kv": 1, "attention.kv_lora_rank": rank,
        "attention.q_lora_rank": data["q_lora_rank"], "attention.key_length": rank + rope, "attention.value_length": rank,
        "attention.key_length_mla": data["qk_nope_head_dim"] + rope, "attention.value_length_mla": data["v_head_dim"],
        "rope.dimension_count": rope,
    }  # fmt: skip


def jamba(data):
    return {
        "ssm.conv_kernel": data["mamba_d_conv"], "ssm.inner_size": data["mamba_expand"] * data["hidden_size"],
        "ssm.state_size": data["mamba_d_state"], "ssm.time_step_rank": data["mamba_dt_rank"],
    }  # fmt: skip


NEMOTRON = mamba2("conv_kernel", ("mamba_num_heads", "mamba_head_dim"), "ssm_state_size", "mamba_num_heads", "n_groups")
CASES = [
    ("meta-llama/Meta-Llama-3.1-8B", "llama", None),
    ("mistralai/Mixtral-8x22B-v0.1", "llama", None),
    ("Qwen/Qwen2-7B-Instruct", "qwen2", None),
    ("Qwen/Qwen3-0.6B", "qwen3", None),
    ("Qwen/Qwen3-30B-A3B", "qwen3moe", None),
    ("google/gemma-2-2b-it", "gemma2", None),
    ("google/gemma-3-1b-it", "gemma3", None),
    ("microsoft/phi-4", "phi3", None),
    ("microsoft/Phi-3.5-MoE-instruct", "phimoe", None),
    ("openai/gpt-oss-20b", "gpt-oss", None),
    ("tiiuae/falcon-7b", "falcon", None),
    ("allenai/OLMo-2-1124-7B", "olmo2", None),
    ("allenai/Olmo-3.1-32B-Instruct", "olmo2", None),
    ("ibm-granite/granite-3.1-3b-a800m-instruct", "granitemoe", None),
    ("openai-community/gpt2-medium", "gpt2", None),
    ("togethercomputer/RedPajama-INCITE-Chat-3B-v1", "gptneox", None),
    ("stabilityai/stablelm-3b-4e1t", "stablelm", None),
    ("CohereForAI/c4ai-command-a-03-2025", "cohere2", None),
    ("zai-org/GLM-4.5-Air", "glm4moe", None),
    ("tencent/Hunyuan-A13B-Instruct", "hunyuan-moe", None),
    ("mosaicml/mpt-7b", "mpt", None),
    ("deepseek-ai/DeepSeek-V3", "deepseek2", mla),
    ("ai21labs/Jamba-v0.1", "jamba", jamba),
    ("mistralai/Mamba-Codestral-7B-v0.1", "mamba2",
     mamba2("conv_kernel", ("expand", "hidden_size"), "state_size", "num_heads", "n_groups")),
    ("tiiuae/Falcon-H1-7B-Base", "falcon-h1",
     mamba2("mamba_d_conv", ("mamba_d_ssm",), "mamba_d_state", "mamba_n_heads", "mamba_n_groups")),
    ("ibm-granite/granite-4.0-h-small", "granitehybrid",
     mamba2("mamba_d_conv", ("mamba_expand", "hidden_size"), "mamba_d_state", "mamba_n_heads", "mamba_n_groups")),
    ("nvidia/Nemotron-H-56B-Base-8K", "nemotron_h", NEMOTRON),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron_h_moe", NEMOTRON),
]  # fmt: skip


@pytest.fixture(scope="module")
def configs():
    rows = map(json.loads, ORACLE.read_text().splitlines())
    return {row["repo"]: row["config"] for row in rows}


def renamed(name: str, layer: int, tensor: Tensor, names) -> list[tuple[str, tuple[int, ...]]]:
    """GGUF names and shapes of one tensor; a fused one becomes two."""
    shape = tensor.shape if len(tensor.shape) <= 2 else (tensor.shape[0], tensor.elements // tensor.shape[0])
    bias = ".bias" if name.endswith(".bias") else ""
    base = name.removesuffix(".bias")
    last = base.rpartition(".")[2]
    halves = {"gate_up_proj": "exps", "input_linear": "shexp" if "shared" in base else "exps"}
    if last in halves and (tensor.copies > 1 or "shared" in base):
        half = (shape[0] // 2, *shape[1:])
        return [(f"blk.{layer}.ffn_{part}_{halves[last]}{bias or '.weight'}", half) for part in ("gate", "up")]
    if last == "dt_bias":
        return [(f"blk.{layer}.ssm_dt.bias", shape)]
    if tensor.copies > 1 and "mixer.experts" in base:
        return [(f"blk.{layer}.ffn_{last.removesuffix('_proj')}_exps.weight", shape)]
    found = names.get_name(base + (bias or ".weight"), try_suffixes=(".weight", ".bias")) or names.get_name(base)
    assert found is not None, name
    return [(found, shape)]


@pytest.mark.parametrize(("repo", "arch", "more"), CASES, ids=[f"{arch}-{repo}" for repo, arch, _ in CASES])
def test_same_model_as_its_config(tmp_path, configs, repo, arch, more):
    data = configs[repo]
    model, blueprint = from_config(data, model_id="x"), adapt(Config(data))
    layers = blueprint.layers
    names = gguf.get_tensor_name_map(ARCHS[arch], len(layers))
    tensors = {}
    placed = [
        (blueprint.layer_prefix.format(i=i) + t.name, i, t)
        for i, layer in enumerate(layers)
        for t in layer.all_tensors()
    ]
    for name, layer, tensor in (*placed, *((t.name, 0, t) for t in blueprint.tensors if t.stored)):
        for found, shape in renamed(name, layer, tensor, names):
            kind = "F32" if len(shape) == 1 or not tensor.linear or shape[-1] % 32 else "Q8_0"
            tensors[found] = ((tensor.copies, *shape) if tensor.copies > 1 else shape, kind)
    attention = [next((m for m in layer.mixers if isinstance(m, Attention)), None) for layer in layers]
    keys = {"block_count": len(layers), "context_length": model.max_context or 4096, "embedding_length": model.hidden_size,
            "feed_forward_length": 1024, "vocab_size": model.vocab_size, "attention.layer_norm_rms_epsilon": 1e-6}  # fmt: skip
    first = next((mixer for mixer in attention if mixer), None)
    if first is not None:
        per_layer = [mixer.num_key_value_heads if mixer else 0 for mixer in attention]
        keys |= {
            "attention.head_count": first.num_attention_heads,
            "attention.head_count_kv": per_layer[0] if len(set(per_layer)) == 1 else per_layer,
            "attention.key_length": first.head_dim, "attention.value_length": first.v_head_dim,
        }  # fmt: skip
        windows = [mixer.window for mixer in attention if mixer and mixer.window]
        keys |= {"attention.sliding_window": windows[0]} if windows else {}
    moe = next((la.feed_forward for la in layers if isinstance(la.feed_forward, MixtureOfExperts)), None)
    if moe is not None:
        keys |= {"expert_count": moe.num_experts, "expert_used_count": moe.top_k}
    read = load_gguf(write_gguf(tmp_path / "x.gguf", arch, {**keys, **(more(data) if more else {})}, tensors))
    for count in (parameters_total, parameters_active, parameters_embedding, kv_elements_per_token, window_layers,
                  state_elements_per_sequence):  # fmt: skip
        assert count(read) == count(model), count.__name__
    assert read.max_context == (model.max_context or 4096)
