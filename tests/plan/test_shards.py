"""Shards: ranges that cover a width once, and processes that hold each shard once."""

import pytest

from widenet.plan.shards import Shards, held


@pytest.mark.parametrize("width", [1, 2, 7, 8, 97, 1000, 2**31 - 1])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 1024])
def test_the_ranges_cover_the_width_once_and_differ_by_at_most_one(width, count):
    shards = Shards(width, count)
    assert shards.start(0) == 0
    assert shards.stop(count - 1) == width
    assert all(shards.stop(shard) == shards.start(shard + 1) for shard in range(count - 1))
    sizes = [shards.size(shard) for shard in range(count)]
    assert sum(sizes) == width
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("num_processes", [1, 2, 4, 8])
def test_every_shard_is_held_by_one_process_and_all_hold_equally_many(num_processes):
    ranges = [held(8, process, num_processes) for process in range(num_processes)]
    assert [shard for shards in ranges for shard in shards] == list(range(8))
    assert {len(shards) for shards in ranges} == {8 // num_processes}
