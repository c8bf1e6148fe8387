"""Serve commands per engine, in the engines' own words."""

from __future__ import annotations

import shlex

import pytest
import yaml

import kvplan
from kvplan.errors import UsageError
from kvplan.report.deploy import Service, arguments, file_for, files, serve_lines


def service(engine="vllm", gpu="h100-sxm", model="llama-3.1-70b", **more):
    fields = {"tp": 8, "context": 16384, **more.pop("fields", {})}
    answer = kvplan.estimate(model, gpu, engine=engine, **fields)
    return Service(estimate=answer, model="meta-llama/Llama-3.1-70B", **more)


def options(words):
    return {word: words[index + 1] for index, word in enumerate(words[:-1]) if word.startswith("--")}


@pytest.mark.parametrize(
    ("engine", "first", "expected"),
    [
        ("vllm", "vllm", {"--tensor-parallel-size": "8", "--max-model-len": "16384"}),
        ("sglang", "python3", {"--tp-size": "8", "--context-length": "16384"}),
        ("tensorrt-llm", "trtllm-serve", {"--tp_size": "8", "--max_seq_len": "16384"}),
    ],
)
def test_each_engine_in_its_own_words(engine, first, expected):
    words = arguments(service(engine))
    assert words[0] == first
    assert expected.items() <= options(words).items()


def test_llama_cpp_shares_its_context_among_slots():
    fields = {"tp": 1, "dtype": "q4_k_m", "context": 4096, "concurrency": 4}
    words = arguments(service("llama.cpp", gpu="rtx-4090", model="llama-3-8b", fields=fields))
    found = options(words)
    assert int(found["--ctx-size"]) == 4096 * 4
    assert found["--parallel"] == "4"


def test_the_pools_fraction_is_the_one_that_was_planned_with():
    one = service(gpu_memory_utilization=None, fields={"gpu_memory_utilization": 0.85})
    assert options(arguments(one))["--gpu-memory-utilization"] == "0.85"


def test_narrow_caches_and_weights_are_asked_for():
    one = service(quantization="fp8", fields={"dtype": "fp8", "kv_dtype": "fp8"})
    found = options(arguments(one))
    assert found["--kv-cache-dtype"] == "fp8"
    assert found["--quantization"] == "fp8"
    awq = service(quantization="awq", fields={"dtype": "awq"})
    assert "--quantization" not in options(arguments(awq))
    assert any("checkpoint in awq" in line for line in serve_lines(awq))


def test_lines_are_one_shell_command():
    one = service()
    text = "\n".join(line for line in serve_lines(one) if not line.startswith("#"))
    assert shlex.split(text.replace("\\\n", " ")) == arguments(one)


def test_names_cannot_leave_their_word():
    one = Service(estimate=service().estimate, model="x; rm -rf / #")
    text = "\n".join(line for line in serve_lines(one) if not line.startswith("#"))
    assert shlex.split(text.replace("\\\n", " "))[2] == "x; rm -rf / #"
    assert yaml.safe_load(files(one)["compose.yaml"])["services"]["llm"]["command"][0] == "x; rm -rf / #"


def test_manifests_have_all_gpus_of_a_replica_and_amd_its_own_devices():
    made = files(service(gpu="mi300x", vendor="amd", replicas=3))
    deployment = next(iter(yaml.safe_load_all(made["kubernetes.yaml"])))
    assert deployment["spec"]["replicas"] == 3
    limits = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"amd.com/gpu": 8}
    assert "/dev/kfd" in yaml.safe_load(made["compose.yaml"])["services"]["llm"]["devices"]


def test_makers_without_an_image_get_the_command_only():
    made = files(service(gpu="apple-m2-ultra", model="llama-3-8b", vendor="apple", fields={"tp": 1, "context": 4096}))
    assert set(made) == {"serve.sh"}


def test_what_does_not_fit_or_serve_is_refused(tmp_path):
    with pytest.raises(UsageError, match="does not fit"):
        arguments(service(gpu="t4", fields={"tp": 1}))
    with pytest.raises(UsageError, match="no engine that serves"):
        arguments(service("ideal"))
    with pytest.raises(UsageError, match=r"serve\.sh"):
        file_for(tmp_path / "x.yaml", files(service()))
