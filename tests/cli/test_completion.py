from __future__ import annotations

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
