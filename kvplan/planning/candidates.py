"""Which layouts of one replica are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.model import Model
from kvplan.errors import UsageError

_TP: Final = (1, 2, 4, 8)
_PP_LINKED: Final = (2,)
_PP_PCIE: Final = (2, 4)
_NODE: Final = 8


def layouts(
    model: Model,
    gpu: Gpu,
    *,
    tp: Sequence[int] | None = None,
    pp: Sequence[int] | None = None,
    ep: Sequence[int | None] | None = None,
    dp: Sequence[int] | None = None,
    max_gpus: int | None = None,
) -> Iterator[Layout]:
    """Layouts of one replica that the model can have, smallest first.

    Without a list, tensor parallelism takes 1, 2, 4 and 8 ranks of a node. Pipeline stages join whole nodes over the
    network where a fast link joins the cards of a node, and single cards where PCIe does: engines' own advice. A mixture
    of experts also gets expert parallelism over the tp ranks, and data-parallel attention over as many.

    Args:
        model: The model, which may refuse a layout.
        gpu: The card.
        tp: Tensor-parallel ranks to try instead.
        pp: Pipeline stages to try instead.
        ep: Expert-parallel ranks to try instead.
        dp: Data-parallel ranks to try instead.
        max_gpus: GPUs of the whole plan, or None.
    """
    routed = model.has_routed_experts
    found: list[Layout] = []
    for ranks in tp or _TP:
        for stages in pp or _stages(gpu, ranks):
            for copies in dp or (1,):
                spread = ep or ((None, ranks * copies) if routed and ranks * copies > 1 else (None,))
                found.extend(Layout(tp=ranks, pp=stages, dp=copies, ep=experts) for experts in spread)
    if routed and not (tp or dp or ep):
        found.extend(Layout(tp=1, dp=ranks, ep=ranks) for ranks in _TP if ranks > 1)
    for layout in sorted(dict.fromkeys(found), key=lambda one: one.gpu_count):
        if max_gpus is not None and layout.gpu_count > max_gpus:
            continue
        try:
            layout.check(model)
        except UsageError:
            continue
        yield layout


def _stages(gpu: Gpu, ranks: int) -> tuple[int, ...]:
    if gpu.link_bytes_per_s:
        return (1, *_PP_LINKED) if ranks == min(_NODE, gpu.gpus_per_node) else (1,)
    return (1, *(stages for stages in _PP_PCIE if stages * ranks <= _NODE))
