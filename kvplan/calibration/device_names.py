"""Device names as drivers and frameworks print them, and the GPU that each means."""

from __future__ import annotations

import re
from typing import Final

_SEPARATORS: Final = re.compile(r"[\s_()+./-]+")
_LONGEST: Final = 400
_OTHER_CARD: Final = frozenset({"ti", "super", "laptop", "max", "mobile"})
"""Words after a name that make it another card, which is not bundled."""

#: Words that must all be there → id; the first that fits wins, so that narrower names come first.
_NAMES: Final = (
    ("h100 nvl", "h100-94g-nvl"),
    ("h100 pcie", "h100-80g-pcie"),
    ("h100 80gb hbm3", "h100-80g-sxm"),
    ("h100 sxm5", "h100-80g-sxm"),
    ("h800", "h800-80g-sxm"),
    ("h200 nvl", "h200-141g-nvl"),
    ("h200", "h200-141g-sxm"),
    ("h20 3e", "h20-141g"),
    ("h20", "h20-96g"),
    ("gh200 144g", "gh200-144g"),
    ("gh200 480gb", "gh200-96g"),
    ("gb300", "gb300"),
    ("gb200", "gb200"),
    ("gb10", "dgx-spark"),
    ("b300", "b300-sxm"),
    ("b200", "b200-sxm"),
    ("a100 sxm4 80gb", "a100-80g-sxm"),
    ("a100 sxm4 40gb", "a100-40g-sxm"),
    ("a100 80gb pcie", "a100-80g-pcie"),
    ("a100 pcie 80gb", "a100-80g-pcie"),
    ("a100 pcie 40gb", "a100-40g-pcie"),
    ("a800 sxm4 80gb", "a800-80g-sxm"),
    ("l40s", "l40s"),
    ("l40", "l40"),
    ("l20", "l20"),
    ("l4", "l4"),
    ("a10g", "a10g"),
    ("a10", "a10"),
    ("a16", "a16"),
    ("a30", "a30"),
    ("a40", "a40"),
    ("tesla t4", "t4"),
    ("v100 sxm2 32gb", "v100-32g-sxm"),
    ("v100 sxm2 16gb", "v100-16g-sxm"),
    ("v100 pcie 32gb", "v100-32g-pcie"),
    ("v100 pcie 16gb", "v100-16g-pcie"),
    ("rtx pro 6000 server", "rtx-pro-6000-server"),
    ("rtx pro 6000 workstation", "rtx-pro-6000-ws"),
    ("rtx 6000 ada", "rtx-6000-ada"),
    ("rtx 5000 ada", "rtx-5000-ada"),
    ("rtx 4000 ada", "rtx-4000-ada"),
    ("rtx a6000", "rtx-a6000"),
    ("rtx a5000", "rtx-a5000"),
    ("rtx a4000", "rtx-a4000"),
    ("rtx 5090", "rtx-5090"),
    ("rtx 5080", "rtx-5080"),
    ("rtx 5070 ti", "rtx-5070-ti"),
    ("rtx 4090 d", "rtx-4090-d"),
    ("rtx 4090", "rtx-4090"),
    ("rtx 4080", "rtx-4080"),
    ("rtx 4070 ti", "rtx-4070-ti"),
    ("rtx 3090", "rtx-3090"),
    ("rtx 3080", "rtx-3080"),
    ("rtx 2080 ti", "rtx-2080-ti"),
    ("mi300x", "mi300x"),
    ("mi300a", "mi300a"),
    ("mi308x", "mi308x"),
    ("mi325x", "mi325x"),
    ("mi350x", "mi350x"),
    ("mi355x", "mi355x"),
    ("mi250x", "mi250x"),
    ("mi210", "mi210"),
    ("rx 7900 xtx", "rx-7900-xtx"),
    ("apple m1 max", "apple-m1-max"),
    ("apple m1 ultra", "apple-m1-ultra"),
    ("apple m1 pro", "apple-m1-pro"),
    ("apple m2 max", "apple-m2-max"),
    ("apple m2 ultra", "apple-m2-ultra"),
    ("apple m2 pro", "apple-m2-pro"),
    ("apple m3 ultra", "apple-m3-ultra"),
    ("apple m4 pro", "apple-m4-pro"),
)


def device_id(text: str) -> str | None:
    """The GPU that a device name means, None where it is unknown or stands for several (a bare `A100`, `H100`).

    >>> device_id("NVIDIA H100 80GB HBM3"), device_id("NVIDIA GeForce RTX 4090 D"), device_id("NVIDIA A100")
    ('h100-80g-sxm', 'rtx-4090-d', None)
    >>> device_id("NVIDIA GeForce RTX 3090 Ti"), device_id("NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    (None, None)
    """
    words = f" {_SEPARATORS.sub(' ', text[:_LONGEST]).strip().casefold()} "
    for name, gpu in _NAMES:
        place = words.find(f" {name} ")
        if place >= 0:
            following = words[place + len(name) + 2 :].split(" ", 1)[0]
            return None if following in _OTHER_CARD or " mig " in words else gpu
    return None


def device_ids() -> frozenset[str]:
    """Every id that a device name can mean."""
    return frozenset(gpu for _, gpu in _NAMES)
