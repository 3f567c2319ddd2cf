"""The bound: the matrix products of a step, and nothing else.

Three for the output and three for each hidden layer after the first, whose input is sparse.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from widenet.devices import keep_to_one_thread

_LARGEST_BLOCK = 2**27
_CACHED_BLOCK = 2**17


def whole(width: int, hidden: Sequence[int], batch: int, threads: int) -> Callable[[int], dict[str, Any]]:
    """Each product over all units at once, or by as many units as have 512 MB of logits; torch's threads."""
    torch.set_num_threads(threads)
    works = [
        (_Products(inputs_EH, min(len(weight_LH), _LARGEST_BLOCK // batch)), weight_LH)
        for inputs_EH, weight_LH in _layers(width, hidden, batch)
    ]

    def steps(number: int) -> dict[str, Any]:
        for _ in range(number):
            for work, weight_LH in works:
                work.over(weight_LH)
        return {}

    return steps


def tiled(width: int, hidden: Sequence[int], batch: int, threads: int) -> Callable[[int], dict[str, Any]]:
    """All three for so few units that their logits stay in a core's cache; each thread has its own units."""
    torch.set_num_threads(1)
    units = max(64, _CACHED_BLOCK // batch)
    works = [
        ([_Products(inputs_EH, units) for _ in range(threads)], weight_LH.chunk(threads))
        for inputs_EH, weight_LH in _layers(width, hidden, batch)
    ]
    pool = ThreadPoolExecutor(threads, initializer=keep_to_one_thread)

    def steps(number: int) -> dict[str, Any]:
        for _ in range(number):
            for of_threads, parts in works:
                list(pool.map(_Products.over, of_threads, parts))
        return {}

    return steps


def _layers(width: int, hidden: Sequence[int], batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each layer's inputs [E, H] and weight [L, H]."""
    torch.manual_seed(0)
    for inputs, units in pairwise([*hidden, width]):
        yield torch.randn(batch, inputs), torch.randn(units, inputs)


class _Products:
    """Outputs, gradient to the inputs, weight gradient: some units at a time, always into the same memory."""

    def __init__(self, inputs_EH: Tensor, units: int) -> None:
        self.inputs_EH, self.units = inputs_EH, units
        self.outputs = torch.empty(len(inputs_EH) * units)
        self.gradient_EH = torch.empty_like(inputs_EH)
        self.gradient_UH = torch.empty(units, inputs_EH.shape[1])

    def over(self, weight_LH: Tensor) -> None:
        """Make the products of some units."""
        for weight_UH in torch.split(weight_LH, self.units):
            num = len(self.inputs_EH) * len(weight_UH)
            outputs_EU = self.outputs[:num].view(len(self.inputs_EH), len(weight_UH))
            torch.mm(self.inputs_EH, weight_UH.T, out=outputs_EU)
            torch.mm(outputs_EU, weight_UH, out=self.gradient_EH)
            torch.mm(outputs_EU.T, self.inputs_EH, out=self.gradient_UH[: len(weight_UH)])
