"""What an engine loads beside the parameters, on paper."""

import pytest

from kvplan.core.engine import Settings
from kvplan.core.layout import Layout
from kvplan.core.loaded_weights import expert_padding, layers_on_cpu, loaded_weights, lora_slots, weights_extra
from kvplan.core.memory_rules import Budget, MemoryRules
from kvplan.core.model import LayerGroup
from kvplan.core.precision import apply_dtype
from kvplan.core.reservations import Amount
from kvplan.core.tensors import norm
from kvplan.core.units import GIB
from kvplan.specs.engines import load_engine
from kvplan.specs.hardware import load_gpu
from kvplan.specs.models import load_model
from tests.core.builders import attention, experts, gpu, latent, layer, model, recurrent
from tests.core.test_reservations import NOTHING, TOWER

#: Two embeddings of 64,000 elements, four layers of 69,760 and a norm of 64, at 2 bytes each.
WEIGHTS = 2 * (2 * 64_000 + 4 * 69_760 + 64)
UP_FRONT = MemoryRules(budget=Budget.UP_FRONT)


#: Four layers of eight experts, 96 wide, of three matrices each; stored at 17/32 byte per element.
MXFP4 = apply_dtype(model(*[layer(attention(), experts(intermediate=96))] * 4), "mxfp4")
TILES = MemoryRules(expert_width_multiples={"default": 128, "hopper": 64}, expert_hidden_multiples={"default": 256})


def loaded(spec=None, rules=None, *, layout=None, card=None, **settings):
    return loaded_weights(
        rules or MemoryRules(),
        spec or model(),
        layout=layout or Layout(),
        settings=Settings(**settings),
        gpu=card or gpu(),
    )


def test_the_parameters_of_the_fullest_rank():
    assert loaded() == Amount(WEIGHTS, "parameters of the fullest rank (tp1 × pp1) 0.00 GiB")
    sparse = loaded(model(layer(attention(), experts())), layout=Layout(tp=2, dp=2, ep=4))
    assert sparse.formula.startswith("parameters of the fullest rank (tp2 × pp1 × ep4)")


@pytest.mark.parametrize(
    ("layout", "family", "padded", "width", "share"),
    [
        (Layout(), "hopper", 128, 96, 1),
        (Layout(tp=2), "hopper", 64, 48, 1),
        (Layout(tp=2), "ampere", 128, 48, 1),
        (Layout(tp=2, dp=2, ep=4), "hopper", 128, 96, 4),
        (Layout(pp=2), "hopper", 128, 96, 2),
    ],
)
def test_experts_of_mxfp4_are_padded_to_tiles(layout, family, padded, width, share):
    """Width of a rank up to 64 or 128, hidden 64 up to 256, 4 × 8 × 3 matrices; expert ranks hold whole experts."""
    excess = 96 * (padded * 256 - width * 64) * 17 // 32 // share
    assert expert_padding(TILES, MXFP4, layout=layout, family=family).bytes == excess
    alone, with_tiles = (loaded(MXFP4, rules, layout=layout, card=gpu(family=family)) for rules in (None, TILES))
    assert with_tiles.bytes == alone.bytes + excess
    assert "+ padding of MXFP4 experts" in with_tiles.formula


def test_nothing_else_is_padded():
    assert loaded(MXFP4).formula == loaded().formula
    for dtype in ("nvfp4", "bf16"):
        assert loaded(apply_dtype(MXFP4, dtype), TILES) == loaded(apply_dtype(MXFP4, dtype))


@pytest.mark.parametrize(
    ("name", "card", "version", "gib"),
    [
        ("gpt-oss-120b", "h100-sxm", "0.10.1", 65.9651),  # vLLM issue 23278
        ("gpt-oss-120b", "h100-sxm", "0.14.1", 64.38),  # vLLM issue 33155
        ("gpt-oss-20b", "a100-80g-sxm", "0.19.0", 13.72),  # https://myoceane.fr/index.php/ai-vllm-a100-gemma-4/
    ],
)
def test_padded_experts_weigh_what_logs_say(name, card, version, gib):
    found = loaded(load_model(name), load_engine("vllm", version=version).memory, card=load_gpu(card))
    assert found.bytes / GIB == pytest.approx(gib, rel=0.005)


def test_embeddings_with_a_head_of_its_own_stay_on_the_cpu():
    """llama.cpp looks 64,000 elements up on the CPU, unless the head multiplies with them or both share one memory."""
    found = loaded(rules=UP_FRONT)
    assert found.bytes == WEIGHTS - 128_000
    assert found.formula.endswith("0.00 GiB − embedding table on the CPU 0.00 GiB")
    assert loaded(model(tied=True), UP_FRONT) == loaded(model(tied=True))
    assert loaded(rules=UP_FRONT, card=gpu(unified_memory=True)) == loaded()


def test_a_stage_without_embeddings_saves_nothing_when_they_stay_on_the_cpu():
    """Two layers and the head on the last stage; a first stage of three layers still has one layer more than the last."""
    last = 2 * (2 * 69_760 + 64_000 + 64)
    assert loaded(rules=UP_FRONT, layout=Layout(pp=2)).bytes == loaded(layout=Layout(pp=2)).bytes == last
    uneven = [loaded(model(*[layer()] * 5), rules, layout=Layout(pp=2)).bytes for rules in (None, UP_FRONT)]
    assert uneven == [2 * (3 * 69_760 + 64_000), 2 * (3 * 69_760)]


def test_layers_left_on_the_cpu_weigh_there():
    found = loaded(rules=UP_FRONT, n_gpu_layers=3)
    assert found.bytes == (WEIGHTS - 128_000) * 3 // 4
    assert found.formula.startswith("(parameters")
    assert found.formula.endswith(") × 3 of 4 layers on the GPU")
    assert loaded(rules=UP_FRONT, n_gpu_layers=99).bytes == WEIGHTS - 128_000
    assert loaded(rules=UP_FRONT, n_gpu_layers=3, card=gpu(unified_memory=True)).bytes == WEIGHTS
    assert loaded(n_gpu_layers=3).bytes == WEIGHTS  # other engines have no such choice


def test_how_many_layers_stay_on_the_cpu():
    def left(asked, **card):
        return layers_on_cpu(model(), settings=Settings(n_gpu_layers=asked), gpu=gpu(**card))

    assert [left(asked) for asked in (None, 0, 1, 4, 9)] == [0, 4, 3, 0, 0]
    assert left(1, unified_memory=True) == 0


def test_adapters_and_what_drafts_weigh_too():
    slots = loaded(max_loras=2, max_lora_rank=8)
    assert slots.bytes == WEIGHTS + 2 * 8 * 4 * 1536 * 2
    assert slots.formula.endswith("0.00 GiB + 2 LoRA slots of rank 8 0.00 GiB")
    drafting = model(mtp_layers=(layer(),), mtp_tensors=norm("enorm", 64))
    assert loaded(drafting) == loaded() == loaded(speculative_tokens=1)
    found = loaded(drafting, speculative_tokens=1)
    assert found.bytes == WEIGHTS + 2 * 69_760 + 128
    assert found.formula.endswith("+ MTP layers 0.00 GiB")
    halves = [loaded(drafting, layout=Layout(tp=2), speculative_tokens=n).bytes for n in (0, 1)]
    assert halves[1] - halves[0] == 69_888 + 128
    draft = loaded(draft_model=model(layer(), id="draft"))
    assert draft.bytes == WEIGHTS + 2 * (69_760 + 128_064)
    assert draft.formula.endswith("+ draft model draft 0.00 GiB")
    assert loaded(draft_model=model(layer()), layout=Layout(tp=2)).bytes == 407_680 + 69_888 + 128_000 + 128


def test_the_rotary_table_and_a_copy_of_towers_come_on_top_of_the_weights():
    rules = MemoryRules(rope_table_elements=128, tower_copy_bytes=4000)
    assert weights_extra(MemoryRules(), model()) == NOTHING
    assert weights_extra(rules, model()) == Amount(4096 * 16 * 2, "rotary table 4096 × 16 × 2 B")
    assert weights_extra(rules, model(dtype="fp32")).bytes == 4096 * 16 * 4
    assert weights_extra(rules, model(layer(attention(head_dim=256)))).bytes == 4096 * 128 * 2
    assert weights_extra(rules, model(layer(latent()))).bytes == 4096 * 64 * 2
    assert weights_extra(rules, model(layer(recurrent()))) == NOTHING
    assert weights_extra(rules, model(max_context=None)) == NOTHING
    with_tower = weights_extra(rules, model(towers=(TOWER,)))
    assert with_tower == Amount(4096 * 16 * 2 + 4000, "rotary table 4096 × 16 × 2 B + towers 0.00 GiB")
    whole = weights_extra(MemoryRules(tower_copy_bytes=10**9), model(towers=(TOWER, TOWER)))
    assert whole == Amount(2 * 3000 * 2, "towers 0.00 GiB")


def test_lora_slots():
    # One layer: q (64 + 128) + k, v 2 · (64 + 32) + o (128 + 64) + gate, up 2 · (64 + 256) + down (256 + 64) = 1536
    slots = lora_slots(model(), Layout(), Settings(max_loras=2, max_lora_rank=8))
    assert slots == Amount(2 * 8 * 4 * 1536 * 2, "2 LoRA slots of rank 8 0.00 GiB")
    assert lora_slots(model(), Layout(), Settings()) == NOTHING
    # Rows divide over two ranks, columns don't.
    half = 64 * 5 + 128 + 256 + (128 + 32 + 32 + 64 + 256 + 256 + 64) // 2
    assert lora_slots(model(), Layout(tp=2), Settings(max_loras=1, max_lora_rank=1)).bytes == 4 * half * 2
    assert lora_slots(model(), Layout(pp=2), Settings(max_loras=1, max_lora_rank=1)).bytes == 2 * 1536 * 2
    # Routed experts and the router get none.
    sparse = lora_slots(model(layer(attention(), experts())), Layout(), Settings(max_loras=1, max_lora_rank=1))
    assert sparse.bytes == 2 * (192 + 2 * 96 + 192)
    assert lora_slots(model(dtype="fp32"), Layout(), Settings(max_loras=1, max_lora_rank=1)).bytes == 4 * 4 * 1536


def test_encoder_layers_get_no_lora():
    with_encoder = model(encoder_groups=(LayerGroup(count=9, layer=layer()),))
    asked = Settings(max_loras=1, max_lora_rank=1)
    assert lora_slots(with_encoder, Layout(), asked) == lora_slots(model(), Layout(), asked)
