"""Pools of blocks: what a sequence takes from them, how many sequences they hold, how long one may be.

Everything follows from one line per group of layers, `units · (ceil(min(context, limit) / block_tokens) + extra)`, which
works on plain numbers and on arrays alike.
"""

from __future__ import annotations

from kvplan.core.dataclass import dataclass
from kvplan.core.numeric import Num, ceil, minimum
from kvplan.core.units import ceil_div

_LONGEST = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockGroup:
    """Layers whose blocks are handed out together.

    Attributes:
        units: Units of the pool that one block takes.
        block_tokens: Tokens of one block.
        limit: Tokens that it keeps at most (window, chunk, 0 for a fixed state), or None.
        extra: Blocks on top, whatever the context.
    """

    units: int
    block_tokens: int
    limit: int | None = None
    extra: int = 0

    def needed(self, context: Num) -> Num:
        """Units that one sequence of `context` tokens takes.

        >>> BlockGroup(units=1, block_tokens=16).needed(100)
        7
        """
        kept = context if self.limit is None else minimum(context, self.limit)
        blocks = ceil_div(kept, self.block_tokens) if isinstance(kept, int) else ceil(kept / self.block_tokens)
        return self.units * (blocks + self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPart:
    """One pool of equal units.

    Attributes:
        name: `kv`, `window` or `state`.
        units: Units that sequences can have.
        unit_bytes: Size of one unit over all the layers that it stands for [byte].
        groups: Who takes units.
    """

    name: str
    units: int
    unit_bytes: int
    groups: tuple[BlockGroup, ...]

    def needed(self, context: Num) -> Num:
        """Units that one sequence of `context` tokens takes."""
        total: Num = 0
        for group in self.groups:
            total = total + group.needed(context)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The caches of one rank.

    Attributes:
        parts: Separate pools; a sequence needs room in each. Empty for models that cache nothing.
        max_num_seqs: Sequences that the scheduler runs at most: all there is to say where nothing is cached.
        block_tokens: Tokens of one block, the smallest where kinds differ.
        room_bytes: Bytes that caches may fill [byte].
    """

    parts: tuple[PoolPart, ...]
    max_num_seqs: int
    block_tokens: int
    room_bytes: int

    def sequences(self, context_tokens: Num) -> Num:
        """Sequences of `context_tokens` that fit at once, with a fraction; arrays give arrays.

        `min over parts of units / needed(context)`.
        """
        found: Num = None
        for part in self.parts:
            here = part.units / part.needed(context_tokens)
            found = here if found is None else minimum(found, here)
        return self.max_num_seqs + 0.0 * context_tokens if found is None else found

    def binding(self, context: int) -> PoolPart | None:
        """The part that runs out first."""
        return min(self.parts, key=lambda part: part.units / part.needed(context), default=None)

    def sequence_bytes(self, context: Num) -> Num:
        """Bytes that one sequence of `context` tokens reserves; arrays give arrays [byte]."""
        return sum((part.needed(context) * part.unit_bytes for part in self.parts), 0)

    def token_bytes(self) -> int:
        """Bytes that one more token reserves on average while every window is open [byte]."""
        return round(
            sum(
                group.units * part.unit_bytes / group.block_tokens
                for part in self.parts
                for group in part.groups
                if group.limit != 0
            )
        )

    def holds(self, context: int, *, sequences: int = 1) -> bool:
        """True where `sequences` of `context` tokens fit at once."""
        return all(part.needed(context) * sequences <= part.units for part in self.parts)

    def longest(self, *, sequences: int = 1, cap: int | None = None) -> int:
        """The longest context that `sequences` can have at once, by bisection; 0 where none fits [token].

        Args:
            sequences: Equal sequences.
            cap: The model's own limit, or None.
        """
        low, high = 0, cap if cap is not None else _LONGEST
        while low < high:
            middle = (low + high + 1) // 2
            if self.holds(middle, sequences=sequences):
                low = middle
            else:
                high = middle - 1
        return low
