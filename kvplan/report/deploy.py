"""From an estimate to what one types: serve commands, a Compose file and a Kubernetes manifest that agree with it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvplan.core.results import Estimate
from kvplan.core.units import GIB
from kvplan.errors import UsageError
from kvplan.report.text import neutral

_PORTS: Final = {"vllm": 8000, "sglang": 30000, "tensorrt-llm": 8000, "llama.cpp": 8080}
_IMAGES: Final = {
    ("vllm", "nvidia"): "vllm/vllm-openai",
    ("vllm", "amd"): "rocm/vllm",
    ("sglang", "nvidia"): "lmsysorg/sglang",
    ("sglang", "amd"): "lmsysorg/sglang",
    ("tensorrt-llm", "nvidia"): "nvcr.io/nvidia/tensorrt-llm/release",
    ("llama.cpp", "nvidia"): "ghcr.io/ggml-org/llama.cpp",
    ("llama.cpp", "amd"): "ghcr.io/ggml-org/llama.cpp",
}
_TAGS: Final = {("llama.cpp", "nvidia"): "server-cuda", ("llama.cpp", "amd"): "server-rocm"}
_RESOURCE: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
#: Formats that engines make of a 16-bit checkpoint while they load it; others need a checkpoint that has them.
_ON_LOADING: Final = frozenset({"fp8"})
_WIDE: Final = frozenset({"bf16", "fp16", "fp32"})
_NODE_GPUS: Final = 8
_ALL_LAYERS: Final = 999
#: Guessed tokens where a draft model is given without their number.
_FEW_GUESSES: Final = 3
FILES: Final = ("serve.sh", "compose.yaml", "kubernetes.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One replica to be started.

    Attributes:
        estimate: What was planned; it must fit.
        model: Repository id or path that the engine loads.
        vendor: Maker of the GPUs, `nvidia` or `amd`.
        quantization: Weight format that was asked for instead of the checkpoint's, or None.
        max_num_seqs, max_num_batched_tokens, gpu_memory_utilization: Settings that differ from the engine's own, or None.
        card_bytes: Total of the card where another amount was planned with (a slice, or what others leave), or None.
        enforce_eager: No captured graphs.
        n_gpu_layers: Layers on the GPU (llama.cpp), or None for all.
        max_loras, max_lora_rank: Room for LoRA adapters.
        speculative_tokens, draft_model: Tokens that are guessed, and the repository of the model that does, or None for
            the model's own multi-token-prediction layers.
        dcp: Ranks that divide the cache by tokens.
        replicas: Equal replicas.
    """

    estimate: Estimate
    model: str
    vendor: str = "nvidia"
    quantization: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    card_bytes: int | None = None
    enforce_eager: bool = False
    n_gpu_layers: int | None = None
    max_loras: int = 0
    max_lora_rank: int = 16
    speculative_tokens: int = 0
    draft_model: str | None = None
    dcp: int = 1
    replicas: int = 1

    @property
    def engine(self) -> str:
        """Engine without its version."""
        return self.estimate.scenario.engine.partition("@")[0]

    @property
    def serves(self) -> bool:
        """False for a profile that is no server, such as `ideal`."""
        return self.engine in _PORTS

    @property
    def context(self) -> int:
        """Longest sequence that is planned for and that the pool holds [token]."""
        return min(self.estimate.scenario.context, self.estimate.capacity.max_context)

    @property
    def port(self) -> int:
        """Port that the engine listens on."""
        return _PORTS[self.engine]


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
    """What the command does not say."""
    asked = service.estimate.scenario
    found = [
        f"planned by kvplan: {asked.model} on {asked.gpu_count} x {asked.gpu}, {asked.engine}, context {asked.context}"
    ]
    if service.quantization is not None and service.quantization not in _ON_LOADING | _WIDE:
        found.append(f"the model must be a checkpoint in {service.quantization}; engines do not make one while loading")
    if service.engine == "vllm" and service.card_bytes is not None:
        planned, whole = service.estimate.memory, service.card_bytes
        found.append(
            f"the fraction is of {planned.gpu_bytes / GIB:.2f} GiB, a slice of its own; where others use the card too, "
            f"it is {planned.usable_bytes / whole:.3f} of its {whole / GIB:.2f} GiB"
        )
    if service.engine in {"sglang", "tensorrt-llm"} and _speculates(service):
        found.append("guessed tokens are counted in memory; add the engine's own options for them")
    if asked.gpu_count > _NODE_GPUS:
        found.append(f"{asked.gpu_count} GPUs are more than one node: start the engine on each node as its guide says")
    return [neutral(note) for note in found]  # they become comments: a line break in a name would end one


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
    if not _speculates(service):
        return None
    method = {"method": "mtp"} if service.draft_model is None else {"model": service.draft_model}
    return json.dumps({**method, "num_speculative_tokens": service.speculative_tokens or _FEW_GUESSES})


def _speculates(service: Service) -> bool:
    return service.draft_model is not None or service.speculative_tokens > 0


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
        *_option("--kv-cache-dtype", None if asked.kv_dtype in _WIDE else cache),
        *_option("--quantization", _quantization(service)),
        *(["--disable-cuda-graph"] if service.enforce_eager else []),
        *(["--enable-lora"] if service.max_loras else []),
        *_option("--max-loras-per-batch", service.max_loras, unless=0),
        *_option("--max-lora-rank", service.max_lora_rank if service.max_loras else None),
        *_option("--host", "0.0.0.0"),  # noqa: S104 - inside a container, as the engines' own images do
        *_option("--port", service.port),
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
        *(["--extra_llm_api_options", "extra.yaml"] if asked.kv_dtype not in _WIDE or asked.dp > 1 else []),
        *_option("--host", "0.0.0.0"),  # noqa: S104 - as above
        *_option("--port", service.port),
    ]


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
        *_option("--host", "0.0.0.0"),  # noqa: S104 - as above
        *_option("--port", service.port),
    ]


def serve_lines(service: Service) -> list[str]:
    """The serve command as lines for a shell, an option each, after what it does not say."""
    words = [shlex.quote(word) for word in arguments(service)]
    lines: list[str] = []
    for word in words:
        if word.startswith("--"):
            lines.append(f"    {word}")
        elif lines:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [*(f"# {note}" for note in notes(service)), *(f"{line} \\" for line in lines[:-1]), lines[-1]]


def image(service: Service) -> str:
    """Container image with the engine at its planned version.

    Raises:
        UsageError: No image is known for this maker's GPUs.
    """
    key = (service.engine, service.vendor)
    if key not in _IMAGES:
        message = f"deploy: no container image of {service.engine} is known for {service.vendor} GPUs"
        raise UsageError(message, hint="take the serve command: --deploy serve.sh")
    version = service.estimate.scenario.engine.partition("@")[2]
    tag = _TAGS.get(key) or (f"v{version}.0" if key == ("vllm", "nvidia") and version else "latest")
    return f"{_IMAGES[key]}:{tag}"


def files(service: Service) -> dict[str, str]:
    """File name → text of the serve script, the Compose file and the Kubernetes manifest."""
    script = "\n".join(["#!/bin/sh", "set -eu", *serve_lines(service), ""])
    made = {"serve.sh": script}
    if (service.engine, service.vendor) in _IMAGES:
        head = "".join(f"# {note}\n" for note in notes(service))
        made["compose.yaml"] = head + _yaml(_compose(service))
        made["kubernetes.yaml"] = head + "---\n".join(_yaml(one) for one in _kubernetes(service))
    if service.engine == "tensorrt-llm" and "--extra_llm_api_options" in arguments(service):
        made["extra.yaml"] = _yaml(_extra(service))
    return made


def file_for(path: Path, made: Mapping[str, str]) -> str:
    """The text for one named file: a script by `.sh`, else Compose or Kubernetes by its name.

    Raises:
        UsageError: The name says neither.
    """
    if path.suffix == ".sh":
        return made["serve.sh"]
    for word, name in (("compose", "compose.yaml"), ("kube", "kubernetes.yaml"), ("k8s", "kubernetes.yaml")):
        if word in path.name.lower() and name in made:
            return made[name]
    message = f"--deploy: {path.name} is none of {', '.join(FILES)}"
    raise UsageError(message, hint="name a folder for all of them")


def _yaml(document: Mapping[str, Any]) -> str:
    import yaml  # noqa: PLC0415 - only where a manifest is written

    class Plain(yaml.SafeDumper):
        """Writes a part that occurs twice two times, where YAML would refer to the first."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002 - yaml's signature
            return True

    return yaml.dump(dict(document), Dumper=Plain, sort_keys=False, allow_unicode=True, width=120)


def _extra(service: Service) -> dict[str, Any]:
    asked = service.estimate.scenario
    found: dict[str, Any] = {}
    if asked.kv_dtype not in _WIDE:
        found["kv_cache_config"] = {"dtype": asked.kv_dtype}
    if asked.dp > 1:
        found["enable_attention_dp"] = True
    return found


def _command(service: Service) -> list[str]:
    """The command inside the image; vLLM's image starts `vllm serve` by itself."""
    words = arguments(service)
    return words[2:] if (service.engine, service.vendor) == ("vllm", "nvidia") else words


def _compose(service: Service) -> dict[str, Any]:
    gpus = service.estimate.scenario.gpu_count
    one: dict[str, Any] = {
        "image": image(service),
        "command": [word.replace("$", "$$") for word in _command(service)],  # Compose would put variables in
        "ports": [f"{service.port}:{service.port}"],
        "ipc": "host",
        "environment": {"HF_TOKEN": "${HF_TOKEN:-}"},
        "volumes": ["${HF_HOME:-~/.cache/huggingface}:/root/.cache/huggingface"],
        "restart": "unless-stopped",
        "healthcheck": {
            "test": ["CMD", "curl", "-fsS", f"http://localhost:{service.port}/health"],
            "interval": "15s",
            "start_period": "15m",
        },
    }
    if service.vendor == "amd":
        one.update(
            {"devices": ["/dev/kfd", "/dev/dri"], "group_add": ["video"], "security_opt": ["seccomp=unconfined"]}
        )
    else:
        device = {"driver": "nvidia", "count": gpus, "capabilities": ["gpu"]}
        one["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return {"services": {"llm": one}}


def _kubernetes(service: Service) -> Sequence[dict[str, Any]]:
    name = "llm"
    gpus = {_RESOURCE[service.vendor]: service.estimate.scenario.gpu_count}
    probe = {"httpGet": {"path": "/health", "port": service.port}}
    container = {
        "name": name,
        "image": image(service),
        _words_key(service): [word.replace("$(", "$$(") for word in _command(service)],  # Kubernetes would too
        "env": [
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}}
        ],
        "ports": [{"containerPort": service.port}],
        "resources": {"limits": gpus, "requests": gpus},
        "startupProbe": {**probe, "periodSeconds": 15, "failureThreshold": 80},
        "readinessProbe": {**probe, "periodSeconds": 10},
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - where ranks share memory
            {"name": "cache", "mountPath": "/root/.cache/huggingface"},
        ],
    }
    pod = {
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "cache", "emptyDir": {}}],
    }
    labels = {"app": name}
    return (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "replicas": service.replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": service.port}]},
        },
    )


def _words_key(service: Service) -> str:
    """Where the image has an entry point of its own its words are arguments, else the whole command."""
    return "args" if (service.engine, service.vendor) == ("vllm", "nvidia") else "command"
