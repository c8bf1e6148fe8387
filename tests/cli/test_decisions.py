"""compare, sweep and plan as a user types them: forms, exit codes, scenario files, pictures, deployments."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import sys

import pytest
import yaml

BASE = ("--model", "llama-3-8b", "--gpu", "a100-80g")
LOAD = ("--rate", 5, "--input-tokens", 1000, "--output-tokens", 200)


def test_compare_in_every_form(invoke):
    args = ("compare", *BASE, "--vary", "kv-dtype=bf16,fp8")
    table = invoke(*args)
    assert table.exit_code == 0
    assert "Why kv-dtype=fp8 differs" in table.stdout
    assert "KV cache per token ÷ 2.00: bits per element ÷ 2.00" in table.stdout
    document = json.loads(invoke(*args, "--json").stdout)
    assert document["schema"] == "kvplan.compare/1"
    assert [one["status"] for one in document["scenarios"]] == ["ok", "ok"]
    assert document["scenarios"][1]["change"]["kv_bytes_per_token"] == -0.5
    rows = list(csv.DictReader(io.StringIO(invoke(*args, "--format", "csv").stdout)))
    assert [row["kv_dtype"] for row in rows] == ["bf16", "fp8"]
    assert "| kv-dtype=fp8 |" in invoke(*args, "--format", "markdown").stdout


def test_compare_answers_as_long_as_one_scenario_fits(invoke):
    some = invoke("compare", "-m", "llama-3.1-70b", "--scenario", "small:gpu=l4", "--scenario", "large:gpu=mi300x")
    assert some.exit_code == 0
    assert "small: does not fit" in some.stdout
    none = invoke("compare", "-m", "llama-3.1-70b", "--vary", "gpu=l4,t4")
    assert none.exit_code == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("compare", *BASE), "nothing to compare"),
        (("compare", "-m", "llama-3-8b", "-g", "l4,l40s"), "--vary gpu=l4,l40s"),
        (("compare", *BASE, "--tp", "1,2"), "--vary tp=1,2"),
        (("compare", *BASE, "--vary", "dtype=bf16,fp7"), "fp7"),
        (("sweep", *BASE, "--sweep", "users=1,2"), "concurrency"),
        (("sweep", *BASE, "--sweep", "concurrency=1-64"), "concurrency=1:64:log2"),
        (("sweep", *BASE, "--sweep", "concurrency=1..64"), "concurrency=1:64:log2"),
        (("sweep", *BASE, "--dtype", "bf16,fp8", "--sweep", "tp=1,2"), "--sweep dtype=bf16,fp8"),
        (("compare", *BASE, "--vary", "kv-dtyp=fp8"), "kv-dtype"),
        (("compare", *BASE, "--vary", "tp"), "key=value"),
        (("compare", *BASE, "--scenario", "tp=2"), "name:key=value"),
        (("sweep", *BASE), "concurrency=1:512:log2"),
        (("sweep", *BASE, "--sweep", "concurrency=4:1"), "low:high"),
        (("sweep", "--sweep", "concurrency=1,2"), "model"),
        (("plan", *BASE), "--input-tokens"),
        (("plan", *BASE, *LOAD, "--users", 5), "--rate"),
        (("plan", *LOAD), "--model"),
        (("plan", *BASE, *LOAD, "--price", "a100-80g"), "price"),
        (("plan", *BASE, *LOAD, "--slo-ttft-ms", "fast"), "slo_ttft_ms"),
        (("plan", *BASE, *LOAD, "--deploy", "x.txt"), "serve.sh"),
        (("plan", *BASE, *LOAD, "--plot", "x.txt"), ".png"),
        (("sweep", *BASE, "--sweep", "gpu=l4,l40s", "--plot", "x.png"), "axis"),
    ],
)
def test_mistakes_cost_two_and_name_the_way_out(invoke, args, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke(*args)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) <= 3


def test_sweep_in_every_form(invoke):
    args = ("sweep", *BASE, "--sweep", "concurrency=1:8:log2", "--sweep", "tp=1,2")
    assert "8 scenarios, 8 fit" in invoke(*args).stdout
    document = json.loads(invoke(*args, "--json").stdout)
    assert document["schema"] == "kvplan.sweep/1"
    assert len(document["rows"]) == 8
    assert document["units"]["ttft_ms"] == "ms"
    assert not any(key.endswith("_low") for key in document["rows"][0])
    ranged = json.loads(invoke(*args, "--json", "--ranges").stdout)["rows"][0]
    assert ranged["tpot_ms_floor"] <= ranged["tpot_ms_low"] <= ranged["tpot_ms"] <= ranged["tpot_ms_high"]
    assert len(invoke(*args, "--format", "csv").stdout.splitlines()) == 9


def test_a_long_sweep_says_what_it_leaves_out(invoke):
    done = invoke("sweep", *BASE, "--sweep", "concurrency=1:100:1")
    assert "36 more rows" in done.stdout


def test_sparklines_show_how_figures_bend(invoke):
    assert "▁" in invoke("sweep", *BASE, "--sweep", "concurrency=1:64:log2").stdout


@pytest.mark.parametrize(
    ("axis", "options", "words"),
    [
        ("concurrency=1:256:log2", ("--slo-tpot-ms", 20), "TPOT within 20.0 ms: up to concurrency "),
        ("tp=1,2,4", ("--slo-tpot-ms", 9), "TPOT within 9.00 ms: from tp "),
        ("concurrency=1,2", ("--slo-ttft-ms", 0.1), "TTFT within 0.100 ms: nowhere"),
        ("concurrency=1,2", ("--slo-ttft-ms", 1e6), "TTFT within 1,000 s: wherever it fits"),
    ],
)
def test_a_sweep_says_how_far_its_targets_are_met(invoke, axis, options, words):
    done = invoke("sweep", *BASE, "--sweep", axis, *options)
    assert words in done.stdout
    rows = [line for line in done.stdout.splitlines() if re.match(r" +[\d,]+  ", line)]
    limit = options[1]
    for row in rows:
        column = row.split(" ms")[options[0] == "--slo-tpot-ms"].split()[-1]
        assert ("misses" in row) == (float(column.replace(",", "")) > limit), row


def test_bands_are_refused_where_there_is_no_room(invoke):
    done = invoke("sweep", *BASE, "--sweep", "concurrency=1,2", "--ranges")
    assert done.exit_code == 2
    assert "--format csv" in done.stderr


def test_plan_in_every_form(invoke):
    args = ("plan", *BASE, *LOAD, "--slo-tpot-ms", 60)
    table = invoke(*args).stdout
    assert "FEWEST GPUS: 1 × a100-80g-sxm" in table
    assert "vllm serve" in table
    document = json.loads(invoke(*args, "--json").stdout)
    assert document["schema"] == "kvplan.plan/1"
    assert document["cheapest"]["gpu_count"] == 1
    assert document["targets"] == [{"time": "tpot_ms", "at": "p95", "limit_ms": 60.0}]
    rows = list(csv.DictReader(io.StringIO(invoke(*args, "--format", "csv").stdout)))
    assert rows[0]["times.tpot_ms.p95"]


def test_plan_without_an_answer_is_told_apart(invoke):
    missed = invoke("plan", *BASE, *LOAD, "--slo-tpot-ms", 0.5)
    assert missed.exit_code == 3
    assert "NOTHING SERVES THIS LOAD" in missed.stdout
    assert "layouts fit, miss the TPOT target; nearest tp 8: " in missed.stdout
    heavy = invoke("plan", "-m", "llama-3.1-70b", "-g", "t4", "--tp", 1, *LOAD)
    assert heavy.exit_code == 3
    assert "all 3 layouts do not fit; nearest pp 4: " in heavy.stdout


def test_prices_from_a_file_and_the_command_line(invoke, tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text("l40s: 1.0\na100-80g: 99\n", encoding="utf-8")
    found = json.loads(
        invoke("plan", "-m", "llama-3-8b", *LOAD, "--prices", path, "--price", "a100-80g=0.5", "--json").stdout
    )
    assert found["cheapest"]["gpu"] == "a100-80g-sxm"
    assert found["cheapest"]["cost"]["per_hour"] == 0.5


def test_scenario_files_carry_every_command(invoke, tmp_path):
    path, again = tmp_path / "asked.yaml", tmp_path / "again.yaml"
    asked = {"model": "llama-3-8b", "gpu": "a100-80g", "concurrency": 16, "kv-heads": 32}
    sections = {
        "scenarios": [{"name": "gqa", "kv-heads": 8}, {"name": "fp8", "kv-dtype": "fp8"}],
        "sweep": {"concurrency": "1:4:log2"},
        "plan": {"rate": 2, "input-tokens": 500, "output-tokens": 100},
    }
    path.write_text(yaml.safe_dump({**asked, **sections}), encoding="utf-8")
    estimate = json.loads(invoke("estimate", "--scenario-file", path, "--json").stdout)
    assert estimate["memory"]["kv_bytes_per_token"] == 524288
    assert estimate["scenario"]["concurrency"] == 16
    over = json.loads(invoke("estimate", "--scenario-file", path, "-c", 4, "--json").stdout)
    assert over["scenario"]["concurrency"] == 4
    for command in ("compare", "sweep", "plan"):
        args = (command, "--scenario-file", path, "--json")
        first = invoke(*args, "--save-scenario", again)
        assert first.exit_code == 0, first.stderr
        assert invoke(command, "--scenario-file", again, "--json").stdout == first.stdout


def test_a_plan_takes_lengths_layout_and_limits_of_a_scenario(invoke, tmp_path):
    path = tmp_path / "chat.yaml"
    path.write_text(
        "model: llama-3.1-8b\ngpu: l40s\ndtype: fp8\ntp: 2\ninput-tokens: 2000\noutput-tokens: 300\nmax-num-seqs: 8\n",
        encoding="utf-8",
    )
    found = json.loads(invoke("plan", "--scenario-file", path, "--rate", 1, "--json").stdout)
    assert (found["demand"]["input_tokens"], found["demand"]["output_tokens"]) == (2000, 300)
    assert {(one["tp"], one["dtype"], one["max_num_seqs"]) for one in found["front"]} == {(2, "fp8", 8)}


def test_a_scenario_file_with_an_unknown_field(invoke, tmp_path):
    path = tmp_path / "asked.yaml"
    path.write_text("model: llama-3-8b\ngpus: l4\n", encoding="utf-8")
    done = invoke("estimate", "--scenario-file", path)
    assert done.exit_code == 2
    assert "gpu" in done.stderr
    path.write_text("- 1\n", encoding="utf-8")
    assert invoke("estimate", "--scenario-file", path).exit_code == 4


@pytest.mark.parametrize(
    "field",
    [
        "rate: x",
        "users: {a: 1}",
        "think-s: x",
        "max-gpus: 1.5",
        "spare-replicas: a",
        "max-busy: q",
        "slo-at: 5",
        "prefix-hit-rate: x",
        "shared-prefix-tokens: x",
        "max-num-seqs: x",
        "context: [8k]",
        "trace: 5",
        "price: 3",
        "gpu-memory-utilization: x",
        "input-tokens: [1, 2]",
        "tp: x",
        "slo-ttft-ms: [1]",
    ],
)
def test_plans_in_a_scenario_file_with_values_of_another_kind(invoke, tmp_path, field):
    path = tmp_path / "asked.yaml"
    path.write_text(f"model: llama-3-8b\ngpu: l40s\nplan:\n  output-tokens: 100\n  {field}\n", encoding="utf-8")
    done = invoke("plan", "--scenario-file", path, *(() if "input" in field else ("--input-tokens", 100)))
    assert done.exit_code == 2, done.stdout
    assert field.split(":")[0].replace("-", "_") in done.stderr.replace("-", "_") or "not a length" in done.stderr


def test_deployments_are_written_whole_and_agree_with_the_estimate(invoke, tmp_path):
    folder = tmp_path / "deploy"
    args = ("estimate", *BASE, "--context", 8192, "--kv-dtype", "fp8", "--dtype", "fp8", "--deploy", folder)
    done = invoke(*args)
    assert done.exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["compose.yaml", "kubernetes.yaml", "serve.sh"]
    assert all(str(path) in done.stderr for path in folder.iterdir())
    service = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))["services"]["llm"]
    words = service["command"]
    assert words[words.index("--max-model-len") + 1] == "8192"
    assert words[words.index("--kv-cache-dtype") + 1] == "fp8"
    assert words[words.index("--quantization") + 1] == "fp8"
    one = tmp_path / "k8s.yaml"
    assert invoke("plan", *BASE, "--rate", 60, *LOAD[2:], "--spare-replicas", 1, "--deploy", one).exit_code == 0
    manifest, _ = yaml.safe_load_all(one.read_text(encoding="utf-8"))
    planned = json.loads(invoke("plan", *BASE, "--rate", 60, *LOAD[2:], "--spare-replicas", 1, "--json").stdout)
    assert manifest["spec"]["replicas"] == planned["cheapest"]["replicas"] + 1
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}


def test_only_the_serve_command(invoke):
    done = invoke("estimate", *BASE, "--serve-command")
    assert done.exit_code == 0
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert lines[0].startswith("vllm serve ")


def test_plan_without_a_load_answers_the_most(invoke):
    args = ("plan", *BASE, "--input-tokens", "2k", "--output-tokens", 300, "--slo-tpot-ms", 30, "--max-gpus", 2)
    most = json.loads(invoke(*args, "--json").stdout)
    assert most["cheapest"]["gpu_count"] <= 2
    rate = most["demand"]["rate_per_s"]
    assert invoke(*args, "--rate", rate * 0.999).exit_code == 0
    assert invoke(*args, "--rate", rate * 1.001).exit_code == 3
    users = json.loads(invoke(*args, "--think-s", 10, "--json").stdout)["demand"]["users"]
    assert invoke(*args, "--think-s", 10, "--users", users).exit_code == 0
    assert invoke(*args, "--think-s", 10, "--users", users + 1).exit_code == 3


def test_plan_knows_where_engines_run(invoke):
    done = invoke("plan", "-m", "llama-3-8b", "-g", "mi300x,h100-sxm", "-e", "tensorrt-llm", *LOAD)
    assert done.exit_code == 0
    assert "FEWEST GPUS: 1 × h100-80g-sxm" in done.stdout
    assert "mi300x, tensorrt-llm@1.0, as published: the engine does not run there" in done.stdout
    assert "bf16, tensorrt-llm" not in done.stdout  # one engine needs no name
    both = invoke("plan", "-m", "llama-3-8b", "-g", "h100-sxm", "-e", "tensorrt-llm,vllm", *LOAD, "--slo-tpot-ms", 6)
    assert " bf16, tensorrt-llm@" in both.stdout
    assert "no backend for AMD" in invoke("estimate", "-m", "llama-3-8b", "-g", "mi300x", "-e", "tensorrt-llm").stdout


def test_lengths_take_the_endings_of_engines(invoke):
    found = invoke("sweep", *BASE, "--sweep", "context=8k,8K", "--input-tokens", 1000, "--output-tokens", 10, "--json")
    assert json.loads(found.stdout)["axes"]["context"] == [8000, 8192]
    row = json.loads(found.stdout)["rows"][0]
    assert isinstance(row["gpu_count"], int)
    assert isinstance(row["weights_bytes"], int)


@pytest.mark.parametrize("args", [("sweep", *BASE, "--sweep", "tp=1,2"), ("plan", *BASE, *LOAD), ("estimate", *BASE)])
def test_without_numpy_the_extra_is_named(invoke, args, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "numpy", None)
    done = invoke(*args, *(("--plot", tmp_path / "x.png") if args[0] == "estimate" else ()))
    assert done.exit_code == 2
    assert "kvplan[" in done.stderr


def test_pictures_of_every_command(invoke, tmp_path):
    suffixes = itertools.cycle(("png", "svg"))
    for name, args in {
        "estimate": ("estimate", *BASE, "-c", 16),
        "compare": ("compare", *BASE, "--vary", "tp=1,2"),
        "sweep": ("sweep", *BASE, "--sweep", "concurrency=1:64:log2", "--slo-ttft-ms", 500),
        "plan": ("plan", *BASE, *LOAD),
    }.items():
        path = tmp_path / f"{name}.{next(suffixes)}"
        done = invoke(*args, "--plot", path)
        assert done.exit_code == 0, done.stderr
        assert path.stat().st_size > 5000
    assert len(list(tmp_path.iterdir())) == 4  # nothing temporary is left


def test_plain_output_of_a_pipe_is_as_wide_as_it_needs(kvplan):
    done = kvplan("compare", *BASE, "--vary", "kv-dtype=bf16,fp8", "--vary", "dtype=bf16,fp8", env={"COLUMNS": "40"})
    assert done.returncode == 0, done.stderr
    assert "kv-dtype=bf16, dtype=fp8" in done.stdout
