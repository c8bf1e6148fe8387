"""What an engine loads beside the parameters, on paper."""

from kvplan.core.engine import Settings
from kvplan.core.layout import Layout
from kvplan.core.loaded_weights import lora_slots, weights_extra
from kvplan.core.memory_rules import MemoryRules
from kvplan.core.model import LayerGroup
from kvplan.core.reservations import Amount
from tests.core.builders import attention, experts, latent, layer, model, recurrent
from tests.core.test_reservations import NOTHING, TOWER


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
