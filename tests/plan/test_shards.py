"""Shards: sets that cover a width once, and processes that hold each shard once."""

from pathlib import Path

import pytest

from widenet.plan.tiles import Shards, held

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("width", [1, 2, 7, 8, 97, 1000, 2**31 - 1])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 1024])
def test_every_unit_lies_once_in_a_shard_and_sizes_differ_by_at_most_one(width, count):
    shards = Shards(width, count)
    for unit in {0, min(1, width - 1), width // 2, width - 1}:
        assert [shard for shard in range(count) if unit in shards.units(shard)] == [unit % count]
        assert shards.units(unit % count).index(unit) == unit // count
    sizes = [shards.size(shard) for shard in range(count)]
    assert sum(sizes) == width
    assert sizes[0] == max(sizes) <= min(sizes) + 1


@pytest.mark.parametrize("num_shards", [1, 2, 7, 8, 12, 61])
def test_every_shard_is_held_by_one_process_and_all_hold_as_equally_many_as_can_be(num_shards):
    for num_processes in range(1, num_shards + 1):
        ranges = [held(num_shards, process, num_processes) for process in range(num_processes)]
        assert [shard for shards in ranges for shard in shards] == list(range(num_shards))
        sizes = [len(shards) for shards in ranges]
        assert min(sizes) >= max(1, max(sizes) - 1)
        assert sizes[0] == max(sizes) == len(held(num_shards, 0, num_processes))
