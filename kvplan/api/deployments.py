"""Specs, layout and settings become one deployment."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from kvplan.api.loading import EngineLike, GpuLike, ModelLike, load_engine, load_gpu, load_model
from kvplan.core.deployment import Deployment, deploy
from kvplan.core.engine import Engine, Settings, memory_bytes
from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.model import Model
from kvplan.core.precision import apply_dtype
from kvplan.errors import UsageError
from kvplan.specs import registry
from kvplan.specs.registry import Kind

_CACHE_SIZE: Final = 256
#: Keywords of `estimate` that an engine's settings take as they are.
_KNOBS: Final = (
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enforce_eager",
    "n_gpu_layers",
    "max_loras",
    "max_lora_rank",
    "speculative_tokens",
    "dcp",
)


_deployments: OrderedDict[tuple[Any, ...], tuple[tuple[Any, ...], Deployment]] = OrderedDict()


def deployment_of(fields: Mapping[str, Any]) -> Deployment:
    """The deployment that keywords of `estimate` describe; those of the load are not asked, None is the default.

    Raises:
        UsageError: Values that make no sense together.
    """
    for name in ("model", "gpu"):
        if fields.get(name) is None:
            msg = f"no {name} is given"
            raise UsageError(msg, hint=f"name one: {name}=…")
    given = {name: value for name, value in fields.items() if value is not None}
    layout = Layout(**{name: given[name] for name in ("tp", "pp", "dp", "ep") if name in given})
    _check_count(given.get("gpu_count"), layout)
    draft = given.get("draft_model")
    settings = Settings(
        draft_model=None if draft is None else load_model(draft),
        gpu_memory_bytes=memory_bytes(given.get("gpu_memory_gib")),
        **{name: given[name] for name in _KNOBS if name in given},
    )
    parts = ("engine", "dtype", "kv_dtype", "assume_plain", "overrides")
    return deployment(
        given["model"],
        given["gpu"],
        layout=layout,
        settings=settings,
        **{name: given[name] for name in parts if name in given},
    )


def _check_count(gpu_count: int | None, layout: Layout) -> None:
    """Refuse a number of GPUs that is not the layout's.

    Raises:
        UsageError: It is not.
    """
    if gpu_count is None or gpu_count == layout.gpu_count:
        return
    product = f"{layout.tp} × {layout.pp} × {layout.dp} = {layout.gpu_count}"
    msg = f"gpu_count: {gpu_count} is not tp × pp × dp = {product}"
    spread = f"tp={gpu_count} lays one copy of the model over all of them, dp={gpu_count} one on each"
    raise UsageError(msg, hint=spread if layout.gpu_count == 1 else f"leave it out, or use {layout.gpu_count}")


def deployment(
    model: ModelLike,
    gpu: GpuLike,
    *,
    engine: EngineLike = "vllm",
    dtype: str | None = None,
    kv_dtype: str | None = None,
    layout: Layout | None = None,
    settings: Settings | None = None,
    assume_plain: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> Deployment:
    """Resolve names and lay the model out over GPUs; the last few hundred deployments are kept.

    Files are read anew at every call; only names of bundled specs and spec objects are kept.
    """
    layout = layout if layout is not None else Layout()
    settings = settings if settings is not None else Settings()
    parts = (model, gpu, engine)
    kinds: tuple[Kind, ...] = ("model", "gpu", "engine")
    keep = not overrides and all(_is_kept(kind, part) for kind, part in zip(kinds, parts, strict=True))
    key = (*(part if isinstance(part, str) else id(part) for part in parts), dtype, kv_dtype, layout, settings)
    if keep and key in _deployments:
        _deployments.move_to_end(key)
        return _deployments[key][1]
    loaded = load_model(model, assume_plain=assume_plain, overrides=overrides)
    if dtype is not None:
        loaded = apply_dtype(loaded, dtype)
    found = deploy(loaded, load_gpu(gpu), load_engine(engine), layout=layout, settings=settings, kv_dtype=kv_dtype)
    if keep:
        _deployments[key] = (parts, found)
        if len(_deployments) > _CACHE_SIZE:
            _deployments.popitem(last=False)
    return found


def _is_kept(kind: Kind, part: ModelLike | GpuLike | EngineLike) -> bool:
    if isinstance(part, str):
        return registry.find(kind, part.partition("@")[0] if kind == "engine" else part) is not None
    return isinstance(part, Model | Gpu | Engine)
