"""The serve command of one replica, in each engine's own words."""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

from kvplan.core.units import GIB
from kvplan.errors import UsageError
from kvplan.report.service import Service
from kvplan.report.text import neutral

#: Formats that engines make of a 16-bit checkpoint while they load it; others need a checkpoint that has them.
_ON_LOADING: Final = frozenset({"fp8"})
_WIDE: Final = frozenset({"bf16", "fp16", "fp32"})
_NODE_GPUS: Final = 8
_ALL_LAYERS: Final = 999
#: File of options that TensorRT-LLM takes no words for on its command line.
EXTRA: Final = "extra.yaml"
_EVERY_HOST: Final = "0.0.0.0"  # noqa: S104 - inside a container, as the engines' own images do


def arguments(service: Service) -> list[str]:
    """The serve command of one replica, word by word.

    Raises:
        UsageError: It does not fit, or the engine has no server.
    """
    if not service.estimate.capacity.fits:
        message = "serve command: the deployment does not fit"
        raise UsageError(message, hint="choose one that fits")
    for name in (service.model, service.draft_model or ""):
        if name.startswith("-") or not name.isprintable():
            message = f"serve command: {name[:80]!r} can't be given to an engine as a model"
            raise UsageError(message, hint="write a path as ./NAME")
    builders = {"vllm": _vllm, "sglang": _sglang, "tensorrt-llm": _tensorrt_llm, "llama.cpp": _llama_cpp}
    if service.engine not in builders:
        message = f"serve command: {service.engine} is no engine that serves"
        raise UsageError(message, hint=f"--engine {', '.join(builders)}")
    return builders[service.engine](service)


def notes(service: Service) -> list[str]:
    """What the command does not say, each in one line: they become comments."""
    asked = service.estimate.scenario
    # Who gave no context gets one that just holds the requests of the question: the server would refuse any longer one.
    tight = ", input + output" if asked.context == asked.input_tokens + asked.output_tokens else ""
    planned = f"{asked.model} on {asked.gpu_count} x {asked.gpu}, {asked.engine}, context {asked.context}{tight}"
    found = [f"planned by kvplan: {planned}"]
    if service.quantization is not None and service.quantization not in _ON_LOADING | _WIDE:
        found.append(f"the model must be a checkpoint in {service.quantization}; engines do not make one while loading")
    if service.engine == "vllm" and service.card_bytes is not None:
        memory, whole = service.estimate.memory, service.card_bytes
        found.append(
            f"the fraction is of {memory.gpu_bytes / GIB:.2f} GiB, a slice of its own; where others use the card too, "
            f"it is {memory.usable_bytes / whole:.3f} of its {whole / GIB:.2f} GiB"
        )
    if service.engine == "llama.cpp":
        if not service.model.endswith(".gguf"):
            found.append("llama.cpp loads a GGUF file: put its path in the place of the model's name")
        if service.guesses and service.draft_model is None:
            found.append("guessed tokens are counted in memory; add the engine's own options for them")
    if asked.gpu_count > _NODE_GPUS:
        found.append(f"{asked.gpu_count} GPUs are more than one node: start the engine on each node as its guide says")
    return [neutral(note) for note in found]


def _option(name: str, value: object, *, unless: object = None) -> list[str]:
    return [] if value is None or value == unless else [name, str(value)]


def _vllm(service: Service) -> list[str]:
    asked, memory = service.estimate.scenario, service.estimate.memory
    fraction = service.gpu_memory_utilization or round(memory.usable_bytes / memory.gpu_bytes, 3)
    return [
        *("vllm", "serve", service.model),
        *_option("--tensor-parallel-size", asked.tp, unless=1),
        *_option("--decode-context-parallel-size", service.dcp, unless=1),
        *_option("--pipeline-parallel-size", asked.pp, unless=1),
        *_option("--data-parallel-size", asked.dp, unless=1),
        *(["--enable-expert-parallel"] if asked.ep not in {None, 1} else []),
        *_option("--max-model-len", service.context),
        *_option("--max-num-seqs", service.max_num_seqs),
        *_option("--max-num-batched-tokens", service.max_num_batched_tokens),
        *_option("--gpu-memory-utilization", fraction),
        *_wide_weights(service),
        *_option("--kv-cache-dtype", None if asked.kv_dtype in _WIDE else asked.kv_dtype),
        *_option("--quantization", _quantization(service)),
        *(["--enforce-eager"] if service.enforce_eager else []),
        *(["--enable-lora"] if service.max_loras else []),
        *_option("--max-loras", service.max_loras, unless=0),
        *_option("--max-lora-rank", service.max_lora_rank if service.max_loras else None),
        *_option("--speculative-config", _speculation(service)),
        *_option("--port", service.port),
    ]


def _speculation(service: Service) -> str | None:
    """The JSON that vLLM takes for guessed tokens."""
    if not service.guesses:
        return None
    method = {"method": "mtp"} if service.draft_model is None else {"model": service.draft_model}
    return json.dumps({**method, "num_speculative_tokens": service.guesses})


def _wide_weights(service: Service) -> list[str]:
    """Engines load fp32 checkpoints in 16 bits unless told not to."""
    return ["--dtype", "float32"] if service.estimate.scenario.dtype == "fp32" else []


def _quantization(service: Service) -> str | None:
    return service.quantization if service.quantization in _ON_LOADING else None


def _sglang(service: Service) -> list[str]:
    asked = service.estimate.scenario
    cache = {"fp8": "fp8_e4m3"}.get(asked.kv_dtype, asked.kv_dtype)
    attention = asked.dp > 1 and asked.ep not in {None, 1}
    return [
        *("python3", "-m", "sglang.launch_server", "--model-path", service.model),
        *_option("--tp-size", asked.tp * asked.dp if attention else asked.tp, unless=1),
        *_option("--pp-size", asked.pp, unless=1),
        *_option("--dp-size", asked.dp, unless=1),
        *(["--enable-dp-attention"] if attention else []),
        *_option("--ep-size", asked.ep, unless=1),
        *_option("--context-length", service.context),
        *_option("--max-running-requests", None if service.max_num_seqs is None else service.max_num_seqs * asked.dp),
        *_option("--chunked-prefill-size", service.max_num_batched_tokens),
        *_option("--mem-fraction-static", service.gpu_memory_utilization),
        *_wide_weights(service),
        *_option("--kv-cache-dtype", None if asked.kv_dtype in _WIDE else cache),
        *_option("--quantization", _quantization(service)),
        *(["--disable-cuda-graph"] if service.enforce_eager else []),
        *_sglang_speculation(service),
        *(["--enable-lora"] if service.max_loras else []),
        *_option("--max-loras-per-batch", service.max_loras, unless=0),
        *_option("--max-lora-rank", service.max_lora_rank if service.max_loras else None),
        *_option("--host", _EVERY_HOST),
        *_option("--port", service.port),
    ]


def _sglang_speculation(service: Service) -> list[str]:
    """Guesses in one chain (top-k 1): as many steps, and the token that is certain is verified with them.

    Source: https://docs.sglang.io/advanced_features/speculative_decoding.html, Multi Token Prediction and Standalone.
    """
    if not service.guesses:
        return []
    return [
        *_option("--speculative-algorithm", "EAGLE" if service.draft_model is None else "STANDALONE"),
        *_option("--speculative-draft-model-path", service.draft_model),
        *_option("--speculative-num-steps", service.guesses),
        *_option("--speculative-eagle-topk", 1),
        *_option("--speculative-num-draft-tokens", service.guesses + 1),
    ]


def _tensorrt_llm(service: Service) -> list[str]:
    asked = service.estimate.scenario
    return [
        *("trtllm-serve", service.model),
        *_option("--tp_size", asked.tp * asked.dp, unless=1),
        *_option("--pp_size", asked.pp, unless=1),
        *_option("--ep_size", asked.ep, unless=1),
        *_option("--max_seq_len", service.context),
        *_option("--max_batch_size", service.max_num_seqs),
        *_option("--max_num_tokens", service.max_num_batched_tokens),
        *_option("--kv_cache_free_gpu_memory_fraction", service.gpu_memory_utilization),
        *_option("--extra_llm_api_options", EXTRA if extra(service) else None),
        *_option("--host", _EVERY_HOST),
        *_option("--port", service.port),
    ]


def extra(service: Service) -> dict[str, Any]:
    """What TensorRT-LLM reads from a file; empty for other engines and where nothing needs it.

    Source: https://nvidia.github.io/TensorRT-LLM/1.0.0/llm-api/reference.html; a draft model runs without overlap.
    """
    asked = service.estimate.scenario
    found: dict[str, Any] = {}
    if service.engine != "tensorrt-llm":
        return found
    if asked.kv_dtype not in _WIDE:
        found["kv_cache_config"] = {"dtype": asked.kv_dtype}
    if asked.dp > 1:
        found["enable_attention_dp"] = True
    if service.guesses and service.draft_model is None:
        found["speculative_config"] = {"decoding_type": "MTP", "num_nextn_predict_layers": service.guesses}
    elif service.draft_model is not None:
        found["disable_overlap_scheduler"] = True
        found["speculative_config"] = {
            "decoding_type": "DraftTarget",
            "max_draft_len": service.guesses,
            "speculative_model_dir": service.draft_model,
        }
    return found


def _llama_cpp(service: Service) -> list[str]:
    asked = service.estimate.scenario
    slots = service.max_num_seqs or asked.concurrency
    cache = {"fp16": None, "bf16": "bf16"}.get(asked.kv_dtype, asked.kv_dtype)
    return [
        *("llama-server", "--model", service.model),
        *_option("--n-gpu-layers", _ALL_LAYERS if service.n_gpu_layers is None else service.n_gpu_layers),
        *_option("--ctx-size", service.context * slots),
        *_option("--parallel", slots),
        *_option("--cache-type-k", cache),
        *_option("--cache-type-v", cache),
        *_option("--model-draft", service.draft_model),
        *_option("--host", _EVERY_HOST),
        *_option("--port", service.port),
    ]


def serve_lines(service: Service) -> list[str]:
    """The serve command as lines for a shell, after what it does not say and what stands in a file beside it."""
    options = extra(service)
    beside = [neutral(f"{EXTRA} holds {json.dumps(options)}")] if options else []
    return [*(f"# {note}" for note in [*notes(service), *beside]), *command_lines(service)]


def command_lines(service: Service) -> list[str]:
    """The serve command alone, an option in each line."""
    lines: list[str] = []
    for word in map(shlex.quote, arguments(service)):
        if word.startswith("--"):
            lines.append(f"    {word}")
        elif lines:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]
