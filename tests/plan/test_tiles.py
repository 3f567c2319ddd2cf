"""Tiles depend on shapes, the kind of device and the size of a logit alone."""

import pytest

from widenet.plan.tiles import searched_tiles, tile_units, tiles


@pytest.mark.parametrize(
    ("num_examples", "device", "half_columns", "units"),
    [
        (256, "cpu", None, 512),
        (256, "cpu", 128, 1024),
        (256, "cpu", 257, 512),
        (1024, "cpu", None, 256),
        (1024, "cpu", 128, 256),
        (4096, "cpu", 128, 256),
        (0, "cpu", None, 2**17),
        (4096, "cuda", None, 2**14),
        (4096, "cuda", 128, 2**14),
    ],
)
def test_a_tile_fills_a_cache_and_holds_256_units_at_least(num_examples, device, half_columns, units):
    assert tile_units(num_examples, device, half_columns) == units


@pytest.mark.parametrize("half_columns", [None, 128])
def test_tiles_cover_a_shard_in_order(half_columns):
    cut = list(tiles(3000, 256, "cpu", half_columns))
    assert [start for start, _ in cut] == list(range(0, 3000, tile_units(256, "cpu", half_columns)))
    assert [stop for _, stop in cut] == [*[start for start, _ in cut[1:]], 3000]


@pytest.mark.parametrize(("num_examples", "units"), [(1, 2**15), (16, 2**15), (1024, 512), (2**14, 64)])
def test_what_is_looked_through_at_once_is_bounded_and_covers_a_shard(num_examples, units):
    cut = list(searched_tiles(3 * units + 1, num_examples, "cpu"))
    assert cut == [(0, units), (units, 2 * units), (2 * units, 3 * units), (3 * units, 3 * units + 1)]
