"""What an engine sets aside besides weights and cache: activation peak, runtime, captured graphs; its default limits.

Constants are those of `MemoryRules`, fitted on start-up logs; what each rests on is in the profile file.
"""

from __future__ import annotations

from kvplan.core.dataclass import dataclass
from kvplan.core.dtypes import format_by_id
from kvplan.core.engine import Settings
from kvplan.core.hardware import Gpu
from kvplan.core.layout import Layout
from kvplan.core.memory_rules import MemoryRules, Tier
from kvplan.core.model import LatentAttention, Layer, MixtureOfExperts, Model
from kvplan.core.tensors import TensorClass
from kvplan.core.units import GIB, MIB, ceil_div

_BITS = 8
_REFERENCE_CAPTURES = 102
_LARGEST_CAPTURE = 512
_DENSE_STEPS, _SPARSE_STEPS = 8, 16
_DENSE_STEPS_UP_TO = 256
_MANY_RANKS = 4
_LARGE_CARD_MIB = 60 * 1024
_NODE_RANKS = 8
_AITER_CONTEXT = 8192
_AITER_LATENT_HEADS = (16, 128)


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes with their reason."""

    bytes: int
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resolved limits of the scheduler; `defaulted` names those the engine chose itself."""

    max_num_seqs: int
    max_num_batched_tokens: int
    tier: Tier
    defaulted: tuple[str, ...] = ()


def gib_text(value_bytes: float) -> str:
    """Bytes for a formula, `14.96 GiB`."""
    return f"{value_bytes / GIB:.2f} GiB"


def limits_for(
    rules: MemoryRules, gpu: Gpu, settings: Settings, *, total_bytes: int, context: int, model: Model | None = None
) -> Limits:
    """The user's limits, else the engine's defaults on this card, for this model where it asks for a larger batch.

    Encoders are given prompts whole, so their batch grows to the context (vLLM's `arg_utils.py` without chunked prefill).
    """
    small = any(word in gpu.id for word in rules.small_tier_cards)
    fitting = [one for one in rules.tiers if total_bytes / GIB >= one.min_gib]
    tier = rules.tiers[0] if small or not fitting else fitting[-1]
    batched = tier.max_num_batched_tokens
    if context <= rules.batched_tokens_follow_context:
        batched = max(batched, 2048, context)
    if rules.whole_items and model is not None:
        batched = max(batched, model.whole_item_tokens)
    if model is not None and model.encodes_only:
        batched = max(batched, context)
    given = (settings.max_num_seqs, settings.max_num_batched_tokens)
    defaulted = tuple(
        name for name, value in zip(("max_num_seqs", "max_num_batched_tokens"), given, strict=True) if value is None
    )
    return Limits(
        max_num_seqs=given[0] if given[0] is not None else tier.max_num_seqs,
        max_num_batched_tokens=given[1] if given[1] is not None else batched,
        tier=tier,
        defaulted=defaulted,
    )


def activation_bytes_per_element(model: Model) -> int:
    """Bytes of one activation element [byte]."""
    return max(2, int(format_by_id(model.dtype).element_bits) // _BITS)


def forward_elements(rules: MemoryRules, layer: Layer, *, hidden_size: int, tp: int) -> float:
    """Elements per batched token at the forward peak of one layer [element].

    Dense `g · intermediate / tp + rows · hidden`, mixture of experts `top_k · g · moe_intermediate / tp + rows · hidden`,
    where g (3 gated, 2 plain) and the width are read off the matrices: their elements ÷ hidden.
    """
    feed_forward = layer.feed_forward
    if feed_forward is None:
        return rules.dense_hidden_rows * hidden_size
    if isinstance(feed_forward, MixtureOfExperts):
        routed = sum(t.elements for t in feed_forward.tensors if t.matmul and t.tensor_class is TensorClass.EXPERTS)
        widths = routed * feed_forward.top_k / (feed_forward.num_experts * hidden_size)
        return widths / tp + rules.expert_hidden_rows * hidden_size
    widths = sum(t.elements for t in feed_forward.tensors if t.matmul) / hidden_size
    return widths / tp + rules.dense_hidden_rows * hidden_size


def activation(rules: MemoryRules, model: Model, *, layout: Layout, limits: Limits) -> Amount:
    """Transient peak of an engine's profile run, without graphs [byte].

    The larger of the sampler, `(S + dt) · min(seqs, batched) · vocab + rows · batched · hidden · dt + fixed` with the
    whole vocabulary on every rank, and the forward pass, `batched · dt · widest layer`; plus what a pipeline stage receives
    and an encoder's profile. Independent of the context. llama.cpp keeps a compute buffer instead (`_compute_buffer`). Models
    that only encode are pooled (vLLM's `_dummy_pooler_run`): they have no logits.
    """
    vocabulary = 0 if model.encodes_only else model.vocab_size
    if rules.compute_bytes_per_logit:
        return _compute_buffer(rules, model, vocabulary=vocabulary, batched=limits.max_num_batched_tokens)
    dtype_bytes = activation_bytes_per_element(model)
    hidden_bytes = model.hidden_size * dtype_bytes
    batched = limits.max_num_batched_tokens
    sequences = min(limits.max_num_seqs, batched)
    sampler = forward = stage = 0.0
    per_logit = rules.sampler_bytes_per_logit + dtype_bytes
    if rules.sampler_bytes_per_logit:
        sampler = per_logit * sequences * vocabulary
        sampler += rules.residual_rows * batched * hidden_bytes + rules.activation_fixed_bytes
    if rules.dense_hidden_rows:
        widest = max(
            forward_elements(rules, group.layer, hidden_size=model.hidden_size, tp=layout.tp) for group in model.groups
        )
        forward = batched * dtype_bytes * widest
        stage = 2.0 * batched * hidden_bytes if layout.pp > 1 else 0.0
    encoder = rules.multimodal_bytes if model.towers else 0
    if not (sampler or forward or encoder):
        return Amount(0, "")
    if sampler >= forward:
        formula = (
            f"sampler {per_logit:g} B × {sequences} sequences × {vocabulary} vocabulary "
            f"+ {rules.residual_rows:g} × {batched} tokens × {model.hidden_size} × {dtype_bytes} B"
        )
    else:
        formula = f"forward {batched} tokens × {dtype_bytes} B × {forward / batched / dtype_bytes:.0f} elements"
    formula += f" + stage input {gib_text(stage)}" if stage else ""
    formula += f" + encoder {gib_text(encoder)}" if encoder else ""
    return Amount(int(max(sampler, forward) + stage + encoder), formula)


def _compute_buffer(rules: MemoryRules, model: Model, *, vocabulary: int, batched: int) -> Amount:
    """llama.cpp's buffer of one micro-batch: `batched · (logits · vocab + hidden · hidden_size)` [byte]."""
    logit, hidden = rules.compute_bytes_per_logit, rules.compute_hidden_bytes
    value = batched * (logit * vocabulary + hidden * model.hidden_size)
    formula = f"{batched} tokens × ({logit:g} B × {vocabulary} + {hidden:g} B × {model.hidden_size})"
    return Amount(int(value), formula)


def runtime(rules: MemoryRules, gpu: Gpu, layout: Layout) -> Amount:
    """Memory outside the framework's allocator: communicators, libraries, and on shared memory the system's part."""
    several = layout.tp > 1 or layout.shared_experts_over_dp
    linked = gpu.link_bytes_per_s is not None and not gpu.unified_memory
    if several:
        value = rules.runtime_link_bytes if linked else rules.runtime_pcie_bytes
        formula = f"one of several ranks over {gpu.link_name or 'its link' if linked else 'PCIe'}: {gib_text(value)}"
    elif layout.pp > 1:
        value, formula = rules.runtime_stage_bytes, f"pipeline stage: {gib_text(rules.runtime_stage_bytes)}"
    else:
        value, formula = rules.runtime_bytes, f"one rank: {gib_text(rules.runtime_bytes)}"
    if gpu.unified_memory and rules.runtime_unified_bytes:
        value += rules.runtime_unified_bytes
        formula += f" + memory shared with the CPU: {gib_text(rules.runtime_unified_bytes)}"
    if rules.context_bytes:
        collectives = rules.collectives_bytes if several and linked else 0
        value += rules.context_bytes + collectives
        formula = f"device context {gib_text(rules.context_bytes)}"
        formula += f" + collectives {gib_text(collectives)}" if collectives else ""
    return Amount(value, formula if value else "")


def captures(largest: int) -> int:
    """Batch sizes that are captured up to `largest`: 1, 2, 4, then by 8 to 256, then by 16 to 512.

    >>> captures(512), captures(256)
    (51, 35)
    """
    small = sum(1 for size in (1, 2, 4) if size <= largest)
    dense = len(range(_DENSE_STEPS, min(largest, _DENSE_STEPS_UP_TO - 1) + 1, _DENSE_STEPS))
    return small + dense + len(range(_DENSE_STEPS_UP_TO, largest + 1, _SPARSE_STEPS))


def graphs(rules: MemoryRules, model: Model, *, layout: Layout, limits: Limits, eager: bool) -> Amount:
    """Captured graphs: `fixed + per_layer · layers · captures / 102` [byte]; 0 when eager.

    Captures are piecewise graphs to `min(2 · seqs, 512)` tokens and full ones to `min(seqs, 512)`. Median error 12.5 % over
    27 set-ups; it misses what the engine extrapolates for experts on Blackwell.
    """
    if not rules.graph_bytes_per_layer:
        return Amount(0, "")
    if eager:
        return Amount(0, "eager: no graphs")
    sequences = limits.max_num_seqs
    count = captures(min(2 * sequences, _LARGEST_CAPTURE)) + captures(min(sequences, _LARGEST_CAPTURE))
    layers = ceil_div(model.num_hidden_layers, layout.pp)
    value = rules.graph_fixed_bytes + rules.graph_bytes_per_layer * layers * count // _REFERENCE_CAPTURES
    return Amount(
        int(value),
        f"{gib_text(rules.graph_fixed_bytes)} + {rules.graph_bytes_per_layer / MIB:.1f} MiB × {layers} layers "
        f"× {count} captures / {_REFERENCE_CAPTURES}",
    )


def computed_fraction(rules: MemoryRules, model: Model, *, layout: Layout, limits: Limits, total_bytes: int) -> float:
    """The fraction that SGLang computes where none is given.

    `round((T − reserve) / T, 3)` with `reserve = fixed + a · max(chunk, 2048) + b · graph batch + c · ranks / 8` [MiB],
    at least 10 GiB on cards above 60 GiB. DP attention and drafts reserve more, which is left out.
    """
    total_mib = total_bytes / MIB
    graph_batch = limits.tier.graph_sequences_tp4 if layout.tp >= _MANY_RANKS else limits.tier.graph_sequences
    reserve = (
        rules.reserve_fixed_mib
        + rules.reserve_mib_per_batched_token * max(limits.max_num_batched_tokens, 2048)
        + rules.reserve_mib_per_graph_sequence * graph_batch
        + rules.reserve_mib_per_rank * layout.tp * layout.pp / _NODE_RANKS
    )
    if total_mib > _LARGE_CARD_MIB:
        reserve = max(reserve, rules.reserve_large_card_mib)
    fraction = max(0.05, round((total_mib - reserve) / total_mib, 3))
    return fraction * (rules.reserve_multimodal_factor if model.towers else 1.0)


def fraction_factor(rules: MemoryRules, gpu: Gpu, model: Model, *, layout: Layout) -> float:
    """What SGLang multiplies its fraction with, a given one too, on AMD cards with the aiter backend and a long context.

    The backend is the default there but for MLA, which it runs with 16 or 128 heads on a rank and without an indexer.
    """
    if gpu.vendor != "AMD" or (model.max_context or 0) <= _AITER_CONTEXT:
        return 1.0
    latents = [m for group in model.groups for m in group.layer.mixers if isinstance(m, LatentAttention)]
    if any(m.indexer or m.num_attention_heads // layout.tp not in _AITER_LATENT_HEADS for m in latents):
        return 1.0
    return rules.amd_long_context_factor
