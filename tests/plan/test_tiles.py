"""Tiles depend on shapes and the kind of device alone."""

from itertools import pairwise

import pytest

from widenet.plan.tiles import edges, num_blocks, searched_tiles, tile_units


@pytest.mark.parametrize(
    ("num_examples", "device", "units"),
    [(256, "cpu", 512), (1024, "cpu", 256), (4096, "cpu", 256), (0, "cpu", 2**17), (4096, "cuda", 2**11)],
)
def test_a_tile_fills_a_cache_and_holds_256_units_at_least(num_examples, device, units):
    assert tile_units(num_examples, device) == units


@pytest.mark.parametrize(("num_examples", "units"), [(1, 2**15), (16, 2**15), (1024, 512), (2**14, 64)])
def test_what_is_looked_through_at_once_is_bounded_and_covers_a_shard(num_examples, units):
    cut = list(searched_tiles(3 * units + 1, num_examples, "cpu"))
    assert cut == [(0, units), (units, 2 * units), (2 * units, 3 * units), (3 * units, 3 * units + 1)]


@pytest.mark.parametrize(
    ("shape", "most", "expected"),
    [
        ((256, 1024, 1024), 8, 4),
        ((1024, 256, 1024), 8, 8),
        ((1024, 256, 1024), 3, 3),
        ((256, 256, 256), 8, 2),
        ((127, 4096, 4096), 8, 1),
        ((6, 5, 4), 8, 1),
        ((0, 512, 512), 8, 1),
        ((4096, 1, 1), 8, 1),
    ],
    ids=str,
)
def test_blocks_have_enough_rows_and_enough_to_do(shape, most, expected):
    assert num_blocks(*shape, most, "cpu") == expected


def test_a_gpu_takes_larger_blocks():
    assert num_blocks(4096, 4096, 4096, 8, "cpu") == 8
    assert num_blocks(4096, 4096, 4096, 8, "cuda") == 4
    assert num_blocks(256, 1024, 1024, 8, "cuda") == 1


@pytest.mark.parametrize(("rows", "count"), [(0, 1), (7, 1), (260, 4), (500, 7), (9, 8)])
def test_blocks_follow_each_other_and_differ_by_one_row_at_most(rows, count):
    found = edges(rows, count)
    sizes = [stop - start for start, stop in pairwise(found)]
    assert (found[0], found[-1], len(sizes)) == (0, rows, count)
    assert max(sizes) - min(sizes) <= 1
