from dataclasses import replace

import pytest

from kvplan.core.engine import Settings
from kvplan.core.layout import Layout
from kvplan.core.ledger import Question, account
from kvplan.core.reverse import gpus_for, holds, max_model_len_for, utilization_for
from kvplan.specs.engines import load_engine
from kvplan.specs.hardware import load_gpu
from kvplan.specs.models import load_model


@pytest.fixture
def question():
    return Question(
        model=load_model("llama-3.1-8b"),
        gpu=load_gpu("a100-80g-sxm"),
        engine=load_engine("vllm@0.19"),
        layout=Layout(),
        settings=Settings(),
        kv_dtype="bf16",
        context=8192,
        concurrency=16,
    )


def test_utilization_is_the_smallest_that_holds(question):
    fraction = utilization_for(question)
    assert fraction is not None

    def at(value):
        asked = replace(question, settings=Settings(gpu_memory_utilization=value))
        return holds(account(asked), asked)

    assert at(fraction)
    assert not at(fraction - 0.01)


def test_no_utilization_holds_too_much(question):
    assert utilization_for(replace(question, concurrency=5000)) is None


def test_gpus_is_the_smallest_tp_that_holds(question):
    many = replace(question, concurrency=120, settings=Settings(max_num_seqs=256))
    tp = gpus_for(many)
    assert tp == 2
    assert gpus_for(replace(many, concurrency=256, context=131072)) is None


def test_gpus_skips_layouts_that_the_model_cannot_have(question):
    seven = replace(question, model=load_model("qwen2.5-7b"))  # 28 heads
    assert gpus_for(seven, choices=(8, 7)) == 7


def test_max_model_len_is_exact(question):
    longest = max_model_len_for(question)
    assert holds(account(replace(question, context=longest)), replace(question, context=longest))
    assert not account(question).pool.holds(longest + 1, sequences=16)


def test_dp_shares_the_sequences(question):
    assert replace(question, layout=Layout(dp=4)).per_replica == 4
    assert replace(question, layout=Layout(dp=3)).per_replica == 6
