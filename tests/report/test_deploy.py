"""Serve commands per engine, in the engines' own words."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import replace

import pytest
import yaml

import kvplan
from kvplan.errors import UsageError
from kvplan.report.manifests import file_for, files
from kvplan.report.serve_command import arguments, extra, serve_lines
from kvplan.report.service import Service


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


HOSTILE = """x; touch pwned #$(touch pwned)`touch pwned`'"${HOME}"""


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_a_shell_starts_the_server_with_the_very_words(engine, tmp_path):
    """The script is run with servers that only write down their arguments."""
    fields = {"draft_model": "llama-3.2-1b", "speculative_tokens": 4, "tp": 1, "context": 4096}
    one = service(engine, model="llama-3.1-8b", fields=fields)
    one = replace(one, model=HOSTILE, draft_model=HOSTILE, speculative_tokens=4)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("vllm", "python3", "trtllm-serve", "llama-server"):
        program = programs / name
        program.write_text('#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@" >words\n', encoding="utf-8")
        program.chmod(0o755)
    (tmp_path / "serve.sh").write_text(files(one)["serve.sh"], encoding="utf-8")
    path = f"{programs}:{os.environ['PATH']}"
    subprocess.run(["sh", "serve.sh"], cwd=tmp_path, env={"PATH": path}, check=True)
    assert (tmp_path / "words").read_text(encoding="utf-8").split("\0")[:-1] == arguments(one)
    assert not (tmp_path / "pwned").exists()
    if engine == "tensorrt-llm":
        options = yaml.safe_load((tmp_path / "extra.yaml").read_text(encoding="utf-8"))
        assert options["speculative_config"]["speculative_model_dir"] == HOSTILE


def test_guessed_tokens_in_each_engines_words():
    """Four guesses in one chain are verified with the token that is certain: five at once in SGLang."""
    drafted = {"draft_model": "org/draft", "speculative_tokens": 4}
    found = options(arguments(service("sglang", **drafted)))
    assert found["--speculative-algorithm"] == "STANDALONE"
    assert found["--speculative-draft-model-path"] == "org/draft"
    assert [found[f"--speculative-{name}"] for name in ("num-steps", "eagle-topk", "num-draft-tokens")] == [
        "4",
        "1",
        "5",
    ]
    own = options(arguments(service("sglang", speculative_tokens=1)))
    assert own["--speculative-algorithm"] == "EAGLE"
    assert "--speculative-draft-model-path" not in own
    assert extra(service("tensorrt-llm", speculative_tokens=2)) == {
        "speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": 2}
    }
    assert extra(service("tensorrt-llm", **drafted))["speculative_config"] == {
        "decoding_type": "DraftTarget",
        "max_draft_len": 4,
        "speculative_model_dir": "org/draft",
    }


def test_the_file_of_options_goes_wherever_the_command_goes():
    one = service("tensorrt-llm", fields={"kv_dtype": "fp8"}, speculative_tokens=1)
    made = files(one)
    assert set(made) == {"serve.sh", "compose.yaml", "kubernetes.yaml"}
    compose = yaml.safe_load(made["compose.yaml"])
    target = compose["services"]["llm"]["configs"][0]["target"]
    assert options(compose["services"]["llm"]["command"])["--extra_llm_api_options"] == target
    assert yaml.safe_load(compose["configs"]["options"]["content"]) == extra(one)
    options_map, deployment, _ = yaml.safe_load_all(made["kubernetes.yaml"])
    assert yaml.safe_load(options_map["data"]["extra.yaml"]) == extra(one)
    pod = deployment["spec"]["template"]["spec"]
    assert pod["containers"][0]["volumeMounts"][-1]["mountPath"] == target
    assert pod["volumes"][-1]["configMap"]["name"] == options_map["metadata"]["name"]


def test_images_with_an_entry_point_get_its_arguments_only():
    """ghcr.io/ggml-org/llama.cpp:server-cuda starts llama-server by itself, as vllm/vllm-openai does `vllm serve`."""
    fields = {"tp": 1, "dtype": "q4_k_m", "context": 4096}
    made = files(service("llama.cpp", gpu="rtx-4090", model="llama-3-8b", fields=fields))
    assert yaml.safe_load(made["compose.yaml"])["services"]["llm"]["command"][0] == "--model"
    deployment = next(iter(yaml.safe_load_all(made["kubernetes.yaml"])))
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"][0] == "--model"
    assert "# llama.cpp loads a GGUF file" in made["serve.sh"]


def test_manifests_have_all_gpus_of_a_replica_and_amd_its_own_devices():
    made = files(service(gpu="mi300x", vendor="amd", replicas=3))
    deployment = next(iter(yaml.safe_load_all(made["kubernetes.yaml"])))
    assert deployment["spec"]["replicas"] == 3
    limits = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"amd.com/gpu": 8}
    assert "/dev/kfd" in yaml.safe_load(made["compose.yaml"])["services"]["llm"]["devices"]


@pytest.mark.parametrize(
    ("engine", "gpu", "image", "first"),
    [
        ("vllm@0.29", "mi300x", "vllm/vllm-openai-rocm:v0.29.0", "meta-llama/Llama-3.1-70B"),
        ("sglang", "mi325x", "lmsysorg/sglang:v0.5.18-rocm720-mi30x", "python3"),
        ("sglang", "mi355x", "lmsysorg/sglang:v0.5.18-rocm720-mi35x", "python3"),
    ],
)
def test_images_for_amd_are_built_for_it_and_start_as_their_entry_point_says(engine, gpu, image, first):
    """SGLang's `latest` holds CUDA; vLLM's image for ROCm starts `vllm serve` by itself, as the one for CUDA does."""
    one = yaml.safe_load(files(service(engine, gpu=gpu, vendor="amd"))["compose.yaml"])["services"]["llm"]
    assert (one["image"], one["command"][0]) == (image, first)


@pytest.mark.parametrize(
    ("gpu", "vendor", "engine"),
    [
        ("apple-m2-ultra", "apple", "vllm"),
        ("mi210", "amd", "sglang"),  # no image for this generation
        ("mi300x", "amd", "vllm@0.12"),  # before the first image for ROCm
    ],
)
def test_cards_without_an_image_get_the_command_only(gpu, vendor, engine):
    fields = {"tp": 1, "context": 4096}
    assert set(files(service(engine, gpu=gpu, model="llama-3-8b", vendor=vendor, fields=fields))) == {"serve.sh"}


def test_what_does_not_fit_or_serve_is_refused(tmp_path):
    with pytest.raises(UsageError, match="does not fit"):
        arguments(service(gpu="t4", fields={"tp": 1}))
    with pytest.raises(UsageError, match="no engine that serves"):
        arguments(service("ideal"))
    with pytest.raises(UsageError, match=r"serve\.sh"):
        file_for(tmp_path / "x.yaml", files(service()))
