"""Positions of sequences: what stands where, what is next, and what is left out."""

import pytest
import torch

from widenet.model.positions import Positions
from widenet.sparse import SparseBatch

ROWS = [[5, 6], [], [7, 8, 9, 7], [4], [1, 2]]


def times_of(positions):
    """The time of each position."""
    return [time for time, size in enumerate(positions.sizes) for _ in range(size)]


def listed(positions):
    """Each position's example and feature, and the next feature where there is one."""
    following = dict(zip(positions.asking_M.tolist(), positions.next.indices.tolist(), strict=True))
    places = zip(positions.examples_N.tolist(), positions.features.indices.tolist(), strict=True)
    return [(example, feature, following.get(number)) for number, (example, feature) in enumerate(places)]


def test_sequences_of_about_one_length_lie_side_by_side_as_rows_of_one_length():
    rows = [[1] * length for length in (9, 3, 0, 17, 8, 16)]
    found = Positions.of(SparseBatch.from_lists(rows), 50, ends_ask=False)
    assert found.groups == [(1, 24), (2, 16), (2, 8)]
    first = {3: 0, 5: 24, 0: 40, 4: 56, 1: 64}
    places = zip(found.examples_N.tolist(), times_of(found), strict=True)
    assert found.places_N.tolist() == [first[example] + time for example, time in places]


def test_outside_training_groups_are_of_one_size_and_further_positions_lie_in_none():
    rows = [[1] * length for length in (9, 3, 0, 17, 8, 16)] + [[1]] * 10
    found = Positions.of(SparseBatch.from_lists(rows), 50, ends_ask=False, together=64)
    assert found.groups == [(8, 24), (8, 16), (8, 8), (8, 8)]
    size = sum(count * length for count, length in found.groups)
    lengths = [len(rows[example]) for example in found.examples_N.tolist()]
    is_further = [time >= length for time, length in zip(times_of(found), lengths, strict=True)]
    assert (found.places_N == size).tolist() == is_further
    own = found.places_N[found.places_N < size]
    assert len(own.unique()) == len(own) == sum(map(len, rows))


@pytest.mark.parametrize("rows", [[], [[]], [[3]]])
def test_sequences_without_anything_to_read_give_no_position(rows):
    found = Positions.of(SparseBatch.from_lists(rows), 5, ends_ask=True)
    assert (found.sizes, listed(found), found.next.num_examples) == ([], [], 0)
    assert torch.equal(found.ends_E, torch.zeros(len(rows), dtype=torch.int64))
