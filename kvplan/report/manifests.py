"""The files that start a deployment: a script, a Compose file and a Kubernetes manifest around one serve command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kvplan.errors import UsageError
from kvplan.report.serve_command import EXTRA, arguments, command_lines, extra, notes
from kvplan.report.service import Service

#: As the engines' documentation names them, read on 2026-11-29: docs.vllm.ai (deployment, docker; AMD's own `rocm/vllm` is
#: deprecated), docs.sglang.io (installation; AMD GPUs), nvidia.github.io/TensorRT-LLM (quick start), llama.cpp's docs/docker.md.
_IMAGES: Final = {
    ("vllm", "nvidia"): "vllm/vllm-openai",
    ("vllm", "amd"): "vllm/vllm-openai-rocm",
    ("sglang", "nvidia"): "lmsysorg/sglang",
    ("sglang", "amd"): "lmsysorg/sglang",
    ("tensorrt-llm", "nvidia"): "nvcr.io/nvidia/tensorrt-llm/release",
    ("llama.cpp", "nvidia"): "ghcr.io/ggml-org/llama.cpp",
    ("llama.cpp", "amd"): "ghcr.io/ggml-org/llama.cpp",
}
_TAGS: Final = {("llama.cpp", "nvidia"): "server-cuda", ("llama.cpp", "amd"): "server-rocm"}
#: SGLang's `latest` is built for CUDA; its images for AMD are tagged by release, ROCm and generation, with no moving tag.
_SGLANG_AMD: Final = {
    **dict.fromkeys(("mi300a", "mi300x", "mi308x", "mi325x"), "v0.5.18-rocm720-mi30x"),
    **dict.fromkeys(("mi350x", "mi355x"), "v0.5.18-rocm720-mi35x"),
}
#: The first release with an image of vLLM's own for ROCm.
_FIRST_VLLM_ROCM: Final = (0, 14)
_RESOURCE: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
#: Words of the serve command that an image's own entry point says already; other images have none.
_SAID: Final = {("vllm", "nvidia"): 2, ("vllm", "amd"): 2, ("llama.cpp", "nvidia"): 1, ("llama.cpp", "amd"): 1}
FILES: Final = ("serve.sh", "compose.yaml", "kubernetes.yaml")
#: Where the hub keeps files inside the engines' images, whose user is root.
_HUB_CACHE: Final = "/root/.cache/huggingface"


def image(service: Service) -> str:
    """Container image with the engine at its planned version.

    Raises:
        UsageError: No image is known for this maker's GPUs.
    """
    if not _has_image(service):
        message = f"deploy: no container image of {service.engine} is known for {service.vendor} GPUs like this one"
        raise UsageError(message, hint="take the serve command: --deploy serve.sh")
    key, asked = (service.engine, service.vendor), service.estimate.scenario
    version = asked.engine.partition("@")[2]
    if key == ("sglang", "amd"):
        tag = _SGLANG_AMD[asked.gpu]
    else:
        tag = _TAGS.get(key) or (f"v{version}.0" if service.engine == "vllm" and version else "latest")
    return f"{_IMAGES[key]}:{tag}"


def _has_image(service: Service) -> bool:
    key, asked = (service.engine, service.vendor), service.estimate.scenario
    if key == ("sglang", "amd"):
        return asked.gpu in _SGLANG_AMD
    version = tuple(int(part) for part in asked.engine.partition("@")[2].split(".") if part)
    return key in _IMAGES and (key != ("vllm", "amd") or not version or version >= _FIRST_VLLM_ROCM)


def files(service: Service) -> dict[str, str]:
    """File name → text of the serve script, the Compose file and the Kubernetes manifest; each stands alone."""
    said = [f"# {note}" for note in notes(service)]
    script = ["#!/bin/sh", "set -eu", *said, *_extra_written(service), *command_lines(service), ""]
    made = {"serve.sh": "\n".join(script)}
    if _has_image(service):
        head = "".join(f"{line}\n" for line in [*said, *(f"# {note}" for note in _mounted(service))])
        made["compose.yaml"] = head + _yaml(_compose(service))
        made["kubernetes.yaml"] = head + "---\n".join(_yaml(one) for one in _kubernetes(service))
    return made


def _mounted(service: Service) -> list[str]:
    local = service.model.startswith(("/", ".", "~")) or service.model.endswith(".gguf")
    return ["a model given by its path must be mounted into the container"] if local else []


def _extra_written(service: Service) -> list[str]:
    """Shell lines that write the engine's file of options; the quoted word keeps the shell from reading in it."""
    options = extra(service)
    return [f"cat >{EXTRA} <<'END'", *_yaml(options).splitlines(), "END"] if options else []


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


def _command(service: Service) -> list[str]:
    """The command inside the image, without what the image says by itself; the file of options lies at the root."""
    words = [f"/{EXTRA}" if word == EXTRA else word for word in arguments(service)]
    return words[_SAID.get((service.engine, service.vendor), 0) :]


def _compose(service: Service) -> dict[str, Any]:
    gpus = service.estimate.scenario.gpu_count
    one: dict[str, Any] = {
        "image": image(service),
        "command": [word.replace("$", "$$") for word in _command(service)],  # Compose would put variables in
        "ports": [f"{service.port}:{service.port}"],
        "ipc": "host",
        "environment": {"HF_TOKEN": "${HF_TOKEN:-}"},
        "volumes": [f"${{HF_HOME:-~/.cache/huggingface}}:{_HUB_CACHE}"],
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
    options = extra(service)
    if not options:
        return {"services": {"llm": one}}
    one["configs"] = [{"source": "options", "target": f"/{EXTRA}"}]
    return {"services": {"llm": one}, "configs": {"options": {"content": _yaml(options).replace("$", "$$")}}}


def _kubernetes(service: Service) -> Sequence[dict[str, Any]]:
    name = "llm"
    gpus = {_RESOURCE[service.vendor]: service.estimate.scenario.gpu_count}
    probe = {"httpGet": {"path": "/health", "port": service.port}}
    mounts = [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - where ranks share memory
        {"name": "cache", "mountPath": _HUB_CACHE},
    ]
    container = {
        "name": name,
        "image": image(service),
        _words_key(service): [word.replace("$", "$$") for word in _command(service)],  # Kubernetes too, for $(NAME)
        "env": [
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}}
        ],
        "ports": [{"containerPort": service.port}],
        "resources": {"limits": gpus, "requests": gpus},
        "startupProbe": {**probe, "periodSeconds": 15, "failureThreshold": 80},
        "readinessProbe": {**probe, "periodSeconds": 10},
        "volumeMounts": mounts,
    }
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "cache", "emptyDir": {}},
    ]
    before: list[dict[str, Any]] = []
    options = extra(service)
    if options:
        mounts.append({"name": "options", "mountPath": f"/{EXTRA}", "subPath": EXTRA})
        volumes.append({"name": "options", "configMap": {"name": f"{name}-options"}})
        data = {EXTRA: _yaml(options)}
        before.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-options"}, "data": data})
    pod = {"containers": [container], "volumes": volumes}
    labels = {"app": name}
    return (
        *before,
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
    return "args" if (service.engine, service.vendor) in _SAID else "command"
