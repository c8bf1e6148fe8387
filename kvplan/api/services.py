"""From an answer to what starts the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvplan.api.loading import load_gpu, load_model, repository_of
from kvplan.core.precision import display_dtype
from kvplan.core.results import Estimate

if TYPE_CHECKING:
    from kvplan.planning.plan_result import Option


def service_of(answer: Estimate, fields: Mapping[str, Any], *, chosen: Option | None = None) -> dict[str, Any]:
    """What `kvplan.report.service.Service` takes, so that the deployment is the one of the estimate.

    Args:
        answer: The estimate of one replica.
        fields: What was asked.
        chosen: The option of a plan that it belongs to, which sets a limit and replicas.
    """
    dtype = chosen.dtype if chosen is not None else fields.get("dtype")
    published = display_dtype(load_model(fields["model"]))
    gpu = load_gpu(answer.scenario.gpu if chosen is not None else fields["gpu"])
    return {
        "estimate": answer,
        "model": repository_of(fields["model"]),
        "vendor": gpu.vendor.lower(),
        "quantization": None if dtype in {None, published} else dtype,
        "max_num_seqs": chosen.max_num_seqs if chosen is not None else fields.get("max_num_seqs"),
        "max_num_batched_tokens": fields.get("max_num_batched_tokens"),
        "gpu_memory_utilization": fields.get("gpu_memory_utilization"),
        "card_bytes": gpu.framework_memory_bytes if fields.get("gpu_memory_gib") is not None else None,
        "enforce_eager": bool(fields.get("enforce_eager")),
        "n_gpu_layers": fields.get("n_gpu_layers"),
        "max_loras": fields.get("max_loras") or 0,
        "max_lora_rank": fields.get("max_lora_rank") or 16,
        "speculative_tokens": fields.get("speculative_tokens") or 0,
        "dcp": fields.get("dcp") or 1,
        "draft_model": None if fields.get("draft_model") is None else repository_of(fields["draft_model"]),
        "replicas": chosen.replicas + chosen.spare_replicas if chosen is not None else 1,
    }
