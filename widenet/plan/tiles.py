"""Tiles and blocks: the pieces of a shard that are worked on, or looked through, at once; and how many
logits are kept between passes.
"""

from collections.abc import Iterator

LEAST_UNITS = 256
"""Units in a tile at least: matrix products of fewer are slow."""

TILE_CELLS = {"cpu": 2**17, "cuda": 2**26}
"""Logits in a tile, by kind of device: on a CPU few enough that a tile and its weights stay in a core's
cache; on CUDA enough that launching a tile's kernels takes less time than they do, which is assumed, not
measured. The bits depend on it, so that it must not follow from a device's memory.
"""

SEARCHED_CELLS = {"cpu": 2**19, "cuda": 2**26}
"""Logits or products in a tile that is looked through for the best, by kind of device; on a CPU they stay
in a core's cache meanwhile.
"""

LEAST_SEARCHED, FEWEST_EXAMPLES = 64, 16
"""Units in such a tile at least; and fewer examples than these have no larger tiles, for the vectors of a
tile are to stay small too.
"""

BLOCK_NUMBERS = {"cpu": 2**16, "cuda": 2**24}
"""Numbers of a weight that are updated at once: on a CPU few enough that several passes over them stay in
a core's cache.
"""

KEPT_BYTES = {"cpu": 2**29, "cuda": 2**34}
"""Logits of a batch over a process's units up to this size, by kind of device, are kept between passes;
larger ones are computed again, with the same shapes and so the same bits. On CUDA, `plan.fit.with_room` says
more, where the device's memory is known.
"""


def tile_units(num_examples: int, device: str) -> int:
    """Units in a tile for a batch: a function of shapes and the kind of device alone, for the bits depend
    on it.
    """
    return max(LEAST_UNITS, TILE_CELLS[device] // max(num_examples, 1))


def tiles(num_units: int, num_examples: int, device: str) -> Iterator[tuple[int, int]]:
    """The tiles (start, stop) of a shard for a batch."""
    units = tile_units(num_examples, device)
    return ((start, min(start + units, num_units)) for start in range(0, num_units, units))


def searched_tiles(num_units: int, num_examples: int, device: str) -> Iterator[tuple[int, int]]:
    """The tiles (start, stop) of a shard whose units are looked through for the best."""
    units = max(LEAST_SEARCHED, SEARCHED_CELLS[device] // max(num_examples, FEWEST_EXAMPLES))
    return ((start, min(start + units, num_units)) for start in range(0, num_units, units))


def blocks(num_rows: int, columns: int, device: str) -> Iterator[tuple[int, int]]:
    """The pieces (start, stop) of some rows that are worked on at once."""
    rows = max(1, BLOCK_NUMBERS[device] // max(columns, 1))
    return ((start, min(start + rows, num_rows)) for start in range(0, num_rows, rows))


def are_kept(num_examples: int, num_units: int, device: str, kept_bytes: int | None = None) -> bool:
    """Whether the float32 logits of a batch over a process's units of an output are kept between passes.
    kept_bytes: room for them.
    """
    return 4 * num_examples * num_units <= (KEPT_BYTES[device] if kept_bytes is None else kept_bytes)
