"""Vision–language families as data: one decoder, one vision tower, one projector between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from kvplan.core.dataclass import dataclass
from kvplan.specs.huggingface.blueprint import Blueprint
from kvplan.specs.huggingface.config import Config
from kvplan.specs.huggingface.nested import INNER, Spelling, read_text, tower_config, with_towers
from kvplan.specs.huggingface.parts import Parts
from kvplan.specs.huggingface.towers import Encoder, TowerReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """Where a projector sits.

    Attributes:
        outer: The outer config.
        vision: That of the tower.
        width: Width of the features that the tower hands on.
        hidden: Width of the decoder.
    """

    outer: Config
    vision: Config
    width: int
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """How one family differs from the others; called with a config, it reads it.

    Attributes:
        text_type: Family of the decoder where the nested config names none.
        vision: Reader of the tower.
        projector: What joins the two; None where the tower ends at the decoder's width by itself.
        vision_defaults: The tower that a file without `vision_config` means.
        spelling: Names of the decoder in the checkpoint.
        tied_default, either_ties, tying: Whose word counts on tied embeddings, see `read_text`.
    """

    text_type: str
    vision: TowerReader
    projector: Callable[[Joint], Parts] | None = None
    vision_defaults: Mapping[str, Any] | None = None
    spelling: Spelling = INNER
    tied_default: bool | None = None
    either_ties: bool = False
    tying: Literal["outer", "inner"] = "outer"

    def __call__(self, config: Config) -> Blueprint:
        """Read a config of this family."""
        text, _ = read_text(
            config,
            default_type=self.text_type,
            spelling=self.spelling,
            tied_default=self.tied_default,
            either_ties=self.either_ties,
            tying=self.tying,
        )
        nested = tower_config(config, defaults=self.vision_defaults)
        encoder = self.vision(nested)
        towers: dict[str, Encoder | Parts] = {"vision": encoder}
        if self.projector is not None:
            joint = Joint(outer=config, vision=nested, width=encoder.width, hidden=text.hidden_size)
            towers["projector"] = self.projector(joint)
        return with_towers(config, text, towers)
