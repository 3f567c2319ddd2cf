"""Shards: the fixed ranges of units into which a wide layer is cut, and who holds them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shards:
    """`count` ranges of nearly equal length over `width` units; some are empty where the width is smaller
    than the count.
    """

    width: int
    count: int

    def start(self, shard: int) -> int:
        """The first unit of a shard."""
        return self.width * shard // self.count

    def stop(self, shard: int) -> int:
        """The unit after a shard's last."""
        return self.width * (shard + 1) // self.count

    def size(self, shard: int) -> int:
        """Units in a shard."""
        return self.stop(shard) - self.start(shard)


def held(num_shards: int, process: int, num_processes: int) -> range:
    """The shards of a process: consecutive ones, as equally many as possible; the last process never has
    fewer than another.
    """
    return range(num_shards * process // num_processes, num_shards * (process + 1) // num_processes)


def holder(num_shards: int, shard: int, num_processes: int) -> int:
    """The process that holds a shard."""
    return ((shard + 1) * num_processes - 1) // num_shards


def most_held(num_shards: int, num_processes: int) -> int:
    """The largest number of shards that a process holds."""
    return -(-num_shards // num_processes)


def worthwhile(num_shards: int) -> list[int]:
    """The numbers of processes, ascending, at which the largest process holds fewer shards than with one
    process less.
    """
    return sorted({-(-num_shards // each) for each in range(1, num_shards + 1)})
