"""A typed view on one `config.json` that remembers which fields were read, so that none is ignored in silence."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from kvplan.errors import SpecError, UnsupportedModelError

#: Layers of one stack: ten times as many as any model that is served.
MOST_LAYERS: Final = 2_000
#: The largest value that a field whose name contains the fragment may have; the first match counts.
LIMITS: Final[tuple[tuple[str, int], ...]] = (
    ("vocab", 10**8),
    ("position", 10**12),
    ("max_seq", 10**12),
    ("context", 10**12),
    ("window", 10**12),
    ("layer", MOST_LAYERS),
    ("mtp", MOST_LAYERS),
    ("depth", MOST_LAYERS),
    ("block", 10_000_000),
    ("expert", 100_000),
    ("head_dim", 1_000_000),
    ("head", 100_000),
    ("hidden", 10**7),
    ("intermediate", 10**8),
)
#: Fields that hold the language model of a multimodal one.
TEXT_CONFIGS: Final = ("text_config", "llm_config", "language_config")
_LARGEST: Final = 10**9
_LONGEST_TEXT: Final = 80
#: Fields of one object that are looked at where an error is explained.
_MOST_FIELDS: Final = 1_000


class Config:
    """One mapping of a config, or one nested in it.

    Args:
        data: The parsed JSON object.
        source: File name for messages.
        sidecar: Content of `hf_quant_config.json` beside it, or None.
        parent: The config that this one is nested in.
        path: Dotted path inside the file.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        *,
        source: str = "config.json",
        sidecar: Mapping[str, Any] | None = None,
        parent: Config | None = None,
        path: str = "",
    ) -> None:
        self.data = data
        self.source = source
        self.path = path
        self.sidecar = sidecar
        self.root: Config = parent.root if parent is not None else self
        self.assumptions: list[str] = parent.assumptions if parent is not None else []
        self.warnings: list[str] = parent.warnings if parent is not None else []
        self._defaults: dict[str, Any] = {}
        self._read: set[str] = set()
        self._asked: set[str] = set()
        self._children: dict[str, Config] = {}

    # --- errors -----------------------------------------------------------------------------------------------------

    def field(self, name: str) -> str:
        """The dotted path of a field inside the file, on one line whatever its name is."""
        shown = name if name.isidentifier() else " ".join(name.split())[:_LONGEST_TEXT]
        return f"{self.path}.{shown}" if self.path else shown

    def error(self, name: str, rule: str, *, hint: str | None = None) -> SpecError:
        """A `SpecError` for one field: `config.json: num_hidden_layers: must be …`."""
        return SpecError(f"{self.source}: {self.field(name)}: {rule}", hint=hint)

    def unsupported(self, name: str, rule: str, *, hint: str | None = None) -> UnsupportedModelError:
        """An `UnsupportedModelError` for one field whose value is valid but not understood."""
        return UnsupportedModelError(f"{self.source}: {self.field(name)}: {rule}", hint=hint)

    def _missing(self, names: tuple[str, ...]) -> SpecError:
        unread = [key for key in islice(self.data, _MOST_FIELDS) if key not in self._asked]
        near = difflib.get_close_matches(names[0], unread, n=1, cutoff=0.8)
        others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
        rule = f"is missing{others} and {self.model_type or 'this family'} has no default for it"
        hint = f"did you mean {names[0]!r} where the file says {near[0]!r}?" if near else None
        return self.error(names[0], rule, hint=hint)

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def model_type(self) -> str:
        """The `model_type` field, or an empty string."""
        self._read.add("model_type")
        value = self.data.get("model_type")
        return value if isinstance(value, str) else ""

    def with_defaults(self, defaults: Mapping[str, Any]) -> Config:
        """Let missing fields take these values of the family, each told in `assumptions` when it is used."""
        self._defaults.update(defaults)
        return self

    def with_fields(self, fields: Mapping[str, Any]) -> Config:
        """Read fields with these values, whatever the file says."""
        self.data = {**self.data, **fields}
        return self

    def has(self, name: str) -> bool:
        """True where the field is there and not null; the field is not marked as read."""
        return self.data.get(name) is not None

    def _find(self, names: tuple[str, ...]) -> tuple[str, Any]:
        self._asked.update(names)
        self._read.update(names)
        for name in names:
            if self.data.get(name) is not None:
                self._agree(name, names)
                return name, self.data[name]
        for name in names:
            if self._defaults.get(name) is not None:
                self._assume(name, self._defaults[name])
                return name, self._defaults[name]
        return names[0], None

    def _agree(self, name: str, names: tuple[str, ...]) -> None:
        """Refuse two spellings of one field that say different things."""
        for other in names:
            if other != name and self.data.get(other) is not None and self.data[other] != self.data[name]:
                rule = (
                    f"is {_show(self.data[name])}, but {other} is {_show(self.data[other])}: two spellings of one field"
                )
                raise self.error(name, rule)

    def _assume(self, name: str, value: object) -> None:
        text = f"{self.field(name)} is not in {self.source}: {_show(value)} assumed"
        if text not in self.assumptions:
            self.assumptions.append(text)

    def optional_integer(self, *names: str, minimum: int = 1, maximum: int | None = None) -> int | None:
        """An integer field under the first of its spellings that is there, or None.

        Raises:
            SpecError: It is not an integer, or out of range.
        """
        name, value = self._find(names)
        return None if value is None else self._check_integer(name, value, minimum=minimum, maximum=maximum)

    def integer(self, *names: str, default: int | None = None, minimum: int = 1, maximum: int | None = None) -> int:
        """An integer field; a used default is told in `assumptions`.

        Args:
            names: Spellings; the first that is there counts.
            default: Value of a missing field; None where the field must be there.
            minimum: Smallest valid value.
            maximum: Largest valid value; None takes the limit for names of this kind.

        Raises:
            SpecError: It is missing without a default, not an integer, or out of range.
        """
        value = self.optional_integer(*names, minimum=minimum, maximum=maximum)
        if value is not None:
            return value
        if default is None:
            raise self._missing(names)
        self._assume(names[0], default)
        return default

    def _check_integer(self, name: str, value: object, *, minimum: int, maximum: int | None = None) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"must be an integer, not {_show(value)}")
        if value < minimum:
            raise self.error(name, f"must be an integer of at least {minimum}, not {_show(value)}")
        most = maximum if maximum is not None else _limit(name)
        if value > most:
            raise self.error(name, f"must be at most {most:,}, not {_show(value)}")
        return value

    def integers(
        self, *names: str, length: int | None = None, default: int | None = None, minimum: int = 0
    ) -> tuple[int, ...]:
        """A list of integers; a single integer stands for `length` equal ones.

        Raises:
            SpecError: It is missing without a default, not integers, or not of this length.
        """
        name, value = self._find(names)
        if value is None:
            if default is None:
                raise self._missing(names)
            self._assume(names[0], default)
            value = default
        if not isinstance(value, list | tuple):
            return (self._check_integer(name, value, minimum=minimum),) * (length or 1)
        self._check_length(name, value, length)
        return tuple(self._check_integer(name, item, minimum=minimum) for item in value)

    def optional_integers(self, *names: str, length: int | None = None, minimum: int = 0) -> tuple[int, ...] | None:
        """As `integers`, None where it is missing."""
        _, value = self._find(names)
        return None if value is None else self.integers(*names, length=length, minimum=minimum)

    def strings(self, *names: str, length: int | None = None) -> tuple[str, ...] | None:
        """A list of strings, or None where it is missing.

        Raises:
            SpecError: It is not a list of strings, or not of this length.
        """
        name, value = self._find(names)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self.error(name, f"must be a list of strings, not {_show(value)}")
        self._check_length(name, value, length)
        return tuple(value)

    def kinds(self, *names: str, known: Collection[str], length: int | None = None) -> tuple[str, ...] | None:
        """A list of words, one per layer, of which only the known ones are understood; None where it is missing.

        Raises:
            SpecError: It is not a list of strings, or not of this length.
            UnsupportedModelError: Another word.
        """
        found = self.strings(*names, length=length)
        other = next((kind for kind in found or () if kind not in known), None)
        if other is not None:
            named = next(name for name in names if self.data.get(name) is not None)
            raise self.unsupported(named, f"{_show(other)} is not understood for {self.model_type or 'this family'}")
        return found

    def _check_length(self, name: str, value: list[Any] | tuple[Any, ...], length: int | None) -> None:
        if length is not None and len(value) != length:
            raise self.error(name, f"must have {length} entries, one per layer, not {len(value)}")

    def boolean(self, *names: str, default: bool) -> bool:
        """A true-or-false field. Defaults are those of the family and are not worth an assumption.

        Raises:
            SpecError: It is something else.
        """
        name, value = self._find(names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, f"must be true or false, not {_show(value)}")
        return value

    def string(self, *names: str, default: str | None = None) -> str | None:
        """A text field, or the default.

        Raises:
            SpecError: It is something else.
        """
        name, value = self._find(names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(name, f"must be a string, not {_show(value)}")
        return value

    def number(self, *names: str, default: float | None = None, minimum: float = 0.0, maximum: float = 1e12) -> float:
        """A number, integer or not.

        Raises:
            SpecError: It is missing without a default, not a number, or out of range.
        """
        name, value = self._find(names)
        if value is None:
            if default is None:
                raise self._missing(names)
            self._assume(names[0], default)
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"must be a number, not {_show(value)}")
        if not minimum <= value <= maximum:
            raise self.error(name, f"must be between {minimum:g} and {maximum:g}, not {_show(value)}")
        return float(value)

    def optional_number(self, *names: str, minimum: float = 0.0, maximum: float = 1e12) -> float | None:
        """As `number`, None where it is missing."""
        _, value = self._find(names)
        return None if value is None else self.number(*names, minimum=minimum, maximum=maximum)

    def raw(self, *names: str) -> Any:  # noqa: ANN401 - whatever the file holds
        """A field as it is, or None; the caller checks it."""
        return self._find(names)[1]

    def nested(self, *names: str) -> Config:
        """A nested config.

        Raises:
            SpecError: It is missing or not an object.
        """
        child = self.optional_nested(*names)
        if child is None:
            raise self._missing(names)
        return child

    def optional_nested(self, *names: str) -> Config | None:
        """A nested config, or None where it is missing.

        Raises:
            SpecError: It is not an object.
        """
        name, value = self._find(names)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(name, f"must be an object, not {_show(value)}")
        if name not in self._children:
            self._children[name] = Config(value, source=self.source, parent=self, path=self.field(name))
        return self._children[name]

    # --- what was left over -----------------------------------------------------------------------------------------

    def ignore(self, *names: str) -> None:
        """Mark fields as understood and without influence on memory or work (nested ones with all they hold)."""
        self._read.update(names)
        self._asked.update(names)
        for name in names:
            self._children.pop(name, None)

    def unread(self) -> Iterator[tuple[Config, str, Any]]:
        """Fields that nobody read, in this config and in the nested ones that were opened."""
        for name, value in self.data.items():
            if name not in self._read:
                yield self, name, value
        for child in self._children.values():
            yield from child.unread()

    def nearest(self, name: str) -> str | None:
        """The name that was asked for, is not in the file and looks most like this one."""
        absent = [asked for asked in self._asked if asked not in self.data]
        near = difflib.get_close_matches(name, absent, n=1, cutoff=0.8)
        return near[0] if near else None


def _limit(name: str) -> int:
    return next((limit for fragment, limit in LIMITS if fragment in name), _LARGEST)


def _show(value: object) -> str:
    """A value as it goes into a message: short, on one line."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return "a number with very many digits"
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
