"""Messages between ranks: which link carries them, values by hand, laws of bandwidth and latency."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.core.collectives import Link, allreduce_s, alltoall_s, link_for, wire_factor
from kvplan.core.efficiency import IDEAL, Efficiency
from tests.core import builders

SWITCH = Link(name="nvlink", bytes_per_s=4e11)
NETWORK = Link(name="network", bytes_per_s=5e10, hops_network=True)
REAL = Efficiency(link_bandwidth=0.8, allreduce_s=4e-6, allreduce_hop_s=1e-6, alltoall_s=1e-5, network_s=3e-6)
RANKS = st.integers(2, 64)
BYTES = st.floats(1, 1e10)


def test_on_a_switch_any_two_ranks_have_the_whole_link():
    card = builders.gpu(link_bytes_per_s=4.5e11, link_p2p_bytes_per_s=4.5e11, link_domain=8)
    assert [link_for(card, ranks).bytes_per_s for ranks in (2, 4, 8)] == [4.5e11] * 3
    assert link_for(builders.gpu(link_p2p_bytes_per_s=None), 2) == Link(name="Link", bytes_per_s=4e11)
    assert link_for(builders.gpu(link_name=None), 2).name == "link"


def test_on_a_mesh_a_rank_has_one_link_to_each_other_rank():
    """MI300X: seven xGMI links of 64 GB/s, one to each of seven peers (AMD CDNA 3 white paper)."""
    card = builders.gpu(link_bytes_per_s=4.48e11, link_p2p_bytes_per_s=6.4e10, link_domain=8)
    assert [link_for(card, ranks).bytes_per_s for ranks in (2, 4, 8)] == [6.4e10, 3 * 6.4e10, 7 * 6.4e10]
    narrow = builders.gpu(link_bytes_per_s=1.28e11, link_p2p_bytes_per_s=6.4e10, link_domain=8)
    assert link_for(narrow, 8).bytes_per_s == 1.28e11


def test_beyond_the_links_pcie_serves_a_node_and_the_network_several():
    card = builders.gpu(link_domain=2, gpus_per_node=4, pcie_bytes_per_s=6e10, network_bytes_per_s=5e10)
    assert [link_for(card, ranks).name for ranks in (2, 3, 4, 5)] == ["Link", "pcie", "pcie", "network"]
    assert link_for(card, 4) == Link(name="pcie", bytes_per_s=6e10, hops_network=False)
    assert link_for(card, 5) == Link(name="network", bytes_per_s=5e10, hops_network=True)


def test_what_a_sheet_leaves_out_is_taken_from_pcie():
    """16 GB/s per direction is PCIe 3.0 × 16."""
    bare = builders.gpu(link_bytes_per_s=None, pcie_bytes_per_s=None)
    assert link_for(bare, 2) == Link(name="pcie", bytes_per_s=16e9)
    assert link_for(builders.gpu(link_bytes_per_s=None), 16).bytes_per_s == 5e10


def test_an_all_reduce_sends_what_it_reduces_and_what_it_gathers():
    """A ring sends (n − 1) / n of the payload twice (nccl-tests' definition of bus bandwidth)."""
    assert [wire_factor(ranks) for ranks in (2, 4, 8)] == [1.0, 1.5, 1.75]


def test_a_small_message_goes_to_all_peers_at_once():
    """16 kB to 3 peers at 0.8 · 400 GB/s are 0.15 µs; 4 µs for two ranks and 1 µs for each of two more."""
    assert allreduce_s(16000, 4, link=SWITCH, efficiency=REAL) == pytest.approx(4e-6 + 2e-6 + 0.15e-6)


def test_a_large_message_is_reduced_and_gathered_in_parts():
    """64 MB · 1.5 at 0.8 · 400 GB/s are 300 µs, beside two phases of 4 µs and two further ranks of 1 µs."""
    assert allreduce_s(64e6, 4, link=SWITCH, efficiency=REAL) == pytest.approx(300e-6 + 2 * 4e-6 + 2e-6)
    assert allreduce_s(4e8, 8, link=SWITCH, efficiency=IDEAL) == pytest.approx(1.75 * 4e8 / 4e11)


def test_between_nodes_each_rank_adds_a_message():
    """16 ranks: 4 + 14 · 1 µs as anywhere, 16 · 3 µs for the network, 15 · 4 kB at 40 GB/s."""
    assert allreduce_s(4000, 16, link=NETWORK, efficiency=REAL) == pytest.approx(18e-6 + 48e-6 + 1.5e-6)


def test_pcie_is_shared():
    card = builders.gpu(link_bytes_per_s=None)
    eff = Efficiency(pcie_sharing=1.0)
    two = allreduce_s(1e9, 2, link=link_for(card, 2), efficiency=eff)
    four = allreduce_s(1e9, 4, link=link_for(card, 4), efficiency=eff)
    assert two == pytest.approx(1e9 / 5e10)
    assert four == pytest.approx(1.5 * 1e9 / 2.5e10)
    for other in (SWITCH, NETWORK):
        assert allreduce_s(1e9, 4, link=other, efficiency=eff) == pytest.approx(1.5 * 1e9 / other.bytes_per_s)


def test_one_rank_sends_nothing():
    for link in (SWITCH, NETWORK):
        assert allreduce_s(1e6, 1, link=link, efficiency=REAL) == 0
        assert alltoall_s(100, 1e4, ranks=1, top_k=8, link=link, efficiency=REAL) == 0


def test_an_expert_dispatch_sends_each_token_once_to_a_rank():
    """Two of two choices hit 2 · (1 − ½²) = 1.5 of two ranks, half of them this one: 0.75 · 4000 · 1 kB at 320 GB/s."""
    assert alltoall_s(4000, 1000, ranks=2, top_k=2, link=SWITCH, efficiency=REAL) == pytest.approx(
        1e-5 + 0.75 * 4e6 / 3.2e11
    )
    across = alltoall_s(4000, 1000, ranks=2, top_k=2, link=NETWORK, efficiency=REAL)
    assert across == pytest.approx(1e-5 + 3e-6 + 0.75 * 4e6 / 4e10)


@given(RANKS, st.integers(1, 16), st.floats(1, 1e6))
def test_a_dispatch_sends_at_most_its_choices_and_at_most_all_other_ranks(ranks, top_k, tokens):
    seconds = alltoall_s(tokens, 1000.0, ranks=ranks, top_k=top_k, link=SWITCH, efficiency=IDEAL)
    copies = seconds * SWITCH.bytes_per_s / (tokens * 1000)
    assert (ranks - 1) / ranks * (1 - 1e-9) <= copies <= min(top_k * (ranks - 1) / ranks, ranks - 1) * (1 + 1e-9)


@given(RANKS, BYTES)
def test_no_all_reduce_beats_the_bandwidth_of_its_link(ranks, payload):
    """Where messages cost nothing but bytes, two shots win or tie, and what is left is the bus bandwidth."""
    ideal = allreduce_s(payload, ranks, link=SWITCH, efficiency=IDEAL)
    assert ideal == pytest.approx(wire_factor(ranks) * payload / SWITCH.bytes_per_s)
    assert ideal <= allreduce_s(payload, ranks, link=SWITCH, efficiency=REAL)


@given(RANKS, BYTES, st.floats(1, 100))
def test_more_bytes_or_ranks_never_take_less(ranks, payload, more):
    for link in (SWITCH, NETWORK):
        usual = allreduce_s(payload, ranks, link=link, efficiency=REAL)
        assert usual <= allreduce_s(payload * more, ranks, link=link, efficiency=REAL)
        assert usual <= allreduce_s(payload, ranks + 1, link=link, efficiency=REAL)


def test_arrays_give_what_plain_numbers_give():
    payloads = np.array([1e3, 1e5, 1e8])
    found = allreduce_s(payloads, 8, link=SWITCH, efficiency=REAL)
    sent = alltoall_s(payloads, 2.0, ranks=8, top_k=4, link=SWITCH, efficiency=REAL)
    for index, one in enumerate(payloads):
        assert found[index] == pytest.approx(allreduce_s(float(one), 8, link=SWITCH, efficiency=REAL))
        alone = alltoall_s(float(one), 2.0, ranks=8, top_k=4, link=SWITCH, efficiency=REAL)
        assert sent[index] == pytest.approx(alone)
