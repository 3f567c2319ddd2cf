"""Cuts products of narrow layers and convolutions into blocks, which threads and processes may divide."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from widenet.plan.tiles import PREDICTED_ROWS
from widenet.plan.windows import Windows


@dataclass(frozen=True)
class Balance:
    """Measured limits of a kind of device.

    Attributes:
        rows: Rows of the smallest block that is worth a thread.
        multiplications: Multiplications of the smallest such block.
        flops_per_byte: Operations of a process in the time that a byte takes to reach all processes.
    """

    rows: int
    multiplications: int
    flops_per_byte: float


BALANCES = {
    "cpu": Balance(rows=64, multiplications=2**23, flops_per_byte=100.0),
    "cuda": Balance(rows=1024, multiplications=2**31, flops_per_byte=150.0),
}
"""By kind of device.

cpu: measured on cores of an AMD EPYC with AVX-512. Blocks of 64 rows cost a tenth of a product, of 32 rows a
quarter; 2^23 multiplications take 0.17 ms, starting threads 0.05 ms. A core makes 1.0e11 operations a second;
gloo hands 1.0e9 bytes from process to process.
cuda: not measured. 5e13 operations a second in float32, and NCCL's 3.5e11 bytes a second over NVLink.
"""


def num_blocks(rows: int, inner: int, columns: int, most: int, device: str) -> int:
    """Return the number of blocks of a product [rows, inner] x [inner, columns]; it depends on shapes alone.

    Args:
        rows: Rows of the result.
        inner: Multiplications for each number.
        columns: Columns of the result.
        most: Largest number of blocks.
        device: Kind of the device.
    """
    balance = BALANCES[device]
    return max(1, min(most, rows // balance.rows, rows * inner * columns // balance.multiplications))


def edges(rows: int, count: int) -> list[int]:
    """Return the first row of each of `count` blocks, then the number of rows."""
    return [rows * block // count for block in range(count + 1)]


def dividing_pays(inner: int, num_processes: int, device: str) -> bool:
    """Return whether processes save time if each computes some blocks of a product and receives the rest.

    With [M, K] x [K, N], each of P processes saves 2 M N K (1 - 1/P) operations and receives 4 M N bytes.
    """
    return inner * (1 - 1 / num_processes) / 2 >= BALANCES[device].flops_per_byte


UNFOLDED_NUMBERS = {"cpu": 2**20, "cuda": 2**26}
"""Numbers in the windows that are unfolded at once; on a CPU they fit into a core's cache."""

PREDICTED_FILTERS = 2
"""Fewest filters of every product outside training; a single one is joined by zeros.

MKL rounds a product with one filter in another way for some of 4 or 8 examples (seen on an Intel Xeon with
AMX).
"""


def blocks_of_examples(num_examples: int, windows: Windows, filters: int, most: int, device: str) -> int:
    """Return the number of blocks of examples, at most `most`; it depends on shapes alone."""
    count = num_blocks(num_examples * prod(windows.positions), windows.inputs, filters, most, device)
    return max(1, min(count, num_examples))


def examples_at_once(windows: Windows, device: str) -> int:
    """Return the number of examples whose windows are unfolded at once."""
    return max(1, UNFOLDED_NUMBERS[device] // (windows.inputs * prod(windows.positions)))


def predicted_examples(windows: Windows, device: str) -> int:
    """Return the examples of a block and a piece outside training, a divisor of `PREDICTED_ROWS`.

    Never 2: MKL then rounds the second one in another way (seen with an odd number of positions).
    """
    room = examples_at_once(windows, device)
    examples = min(PREDICTED_ROWS[device], 1 << room.bit_length() - 1)
    return 1 if examples == 2 else examples


def pieces(start: int, stop: int, windows: Windows, device: str) -> Iterator[tuple[int, int]]:
    """Return the pieces (start, stop) of a block whose windows are unfolded at once."""
    most = examples_at_once(windows, device)
    return ((first, min(first + most, stop)) for first in range(start, stop, most))


def inner_of_inputs(windows: Windows, filters: int) -> int:
    """Return the multiplications for a number of the gradient to the source."""
    return filters * windows.inputs * prod(windows.positions) // (windows.channels * prod(windows.places))


def inner_of_filters(num_examples: int, windows: Windows, count: int) -> int:
    """Return the multiplications for a number of a block's part of the gradient to the filters."""
    return num_examples * prod(windows.positions) // count
