"""How a convolution's batch is cut: into blocks of examples that threads and processes share, and into
pieces that are unfolded at once.
"""

from collections.abc import Iterator
from math import prod

from widenet.plan.narrow import dividing_pays, most_rows, num_blocks
from widenet.plan.windows import Windows

_UNFOLDED_NUMBERS = {"cpu": 2**20, "cuda": 2**26}
"""Numbers in the windows that are laid out at once: on a CPU few enough that they stay near a core."""


def blocks_of_examples(num_examples: int, windows: Windows, filters: int, most: int, device: str) -> int:
    """Blocks of nearly equally many examples: a function of shapes alone. most: as many as are ever of
    use.
    """
    count = num_blocks(num_examples * prod(windows.positions), windows.inputs, filters, most, device)
    return max(1, min(count, num_examples))


def examples_at_once(windows: Windows, device: str) -> int:
    """Examples of which the windows are laid out at once."""
    return max(1, _UNFOLDED_NUMBERS[device] // (windows.inputs * prod(windows.positions)))


def pieces(start: int, stop: int, windows: Windows, device: str) -> Iterator[tuple[int, int]]:
    """The examples of a block, as many at a time as are laid out at once."""
    most = examples_at_once(windows, device)
    return ((first, min(first + most, stop)) for first in range(start, stop, most))


def inner_of_inputs(windows: Windows, filters: int) -> int:
    """Multiplications for a number of the gradient to the source."""
    return filters * windows.inputs * prod(windows.positions) // (windows.channels * prod(windows.places))


def inner_of_filters(num_examples: int, windows: Windows, count: int) -> int:
    """Multiplications for a number of a block's part of the gradient to the filters."""
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
    """Of each product of a convolution in a step: operations of a process, and bytes of what it gives to
    every other.

    with_inputs: there is a gradient to the source.
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
    """Bytes that a convolution needs at once: of each thread windows laid out, sums and places; of each
    block a gradient.
    """
    count = blocks_of_examples(num_examples, windows, filters, most, device)
    together = min(examples_at_once(windows, device), -(-num_examples // count))
    places = windows.channels * prod(axis.before + axis.places + axis.after for axis in windows.axes)
    piece = together * (prod(windows.positions) * (windows.inputs + 2 * filters) + 2 * places)
    return 4 * (min(num_threads, count) * piece + (count + 1) * filters * windows.inputs)
