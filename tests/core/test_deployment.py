"""A model laid out over GPUs: whose formats count, what is assumed, what is refused."""

from dataclasses import replace

import pytest

from kvplan.core.cache import kv_bytes_per_token_model
from kvplan.core.deployment import deploy, moved_to
from kvplan.core.efficiency import IDEAL, Efficiency
from kvplan.core.engine import Settings
from kvplan.core.layout import Layout
from kvplan.core.memory_rules import Budget, Paging
from kvplan.errors import UnknownNameError, UsageError
from tests.core.builders import attention, engine, experts, gpu, layer, model, recurrent

FITTED = Efficiency(step_s=1e-3, request_s=5e-3, layer_s=1e-6, spread_ttft=0.5, spread_tpot=0.25)
RULES = {"budget": Budget.TOTAL, "utilization": 0.9, "paging": Paging.GROUPS}


def deployed(spec=None, *, card=None, served=None, layout=None, kv_dtype=None, rules=None, **settings):
    served = served or replace(engine(**RULES, **(rules or {})), fallback=FITTED)
    return deploy(
        spec or model(),
        card or gpu(),
        served,
        layout=layout or Layout(),
        settings=Settings(**{"max_num_seqs": 64, "max_num_batched_tokens": 512, **settings}),
        kv_dtype=kv_dtype,
    )


def test_who_chooses_the_cache_format():
    plain = deployed()
    assert (plain.kv_dtype, plain.dtype) == ("bf16", "bf16")
    assert plain.assumptions == ("kv_dtype bf16: the engine follows the model's compute dtype",)
    assert deployed(kv_dtype="float16").kv_dtype == "fp16"
    assert deployed(kv_dtype="fp8").assumptions == ()
    own = deployed(model(kv_dtype="fp8", assumptions=("a",)))
    assert own.kv_dtype == "fp8"
    assert own.assumptions == ("a", "kv_dtype fp8: the checkpoint asks for it")
    assert [deployed(model(dtype=name)).kv_dtype for name in ("fp32", "fp16")] == ["fp32", "fp16"]
    with pytest.raises(UnknownNameError, match="kv_dtype"):
        deployed(kv_dtype="fp7")
    with pytest.raises(UsageError, match="tp"):
        deployed(layout=Layout(tp=3))


def test_states_in_the_engines_format():
    hybrid = model(layer(recurrent(state_bits=16)), layer())
    words = "recurrent state in fp32: the default of engine@1"
    wide = deployed(hybrid, rules={"state_dtype": "fp32"})
    assert words in wide.assumptions
    assert wide.figures.state_bytes_per_sequence_model == 4000 + 600
    assert deployed(hybrid).figures.state_bytes_per_sequence_model == 2000 + 600
    for spec in (model(), model(layer(recurrent()))):
        assert words not in deployed(spec, rules={"state_dtype": "fp32"}).assumptions
        assert words not in deployed(spec).assumptions


def test_weights_in_the_formats_that_an_engine_loads():
    """The draft model as well, of which nothing is told."""
    half = deployed(model(dtype="fp32"), rules={"narrow_dtype": "bf16"}, draft_model=model(dtype="fp32", id="draft"))
    assert (half.model.dtype, half.settings.draft_model.dtype, half.dtype) == ("bf16", "bf16", "bf16")
    words = "weights in bf16: engine@1 loads fp32 checkpoints so unless dtype is fp32"
    assert half.assumptions.count(words) == 1
    assert words not in deployed(rules={"narrow_dtype": "bf16"}).assumptions
    read = deployed(rules={"file_types": {"bf16": "q8_0"}})
    assert read.dtype == "q8_0"
    assert "weights as the GGUF file type q8_0: what engine@1 reads" in read.assumptions
    for other in ({}, {"file_types": {"fp8": "q8_0"}}):
        assert deployed(rules=other).dtype == "bf16"
        assert not any("GGUF" in text for text in deployed(rules=other).assumptions)


def test_drafts_come_from_somewhere():
    with pytest.raises(
        UsageError, match="speculative_tokens: small declares no multi-token-prediction layers"
    ) as caught:
        deployed(speculative_tokens=1)
    assert "draft_model" in str(caught.value.hint)
    words = "speculative decoding is counted in memory only: times are those without it"
    assert words in deployed(model(mtp_layers=(layer(),)), speculative_tokens=1).assumptions
    assert words in deployed(draft_model=model(id="draft"), speculative_tokens=1).assumptions
    assert words not in deployed(model(mtp_layers=(layer(),))).assumptions
    with pytest.raises(UsageError, match="attention heads of draft"):
        deployed(draft_model=model(layer(attention(heads=6)), id="draft"), layout=Layout(tp=4))


def test_what_a_deployment_is():
    spec = model(layer(), layer(recurrent()), layer(attention(), experts()))
    found = deployed(spec, kv_dtype="fp8")
    figures = found.figures
    assert (figures.id, figures.architecture, figures.layers, figures.max_context) == (
        "small", "SmallForCausalLM", 3, 4096,
    )  # fmt: skip
    assert figures.kv_bytes_per_token_model == kv_bytes_per_token_model(spec, "fp8") == 128
    assert figures.state_bytes_per_sequence_model == 4600
    assert figures.params_total - figures.params_active == 6 * 49_152
    assert (found.machine.efficiency, found.ideal.efficiency, found.measured) == (FITTED, IDEAL, False)
    assert any("no measurements" in text for text in found.warnings)


def test_moving_to_another_card_is_deploying_there():
    other = gpu(id="other", name="Other", family="apple", memory_bandwidth_bytes_per_s=1e12)
    assert moved_to(deployed(), other) == deployed(card=other)
    measured = replace(engine(), efficiencies={"apple": replace(FITTED, measured=True)})
    assert moved_to(deployed(served=measured), other) == deployed(served=measured, card=other)


def test_context_parallelism_divides_the_copies_of_the_cache():
    # 2 KV heads on 8 ranks are 4 copies each
    words = "context parallelism over 4 ranks divides the cache; times are those without it"
    assert words in deployed(layout=Layout(tp=8), dcp=4).assumptions
    assert not any("context parallelism" in text for text in deployed(layout=Layout(tp=8)).assumptions)
    assert "over 2 ranks" in deployed(layout=Layout(tp=8), dcp=2).assumptions[-2]
    for tp, dcp, copies in ((8, 3, 4), (8, 8, 4), (2, 2, 1)):
        told = f"dcp: {dcp} does not divide {copies}, the copies of the cache that tp={tp} keeps"
        with pytest.raises(UsageError, match=told):
            deployed(layout=Layout(tp=tp), dcp=dcp)
    with pytest.raises(UsageError, match="does not divide 1,"):
        deployed(model(layer(recurrent())), layout=Layout(tp=2), dcp=2)
    mixed = model(layer(), layer(attention(kv_heads=4)), layer(recurrent(num_heads=8)))
    assert deployed(mixed, layout=Layout(tp=8), dcp=2).settings.dcp == 2
    with pytest.raises(UsageError, match="does not divide 2,"):
        deployed(mixed, layout=Layout(tp=8), dcp=4)
