"""Shards: the fixed ranges of units into which a wide layer is cut, and who holds them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shards:
    """`count` ranges of nearly equal length over `width` units; some are empty where the width is smaller than the count."""

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
    """The shards that a process holds: equally many each, in order; the number of processes must divide theirs."""
    return range(num_shards * process // num_processes, num_shards * (process + 1) // num_processes)
