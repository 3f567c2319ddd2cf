"""Tiles depend on shapes, the kind of device and the size of a logit alone."""

import pytest

from widenet.plan.tiles import tile_units, tiles


@pytest.mark.parametrize(
    ("num_examples", "device", "half", "units"),
    [
        (256, "cpu", False, 512),
        (256, "cpu", True, 1024),
        (1024, "cpu", False, 256),
        (1024, "cpu", True, 256),
        (4096, "cpu", True, 256),
        (0, "cpu", False, 2**17),
        (4096, "cuda", False, 2**14),
        (4096, "cuda", True, 2**14),
    ],
)
def test_a_tile_fills_a_cache_and_holds_256_units_at_least(num_examples, device, half, units):
    assert tile_units(num_examples, device, half) == units


@pytest.mark.parametrize("half", [False, True])
def test_tiles_cover_a_shard_in_order(half):
    cut = list(tiles(3000, 256, "cpu", half))
    assert [start for start, _ in cut] == list(range(0, 3000, tile_units(256, "cpu", half)))
    assert [stop for _, stop in cut] == [*[start for start, _ in cut[1:]], 3000]
