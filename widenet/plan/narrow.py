"""Cuts products of narrow layers and convolutions into blocks, which threads and processes may divide."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
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


def most_rows(rows: int, count: int, num_processes: int) -> int:
    """Return the rows of the largest part if processes divide `count` blocks among themselves, in order."""
    begins = edges(rows, count)
    cuts = [begins[count * process // num_processes] for process in range(num_processes + 1)]
    return max(stop - start for start, stop in pairwise(cuts))


_UNFOLDED_NUMBERS = {"cpu": 2**20, "cuda": 2**26}
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
    return max(1, _UNFOLDED_NUMBERS[device] // (windows.inputs * prod(windows.positions)))


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


def shares(
    num_examples: int,
    windows: Windows,
    filters: int,
    with_inputs: bool,
    most: int,
    num_processes: int,
    device: str,
) -> Iterator[tuple[int, int]]:
    """Yield, for each product of a convolution in a step, a process's operations and the bytes that it sends.

    `with_inputs` counts the gradient to the source, too.
    """
    count = blocks_of_examples(num_examples, windows, filters, most, device)
    units, inputs = filters * prod(windows.positions), windows.channels * prod(windows.places)
    whole = 2 * units * windows.inputs
    products = [
        (windows.inputs, num_examples, 4 * units),
        (inner_of_filters(num_examples, windows, count), count, 4 * filters * windows.inputs),
    ]
    if with_inputs:
        products.append((inner_of_inputs(windows, filters), num_examples, 4 * inputs))
    for inner, rows, row_bytes in products:
        if count > 1 and dividing_pays(inner, num_processes, device):
            yield (
                whole * most_rows(num_examples, count, num_processes),
                row_bytes * most_rows(rows, count, num_processes),
            )
        else:
            yield whole * num_examples, 0


def workspace(
    num_examples: int, windows: Windows, filters: int, most: int, num_threads: int, device: str
) -> int:
    """Return the bytes of a convolution's workspace.

    Each thread needs unfolded windows, sums and places, and each block a gradient.
    """
    count = blocks_of_examples(num_examples, windows, filters, most, device)
    together = min(examples_at_once(windows, device), -(-num_examples // count))
    places = windows.channels * prod(axis.before + axis.places + axis.after for axis in windows.axes)
    piece = together * (prod(windows.positions) * (windows.inputs + 2 * filters) + 2 * places)
    return 4 * (min(num_threads, count) * piece + (count + 1) * filters * windows.inputs)
