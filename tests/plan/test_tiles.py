"""Tiles depend on shapes and the kind of device alone."""

import pytest

from widenet.plan.tiles import searched_tiles, tile_units, tiles


@pytest.mark.parametrize(
    ("num_examples", "device", "units"),
    [(256, "cpu", 512), (1024, "cpu", 256), (4096, "cpu", 256), (0, "cpu", 2**17), (4096, "cuda", 2**14)],
)
def test_a_tile_fills_a_cache_and_holds_256_units_at_least(num_examples, device, units):
    assert tile_units(num_examples, device) == units


def test_tiles_cover_a_shard_in_order():
    cut = list(tiles(3000, 256, "cpu"))
    assert [start for start, _ in cut] == list(range(0, 3000, tile_units(256, "cpu")))
    assert [stop for _, stop in cut] == [*[start for start, _ in cut[1:]], 3000]


@pytest.mark.parametrize(("num_examples", "units"), [(1, 2**15), (16, 2**15), (1024, 512), (2**14, 64)])
def test_what_is_looked_through_at_once_is_bounded_and_covers_a_shard(num_examples, units):
    cut = list(searched_tiles(3 * units + 1, num_examples, "cpu"))
    assert cut == [(0, units), (units, 2 * units), (2 * units, 3 * units), (3 * units, 3 * units + 1)]
