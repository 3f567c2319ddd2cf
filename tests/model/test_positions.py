"""Positions of sequences: what stands where, what is next, and what is left out."""

import pytest
import torch

from widenet.model.positions import Positions
from widenet.sparse import SparseBatch

ROWS = [[5, 6], [], [7, 8, 9, 7], [4], [1, 2]]


def listed(positions):
    """Each position's example and feature, and the next feature where there is one."""
    following = dict(zip(positions.asking_M.tolist(), positions.next.indices.tolist(), strict=True))
    places = zip(positions.examples_N.tolist(), positions.features.indices.tolist(), strict=True)
    return [(example, feature, following.get(number)) for number, (example, feature) in enumerate(places)]


def test_positions_lie_side_by_side_in_time_the_longest_sequence_first():
    found = Positions.of(SparseBatch.from_lists(ROWS), 50, ends_ask=False)
    assert (found.sizes, found.starts.tolist()) == ([4, 3, 1, 1], [0, 4, 7, 8, 9])
    assert found.times_N.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 3]
    first = [(2, 7, 8), (0, 5, 6), (4, 1, 2), (3, 4, None)]
    assert listed(found) == [*first, (2, 8, 9), (0, 6, None), (4, 2, None), (2, 9, 7), (2, 7, None)]
    assert found.ends_E.tolist() == [5, 9, 8, 3, 6]


def test_an_end_that_is_only_asked_for_is_not_read():
    found = Positions.of(SparseBatch.from_lists(ROWS), 50, ends_ask=True)
    assert found.sizes == [3, 1, 1]
    assert listed(found) == [(2, 7, 8), (0, 5, 6), (4, 1, 2), (2, 8, 9), (2, 9, 7)]


@pytest.mark.parametrize(
    ("ends_ask", "expected"), [(False, [(2, 9, 7), (2, 7, None)]), (True, [(2, 8, 9), (2, 9, 7)])]
)
def test_only_the_newest_positions_are_read_and_the_last_of_them_still_has_its_next(ends_ask, expected):
    found = Positions.of(SparseBatch.from_lists(ROWS), 2, ends_ask)
    assert [each for each in listed(found) if each[0] == 2] == expected
    assert len(found.sizes) == 2


@pytest.mark.parametrize("rows", [[], [[]], [[3]]])
def test_sequences_without_anything_to_read_give_no_position(rows):
    found = Positions.of(SparseBatch.from_lists(rows), 5, ends_ask=True)
    assert (found.sizes, listed(found), found.next.num_examples) == ([], [], 0)
    assert torch.equal(found.ends_E, torch.zeros(len(rows), dtype=torch.int64))
