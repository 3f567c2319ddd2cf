"""The k best, met tile by tile, against a sort of everything and the reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widenet.kernels import RunningTopK
from widenet.kernels.reference import wide_top_k
from widenet.sparse import SparseBatch

CPU = torch.device("cpu")


def by_tiles(logits_EL, k, tile):
    running = RunningTopK(len(logits_EL), k, CPU)
    for start in range(0, logits_EL.shape[1], tile):
        running.add(logits_EL[:, start : start + tile], start)
    return running.result()


def by_hand(row, k):
    """The best of one row in plain Python: logits descending, the lower unit first."""
    best = sorted((-logit, unit) for unit, logit in enumerate(row))[:k]
    return [-logit for logit, _ in best], [unit if logit != float("inf") else -1 for logit, unit in best]


@pytest.mark.parametrize("tile", [1, 7, 64, 1000])
@pytest.mark.parametrize("k", [1, 5, 41, 100])
def test_tiles_of_any_size_give_what_the_reference_gives(k, tile):
    logits_EL = torch.randn(11, 41, generator=torch.Generator().manual_seed(0))
    excluded = SparseBatch.from_lists([[e, 2 * e, 40] if e % 3 else [] for e in range(10)] + [list(range(41))])
    expected, units = wide_top_k(logits_EL, excluded, k)
    masked = logits_EL.clone()
    masked[excluded.example_of_entry(), excluded.indices] = -torch.inf
    found, found_units = by_tiles(masked, k, tile)
    assert found.shape == (11, min(k, 41))
    assert torch.equal(found, expected)
    assert torch.equal(found_units, units)
    assert found_units[10].tolist() == [-1] * min(k, 41)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.0, -1.0, float("-inf")]), min_size=1, max_size=60),
    st.integers(1, 12),
    st.integers(1, 60),
)
def test_of_equal_logits_the_lower_unit_comes_first(row, k, tile):
    found, units = by_tiles(torch.tensor([row]), k, tile)
    assert (found[0].tolist(), units[0].tolist()) == by_hand(row, k)
    reference, reference_units = wide_top_k(torch.tensor([row]), None, k)
    assert (reference[0].tolist(), reference_units[0].tolist()) == by_hand(row, k)


def test_ties_in_a_wide_tile_are_decided_by_unit_too():
    row = torch.zeros(2, 5000)
    row[1, 4000:] = 1.0
    found, units = by_tiles(row, 3, 5000)
    assert units.tolist() == [[0, 1, 2], [4000, 4001, 4002]]
    assert found.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_without_tiles_there_is_nothing():
    logits, units = RunningTopK(3, 5, CPU).result()
    assert logits.shape == units.shape == (3, 0)
