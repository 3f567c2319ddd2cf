"""The lower bound of a step's time: the three matrix products of the output layer alone."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

_LARGEST_BLOCK = 2**27
_CACHED_BLOCK = 2**17


def whole(width: int, hidden: int, batch: int, threads: int) -> Callable[[int], dict[str, Any]]:
    """Return steps that compute each product over blocks of units with up to 512 MB of logits."""
    torch.set_num_threads(threads)
    hidden_EH, weight_LH = _operands(width, hidden, batch)
    work = _Products(hidden_EH, min(width, _LARGEST_BLOCK // batch))

    def steps(number: int) -> dict[str, Any]:
        for _ in range(number):
            work.over(weight_LH)
        return {}

    return steps


def tiled(width: int, hidden: int, batch: int, threads: int) -> Callable[[int], dict[str, Any]]:
    """Return steps over blocks whose logits stay in a core's cache; each thread has its own units."""
    torch.set_num_threads(1)
    hidden_EH, weight_LH = _operands(width, hidden, batch)
    works = [_Products(hidden_EH, max(64, _CACHED_BLOCK // batch)) for _ in range(threads)]
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def steps(number: int) -> dict[str, Any]:
        for _ in range(number):
            list(pool.map(_Products.over, works, weight_LH.chunk(threads)))
        return {}

    return steps


def _operands(width: int, hidden: int, batch: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(batch, hidden), torch.randn(width, hidden)


class _Products:
    """Computes logits, hidden gradient and weight gradient for blocks of units, reusing memory."""

    def __init__(self, hidden_EH: Tensor, units: int) -> None:
        self.hidden_EH, self.units = hidden_EH, units
        self.logits = torch.empty(len(hidden_EH) * units)
        self.gradient_EH, self.gradient_UH = (
            torch.empty_like(hidden_EH),
            torch.empty(units, hidden_EH.shape[1]),
        )

    def over(self, weight_LH: Tensor) -> None:
        """Compute the products of some units."""
        for weight_UH in torch.split(weight_LH, self.units):
            num = len(self.hidden_EH) * len(weight_UH)
            logits_EU = self.logits[:num].view(len(self.hidden_EH), len(weight_UH))
            torch.mm(self.hidden_EH, weight_UH.T, out=logits_EU)
            torch.mm(logits_EU, weight_UH, out=self.gradient_EH)
            torch.mm(logits_EU.T, self.hidden_EH, out=self.gradient_UH[: len(weight_UH)])
