"""Shards: the fixed ranges of units into which a wide layer is cut, and the processes that hold them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shards:
    """`count` ranges of nearly equal length over `width` units; some are empty if the width is smaller."""

    width: int
    count: int

    def start(self, shard: int) -> int:
        """Return the first unit of a shard."""
        return self.width * shard // self.count

    def stop(self, shard: int) -> int:
        """Return the unit after a shard's last one."""
        return self.width * (shard + 1) // self.count

    def size(self, shard: int) -> int:
        """Return the number of units in a shard."""
        return self.stop(shard) - self.start(shard)


def held(num_shards: int, process: int, num_processes: int) -> range:
    """Return the consecutive shards of a process; processes differ by at most 1, the last has most."""
    return range(num_shards * process // num_processes, num_shards * (process + 1) // num_processes)


def holder(num_shards: int, shard: int, num_processes: int) -> int:
    """Return the process that holds a shard."""
    return ((shard + 1) * num_processes - 1) // num_shards


def most_held(num_shards: int, num_processes: int) -> int:
    """Return the largest number of shards that a process holds."""
    return -(-num_shards // num_processes)


def worthwhile(num_shards: int) -> list[int]:
    """Return the numbers of processes, ascending, that reduce the largest number of shards in a process."""
    return sorted({-(-num_shards // most) for most in range(1, num_shards + 1)})
