"""The reverse questions, answered for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.core.dataclass import dataclass
from kvplan.core.reverse import Needs
from kvplan.report.blocks import Block, Line, Table, flat, plain_data
from kvplan.report.text import gib, plural, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsReport:
    """What the asked sequences need against what the engine reserves."""

    needs: Needs

    def data(self) -> dict[str, Any]:
        """The `kvplan.needs/1` document."""
        return self.needs.model_dump()

    def records(self) -> Sequence[Mapping[str, Any]]:
        """The answer as one row."""
        return (flat(plain_data(self.needs)),)

    def blocks(self) -> Sequence[Block]:
        """The verdict, then each reverse answer with the others left as they are."""
        found = self.needs
        what = f"{plural(found.concurrency, 'sequence')} of {whole(found.context)} tokens"
        alone = found.concurrency == 1
        yes, no = ("runs", "does not run") if alone else ("run at once", "do not run at once")
        verdict = f"FITS: {what} {yes}." if found.fits else f"DOES NOT FIT: {what} {no}."
        ranks = found.tp * found.pp * found.dp
        layout = f", tp={found.tp} pp={found.pp} dp={found.dp}" if ranks > 1 else ""
        fraction, tp = found.gpu_memory_utilization, found.tp_needed
        asks_fraction = not (found.fits and fraction is None)  # engines without one; else it had held them
        share = "none holds them" if fraction is None else f"{fraction:.2f}"
        rows = (
            ("needed on one GPU", gib(found.needed_bytes), "weights, activations, runtime, graphs and these caches"),
            ("reserved on one GPU", gib(found.reserved_bytes), "what the engine takes when it starts"),
            ("sequences", whole(found.sequences), "of this length that run at once as it stands"),
            *([("memory fraction", share, "smallest that holds them")] if asks_fraction else []),
            ("KV cache format", found.kv_dtype_needed or "none holds them", "widest usual one that holds them"),
            ("tensor parallel", "none holds them" if tp is None else f"tp={tp}", _gpus(found)),
            ("context", f"{whole(found.max_model_len)} tokens", "longest at which all of them still run at once"),
        )
        return [
            Line(text=f"{found.model} on {ranks} × {found.gpu} with {found.engine}{layout}", tone="title"),
            Line(text=f"weights {found.dtype}, KV cache {found.kv_dtype}", tone="quiet"),
            Line(text=verdict, tone="good" if found.fits else "bad"),
            Table(title="Each answer leaves the others as they are", columns=("", "", ""), rows=rows, open_end=True),
        ]


def _gpus(found: Needs) -> str:
    if found.gpu_count_needed is None:
        return "no size up to 32 ranks that the model can be cut into"
    return f"smallest size that holds them: {plural(found.gpu_count_needed, 'GPU')} in all"
