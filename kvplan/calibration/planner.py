"""What this room asks of `kvplan.api`, which passes itself in: calibration never imports the faces above it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from kvplan.core.dataclass import dataclass
from kvplan.core.results import Estimate
from kvplan.errors import KvplanError


@dataclass(slots=True, kw_only=True)
class Planner:
    """Loaders and the estimate, each spec resolved once however many rows name it.

    Attributes:
        load_model, load_gpu, load_engine: Name or path → spec. Those of records get a `Path` for a file and a word for
            a name that stands in somebody's file.
        estimate: `estimate(model, gpu, *, engine=…, …)`.
    """

    load_model: Callable[[Any], Any]
    load_gpu: Callable[[Any], Any]
    load_engine: Callable[[Any], Any]
    estimate: Callable[..., Estimate]
    _specs: dict[tuple[str, str], Any] = field(default_factory=dict)

    def model(self, reference: Any) -> Any:  # noqa: ANN401 - whatever the loader takes and gives
        """A model, from memory the second time."""
        return self._once("model", reference, self.load_model)

    def gpu(self, reference: Any) -> Any:  # noqa: ANN401 - whatever the loader takes and gives
        """A GPU, from memory the second time."""
        return self._once("gpu", reference, self.load_gpu)

    def engine(self, reference: Any) -> Any:  # noqa: ANN401 - whatever the loader takes and gives
        """An engine, from memory the second time."""
        return self._once("engine", reference, self.load_engine)

    def _once(self, kind: str, reference: Any, load: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - as above
        key = (kind, repr(reference))  # the file `x` is not what the name `x` means
        if key not in self._specs:
            try:
                self._specs[key] = load(reference)
            except KvplanError as error:
                self._specs[key] = error
        found = self._specs[key]
        if isinstance(found, KvplanError):
            raise found
        return found
