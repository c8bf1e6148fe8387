"""How one engine version budgets memory, as named constants by mechanism; the values live in `specs/profiles/*.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from kvplan.core.dataclass import dataclass


class Budget(StrEnum):
    """What an engine's memory fraction is a share of.

    Attributes:
        TOTAL: Of the card's total; weights, activation peak and runtime come off it (vLLM).
        FREE_BEFORE: Of what is free before loading; only weights come off it, the rest is headroom (SGLang).
        FREE_AFTER: Of what is free after loading and a warm-up (TensorRT-LLM).
        UP_FRONT: Nothing: the cache of all slots is allocated at start, what remains stays unused (llama.cpp).
        EVERYTHING: All that the weights leave is pool (the floor).
    """

    TOTAL = "total"
    FREE_BEFORE = "free_before"
    FREE_AFTER = "free_after"
    UP_FRONT = "up_front"
    EVERYTHING = "everything"


class Paging(StrEnum):
    """How an engine lays caches into its pool.

    Attributes:
        ONE_GROUP: Blocks over all layers; windows reserve like full layers (vLLM before 0.10).
        GROUPS: One page size, layers cut into groups of equal size (vLLM from 0.10).
        POOLS: A pool of tokens each for full layers, windows and recurrent state (SGLang).
        PER_LAYER: Each kind of layer in blocks of its own (TensorRT-LLM, llama.cpp, the floor).
    """

    ONE_GROUP = "one_group"
    GROUPS = "groups"
    POOLS = "pools"
    PER_LAYER = "per_layer"


class Windows(StrEnum):
    """Which window layers keep no more than their window where each kind has blocks of its own.

    Attributes:
        ALL: All of them (the floor).
        MIXED: Those beside layers without a window; a model of windows alone caches whole contexts (llama.cpp).
        NONE: None, unless the user sets windows (TensorRT-LLM).
    """

    ALL = "all"
    MIXED = "mixed"
    NONE = "none"


class StateMode(StrEnum):
    """How many state blocks a sequence keeps: one, one more for prefix caching, or one per block of tokens."""

    NONE = "none"
    ALIGN = "align"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """An engine's defaults on cards of at least `min_gib`.

    Attributes:
        min_gib: Smallest total of the card [GiB].
        max_num_seqs: Sequences that run at most.
        max_num_batched_tokens: Tokens of one iteration at most.
        graph_sequences, graph_sequences_tp4: Largest captured batch below four and from four ranks on (SGLang).
    """

    min_gib: float
    max_num_seqs: int
    max_num_batched_tokens: int
    graph_sequences: int = 0
    graph_sequences_tp4: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """Memory rules of one engine version. The defaults are those of the floor: everything beyond weights is pool.

    Attributes:
        budget: What the fraction is a share of.
        utilization: Default fraction; None where a rule computes it (SGLang).
        highest_utilization: Largest fraction that is suggested; what lies above it the engine needs itself.
        paging: How caches are laid out.
        kv_dtype: Cache format by default; None follows the checkpoint and then the model's dtype.
        compact_kv_dtype: The smaller cache format that this engine is usually told to use, or None.
        compact_dtypes: Smaller weight formats that it runs, widest first.
        block_tokens, latent_block_tokens: Tokens of one block, and on MLA models.
        whole_items: True where the default batch grows to the longest media item of models that take it whole.
        tiers: Default limits by card, smallest first.
        small_tier_cards: Words in a GPU id that keep it on the first tier whatever its memory.
        batched_tokens_follow_context: Longest context that the default batch follows (engines without chunked
            prefill), or 0.
        sampler_bytes_per_logit: Temporaries of the sampler per sequence and vocabulary entry beyond the logits [byte].
        residual_rows: Hidden rows per batched token that stay alive beside the sampler.
        activation_fixed_bytes: Rest of the activation peak [byte].
        dense_hidden_rows, expert_hidden_rows: Hidden rows per token in the forward peak of a dense and an MoE layer.
        multimodal_bytes: Peak of the profiled encoder [byte].
        tower_copy_bytes: Most that an extra tower adds to the logged weights [byte].
        expert_width_multiples, expert_hidden_multiples: Multiples that MXFP4 experts are padded to, by device family
            (`default` for the others): width of an expert on one rank, hidden size. Empty where nothing is padded.
        rope_table_elements: Widest rotary row that the table holds per position; 0 where it isn't in the weights.
        runtime_bytes, runtime_link_bytes, runtime_pcie_bytes, runtime_stage_bytes: Non-torch memory on one rank, on
            tensor-parallel ranks with and without a scale-up link, on pipeline stages [byte].
        runtime_unified_bytes: What is charged on top where the CPU shares the memory [byte].
        context_bytes, collectives_bytes: Device context, and communicators over a scale-up link, where the engine sees
            them only as memory that isn't free [byte].
        graph_inside: True where captured graphs lie inside the budget.
        graph_fixed_bytes, graph_bytes_per_layer: Captured graphs: `fixed + per_layer · layers · captures / 102` [byte].
        compute_bytes_per_logit, compute_hidden_bytes: Compute buffer per batched token: `· vocab + · hidden` [byte].
        group_ratio: The largest kind sets the group size where it is below this times the smallest.
        batches_in_flight: Batches whose tokens a window must keep.
        null_blocks: Blocks that no sequence gets.
        state_mode: State blocks per sequence.
        state_dtype: Format of recurrent states where the config names none; None follows the model's dtype.
        conv_dtype: Format of convolution states; None is 16 bits.
        file_types: Checkpoint format → GGUF file type that it is converted to.
        narrow_dtype: Format that fp32 checkpoints are loaded in unless fp32 is asked for; None loads them as they are.
        state_pool_ratio: State pool as a share of the KV pool, two separate pools.
        window_pool_ratio: Tokens of the window pool as a share of those of the full pool.
        windows: Which window layers keep less than full ones, where each kind has blocks of its own.
        window_extra_tokens: Tokens that a window layer keeps beyond its window; None is one batch.
        prints_concurrency: True where the log's cache size is concurrency × context, False where it is blocks.
        sparse_latent_rows: True where fp8 latents of sparse MLA keep scales and a 16-bit rotary part.
        reserve_*: Headroom of the computed fraction (SGLang) [MiB].
        amd_long_context_factor: Factor on any fraction on AMD cards with a long context (SGLang).
        flags: Knob → this engine's own option, with `{}` for the value.
        log_words: Ledger line → the words of the engine's start-up log.
        confidence: `high`, `medium` or `low`; low is said in the output.
        caution: What a low confidence rests on, said in the output after "the memory rules of …".
    """

    budget: Budget = Budget.EVERYTHING
    utilization: float | None = 1.0
    highest_utilization: float = 0.97
    paging: Paging = Paging.PER_LAYER
    kv_dtype: str | None = None
    compact_kv_dtype: str | None = None
    compact_dtypes: tuple[str, ...] = ()
    block_tokens: int = 1
    latent_block_tokens: int = 1
    tiers: tuple[Tier, ...] = (Tier(min_gib=0, max_num_seqs=2**20, max_num_batched_tokens=2**20),)
    small_tier_cards: tuple[str, ...] = ()
    batched_tokens_follow_context: int = 0
    whole_items: bool = False
    sampler_bytes_per_logit: float = 0.0
    residual_rows: float = 0.0
    activation_fixed_bytes: int = 0
    dense_hidden_rows: float = 0.0
    expert_hidden_rows: float = 0.0
    multimodal_bytes: int = 0
    tower_copy_bytes: int = 0
    expert_width_multiples: Mapping[str, int] = field(default_factory=dict)
    expert_hidden_multiples: Mapping[str, int] = field(default_factory=dict)
    rope_table_elements: int = 0
    runtime_bytes: int = 0
    runtime_link_bytes: int = 0
    runtime_pcie_bytes: int = 0
    runtime_stage_bytes: int = 0
    runtime_unified_bytes: int = 0
    context_bytes: int = 0
    collectives_bytes: int = 0
    graph_inside: bool = False
    graph_fixed_bytes: int = 0
    graph_bytes_per_layer: int = 0
    compute_bytes_per_logit: float = 0.0
    compute_hidden_bytes: float = 0.0
    group_ratio: float = 1.0
    batches_in_flight: int = 1
    null_blocks: int = 0
    state_mode: StateMode = StateMode.NONE
    state_dtype: str | None = None
    conv_dtype: str | None = None
    file_types: Mapping[str, str] = field(default_factory=dict)
    narrow_dtype: str | None = None
    state_pool_ratio: float = 0.0
    window_pool_ratio: float = 0.0
    windows: Windows = Windows.ALL
    window_extra_tokens: int | None = 0
    prints_concurrency: bool = False
    sparse_latent_rows: bool = False
    reserve_fixed_mib: float = 0.0
    reserve_mib_per_batched_token: float = 0.0
    reserve_mib_per_graph_sequence: float = 0.0
    reserve_mib_per_rank: float = 0.0
    reserve_large_card_mib: float = 0.0
    reserve_multimodal_factor: float = 1.0
    amd_long_context_factor: float = 1.0
    flags: Mapping[str, str] = field(default_factory=dict)
    log_words: Mapping[str, str] = field(default_factory=dict)
    confidence: str = "high"
    caution: str = ""

    def option(self, knob: str, value: object) -> str:
        """A knob in this engine's own words, `--max-model-len 4096`.

        >>> MemoryRules(flags={"context": "-c {}"}).option("context", 4096)
        '-c 4096'
        """
        return self.flags.get(knob, f"{knob}={{}}").replace("{}", str(value))
