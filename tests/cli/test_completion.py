from __future__ import annotations

import pytest

from kvplan.specs.registry import ids


def complete(kvplan, words):
    env = {
        "_KVPLAN_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = kvplan(env=env)
    assert done.stderr == ""
    return done.stdout.split()


def test_names_are_completed_from_file_stems(kvplan):
    assert "a100-80g-sxm" in complete(kvplan, "kvplan estimate --gpu a100")
    assert set(complete(kvplan, "kvplan gpus show h100")) == {name for name in ids("gpu") if name.startswith("h100")}


def test_commands_are_completed(kvplan):
    assert complete(kvplan, "kvplan est") == ["estimate"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("kvplan needs --engine ten", ["tensorrt-llm"]),
        ("kvplan compare --dtype nv", ["nvfp4"]),
        ("kvplan explain-log x --kv-cache-dtype f", ["fp32", "fp16", "fp8"]),
        ("kvplan sweep --draft-model llama-3.2-1b", ["llama-3.2-1b"]),
        ("kvplan plan --gpu l4,a100-80g-s", ["l4,a100-80g-sxm"]),
        ("kvplan plan --dtype bf16,aw", ["bf16,awq"]),
        ('kvplan needs -m "" --engine ten', ["tensorrt-llm"]),
    ],
)
def test_formats_engines_and_lists_are_completed(kvplan, words, expected):
    assert complete(kvplan, words) == expected
