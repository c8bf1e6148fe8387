"""Mutations of inputs: of trees (JSON, YAML, recipes) by structure, of anything else by bytes."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Sequence
from typing import Any

#: Values that break assumptions: wrong types, edges of integers and floats, text that acts on terminals or paths.
NASTY: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 8, 64, 255, 256, 4096, 2**31 - 1, 2**31, 2**53 + 1, 2**63, 2**64, 10**12, 10**30,
    10**400, -(10**18), 0.0, -0.0, 0.5, 1.5, -1.5, 1e-308, 1e308, float("nan"), float("inf"), float("-inf"), "", " ", "0",
    "-1", "1e999", "nan", "none", "null", "auto", "true", "\x1b[31mred\x1b]0;title\x07", "\u202egpj.exe", "a\nb\r\tc", "\x00",
    "\ud800", "../../etc/passwd", "/dev/zero", "~nobody/x", "$(id)", "%s%n{0}", "x" * 300, "9" * 5000, "模型", "٣", [], {},
    [[]], [None], [0], [1, 2, 3], [True], ["a", "b"], {"": {}}, {"a": 1}, [[[[[[[[[[]]]]]]]]]], ["x"] * 40, [0] * 100,
)  # fmt: skip
_TOKENS: tuple[bytes, ...] = (
    b"\x00", b"\xff", b"\x1b[31m", b"\n", b"\r\n", b",", b":", b'"', b"'", b"{", b"}", b"[", b"]", b"- ", b"#", b"&a ", b"*a",
    b"!!python/object/apply:os.system [id]", b"<<: *a", b"NaN", b"Infinity", b"-1", b"1e999", b"9" * 400, b"0x10", b"%", b"|",
    b"\xe2\x80\xae", b"\xef\xbb\xbf", b"GiB", b"MiB", b"x", b" ", b"\t", b"=", b"../", b"\\", b"$(id)",
)  # fmt: skip
_MOST_BYTES = 40_000


class Mutator:
    """Makes new inputs out of known ones; the same random numbers give the same inputs.

    Args:
        seeds: Known inputs; the keys and values of those that are JSON become words.
        is_tree: True to change inputs that are JSON by structure.
    """

    def __init__(self, seeds: Sequence[bytes], *, is_tree: bool) -> None:
        self.seeds = seeds
        self.is_tree = is_tree
        self.words: list[tuple[str, Any]] = []
        for seed in seeds if is_tree else ():
            with contextlib.suppress(ValueError):
                _collect(json.loads(seed), self.words)

    def fresh(self, rng: random.Random) -> bytes:
        """A new input from a random seed."""
        return self.mutated(rng.choice(self.seeds), rng)

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """An input that differs from another in one to a few places."""
        if self.is_tree and rng.random() < 0.92:
            try:
                tree = json.loads(data)
            except (ValueError, RecursionError):
                return self._bytes(data, rng)
            for _ in range(_few(rng)):
                tree = self._tree(tree, rng)
            return json.dumps(tree).encode()
        return self._bytes(data, rng)

    def _tree(self, tree: Any, rng: random.Random) -> Any:
        places: list[tuple[Any, Any]] = []
        _places(tree, places)
        if not places:
            return copy.deepcopy(rng.choice(NASTY)) if rng.random() < 0.3 else tree
        holder, key = rng.choice(places)
        value = holder[key]
        match rng.randrange(9):
            case 0 | 1:
                holder[key] = copy.deepcopy(rng.choice(NASTY))
            case 2:
                del holder[key]
            case 3 if self.words:
                holder[key] = copy.deepcopy(rng.choice(self.words)[1])
            case 4 if self.words and isinstance(holder, dict):
                name, other = rng.choice(self.words)
                holder[name] = copy.deepcopy(other if rng.random() < 0.7 else rng.choice(NASTY))
            case 5 if isinstance(value, int | float) and not isinstance(value, bool):
                holder[key] = rng.choice([value + 1, value - 1, value * 2, -value, value * 1000, str(value), [value]])
            case 6 if isinstance(holder, list):
                holder.extend(copy.deepcopy(holder[: rng.randrange(1, 4)]))
            case 6 if isinstance(key, str):
                holder[_spoiled(key, rng)] = holder.pop(key)
            case 7 if isinstance(value, str):
                holder[key] = _spoiled(value, rng)
            case _:
                other_holder, other_key = rng.choice(places)
                holder[key] = copy.deepcopy(other_holder.get(other_key) if isinstance(other_holder, dict) else value)
        return tree

    def _bytes(self, data: bytes, rng: random.Random) -> bytes:
        found = bytearray(data[:_MOST_BYTES])
        for _ in range(_few(rng)):
            at = rng.randrange(len(found) + 1)
            match rng.randrange(7):
                case 0:
                    found[at:at] = rng.choice(_TOKENS)
                case 1:
                    found[at : at + rng.randrange(1, 20)] = b""
                case 2:
                    found[at : at + 1] = bytes([rng.randrange(256)])
                case 3:
                    end = min(len(found), at + rng.randrange(1, 60))
                    found[at:at] = found[at:end]
                case 4:
                    del found[at:]
                case 5:
                    other = rng.choice(self.seeds)
                    start = rng.randrange(len(other) + 1)
                    found[at:at] = other[start : start + rng.randrange(200)]
                case _:
                    token = rng.choice(_TOKENS)
                    found[at : at + len(token)] = token
        return bytes(found[:_MOST_BYTES])


def _few(rng: random.Random) -> int:
    return rng.choice((1, 1, 1, 2, 2, 3, 5))


def _spoiled(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return (
        text[:at]
        + rng.choice(["", "x", ".", "*", "\x1b[2J", "/", "_", "9" * 30, "(a+)+", "\u202e", "-", "\n"])
        + text[at + 1 :]
    )


def _places(tree: Any, found: list[tuple[Any, Any]]) -> None:
    """Every place of a tree as its holder and key; of long lists only the ends."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            found.append((tree, key))
            _places(value, found)
    elif isinstance(tree, list):
        for index in range(len(tree)) if len(tree) < 12 else (0, 1, len(tree) - 1):
            found.append((tree, index))
            _places(tree[index], found)


def _collect(tree: Any, words: list[tuple[str, Any]]) -> None:
    if isinstance(tree, dict):
        for key, value in tree.items():
            words.append((key, value))
            _collect(value, words)
    elif isinstance(tree, list):
        for value in tree[:3]:
            _collect(value, words)
