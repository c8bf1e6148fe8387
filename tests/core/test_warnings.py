from dataclasses import replace

import pytest

from kvplan.core.dtypes import FORMATS
from kvplan.core.layout import Layout
from kvplan.core.model import DenseFeedForward
from kvplan.core.warnings import deployment_warnings
from tests.core.builders import attention, dense, engine, gpu, layer, model, recurrent


def told(spec=None, *, card=None, layout=None, kv_dtype="bf16", measured=True, served=None):
    return deployment_warnings(
        spec or model(),
        card or gpu(),
        engine=served or engine(),
        layout=layout or Layout(),
        kv_dtype=kv_dtype,
        measured=measured,
    )


def stored(name):
    tensors = tuple(replace(tensor, format=FORMATS[name]) for tensor in dense().tensors)
    return model(layer(feed_forward=DenseFeedForward(tensors=tensors)))


def test_a_plain_deployment_leaves_no_doubt():
    assert told() == ()
    assert told(model(warnings=("odd", "odd"))) == ("odd",)


def test_small_caches_may_cost_quality():
    assert told(kv_dtype="fp8") == (
        "a cache in fp8 can cost quality (long-context recall first); kvplan does not predict quality",
    )
    assert told(kv_dtype="fp16") == told(kv_dtype="fp32") == ()


def test_devices_without_measurements():
    words = "no measurements of engine on hopper devices: efficiencies are inherited and ranges are wider"
    assert told(measured=False) == (words,)
    assert told(measured=False, served=replace(engine(), id="vllm")) == (words.replace("engine", "vllm"),)
    assert told(measured=False, served=replace(engine(), id="ideal")) == ()


@pytest.mark.parametrize(
    ("name", "peaks", "words"),
    [
        ("fp8", {"bf16": 1e14}, "Card has no fp8 matrix units: weights are expanded at its bf16 rate, so only bytes are saved"),
        ("nvfp4", {"bf16": 1e14, "fp8": 2e14},
         "Card has no fp4 matrix units: weights are expanded at its bf16 rate, so only bytes are saved"),
        ("w8a8", {"bf16": 1e14}, "Card has no int8 matrix units: they run at its bf16 rate, so only bytes are saved"),
        ("bf16", {"fp16": 1e14}, "Card has no bf16 matrix units: they run at its fp16 rate"),
    ],
)  # fmt: skip
def test_formats_without_units_save_bytes_only(name, peaks, words):
    assert words in told(stored(name), card=gpu(peak_flops_per_s=peaks))
    assert told(stored(name), card=gpu(peak_flops_per_s={**peaks, FORMATS[name].compute: 1e15, "bf16": 1e14})) == ()


def test_formats_that_are_only_stored_need_no_units():
    assert told(stored("awq"), card=gpu(peak_flops_per_s={"bf16": 1e14})) == ()


def test_links():
    pcie = "tp=4 crosses PCIe on Card: all-reduces are slow there"
    assert told(layout=Layout(tp=8)) == told(layout=Layout(tp=4)) == ()
    assert told(layout=Layout(tp=4), card=gpu(link_domain=2)) == (pcie,)
    assert told(layout=Layout(tp=4), card=gpu(link_bytes_per_s=None)) == (pcie,)
    assert told(layout=Layout(tp=1, pp=4), card=gpu(link_bytes_per_s=None)) == ()
    assert told(layout=Layout(tp=16)) == (
        "tp=16 spans nodes of 8 Card: all-reduces cross the network; prefer pp or dp",
    )
    assert told(layout=Layout(tp=8), card=gpu(link_bytes_per_s=None))[0].startswith("tp=8 crosses PCIe")


def test_encoders_generate_nothing():
    words = "small encodes and generates nothing: TTFT is the time of one pass, other times have no meaning"
    assert told(model(layer(attention(causal=False)))) == (words,)
    for mixers in ((attention(causal=False), attention()), (attention(causal=False), recurrent()), (recurrent(),)):
        assert words not in told(model(*[layer(mixer) for mixer in mixers]))


def test_engines_without_a_backend_and_cards_that_cannot_be_had():
    nvidia_only = replace(engine(), vendors=("NVIDIA",))
    assert told(served=nvidia_only, card=replace(gpu(), vendor="NVIDIA")) == ()
    assert "no backend for AMD devices (NVIDIA only)" in told(served=nvidia_only, card=replace(gpu(), vendor="AMD"))[0]
    assert "hardly shipped" in told(card=replace(gpu(), available=False))[0]


def test_rules_of_another_version_than_the_one_that_was_asked_for_are_told():
    served = replace(engine(), id="maker", version="0.29", asked_version="0.42")
    words = "maker@0.42 lies outside the versions whose rules are known: those of 0.29, the nearest, are used"
    assert words in told(served=served)
    assert not any("rules are known" in line for line in told(served=replace(served, asked_version=None)))
