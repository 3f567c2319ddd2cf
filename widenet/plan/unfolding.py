"""Cuts a convolution's batch into blocks of examples for threads and processes, and into smaller pieces."""

from collections.abc import Iterator
from math import prod

from widenet.plan.narrow import dividing_pays, most_rows, num_blocks
from widenet.plan.tiles import PREDICTED_ROWS
from widenet.plan.windows import Windows

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
