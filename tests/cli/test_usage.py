"""Bad values: one message, its exit code, nothing on stdout."""

from __future__ import annotations

import json

import pytest
from typer.main import get_command

from kvplan.cli import estimate, plan
from kvplan.planning.words import PARAMETERS

BASE = ("estimate", "--model", "llama-3-8b", "--gpu", "a100-80g")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("estimat",), "did you mean estimate?"),
        (("nonsense",), "commands: estimate, "),
        (("models", "lst"), "did you mean list?"),
        (("estimate", "--modle", "x"), "--model"),
        (("estimate", "--model", "llama-3-8b"), "Missing option '--gpu'"),
        ((*BASE, "--tp", "two"), "'two' is not a whole number"),
        ((*BASE, "--tp", "0"), "0 is not in the range x>=1"),
        ((*BASE, "--concurrency", "-3"), "-3 is not in the range"),
        ((*BASE, "--input-tokens", "1.5"), "not a whole number"),
        ((*BASE, "--context", "4.0001k"), "4K = 4,096"),
        ((*BASE, "--context", "0"), "0 is not in the range x>=1"),
        ((*BASE, "--source-tokens", "infK"), "not a whole number"),
        ((*BASE, "--users", "4"), "did you mean --concurrency?"),
        ((*BASE, "--batch_size", "4"), "did you mean --concurrency?"),
        ((*BASE, "--input", "500"), "did you mean --input-tokens?"),
        ((*BASE, "--output", "500"), "--output-tokens 500"),
        (("plan", "--tpot", "30"), "did you mean --slo-tpot-ms?"),
        (("compare", "--quantization", "fp8"), "did you mean --dtype?"),
        (("needs", "--model", "llama-3-8b", "--input-tokens", "4000"), "did you mean --context?"),
        (("estimate", "--model", "llama-3-8b"), "`kvplan gpus list`"),
        ((*BASE, "--gpu-memory-gib", "two"), "'two' is not a number"),
        ((*BASE, "--prefix-hit-rate", "nan"), "not a finite number"),
        ((*BASE, "--gpu-memory-utilization", "inf"), "not a finite number"),
        ((*BASE, "--format", "xml"), "'xml' is not one of"),
        ((*BASE, "--json", "--format", "csv"), "two forms"),
        ((*BASE, "surplus"), "surplus"),
        (("estimate", "llama-3-8b", "l4"), "--model NAME --gpu NAME"),
        ((*BASE, "--gpu-memory-utilization", "92.5%"), "92.5 % is 0.925;"),
        ((*BASE, "--fp8"), "did you mean --dtype fp8?"),
        ((*BASE, "--q4_k_m"), "did you mean --dtype q4_k_m?"),
        ((*BASE, "--concurency", "4"), "did you mean --concurrency?"),
        ((*BASE, "--rate", "4"), "commands that have it: plan;"),
        ((*BASE, "--tpot", "30"), "commands that have it: sweep, plan;"),
        ((*BASE, "--vary", "tp=1,2"), "commands that have it: compare;"),
        (("plan", "--concurrency", "4"), "did you mean --users?"),
        (("needs", "--input", "4000"), "did you mean --context?"),
        (("models", "import", "config.json"), "-o my-model.yaml"),
        ((*BASE, "-o", "answer.xlsx"), "a spreadsheet opens .csv"),
        ((*BASE, "-o", "answer.PNG"), "--plot FILE"),
        ((*BASE, "--deploy", ""), "--deploy: is empty"),
        ((*BASE, "--plot="), "--plot: is empty"),
        (("models", "show", ""), "an argument is empty"),
        (("plan", "-m", "llama-3-8b", "--input-tokens", "9", "--output-tokens", "9", "--slo-at", "p1"), "slo_at: 'p1'"),
        (("plan", "-m", "llama-3-8b", "--input-tokens", "9", "--output-tokens", "0"), "output_tokens: '0': lengths"),
    ],
)
def test_usage_errors(args, words, invoke):
    result = invoke(*args)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert words in result.stderr
    assert "Possible options" not in result.stderr
    assert len(result.stderr.splitlines()) <= 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--model", "lama-3-8b"), "llama-3-8b"),
        (("--gpu", "a100-80"), "a100-80g"),
        (("--engine", "vlm"), "vllm"),
        (("--tp", "3"), "does not divide the 32 attention heads"),
        (("--gpu-count", "3"), "gpu_count: 3 is not tp × pp × dp"),
        (("--num-gpus", "4"), "tp=4 lays one copy of the model over all of them, dp=4 one on each"),
        (("--gpu-memory-utilization", "90"), "90 % is 0.9"),
        (("--dtype", "q4"), "did you mean q4_"),
        (("--context", "100000"), "--allow-context-overflow"),
        (("--gpu-memory-utilization", "1.5"), "gpu_memory_utilization"),
        (("--gpu-memory-utilization", "-1"), "gpu_memory_utilization"),
        (("--dtype", "fp7"), "dtype"),
        (("--kv-dtype", "fp7"), "kv_dtype"),
        (("--gpu-memory-gib", "0"), "gpu_memory_gib"),
    ],
)
def test_values_that_make_no_sense(args, words, invoke):
    result = invoke(*BASE, *args)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert words in result.stderr
    assert len(result.stderr.splitlines()) <= 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", "{broken"),
        ("config.json", '{"model_type": "no-such-model"}'),
        ("config.json", '{"model_type": "llama"}'),
        ("card.yaml", "id: [unclosed"),
        ("card.yaml", "id: mine\nid: twice\n"),
    ],
)
def test_broken_files(name, text, invoke, tmp_path):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    option = "--model" if name.endswith("json") else "--gpu"
    result = invoke(*BASE, option, path)
    assert result.exit_code == 4, result.output
    assert result.stdout == ""
    assert name in result.stderr


def test_output_into_a_folder(invoke, tmp_path):
    result = invoke(*BASE, "-o", tmp_path)
    assert result.exit_code == 2
    assert "is a folder" in result.stderr


def test_escape_sequences_in_names_are_written_out(invoke):
    result = invoke("estimate", "--model", "x\x1b[31m", "--gpu", "a100-80g")
    assert "\x1b" not in result.stderr
    assert result.exit_code == 2


@pytest.mark.parametrize(("text", "tokens"), [("8K", 8192), ("8k", 8000), ("1.1k", 1100), ("8192", 8192)])
def test_token_counts_have_the_endings_of_vllm(text, tokens, invoke):
    result = invoke(*BASE, "--context", text, "--input-tokens", "512", "--json")
    assert json.loads(result.stdout)["scenario"]["context"] == tokens


def test_every_other_word_points_at_an_option_that_exists():
    known = {parameter.name for command in (estimate, plan) for parameter in get_command(command.app).params}
    assert set(PARAMETERS.values()) <= known
