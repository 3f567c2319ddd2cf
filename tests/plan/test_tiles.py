"""Tiles depend on shapes and the kind of device alone."""

import pytest

from widenet.plan.tiles import searched_tiles, tile_units


@pytest.mark.parametrize(
    ("num_examples", "device", "units"),
    [(256, "cpu", 512), (1024, "cpu", 256), (4096, "cpu", 256), (0, "cpu", 2**17), (4096, "cuda", 2**14)],
)
def test_a_tile_fills_a_cache_and_holds_256_units_at_least(num_examples, device, units):
    assert tile_units(num_examples, device) == units


@pytest.mark.parametrize(("num_examples", "units"), [(1, 2**15), (16, 2**15), (1024, 512), (2**14, 64)])
def test_what_is_looked_through_at_once_is_bounded_and_covers_a_shard(num_examples, units):
    cut = list(searched_tiles(3 * units + 1, num_examples, "cpu"))
    assert cut == [(0, units), (units, 2 * units), (2 * units, 3 * units), (3 * units, 3 * units + 1)]
