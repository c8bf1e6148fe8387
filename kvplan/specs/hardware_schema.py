"""The shape of a hardware spec file, checked by pydantic; values stay as printed (`specs.hardware` converts them)."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, field_validator, model_validator
from pydantic.functional_validators import BeforeValidator

from kvplan.specs.document import closest
from kvplan.specs.families import FAMILIES, FRAMEWORK_RULES
from kvplan.specs.units import parse_quantity


def _quantity(kind: str) -> BeforeValidator:
    def check(text: object) -> object:
        if parse_quantity(text, kind) == 0:
            message = "must be more than zero; leave the field out if it is unknown"
            raise ValueError(message)
        return text

    return BeforeValidator(check)


def _one_of(names: tuple[str, ...]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in names:
            message = f"{name!r} is not one of {', '.join(names)}{closest(name, names)}"
            raise ValueError(message)
        return name

    return AfterValidator(check)


Size = Annotated[str, _quantity("size")]
Rate = Annotated[str, _quantity("rate")]
Compute = Annotated[str, _quantity("compute")]
Power = Annotated[str, _quantity("power")]
Frequency = Annotated[str, _quantity("frequency")]
Family = Annotated[str, _one_of(tuple(FAMILIES))]
Rule = Annotated[str, _one_of(tuple(FRAMEWORK_RULES))]
SpecId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
#: Cores, cards of a server, years: nobody has a million of them.
Count = Annotated[int, Field(gt=0, le=10**6, strict=True)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Usable(_Strict):
    """What the driver reports as the card's total."""

    value: Size
    read_from: str
    """The tool and how sure the reading is."""


class Framework(_Strict):
    """What a framework (torch) reports as the card's total: seen, told from a twin card, or by a rule."""

    value: Size | None = None
    seen: str | None = None
    derived: str | None = None
    rule: Rule | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        origins = [name for name in ("seen", "derived", "rule") if getattr(self, name)]
        if len(origins) != 1 or (self.value is None) != (self.rule is not None):
            message = "needs `value` with `seen` or `derived`, or `rule` alone"
            raise ValueError(message)
        return self


class Memory(_Strict):
    """Memory of the package."""

    type: str | None = None
    capacity: Size
    bandwidth: Rate
    usable: Usable | None = None
    framework: Framework | None = None
    unified: StrictBool = False
    options: tuple[Size, ...] = ()
    default_gpu_fraction: Annotated[float, Field(gt=0, le=1)] | None = None


#: Formats that every model has products in.
_WIDE: Final = ("bf16", "fp16", "fp32", "tf32")


class Peak(_Strict):
    """Dense peak per format; floating formats accumulate in fp32."""

    fp32: Compute | None = None
    tf32: Compute | None = None
    fp16: Compute | None = None
    bf16: Compute | None = None
    fp8: Compute | None = None
    int8: Compute | None = None
    int4: Compute | None = None
    fp4: Compute | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not any(getattr(self, name) for name in type(self).model_fields):
            message = "needs at least one format, like `bf16: 989.4 TFLOPS`"
            raise ValueError(message)
        return self


class Measured(_Strict):
    """What public measurements reached: for the reader; efficiencies live in engine profiles."""

    bandwidth: Rate | None = None
    peak: Peak | None = None


class ScaleUp(_Strict):
    """The link between cards of one server or rack."""

    name: str
    rate: Rate
    """Per direction, all links of the package together."""
    p2p: Rate | None = None
    """Per direction between one pair, where that is less (meshes, tori)."""
    domain: Count = 1
    """Packages joined at that rate."""


class Link(_Strict):
    """A named link, rate per direction."""

    name: str
    rate: Rate | None = None


class Links(_Strict):
    """How the card is connected."""

    scale_up: ScaleUp | None = None
    pcie: Link | None = None
    host: Link | None = None
    """The CPU's link where it is not PCIe (NVLink-C2C)."""
    network: Link | None = None
    """Between servers, per device, in the usual server."""


class Source(_Strict):
    """Who says so, for the fields that `covers` names (the longest name that fits a field counts)."""

    covers: Annotated[tuple[str, ...], Field(min_length=1)]
    confidence: Literal["datasheet", "secondary", "conflicting"]
    read: Annotated[str, Field(pattern=r"^\d{4}-\d{2}(-\d{2})?$")]
    where: Annotated[tuple[str, ...], Field(min_length=1)]


class HardwareSpec(_Strict):
    """One accelerator as sold, values as printed."""

    id: SpecId
    aliases: tuple[str, ...] = ()
    name: str | None = None
    vendor: Annotated[str, Field(min_length=1)]
    architecture: str | None = None
    family: Family
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None
    target: str | None = None
    form_factor: str | None = None
    released: Count | None = None
    available: StrictBool = True
    devices_per_package: Count = 1
    gpus_per_node: Count = 1
    memory: Memory
    peak: Peak
    peak_fp16_accumulate: Peak | None = None
    measured: Measured | None = None
    l2_cache: Size | None = None
    last_level_cache: Size | None = None
    cores: Count | None = None
    clock: Frequency | None = None
    links: Links | None = None
    tdp: Power | None = None
    sources: tuple[Source, ...] = ()
    notes: tuple[str, ...] = ()

    @field_validator("peak")
    @classmethod
    def _multiplies_wide_numbers(cls, peak: Peak) -> Peak:
        """Narrower formats alone say nothing of layers that stay in 16 bits, of attention for one."""
        if not any(getattr(peak, name) for name in _WIDE):
            message = f"needs one of {', '.join(_WIDE)}, which layers without units of their own run in"
            raise ValueError(message)
        return peak
