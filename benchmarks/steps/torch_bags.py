"""PyTorch with `nn.EmbeddingBag` for the sparse input, and its fused linear cross-entropy for a softmax output."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn
from torch.nn import LinearCrossEntropyOptions, functional

from benchmarks.steps.histories import batches, histories
from benchmarks.steps.torch_dense import loss_of, optimizer_of


class Autoencoder(nn.Module):
    """Sums of item vectors, hidden layers, a score for every item."""

    def __init__(self, width: int, hidden: Sequence[int], softmax: bool) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(width, hidden[0], mode="sum", include_last_offset=True)
        nn.init.xavier_normal_(self.bag.weight)
        self.bias = nn.Parameter(torch.zeros(hidden[0]))
        self.trunk = nn.ModuleList([nn.Linear(inputs, units) for inputs, units in pairwise(hidden)])
        self.scores = nn.Linear(hidden[-1], width)
        self.softmax = softmax

    def forward(self, indices: Tensor, indptr: Tensor, targets: Tensor) -> Tensor:
        """The loss of a batch."""
        x = torch.sigmoid(self.bag(indices, indptr) + self.bias)
        for layer in self.trunk:
            x = torch.sigmoid(layer(x))
        if not self.softmax:
            return loss_of(False, self.scores(x), targets)
        shares = targets / targets.sum(dim=1, keepdim=True)
        weight, bias = self.scores.weight, self.scores.bias
        return functional.linear_cross_entropy(x, weight, shares, linear_bias=bias, options=LinearCrossEntropyOptions())


def eager(folder: str, hidden: Sequence[int], softmax: bool, batch: int, optimizer: str, threads: int) -> Callable[[int], dict[str, Any]]:
    """Steps of the `Autoencoder`; the targets are dense, as both losses ask."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    matrix = histories(folder)
    model = Autoencoder(matrix.shape[1], hidden, softmax)
    chosen = optimizer_of(optimizer, model.parameters())
    stream = batches(matrix, batch)

    def steps(number: int) -> dict[str, Any]:
        loss = 0.0
        for _ in range(number):
            chosen.zero_grad()
            value = model(*_tensors(next(stream)))
            value.backward()
            chosen.step()
            loss = value.item()
        return {"loss": loss}

    return steps


def _tensors(rows: csr_matrix) -> tuple[Tensor, Tensor, Tensor]:
    return torch.from_numpy(rows.indices), torch.from_numpy(rows.indptr), torch.from_numpy(rows.toarray())
