"""Strict YAML: what a file says and on which line, or every one of its errors as `file:line: field: rule`.

Read with a subclass of PyYAML's safe loader (the C one where it exists). Beyond safety it refuses duplicate keys,
anchors and aliases, tags and deep nesting; `1e12` is a number, `no`, `12:30` and `2026-11-29` are text.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import yaml

from kvplan.errors import SpecError
from kvplan.specs.document import Location, YamlDocument, closest, problem

if TYPE_CHECKING:
    from pydantic import BaseModel

    Spec = TypeVar("Spec", bound=BaseModel)

MAX_BYTES: Final = 2**20
MAX_DEPTH: Final = 32
#: Scalars, lists and mappings of one file; the largest bundled spec has eight hundred.
MAX_NODES: Final = 40_000
MAX_PROBLEMS: Final = 50

_PREFIX = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR = (f"{_PREFIX}{kind}" for kind in ("null", "bool", "int", "float", "str"))
_PLAIN_TAGS = frozenset({f"{_PREFIX}{kind}" for kind in ("null", "bool", "int", "float", "str", "map", "seq")})
_RESOLVERS: Final = (
    (_BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    (_NULL, re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]),
    (_INT, re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"), "-+0123456789"),
    (
        _FLOAT,
        re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)\Z"),
        "-+.0123456789",
    ),
)


class _StrictLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader with YAML 1.2's few scalar types; only its parser and composer are used."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - PyYAML's own attribute, filled below


class _StrictDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """The safe dumper that quotes what the strict loader would not read back as text."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - PyYAML's own attribute, filled below

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Write repeated values out: the loader takes no aliases."""
        return True


for _tag, _pattern, _first in _RESOLVERS:
    _StrictLoader.add_implicit_resolver(_tag, _pattern, list(_first))
    _StrictDumper.add_implicit_resolver(_tag, _pattern, list(_first))


def _represent_list(dumper: Any, data: list[Any]) -> Any:  # noqa: ANN401 - PyYAML is untyped
    flow = all(isinstance(item, str | int | float | None) and " " not in str(item) for item in data)
    return dumper.represent_sequence(f"{_PREFIX}seq", data, flow_style=flow)


_StrictDumper.add_representer(list, _represent_list)
_StrictDumper.add_representer(tuple, _represent_list)


def load_yaml(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> YamlDocument:
    """Read a YAML file strictly.

    Args:
        path: The file.
        max_bytes: Largest file that is read [byte].

    Returns:
        Its fields with their lines.

    Raises:
        SpecError: The file can't be read, or breaks the rules: all errors in one message, one per line.
    """
    return parse_yaml(_read_text(path, max_bytes), path=os.fspath(path))


def parse_yaml(text: str, *, path: str = "<text>") -> YamlDocument:
    r"""Read YAML text strictly (`load_yaml` without the file).

    >>> parse_yaml("country: no\nflops: 1e12").data
    {'country': 'no', 'flops': 1000000000000.0}
    """
    try:
        refused = _refused_event(text, path)
        if refused:
            raise SpecError(refused)
        root = _StrictLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise SpecError(problem(path, line, (), f"not valid YAML: {error.problem}")) from None
    except yaml.reader.ReaderError as error:
        found = yaml.reader.Reader.NON_PRINTABLE.search(text)
        line = text.count("\n", 0, found.start()) + 1 if found else 1
        rule = f"not valid YAML: character U+{int(error.character):04X} is not allowed"
        raise SpecError(problem(path, line, (), rule)) from None
    reader = _Reader(path)
    data = reader.value(root, ()) if root is not None else None
    if reader.problems:
        raise SpecError(told_together(reader.problems))
    if not isinstance(data, dict):
        raise SpecError(problem(path, 1, (), "expected fields (`key: value` lines)"))
    return YamlDocument(path=path, data=data, lines=reader.lines)


def dump_yaml(data: Mapping[str, Any]) -> str:
    """Write fields as YAML that `parse_yaml` reads back as equal; the same input gives the same text.

    Keys keep their order, lists of words stand on one line, everything else in blocks.

    >>> print(dump_yaml({"id": "x", "aliases": ["no", "1e12"], "memory": {"capacity": "80 GB"}}), end="")
    id: x
    aliases: [no, '1e12']
    memory:
      capacity: 80 GB
    """
    text: str = yaml.dump(
        dict(data), Dumper=_StrictDumper, sort_keys=False, default_flow_style=False, width=110, allow_unicode=True
    )
    return text


def validate(document: YamlDocument, schema: type[Spec]) -> Spec:
    """Validate a read document, turning pydantic's errors into the house's."""
    from pydantic import ValidationError  # noqa: PLC0415 - costs start-up time, and only a user's own file needs it

    try:
        return schema.model_validate(document.data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        problems = sorted((document.line_of(item["loc"]), _told(document, schema, item)) for item in found)
        raise SpecError(told_together(list(dict.fromkeys(text for _, text in problems)))) from None


def told_together(problems: list[str]) -> str:
    """Problems as one message, a line each; of very many the first ones and the count of the others."""
    shown = problems[:MAX_PROBLEMS]
    more = len(problems) - len(shown)
    return "\n".join([*shown, f"… and {more:,} more"] if more else shown)


def _told(document: YamlDocument, schema: type[BaseModel], item: Any) -> str:  # noqa: ANN401 - pydantic's dict
    loc: Location = tuple(part for part in item["loc"] if part != "[key]")
    match item["type"]:
        case "extra_forbidden":
            rule = f"unknown field{closest(str(loc[-1]), _fields_at(schema, loc[:-1]))}"
        case "missing":
            rule = "missing"
        case "model_type":
            rule = "must hold fields of its own (`key: value`)"
        case "literal_error":
            expected = item["msg"].removeprefix("Input should be ").replace(" or ", ", ").replace("'", "").split(", ")
            rule = f"{item['input']!r} is not one of {', '.join(expected)}{closest(str(item['input']), expected)}"
        case _:
            rule = item["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return document.problem(loc, rule)


def _fields_at(schema: Any, loc: Location) -> list[str]:  # noqa: ANN401 - walks annotations
    """Field names that a schema knows at a place, through optionals, lists and mappings."""
    fields = getattr(schema, "model_fields", None)
    if fields is None:
        arguments = [part for part in getattr(schema, "__args__", ()) if part is not type(None)]
        if not arguments:
            return []
        element = arguments[-1]
        is_container = getattr(schema, "__origin__", None) in {list, tuple, dict, Mapping}
        return _fields_at(element, loc[1:] if is_container else loc)
    if not loc:
        return [info.alias or name for name, info in fields.items()]
    info = next((i for name, i in fields.items() if loc[0] in {name, i.alias}), None)
    return _fields_at(info.annotation, loc[1:]) if info else []


class _Reader:
    """Turns composed nodes into Python values, noting lines and collecting problems."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[str] = []
        self.lines: dict[Location, int] = {}

    def value(self, node: Any, loc: Location) -> Any:  # noqa: ANN401 - PyYAML is untyped, and so is YAML
        """The value of a node at a place."""
        line = self.lines.setdefault(loc, node.start_mark.line + 1)
        if node.tag not in _PLAIN_TAGS:
            return self._refuse(line, loc, f"tag {node.tag.replace(_PREFIX, '!!')} is not allowed")
        if isinstance(node, yaml.MappingNode):
            return self._fields(node, loc)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*loc, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, loc)

    def _fields(self, node: Any, loc: Location) -> dict[str, Any]:  # noqa: ANN401 - as above
        """A mapping; its keys are text, as in JSON, also where they are whole numbers."""
        fields: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(line, loc, "a key must be a word, not a list or a mapping")
                continue
            key: str = key_node.value
            if key_node.tag not in {_STR, _INT}:
                self._refuse(line, loc, f"key {key!r} must be text or a whole number; quote it")
                continue
            if key in fields:
                self._refuse(line, (*loc, key), f"duplicate key, first on line {self.lines[*loc, key]}")
                continue
            self.lines[*loc, key] = line
            fields[key] = self.value(value_node, (*loc, key))
        return fields

    def _scalar(self, node: Any, loc: Location) -> str | int | float | bool | None:  # noqa: ANN401 - as above
        text: str = node.value
        try:
            if node.tag == _INT:
                return int(text)
            if node.tag == _FLOAT:
                number = float(text)
                if not math.isfinite(number):
                    raise ValueError  # noqa: TRY301 - one message for both kinds
                return number
        except ValueError:
            self._refuse(node.start_mark.line + 1, loc, f"number {text[:20]} is out of range")
            return None
        if node.tag == _BOOL:
            return text.lower() == "true"
        return None if node.tag == _NULL else text

    def _refuse(self, line: int, loc: Location, rule: str) -> None:
        self.problems.append(problem(self.path, line, loc, rule))


def _refused_event(text: str, path: str) -> str | None:
    """The first anchor, alias or too deep nesting: found in the event stream, before anything is built or recursed."""
    depth = 0
    for nodes, event in enumerate(yaml.parse(text, Loader=_StrictLoader)):
        if nodes > MAX_NODES:
            return problem(path, _line(event), (), f"more than {MAX_NODES:,} values are refused")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            rule = "anchors and aliases are not allowed; write the value out"
            return problem(path, _line(event), (), rule)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                return problem(path, _line(event), (), f"nested deeper than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _read_text(path: str | os.PathLike[str], max_bytes: int) -> str:
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise SpecError(f"{name}: can't be read: {told}") from None  # noqa: TRY003, EM102
    if len(content) > max_bytes:
        raise SpecError(f"{name}: larger than {max_bytes} bytes, too large for a spec")  # noqa: TRY003, EM102
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError(problem(name, line, (), f"not UTF-8: byte 0x{content[error.start]:02x}")) from None
