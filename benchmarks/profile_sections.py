"""Write fitted numbers into the efficiency sections of `kvplan/specs/profiles`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvplan.core.efficiency import Efficiency

Field = Any  # a number, and a basis in words
PROFILES = Path(__file__).parents[1] / "kvplan" / "specs" / "profiles"

#: Families without rows of their own in `data/serving.csv`: shares of bandwidth and of the 16-, 8- and 4-bit peaks, kernel floor
#: [µs], shares of cache bandwidth and of the prefill peak, the same of experts, time per layer and of a small all-reduce [µs], basis.
INHERITED = {
    "volta": (0.75, 0.5, 0.4, 0.4, 6.0, 0.65, 0.3, 0.6, 0.25, 40.0, 15.0, "end to end 0.59, prefill 0.39 of peak"),
    "turing": (0.75, 0.5, 0.4, 0.4, 6.0, 0.65, 0.3, 0.6, 0.25, 40.0, 25.0, "as Volta"),
    "ampere-dc": (0.7, 0.73, 0.77, 0.4, 4.3, 0.76, 0.57, 0.72, 0.4, 25.0, 8.0, "kernels of A100"),
    "ampere-rtx": (0.8, 0.65, 0.65, 0.4, 4.3, 0.8, 0.5, 0.72, 0.4, 30.0, 25.0, "A100 kernels; end to end 0.68 to 0.80, prefill of A6000 0.71"),
    "ada-rtx": (0.78, 0.56, 0.45, 0.4, 3.5, 0.8, 0.47, 0.78, 0.5, 25.0, 20.0, "kernels of L40S; end to end 0.74 to 0.87"),
    "blackwell-rtx": (0.88, 0.75, 0.7, 0.62, 3.5, 0.95, 0.6, 0.93, 0.5, 22.0, 15.0, "kernels of RTX PRO 6000"),
    "rubin": (0.74, 0.65, 0.5, 0.4, 2.3, 0.9, 0.55, 0.9, 0.4, 17.0, 6.0, "a guess: as Blackwell"),
    "jetson": (0.8, 0.5, 0.45, 0.4, 6.0, 0.75, 0.4, 0.7, 0.35, 60.0, 20.0, "end to end 0.67 to 0.86"),
    "gb10": (0.78, 0.5, 0.45, 0.4, 6.0, 0.75, 0.4, 0.7, 0.35, 30.0, 20.0, "end to end 0.61 to 0.79"),
    "cdna1": (0.6, 0.4, 0.35, 0.3, 8.0, 0.6, 0.3, 0.55, 0.25, 40.0, 15.0, "a guess: below CDNA 3"),
    "cdna2": (0.6, 0.4, 0.35, 0.3, 8.0, 0.6, 0.3, 0.55, 0.25, 40.0, 15.0, "a guess: below CDNA 3"),
    "cdna3": (0.65, 0.45, 0.4, 0.3, 6.0, 0.65, 0.36, 0.6, 0.3, 35.0, 12.0, "end to end 0.52, prefill 0.36"),
    "cdna4": (0.65, 0.45, 0.4, 0.3, 6.0, 0.65, 0.36, 0.6, 0.3, 35.0, 12.0, "as CDNA 3"),
    "rdna3": (0.75, 0.45, 0.4, 0.3, 6.0, 0.7, 0.3, 0.65, 0.3, 40.0, 25.0, "a guess"),
    "rdna3.5": (0.82, 0.4, 0.35, 0.3, 8.0, 0.75, 0.3, 0.7, 0.3, 40.0, 25.0, "end to end 0.75 to 0.85"),
    "apple": (0.85, 0.7, 0.6, 0.4, 8.0, 0.75, 0.5, 0.7, 0.35, 40.0, 25.0, "end to end 0.75 to 0.89 (Ultra 0.56 to 0.68), prefill 0.68 to 0.76"),
    "intel-arc": (0.9, 0.8, 0.75, 0.4, 20.0, 0.9, 0.6, 0.8, 0.6, 60.0, 30.0, "kernels of Arc B60: floors are launches by the host"),
    "intel-pvc": (0.6, 0.45, 0.4, 0.3, 15.0, 0.6, 0.35, 0.6, 0.3, 50.0, 20.0, "a guess"),
    "gaudi": (0.65, 0.55, 0.5, 0.4, 12.0, 0.6, 0.4, 0.6, 0.3, 40.0, 15.0, "a guess"),
    "tpu": (0.7, 0.55, 0.5, 0.4, 8.0, 0.65, 0.45, 0.6, 0.35, 25.0, 8.0, "a guess"),
    "neuron": (0.5, 0.5, 0.45, 0.4, 10.0, 0.55, 0.4, 0.5, 0.3, 40.0, 15.0, "end to end 0.39 to 0.43 on Inferentia 2"),
    "ascend": (0.6, 0.55, 0.5, 0.4, 25.0, 0.55, 0.4, 0.5, 0.3, 150.0, 20.0, "end to end 0.38 to 0.47; 12 to 21 ms for a 0.5B model"),
    "cpu": (0.75, 0.5, 0.5, 0.4, 5.0, 0.7, 0.35, 0.65, 0.3, 20.0, 5.0, "a guess"),
}  # fmt: skip

_SHARED = """shared:
  gemm_bandwidth: 0.7
  fp4_bandwidth: {fp4_bandwidth}
  gemm_mfu: {{bf16: 0.5, fp16: 0.5, fp32: 0.6, tf32: 0.5, fp8: 0.45, int8: 0.45, fp4: 0.35, default: 0.45}}
  gemm_idle_tiles: 0.1
  gemm_activation_traffic: {activations}
  quantised_activation_traffic: {quantised}
  kernel_s: 5.0e-6
  quantise_kernel_s: 4.0e-6
  dequantise_mfu: {expand_mfu}
  dequantise_bandwidth: {expand_bandwidth}
  expert_bandwidth: 0.65
  expert_mfu: {{default: 0.3}}
  expert_pad_tokens: 60
  expert_tile: 8
  expert_activation_traffic: 1.5
  expert_token_traffic: 1.5
  expert_skew: {skew}
  expert_imbalance: {imbalance}
  attention_bandwidth: 0.65
  attention_mfu_decode: {decode_mfu}
  attention_mfu_prefill: 0.45
  attention_softmax_dims: 50
  attention_s: {attention_s}
  attention_row_s: 3.0e-6
  indexer_s: {indexer_s}
  state_bandwidth: 0.83
  recurrent_s: {recurrent_s}
  scan_s: {scan_s}
  link_bandwidth: {link}
  pcie_sharing: 0.7
  allreduce_s: 15.0e-6
  allreduce_hop_s: 0.15e-6
  alltoall_s: {alltoall_s}
  layer_s: 30.0e-6
  moe_layer_s: 45.0e-6
  elementwise_traffic: {elementwise}
  step_s: 0.3e-3
  eager_layer_s: 0.3e-3
  sequence_s: 11.0e-6
  prefill_token_s: 1.0e-6
  request_s: 12.0e-3
  network_s: 10.0e-6
  spread_tpot: 0.8
  spread_ttft: 1.5
"""
#: Half widths that hold nine in ten of held-out rows, and wider ones with distance from what was measured.
SPREAD_MEASURED, SPREAD_OTHER_ENGINE, SPREAD_NEAR, SPREAD_FAR = (0.26, 1.15), (0.45, 1.2), (0.6, 1.2), (0.8, 1.5)
#: Families on which published points of vLLM were compared.
COMPARED = ("ampere-dc", "ampere-rtx", "ada-rtx")


def number(value: float) -> str:
    """Three digits, in a form that YAML reads as a number."""
    text = f"{value:.3g}"
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent)}"


def seconds(value: float) -> str:
    """A time in millionths of a second."""
    text = f"{value * 1e6:.3g}"
    return f"{text if '.' in text else text + '.0'}e-6" if value else "0"


def mapping(values: Mapping[str, float]) -> str:
    """A mapping on one line."""
    return "{" + ", ".join(f"{name}: {number(value)}" for name, value in values.items()) + "}"


def write_profiles(
    q: Mapping[str, float], fitted: Mapping[tuple[str, str], Efficiency], kernels: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write `_physics.yaml` and the efficiency sections of vLLM, SGLang and TensorRT-LLM."""
    (PROFILES / "_physics.yaml").write_text(_physics(q, fitted, kernels), encoding="utf-8")
    old = q["recurrent"] * q["recurrent_old"] * 1e-6
    _section(
        "vllm",
        _engine(
            "vllm",
            q,
            fitted,
            kernels,
            f"    host_floor_s: 10.0e-3 # the V0 engine\n    block_kernel_s: {seconds(q['block_old'] * 1e-6)}\n",
        )
        + '  versions:\n    "0.8": # the V1 engine: the host works ahead of the device\n      shared:\n        host_floor_s: 0\n'
        + '    "0.18": # activations are quantised in groups by a compiled kernel\n      shared:\n        block_kernel_s: 0\n',
    )
    _section(
        "sglang",
        _engine("sglang", q, fitted, kernels, f"    recurrent_s: {seconds(old)}\n")
        + '  versions:\n    "0.5.10": # fused gated delta nets\n      shared:\n        recurrent_s: '
        + seconds(q["recurrent"] * 1e-6)
        + "\n",
    )
    _section("tensorrt-llm", _engine("tensorrt-llm", q, fitted, kernels, ""))


def _physics(
    q: Mapping[str, float], fitted: Mapping[tuple[str, str], Efficiency], kernels: Mapping[str, Mapping[str, Any]]
) -> str:
    values = {name: number(value) for name, value in q.items() if "." not in name}
    times = {f"{name}_s": seconds(q[name] * 1e-6) for name in ("indexer", "recurrent", "scan", "alltoall")}
    text = (
        "# Efficiencies that all engines share, and what device families change; an engine's own file overrides both.\n"
        "# Keys are the fields of kvplan.core.efficiency.Efficiency. `fallback` is laid over `shared` for families that nobody measured.\n"
        "# Written by benchmarks/fit_profiles.py from measured kernels (priors) and end-to-end rows; docs/validation.md says how well\n"
        "# it holds. Families without measurements inherit from kernels or from published shares of bandwidth, with wider ranges.\n"
        + _SHARED.format(**values, **times, attention_s=seconds(10e-6 * q["kernel"]))
        + "\nfamilies:\n"
    )
    for family, kernel in kernels.items():
        text += _measured(family, fitted[family, "vllm"], kernel, q)
    for family, fields in INHERITED.items():
        text += _inherited(family, *fields)
    return text + "fallback: {}\n"


def _measured(family: str, eff: Efficiency, kernel: Mapping[str, Any], q: Mapping[str, float]) -> str:
    mfu = {**eff.gemm_mfu, "fp16": eff.gemm_mfu["bf16"], "int8": eff.gemm_mfu["fp8"]}
    grouped = {name: share * q[f"grouped.{family}"] for name, share in kernel["grouped"].items()}
    lines = [
        f"{family}: # kernels, then end to end",
        f"  gemm_bandwidth: {number(eff.gemm_bandwidth)}",
        f"  gemm_mfu: {mapping(mfu)}",
        f"  gemm_idle_tiles: {number(eff.gemm_idle_tiles)}",
        f"  kernel_s: {seconds(eff.kernel_s)}",
        f"  quantise_kernel_s: {seconds(kernel['quantise'] * 1.5e-6)}",
        f"  attention_bandwidth: {number(eff.attention_bandwidth)}",
        f"  attention_mfu_prefill: {number(eff.attention_mfu_prefill)}",
        f"  attention_softmax_dims: {number(eff.attention_softmax_dims)}",
        f"  attention_row_s: {seconds(eff.attention_row_s)}",
        f"  expert_bandwidth: {number(eff.expert_bandwidth)}",
        f"  expert_mfu: {mapping({**grouped, 'default': 0.3})}",
        f"  expert_pad_tokens: {number(kernel['pad'])}",
        f"  expert_tile: {number(kernel['tile'])}",
        f"  expert_activation_traffic: {number(kernel['rows'])}",
        f"  expert_token_traffic: {number(kernel['tokens'])}",
        f"  layer_s: {seconds(q[f'layer.{family}'] * 1e-6)}",
        f"  moe_layer_s: {seconds(q[f'moe.{family}'] * 1e-6)}",
        f"  allreduce_s: {seconds(eff.allreduce_s)}",
        *_spread(SPREAD_OTHER_ENGINE),
    ]
    return "".join(f"  {line}\n" for line in lines)


def _inherited(family: str, *fields: Field) -> str:
    bandwidth, half, eighth, fourth, kernel, cache, prefill, experts, grouped, layer, reduce, basis = fields
    known = str(basis).startswith(("kernels", "end to end", "A100"))
    mfu = {"bf16": half, "fp16": half, "fp8": eighth, "int8": eighth, "fp4": fourth}
    lines = [
        f"{family}: # {basis}",
        f"  gemm_bandwidth: {number(bandwidth)}",
        f"  gemm_mfu: {mapping(mfu)}",
        f"  kernel_s: {seconds(kernel * 0.8e-6)}",
        f"  attention_bandwidth: {number(cache)}",
        f"  attention_mfu_prefill: {number(prefill * (128 + 50) / 128)}",
        "  attention_softmax_dims: 50",
        f"  expert_bandwidth: {number(experts)}",
        f"  expert_mfu: {mapping({'default': grouped})}",
        f"  layer_s: {seconds(layer * 1e-6)}",
        f"  allreduce_s: {seconds(reduce * 1e-6)}",
        *_spread(SPREAD_NEAR if known else SPREAD_FAR),
    ]
    return "".join(f"  {line}\n" for line in lines)


def _spread(widths: tuple[float, float]) -> tuple[str, str]:
    return f"  spread_tpot: {widths[0]}", f"  spread_ttft: {widths[1]}"


def _engine(
    engine: str,
    q: Mapping[str, float],
    fitted: Mapping[tuple[str, str], Efficiency],
    kernels: Mapping[str, Mapping[str, Any]],
    more: str,
) -> str:
    text = (
        "efficiency:\n  shared:\n"
        f"    step_s: {number(q[f'step.{engine}'])}\n"
        f"    sequence_s: {seconds(q[f'sequence.{engine}'])}\n"
        f"    prefill_token_s: {seconds(q[f'prompt_token.{engine}'])}\n"
        f"    request_s: {number(q[f'request.{engine}'])}\n"
        f"    stream_tokens: {number(q[f'stream.{engine}'])}\n"
        f"    stream_tokens_busy: {number(q[f'stream_busy.{engine}'])}\n" + more + "  families:\n"
    )
    for family, kernel in kernels.items():
        eff = fitted[family, engine]
        lines = [
            f"{family}:",
            "  measured: true",
            f"  quantise_kernel_s: {seconds(eff.quantise_kernel_s)}",
            f"  layer_s: {seconds(eff.layer_s)}",
            f"  moe_layer_s: {seconds(eff.moe_layer_s)}",
            f"  expert_mfu: {mapping(eff.expert_mfu)}",
        ]
        if eff.expert_token_traffic != kernel["tokens"]:
            lines.append(f"  expert_activation_traffic: {number(eff.expert_activation_traffic)}")
            lines.append(f"  expert_token_traffic: {number(eff.expert_token_traffic)}")
        if engine == "sglang" and family == "hopper":
            lines.append(f"  stream_tokens: {number(eff.stream_tokens)}")
            lines.append(f"  stream_tokens_busy: {number(eff.stream_tokens_busy)}")
        text += "".join(f"    {line}\n" for line in [*lines, *_spread(SPREAD_MEASURED)])
    if engine == "vllm":
        for family in COMPARED:
            lines = [f"{family}:", "  measured: true", *_spread(SPREAD_OTHER_ENGINE)]
            text += "".join(f"    {line}\n" for line in lines)
    return text


def _section(engine: str, text: str) -> None:
    """Replace the `efficiency` section of an engine's file."""
    path = PROFILES / f"{engine}.yaml"
    whole = path.read_text(encoding="utf-8")
    start, end = whole.index("efficiency:"), whole.index("\nprovenance:")
    path.write_text(whole[:start] + text + whole[end:], encoding="utf-8")
