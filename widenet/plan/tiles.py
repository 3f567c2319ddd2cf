"""Shards, the fixed sets of units of a wide layer; tiles and blocks, which are processed at once."""

from collections.abc import Iterator
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


LEAST_UNITS = 256
"""Smallest number of units in a tile: smaller matrix products are slow."""

TILE_CELLS = {"cpu": 2**17, "cuda": 2**23}
"""Logits in a tile, by kind of device.

On a CPU a tile and its weights fit into a core's cache. On CUDA, launching a tile's kernels takes less time
than running them; this is assumed, not measured. The bits depend on the number, so it must not depend on a
device's memory.
"""

SHARDS_AT_ONCE = 8
"""On CUDA, shards of which a training step computes tiles together: their logits take much memory."""

SEARCHED_CELLS = {"cpu": 2**19, "cuda": 2**26}
"""Logits in a tile of a search for the best units; on a CPU they fit into a core's cache."""

LEAST_SEARCHED, FEWEST_EXAMPLES = 64, 16
"""Smallest number of units in such a tile, and of examples for its size: a tile's vectors must stay small."""

PIECE = 256
"""Units of a tile whose shares of a softmax are added together first, outside training."""

RANKED_TOGETHER = 512
"""Largest number of examples that are ranked in one pass over an output's weights."""

PREDICTED_ROWS = {"cpu": 64, "cuda": 512}
"""Rows of every product outside training that is not the native library's; zeros fill up the last block.

The bits of a row depend on the shape of its product. So what a row gives would depend on how many came with
it, if shapes were not fixed. On a CPU, products of 64 rows take up to 1.5 times as long as those of 512, and
those of fewer rows hardly less time than 64.
"""

PREDICTED_CELLS = {"cpu": 2**17, "cuda": 2**26}
"""Most logits of such a product; on a CPU they fit into half of a core's cache, beside the units' vectors."""

PREDICTED_COLUMNS = 16
"""Fewest columns of such a product; narrower ones are filled up with zeros.

A row's bits must not depend on its place in the block either. MKL computes the rows of narrow products in
several ways: seen on a CPU with 2 to 11 columns.
"""

FILLED_POSITIONS = 8
"""Attention fills sequences up to multiples of this, to multiply those of about one length together."""

BLOCK_NUMBERS = {"cpu": 2**16, "cuda": 2**24}
"""Numbers of a weight that are updated at once; on a CPU several passes over them stay in a core's cache."""

GRADIENT_NUMBERS = 2**18
"""Numbers of an output's gradient that are computed together on a CPU, if a tile has fewer.

Each call has a fixed cost; so many numbers stay in a core's cache.
"""

COUNTED_PAIRS = 2**22
"""Pairs of entries of the same example that are counted together for an output's neighbourhood."""

KEPT_BYTES = {"cpu": 2**29, "cuda": 2**34}
"""Largest size of a batch's logits over a process's units that are kept between passes, by kind of device.

Larger ones are recomputed, with equal shapes and so equal bits. On CUDA, `plan.memory.with_room` replaces
this limit when the device's memory is known.
"""


REQUEST_BYTES = 2**21
"""Bytes of a tensor that are read or written at once: one of the processor's large pages."""

NUM_AHEAD, NUM_BEHIND = 4, 4
"""Requests for each tensor that a pass has read ahead of its tile, and that are written behind it."""

PAGE_BYTES = 4096
"""Disks read and write multiples of this past the system's cache."""

ALIGNED_BYTES = 512
"""CUDA allocates memory at multiples of this.

Vendors' products choose their code by the alignment of their operands. A copied row begins as far behind
such a multiple as it would in a weight on the device, so that its products have the same bits.
"""

BLOCK_BYTES = 2**23
"""Bytes of a weight that are read together without tiles: for norms, attributes and files."""

LIMITED_ROWS = 16_384
"""Rows of an input's weight that are read together for the lengths of its columns, under "weight_norm"."""

UNFOLDED_NUMBERS = {"cpu": 2**20, "cuda": 2**26}
"""Numbers in a convolution's windows that are unfolded at once; on a CPU they fit into a core's cache."""

BLOCK_ROWS = {"cpu": 64, "cuda": 1024}
"""Rows of the smallest block of a trunk's product that is worth a thread.

On cores of an AMD EPYC with AVX-512, blocks of 64 rows cost a tenth of a product, of 32 rows a quarter. On
CUDA this and the next are not measured.
"""

BLOCK_MULTIPLICATIONS = {"cpu": 2**23, "cuda": 2**31}
"""Multiplications of the smallest such block: they take 0.17 ms, and starting threads 0.05 ms."""


def num_blocks(rows: int, inner: int, columns: int, most: int, device: str) -> int:
    """Return the number of blocks of a product [rows, inner] x [inner, columns]; it depends on shapes alone.

    Args:
        rows: Rows of the result.
        inner: Multiplications for each number.
        columns: Columns of the result.
        most: Largest number of blocks.
        device: Kind of the device.
    """
    by_work = rows * inner * columns // BLOCK_MULTIPLICATIONS[device]
    return max(1, min(most, rows // BLOCK_ROWS[device], by_work))


def block_rows(row_bytes: int) -> int:
    """Return the rows of a block that is read without tiles."""
    return max(1, BLOCK_BYTES // max(row_bytes, 1))


def edges(rows: int, count: int) -> list[int]:
    """Return the first row of each of `count` blocks, then the number of rows."""
    return [rows * block // count for block in range(count + 1)]


def tile_units(num_examples: int, device: str) -> int:
    """Return the number of units in a tile; shapes and device kind decide, since the bits depend on it."""
    return max(LEAST_UNITS, TILE_CELLS[device] // max(num_examples, 1))


def searched_tiles(num_units: int, num_examples: int, device: str) -> Iterator[tuple[int, int]]:
    """Return the tiles (start, stop) of a shard for a search for the best units."""
    units = max(LEAST_SEARCHED, SEARCHED_CELLS[device] // max(num_examples, FEWEST_EXAMPLES))
    return _cut(num_units, units)


def predicted_units(columns: int, device: str) -> int:
    """Return the number of units in a tile of predictions, of vectors of so many numbers.

    On a CPU, the logits of `PREDICTED_ROWS` examples fit into a core's cache, and the vectors too, unless
    fewer than those of `RANKED_TOGETHER` examples would. Pieces of `PIECE` units are whole.
    """
    cells = SEARCHED_CELLS[device]
    least, most = cells // RANKED_TOGETHER, PREDICTED_CELLS[device] // PREDICTED_ROWS[device]
    units = max(LEAST_SEARCHED, min(most, max(least, cells // max(columns, 1))))
    return units if units < PIECE else units // PIECE * PIECE


def predicted_tiles(num_units: int, columns: int, device: str) -> Iterator[tuple[int, int]]:
    """Return the tiles (start, stop) of a shard for predictions, however many examples there are."""
    return _cut(num_units, predicted_units(columns, device))


def blocks(num_rows: int, columns: int, device: str) -> Iterator[tuple[int, int]]:
    """Return the blocks (start, stop) of rows that are processed at once."""
    rows = max(1, BLOCK_NUMBERS[device] // max(columns, 1))
    return _cut(num_rows, rows)


def _cut(number: int, most: int) -> Iterator[tuple[int, int]]:
    """Return consecutive ranges (start, stop) of at most so many, up to a number."""
    return ((start, min(start + most, number)) for start in range(0, number, most))


def bytes_kept(num_examples: int, num_units: int, device: str, half: bool) -> int:
    """Return the bytes of what is kept of a batch's logits: the operands of products."""
    return (2 if half and device == "cuda" else 4) * num_examples * num_units


def are_kept(
    num_examples: int, num_units: int, device: str, half: bool, kept_bytes: int | None = None
) -> bool:
    """Return whether numbers of a batch's logits over a process's units are kept between passes."""
    most = KEPT_BYTES[device] if kept_bytes is None else kept_bytes
    return bytes_kept(num_examples, num_units, device, half) <= most
