from dataclasses import fields

import pytest

from tests.core.builders import gpu

#: A100: no fp8, no fp4; Turing: no bf16; a card that only knows fp32.
AMPERE = {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12, "int8": 624e12}
TURING = {"fp32": 8.1e12, "fp16": 65e12, "int8": 130e12}


@pytest.mark.parametrize(
    ("peaks", "compute", "unit"),
    [
        (AMPERE, "fp4", "bf16"), (AMPERE, "fp8", "bf16"), (AMPERE, "int8", "int8"), (AMPERE, "bf16", "bf16"),
        (AMPERE, "fp16", "fp16"), (AMPERE, "tf32", "tf32"), (AMPERE, "fp32", "fp32"),
        (TURING, "bf16", "fp16"), (TURING, "fp8", "fp16"), (TURING, "fp4", "fp16"), (TURING, "tf32", "fp32"),
        ({"bf16": 1e14, "fp8": 2e14}, "int8", "bf16"), ({"bf16": 1e14}, "fp32", "bf16"), ({"fp16": 1e14}, "fp32", "fp16"),
        ({"tf32": 1e14, "bf16": 2e14}, "fp32", "tf32"), ({"bf16": 1e14}, "fp16", "bf16"), ({"fp32": 1e13}, "fp8", "fp32"),
        ({"fp8": 0.0, "bf16": 1e14}, "fp8", "bf16"), ({"tf32": 1e14}, "fp8", "tf32"), ({"bf16": 1e14}, "tf32", "bf16"),
    ],
)  # fmt: skip
def test_a_format_without_units_runs_at_the_next_wider(peaks, compute, unit):
    assert gpu(peak_flops_per_s=peaks).peak(compute) == (unit, peaks[unit])


def test_what_a_card_is_unless_its_sheet_says_otherwise():
    card = gpu()
    assert (card.gpus_per_node, card.devices_per_package, card.unified_memory, card.available) == (8, 1, False, True)
    [domain] = [field.default for field in fields(card) if field.name == "link_domain"]
    assert domain == 1
    plain = {name: getattr(card, name) for name in ("l2_bytes", "host_bytes_per_s", "network_bytes_per_s", "tdp_w")}
    assert set(plain.values()) == {None}
