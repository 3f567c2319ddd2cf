"""PyTorch with the network of the default documents: an item's vector is both input and output."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, normalize

from benchmarks.steps.torch_bags import steps_over

DEVIATION, TEMPERATURE = 0.04, 0.1


class Cosines(nn.Module):
    """Cosines between the sum of a history's vectors and every item's vector, and a bias for every item."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(width, units) * DEVIATION)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, indices: Tensor, indptr: Tensor, examples: Tensor, shares: Tensor) -> Tensor:
        """Return the mean cross-entropy of an example; arguments as of `torch_bags.Autoencoder.forward`."""
        sums = embedding_bag(indices, self.vectors, indptr, mode="sum", include_last_offset=True)
        directions = normalize(sums, dim=1) / TEMPERATURE
        logits = torch.addmm(self.bias, directions, normalize(self.vectors, dim=1).T)
        total: Tensor = logits.logsumexp(dim=1).sum() - (logits[examples, indices] * shares).sum()
        return total / len(logits)


def eager(
    folder: str,
    hidden: Sequence[int],
    softmax: bool,
    batch: int,
    optimizer: str,
    threads: int,
    compiled: bool = False,
) -> Callable[[int], dict[str, Any]]:
    """Return steps of `Cosines`."""
    assert softmax
    return steps_over(lambda width: Cosines(width, *hidden), folder, batch, optimizer, threads, compiled)


def compiled(**arguments: Any) -> Callable[[int], dict[str, Any]]:
    """Return the same steps with model and optimizer compiled by `torch.compile`."""
    return eager(**arguments, compiled=True)
