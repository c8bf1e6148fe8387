from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.core.efficiency import IDEAL
from kvplan.core.engine import Engine
from kvplan.core.hardware import Gpu
from kvplan.core.model import Layer, MixtureOfExperts, Recurrent, group_layers
from kvplan.core.tensors import TensorClass, linear
from kvplan.report.as_plain import render_plain
from kvplan.report.engines import EngineListReport, EngineReport
from kvplan.report.render import Form, render
from kvplan.report.specs import GpuListReport, GpuReport, ModelListReport, ModelReport


@pytest.fixture
def gpu():
    return Gpu(
        id="a100-80g-sxm",
        name="A100",
        vendor="NVIDIA",
        architecture="Ampere",
        family="ampere-dc",
        compute_capability=(8, 0),
        memory_bytes=80 * 2**30,
        framework_memory_bytes=79 * 2**30,
        memory_bandwidth_bytes_per_s=2.039e12,
        peak_flops_per_s={"bf16": 312e12, "fp32": 19.5e12},
        link_name="NVLink",
        link_bytes_per_s=300e9,
        link_domain=8,
        notes=("a note",),
    )


def test_a_model_shows_its_summary_and_layers(model):
    text = render_plain(ModelReport(model=model).blocks())
    for words in (
        "8,030,261,248",
        "16,060,522,496 bytes",
        "65,536 elements",
        "8,192 tokens",
        "0–31",
        "dense, widest 14,336",
    ):
        assert words in text


def test_experts_and_fixed_states_are_shown(model):
    experts = TensorClass.EXPERTS
    moe = MixtureOfExperts(
        num_experts=8,
        top_k=2,
        tensors=linear("experts.up", experts, out_features=8, in_features=8, copies=8),
    )
    state = Recurrent(kind="mamba2", state_elements=1000, conv_elements=24, num_heads=2)
    groups, order = group_layers([Layer(mixers=(state,), feed_forward=moe)])
    mixed = replace(model, groups=groups, layer_order=order, max_context=None, warnings=("a doubt",))
    text = render_plain(ModelReport(model=mixed).blocks())
    for words in ("active per token", "2 of 8 experts", "1,024 fixed", "mamba2, fixed state", "not stated", "a doubt"):
        assert words in text


def test_a_gpu_shows_its_rates(gpu):
    text = render_plain(GpuReport(gpu=gpu).blocks())
    for words in ("2,039 GB/s", "312", "300.0 GB/s per direction, 8 devices", "compute capability 8.0", "a note"):
        assert words in text


def test_an_engine_shows_its_efficiencies():
    engine = Engine(
        id="x",
        version="1",
        memory={"rule": "fraction"},
        efficiencies={"hopper": replace(IDEAL, measured=True)},
        fallback=IDEAL,
    )
    text = render_plain(EngineReport(engine=engine).blocks())
    for words in ("x@1", "rule", "fraction", "hopper", "(any other)", "gemm_bandwidth"):
        assert words in text
    assert EngineListReport(engines=(engine,), versions={}).data()[0]["name"] == "x@1"


@pytest.mark.parametrize("form", list(Form))
def test_lists_take_every_form(form, model, gpu):
    for report in (ModelListReport(models=(model,)), GpuListReport(gpus=(gpu,)), ModelReport(model=model)):
        assert report.data()
        assert render(report, form).count("\n") >= 2
