from kvplan.core.memory_rules import Budget, MemoryRules, Paging, StateMode, Tier


def test_the_rules_of_the_floor_reserve_nothing():
    rules = MemoryRules()
    assert (rules.budget, rules.paging, rules.state_mode) == (Budget.EVERYTHING, Paging.PER_LAYER, StateMode.NONE)
    assert rules.tiers == (Tier(min_gib=0, max_num_seqs=2**20, max_num_batched_tokens=2**20),)
    assert (rules.tiers[0].graph_sequences, rules.tiers[0].graph_sequences_tp4) == (0, 0)
    ones = {
        "utilization",
        "block_tokens",
        "latent_block_tokens",
        "group_ratio",
        "batches_in_flight",
        "amd_long_context_factor",
        "reserve_multimodal_factor",
    }
    numbers = {name: getattr(rules, name) for name in MemoryRules.__slots__}
    numbers = {name: value for name, value in numbers.items() if isinstance(value, int | float)}
    assert numbers.pop("highest_utilization") == 0.97
    assert {name for name, value in numbers.items() if value == 1} == ones
    assert all(value == 0 for name, value in numbers.items() if name not in ones)
    assert (rules.kv_dtype, rules.compact_kv_dtype, rules.small_tier_cards, rules.confidence) == (
        None,
        None,
        (),
        "high",
    )


def test_a_knob_in_the_engines_own_words():
    rules = MemoryRules(flags={"context": "--max-model-len {}"})
    assert rules.option("context", 4096) == "--max-model-len 4096"
    assert rules.option("tp", 2) == "tp=2"
