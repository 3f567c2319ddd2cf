"""Shards: ranges that cover a width once, and processes that hold each shard once."""

from itertools import pairwise

import pytest

from widenet.plan.shards import Shards, held, holder, most_held, worthwhile


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


@pytest.mark.parametrize("num_shards", [1, 2, 7, 8, 12, 61])
def test_every_shard_is_held_by_one_process_and_all_hold_as_equally_many_as_can_be(num_shards):
    for num_processes in range(1, num_shards + 1):
        ranges = [held(num_shards, process, num_processes) for process in range(num_processes)]
        assert [shard for shards in ranges for shard in shards] == list(range(num_shards))
        holders = [process for process, shards in enumerate(ranges) for _ in shards]
        assert [holder(num_shards, shard, num_processes) for shard in range(num_shards)] == holders
        sizes = [len(shards) for shards in ranges]
        assert min(sizes) >= max(1, max(sizes) - 1)
        assert sizes[-1] == max(sizes) == most_held(num_shards, num_processes)


@pytest.mark.parametrize("num_shards", [1, 7, 8, 61, 1024])
def test_a_further_process_is_worthwhile_where_the_largest_one_then_holds_less(num_shards):
    most = [most_held(num_shards, number) for number in range(1, num_shards + 1)]
    assert worthwhile(num_shards) == [
        1,
        *(number for number, (before, now) in enumerate(pairwise(most), 2) if now < before),
    ]


def test_eight_shards_are_worth_one_to_four_processes_or_eight():
    assert worthwhile(8) == [1, 2, 3, 4, 8]
    assert [list(held(8, process, 3)) for process in range(3)] == [[0, 1], [2, 3, 4], [5, 6, 7]]
