"""Tiles depend on shapes and the kind of device alone."""

from itertools import pairwise

import pytest

from widenet.plan.tiles import edges, searched_tiles


@pytest.mark.parametrize(("num_examples", "units"), [(1, 2**15), (16, 2**15), (1024, 512), (2**14, 64)])
def test_what_is_looked_through_at_once_is_bounded_and_covers_a_shard(num_examples, units):
    cut = list(searched_tiles(3 * units + 1, num_examples, "cpu"))
    assert cut == [(0, units), (units, 2 * units), (2 * units, 3 * units), (3 * units, 3 * units + 1)]


@pytest.mark.parametrize(("rows", "count"), [(0, 1), (7, 1), (260, 4), (500, 7), (9, 8)])
def test_blocks_follow_each_other_and_differ_by_one_row_at_most(rows, count):
    found = edges(rows, count)
    sizes = [stop - start for start, stop in pairwise(found)]
    assert (found[0], found[-1], len(sizes)) == (0, rows, count)
    assert max(sizes) - min(sizes) <= 1
