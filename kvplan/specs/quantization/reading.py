"""What the dialects share: lists of names, cache schemes, refusals."""

from __future__ import annotations

from kvplan.errors import UnsupportedModelError
from kvplan.specs.huggingface.config import Config
from kvplan.specs.quantization.names import NameList


def refused(quant: Config, name: str, rule: str) -> UnsupportedModelError:
    """The error for a field that is valid but not understood."""
    return UnsupportedModelError(f"{where(quant, name)}: {rule}")


def where(quant: Config, name: str) -> str:
    """File and field, for messages."""
    return f"{quant.source}: {quant.field(name)}"


def name_list(quant: Config, *names: str) -> NameList | None:
    """The module names under all spellings of a list together, or None where there are none."""
    found = [name for spelling in names for name in quant.strings(spelling) or ()]
    return NameList(found, where=where(quant, names[0])) if found else None


def read_kv_scheme(quant: Config, *names: str) -> str | None:
    """The cache format that a scheme asks for: a name (`FP8`) or an object (`num_bits`, `type`), or None.

    Raises:
        SpecError: It is neither.
    """
    name = next((name for name in names if quant.data.get(name) not in (None, "", "none", "None", {})), None)
    quant.ignore(*(other for other in names if other != name))
    if name is None:
        return None
    value = quant.raw(name)
    if isinstance(value, str):
        found = {"fp8": "fp8", "int8": "int8", "nvfp4": "nvfp4", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}.get(
            value.lower()
        )
        if found is None:
            raise quant.error(name, f"{value!r} is not a cache format that kvplan knows")
        return found
    scheme = quant.nested(name)
    bits, kind = scheme.integer("num_bits", maximum=16), scheme.string("type", default="float")
    scheme.ignore(*scheme.data)
    known = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "nvfp4", (4, "int"): "int4", (16, "float"): None}
    if (bits, kind) not in known:
        raise quant.error(name, f"{bits}-bit {kind} is not a cache format that kvplan knows")
    return known[bits, str(kind)]
