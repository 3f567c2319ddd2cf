"""Shards: the fixed sets of units into which a wide layer is cut, and the processes that hold them."""

from dataclasses import dataclass

_ALIGNED_ROWS = 64
"""Rows of at least one float32 number that fill a whole number of 256 bytes."""


@dataclass(frozen=True)
class Shards:
    """`count` shards of `width` units: unit u is row u // count of shard u mod count.

    Features are numbered by falling count. Because neighbours lie in different shards, all shards have about
    the same number of units, and about the same number of a batch's entries.
    """

    width: int
    count: int

    def units(self, shard: int) -> range:
        """Return the units of a shard, in the order of its rows."""
        return range(shard, self.width, self.count)

    def size(self, shard: int) -> int:
        """Return the number of units in a shard; no shard has more than the first."""
        return len(self.units(shard))

    @property
    def room(self) -> int:
        """Rows from one shard to the next where shards lie in one allocation, so that all begin aligned."""
        return -(-self.width // self.count // _ALIGNED_ROWS) * _ALIGNED_ROWS


def as_slice(units: range) -> slice:
    """Return ascending units as an index of arrays and tensors."""
    return slice(units.start, units.stop, units.step)


def held(num_shards: int, process: int, num_processes: int) -> range:
    """Return the consecutive shards of a process; processes differ by at most 1, the first has most."""
    start, stop = (-(-num_shards * edge // num_processes) for edge in (process, process + 1))
    return range(start, stop)


def holder(num_shards: int, shard: int, num_processes: int) -> int:
    """Return the process that holds a shard."""
    return shard * num_processes // num_shards


def most_held(num_shards: int, num_processes: int) -> int:
    """Return the largest number of shards that a process holds."""
    return -(-num_shards // num_processes)


def worthwhile(num_shards: int) -> list[int]:
    """Return the numbers of processes, ascending, that reduce the largest number of shards in a process."""
    return sorted({-(-num_shards // most) for most in range(1, num_shards + 1)})
