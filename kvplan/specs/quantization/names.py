"""Module names in quantisation configs: one canonical spelling, and lists of names, globs and regexes to match against.

Checkpoints spell one module in several ways (`model.layers.0.x`, `model.language_model.layers.0.x`,
`language_model.model.layers.0.x`; `block_sparse_moe.experts.7.w1`, `mlp.experts.gate_proj`), and the list beside the
weights need not use the spelling of the weights. Both sides are brought to one form before they are compared.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache
from typing import Final

from kvplan.core.dataclass import dataclass
from kvplan.errors import SpecError, UnsupportedModelError
from kvplan.specs.quantization.regexes import compile_regex

#: Leading components that say only where the decoder sits inside the checkpoint.
_WRAPPERS: Final = frozenset({"model", "language_model", "text_model", "transformer", "backbone", "thinker", "llm"})
#: Spellings of one component.
_ALIASES: Final = {
    "block_sparse_moe": "mlp",
    "feed_forward": "mlp",
    "ffn": "mlp",
    "h": "layers",
    "blocks": "layers",
    "attention": "self_attn",
    "attn": "self_attn",
    "w1": "gate_proj",
    "w3": "up_proj",
    "w2": "down_proj",
    "shared_mlp": "shared_experts",
    "shared_expert": "shared_experts",
}
#: Matrices that some checkpoints or lists fuse, with their parts.
_FUSED: Final = {
    "gate_up_proj": ("gate_proj", "up_proj"),
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa"),
}
_FUSED_BY_PART: Final = {part: whole for whole, parts in _FUSED.items() for part in parts}
_EXPERT_INDEX: Final = re.compile(r"(^|\.)experts\.(\d+)(?=\.|$)")
_INDEX: Final = re.compile(r"\.\d+(?=\.|$)")
_LONGEST_PATTERN: Final = 4000
_MOST_PATTERNS: Final = 80_000
#: Globs become one regex, which is slow to make and to match; lists of real checkpoints have a few.
_MOST_GLOBS: Final = 2_000
_MOST_REGEXES: Final = 500
#: Comparisons of a name with a regex that all modules of a checkpoint may take together, half a second of them.
_MOST_COMPARISONS: Final = 1_000_000


def canonical(name: str) -> str:
    """A module name without wrappers, expert indices and aliases.

    >>> canonical("language_model.model.layers.3.block_sparse_moe.experts.7.w1")
    'layers.3.mlp.experts.gate_proj'
    >>> canonical("model.visual.blocks.0.attn.qkv")
    'visual.layers.0.self_attn.qkv'
    """
    parts = _EXPERT_INDEX.sub(r"\1experts", name).split(".")
    start = 0
    while start < len(parts) - 1 and parts[start] in _WRAPPERS:
        start += 1
    return ".".join(_alias(part) for part in parts[start:])


def _alias(part: str) -> str:
    bare = part.strip("*")
    if bare != part and bare in {"shared_expert", "h"}:
        return part
    return part.replace(bare, _ALIASES.get(bare, bare)) if bare else part


def expert_index(name: str) -> int | None:
    """The index of the expert that a module name says, or None."""
    found = _EXPERT_INDEX.search(name)
    return int(found.group(2)) if found else None


@lru_cache(maxsize=16384)
def spellings(name: str) -> tuple[str, ...]:
    """The names under which a regex may know a module: its own, and the decoder's under each wrapper.

    >>> "model.language_model.layers.3.mlp.gate_proj" in spellings("model.layers.3.mlp.gate_proj")
    True
    """
    own = [name]
    if name.endswith(".experts") or ".experts." in name:
        own.append(re.sub(r"\.experts(?=\.|$)", ".experts.0", name, count=1))
    found: list[str] = []
    for spelling in own:
        parts = spelling.split(".")
        start = 0
        while start < len(parts) - 1 and parts[start] in _WRAPPERS:
            start += 1
        bare = ".".join(parts[start:])
        found.append(spelling)
        for wrapper in ("model.", "model.language_model.", "language_model.model.", "language_model.", ""):
            if parts[start:] and wrapper + bare not in found:
                found.append(wrapper + bare)
    for spelling in tuple(found):
        whole = _with_other_names(spelling)
        if whole is not None and whole not in found:
            found.append(whole)
    return tuple(found)


def _with_other_names(name: str) -> str | None:
    """A name with the mixture of experts in the older spelling (`block_sparse_moe`, `w1`), or None."""
    if ".mlp.experts" not in name:
        return None
    older = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    head, _, last = name.replace(".mlp.", ".block_sparse_moe.").rpartition(".")
    return f"{head}.{older.get(last, last)}"


@dataclass(frozen=True, slots=True)
class _Exact:
    """What an exact entry said: for which expert indices, or for the whole module."""

    indices: set[int] = field(default_factory=set)
    whole: list[bool] = field(default_factory=list)


class NameList:
    """A list of module names, globs (`model.layers.0*`) and regexes (`re:.*mlp.gate$`).

    A plain name stands for the module and all below it, and may leave out leading parts (`gate` is every module called
    `gate`, never `gate_proj`).

    Args:
        patterns: The entries.
        where: File and field, for messages.

    Raises:
        SpecError: An invalid or dangerous regex.
    """

    def __init__(self, patterns: Iterable[str], *, where: str) -> None:
        self.where = where
        self._exact: dict[str, _Exact] = {}
        self._prefixes: list[str] = []
        self._globs: list[str] = []
        self._regexes: list[re.Pattern[str]] = []
        self._comparisons = 0
        for count, pattern in enumerate(patterns):
            many = count >= _MOST_PATTERNS or len(self._globs) > _MOST_GLOBS or len(self._regexes) > _MOST_REGEXES
            if many or len(pattern) > _LONGEST_PATTERN:
                msg = f"{where}: too many or too long names"
                raise SpecError(msg)
            self._add(pattern)
        self._prefix_tuple = tuple(self._prefixes)
        joined = "|".join(fnmatch.translate(glob) for glob in self._globs)
        self._glob = re.compile(joined) if joined else None

    def __bool__(self) -> bool:
        return bool(self._exact or self._prefixes or self._globs or self._regexes)

    def _add(self, pattern: str) -> None:
        if pattern.startswith("re:"):
            self._regexes.append(compile_regex(pattern[3:], where=self.where))
            return
        if "*" not in pattern and "?" not in pattern:
            form = canonical(pattern)
            if not form.startswith("layers."):  # towers name all their blocks at once: visual.layers.*.mlp
                self._exact.setdefault(_INDEX.sub(".*", form), _Exact()).whole.append(True)
            entry = self._exact.setdefault(form, _Exact())
            index = expert_index(pattern)
            if index is None:
                entry.whole.append(True)
            else:
                entry.indices.add(index)
            return
        form = canonical(pattern)
        form = pattern if form in {"*", ""} else form
        if form.endswith("*") and "*" not in form[:-1] and "?" not in form and "[" not in form:
            self._prefixes.append(form[:-1])
        else:
            self._globs.extend((form, form + ".*"))

    def matches(self, name: str, *, copies: int = 1) -> bool:
        """True where the list names this module, one that holds it, or the fused matrix that it is part of.

        Args:
            name: Full module name.
            copies: Number of experts that the name stands for; the list must treat all of them alike.

        Raises:
            UnsupportedModelError: The list names some experts of a layer and not others.
        """
        form = canonical(name)
        if self._matches_form(form, name, copies):
            return True
        head, _, last = form.rpartition(".")
        if last in _FUSED_BY_PART and self._matches_form(f"{head}.{_FUSED_BY_PART[last]}", name, copies, literal=False):
            return True
        parts = _FUSED.get(last)
        if parts is None:
            return False
        named = [self._matches_form(f"{head}.{part}", name, copies, literal=False) for part in parts]
        if any(named) and not all(named):
            msg = f"{self.where}: treats the parts of {name} differently"
            raise UnsupportedModelError(msg)
        return all(named)

    def _matches_form(self, form: str, name: str, copies: int, *, literal: bool = True) -> bool:
        if self._matches_exact(form, copies):
            return True
        if self._prefix_tuple and form.startswith(self._prefix_tuple):
            return True
        if self._glob is not None and (self._glob.match(form) or (literal and self._glob.match(name))):
            return True
        if not self._regexes or not literal:
            return False
        known = spellings(name)
        self._comparisons += len(known) * len(self._regexes)
        if self._comparisons > _MOST_COMPARISONS:
            msg = f"{self.where}: {len(self._regexes):,} regexes are too many for this model"
            raise SpecError(msg)
        return any(regex.match(spelling) for regex in self._regexes for spelling in known)

    def _matches_exact(self, form: str, copies: int) -> bool:
        if not self._exact:
            return False
        parts = form.split(".")
        for end in range(len(parts), 0, -1):
            for start in range(end):
                key = ".".join(parts[start:end])
                entry = self._exact.get(key)
                if entry is None or (start and key.startswith("layers.")):
                    continue
                if entry.whole or len(entry.indices) >= copies:
                    return True
                msg = f"{self.where}: names {len(entry.indices)} of the {copies} experts of {form}"
                raise UnsupportedModelError(msg, hint="kvplan prices all experts of a layer alike")
        return False
