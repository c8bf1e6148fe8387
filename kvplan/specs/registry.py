"""Where bundled specs live: ids from file stems, aliases from one regex scan, nearest names for a miss."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Final, Literal

from kvplan.errors import UnknownNameError

Kind = Literal["model", "gpu", "engine"]

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_FOLDERS: Final[dict[Kind, tuple[Path, ...]]] = {
    "model": (_PACKAGE / "_data" / "model_specs", _PACKAGE.parent / "model_specs"),
    "gpu": (_PACKAGE / "_data" / "hardware_specs", _PACKAGE.parent / "hardware_specs"),
    "engine": (_PACKAGE / "specs" / "profiles",),
}
_LIST_COMMAND: Final[dict[Kind, str]] = {
    "model": "kvplan models list",
    "gpu": "kvplan gpus list",
    "engine": "kvplan engines list",
}
_SUFFIX = ".yaml"
_HEAD_BYTES = 4096
_ALIASES = re.compile(rb"^aliases:\s*(?:\[(?P<flow>[^\]]*)\]|(?P<block>(?:\n[ ]*- [^\n]*)+))", re.MULTILINE)
_SEPARATOR = re.compile(r",|\n[ ]*- |\n")
#: What people look for in a list beside names: the maker, the generation, the memory on the box.
_DESCRIBED = re.compile(rb"^(?:(?:name|vendor|  capacity): ([^\n]*)|architecture: (\w+))", re.MULTILINE)
_NEAREST = 3
_CANDIDATES = 20
_LONGEST_SHOWN = 80
#: Names that hold an option: how many cards, or the format of the weights. Compiled on a mistake only.
_COUNTED: Final = r"(?i)(?P<rest>\d{1,4})\s*[x×*]\s*(?P<name>.+)"
_COUNTED_AFTER: Final = r"(?i)(?P<name>.+?)\s*[x×*:]\s*(?P<rest>\d{1,4})"
_FORMATTED: Final = r"(?i)(?P<name>.+)[-_:](?P<rest>bf16|fp8|int8|int4|awq|gptq|nvfp4|mxfp4|q[2-8]_[k01]\w*)"


def spec_folder(kind: Kind) -> Path:
    """Folder of the bundled specs: inside the installed package, else at the top of a checkout."""
    return _first_folder(_FOLDERS[kind])


def ids(kind: Kind) -> tuple[str, ...]:
    """Canonical ids in alphabetical order, read from file names only (shell completion calls this)."""
    return _ids(spec_folder(kind))


def aliases(kind: Kind) -> dict[str, str]:
    """Alias → canonical id, both as written.

    The head of every file is scanned for its `aliases:` line instead of parsing a hundred files; a test holds that
    a full parse finds the same.
    """
    return dict(_aliases(spec_folder(kind)))


def resolve(kind: Kind, name: str) -> Path:
    """File of a bundled spec, by id or alias, whatever the case, with dashes or spaces.

    Raises:
        UnknownNameError: No spec has that name; the hint has the nearest ones.
    """
    found = find(kind, name)
    if found is None:
        shown = name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…"
        message = f"unknown {kind.upper() if kind == 'gpu' else kind} {shown!r}"
        raise UnknownNameError(message, hint=_hint(kind, name))
    return found


def find(kind: Kind, name: str) -> Path | None:
    """As `resolve`, but None for an unknown name."""
    folder = spec_folder(kind)
    wanted = "-".join(name.casefold().split())
    if wanted not in _ids(folder):
        wanted = _folded_aliases(folder).get(wanted, "")
    return folder / f"{wanted}{_SUFFIX}" if wanted else None


def holding(kind: Kind, text: str) -> tuple[str, ...]:
    """Canonical ids that hold a text in themselves, in an alias, or in what describes a card.

    Case and the signs between words do not count.

    >>> holding("gpu", "RTX 4090"), holding("model", "Qwen/Qwen3-32B")[:1]
    (('rtx-4090', 'rtx-4090-d'), ('qwen3-32b',))
    >>> holding("gpu", "L40S 48GB"), "rtx-6000-ada" in holding("gpu", "48gb"), "a100-80g-sxm" in holding("gpu", "48")
    (('l40s',), True, False)
    """
    if len(text) > _LONGEST_SHOWN:
        return ()
    folder = spec_folder(kind)
    wanted = _loose(text)
    found = {item for alias, item in _aliases(folder).items() if wanted.search(alias.casefold())}
    if kind == "gpu":
        found.update(item for item, words in _descriptions(folder).items() if any(map(wanted.search, words)))
    return tuple(item for item in _ids(folder) if item in found or wanted.search(item))


def _loose(text: str) -> re.Pattern[str]:
    """A text with any signs or none between its characters, but never between digits of one number.

    `48` is in no `sxm4-80g`, and `48gb` is as good as `48g`.
    """
    runs = []
    for run in re.findall(r"[^\W_]+", text.casefold()):
        kept = re.sub(r"(?<=\d)gi?b$", "g", run)
        runs.append(re.sub(r"(?<=.)(?=\D)|(?<=\D)(?=.)", r"[\\W_]*", kept))
    loose = r"[\W_]*".join(runs)
    return re.compile(rf"(?<!\d){loose}(?!\d)" if "".join(runs).isdigit() else loose)


def _squeezed(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())


def nearest(kind: Kind, name: str) -> list[str]:
    """At most three ids or aliases that look like a name, those that begin with it first, each spec once."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed on a mistake only

    folder, asked = spec_folder(kind), name.casefold()
    known = {item.casefold(): (item, item) for item in _ids(folder)}
    known.update({alias.casefold(): (alias, item) for alias, item in _aliases(folder).items()})
    close = get_close_matches(asked, known, n=_CANDIDATES, cutoff=0.6)
    found: dict[str, str] = {}
    for one in sorted(close, key=lambda candidate: not candidate.startswith(asked)):
        alias, item = known[one]
        found.setdefault(item, alias)
    return list(found.values())[:_NEAREST]


def with_option(kind: Kind, name: str) -> str | None:
    """A bundled name and the option that says the rest of a name: `8xh100` is `h100 --tp 8`, `x-fp8` is `x --dtype fp8`.

    >>> with_option("gpu", "2 x L40S"), with_option("model", "Qwen/Qwen3-32B-AWQ"), with_option("model", "what-fp8")
    ('l40s --tp 2', 'qwen3-32b --dtype awq', None)
    """
    patterns: tuple[str, ...]
    match kind:
        case "gpu":
            patterns, option = (_COUNTED, _COUNTED_AFTER), "--tp"
        case "model":
            patterns, option = (_FORMATTED,), "--dtype"
        case _:
            return None
    for pattern in patterns:
        found = re.fullmatch(pattern, name.strip())
        path = find(kind, found["name"]) if found else None
        if found and path is not None:
            return f"{path.stem} {option} {found['rest'].casefold()}"
    return None


def _hint(kind: Kind, name: str) -> str:
    parts = [part.strip() for part in name.split(",")]
    if len(parts) > 1 and all(find(kind, part) for part in parts):
        return f"for several: kvplan compare --vary {kind}={','.join(parts)}"
    if kind == "engine":
        near = nearest(kind, name)
        suggestion = f"did you mean {near[0]}? " if near else ""
        return (
            f"{suggestion}engines: {', '.join(ids(kind))}, each with @version where you like, or the path of a profile"
        )
    meant = with_option(kind, name)
    near = [meant] if meant else nearest(kind, name)
    suggestion = f"did you mean {', '.join(near)}? " if near else ""
    part = meant.split()[0] if meant else name.casefold() if _squeezed(name) and holding(kind, name) else ""
    return f"{suggestion}`{f'{_LIST_COMMAND[kind]} {part}'.strip()}` shows all, or give the path of a spec file"


@cache
def _first_folder(folders: tuple[Path, ...]) -> Path:
    return next((folder for folder in folders if folder.is_dir()), folders[-1])


@cache
def _ids(folder: Path) -> tuple[str, ...]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all it needs
    except OSError:
        return ()
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX) and name[0] not in "_."))


@cache
def _aliases(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for spec_id in _ids(folder):
        # Plain and unbuffered: this goes through hundreds of files, and is four times as fast as text through pathlib.
        with open(f"{folder}/{spec_id}{_SUFFIX}", "rb", buffering=0) as file:  # noqa: PTH123
            match = _ALIASES.search(file.read(_HEAD_BYTES))
        if match:
            words = _SEPARATOR.split((match["flow"] or match["block"] or b"").decode())
            found.update({word.strip(" '\"\n"): spec_id for word in words if word.strip(" '\"\n")})
    return found


@cache
def _descriptions(folder: Path) -> dict[str, tuple[str, ...]]:
    found = {}
    for spec_id in _ids(folder):
        with open(f"{folder}/{spec_id}{_SUFFIX}", "rb", buffering=0) as file:  # noqa: PTH123 - as in `_aliases`
            words = _DESCRIBED.findall(file.read(_HEAD_BYTES))
            found[spec_id] = tuple((one or other).decode().casefold() for one, other in words)
    return found


@cache
def _folded_aliases(folder: Path) -> dict[str, str]:
    return {alias.casefold(): spec_id for alias, spec_id in _aliases(folder).items()}
