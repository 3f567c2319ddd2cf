"""PyTorch for one target per example: `nn.EmbeddingBag` and `functional.linear_cross_entropy`."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.steps.histories import histories, orders
from benchmarks.steps.torch_dense import optimizer_of, steps_of


class NextItem(nn.Module):
    """Sums of item vectors, hidden layers, and the cross-entropy of the next item.

    The loss computes all logits at once: its chunks are slower for batches smaller than the last hidden
    layer.
    """

    def __init__(self, width: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(width, hidden[0], mode="sum", include_last_offset=True)
        nn.init.xavier_normal_(self.bag.weight)
        self.bias = nn.Parameter(torch.zeros(hidden[0]))
        self.trunk = nn.ModuleList([nn.Linear(inputs, units) for inputs, units in pairwise(hidden)])
        self.scores = nn.Linear(hidden[-1], width)

    def forward(self, indices: Tensor, indptr: Tensor, following: Tensor) -> Tensor:
        """Return the mean loss of the examples."""
        x = torch.sigmoid(self.bag(indices, indptr) + self.bias)
        for layer in self.trunk:
            x = torch.sigmoid(layer(x))
        return functional.linear_cross_entropy(x, self.scores.weight, following, linear_bias=self.scores.bias)


def eager(
    folder: str,
    hidden: Sequence[int],
    softmax: bool,
    batch: int,
    optimizer: str,
    threads: int,
    compiled: bool = False,
) -> Callable[[int], dict[str, Any]]:
    """Return steps of `NextItem`."""
    assert softmax
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    matrix = histories(folder)
    model = NextItem(matrix.shape[1], hidden)
    return steps_of(model, optimizer_of(optimizer, model.parameters()), _batches(folder, batch), compiled)


def compiled(**arguments: Any) -> Callable[[int], dict[str, Any]]:
    """Return the same steps with model and optimizer compiled by `torch.compile`."""
    return eager(**arguments, compiled=True)


def _batches(folder: str, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    matrix, following = histories(folder), np.load(Path(folder) / "next.npy")
    for rows in orders(matrix.shape[0], size):
        chosen = matrix[rows]
        yield (
            torch.from_numpy(chosen.indices).long(),
            torch.from_numpy(chosen.indptr).long(),
            torch.from_numpy(following[rows]),
        )
