"""PyTorch without dense batches: an `nn.EmbeddingBag` as input, and losses from target indices."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.steps.histories import batches, histories
from benchmarks.steps.torch_dense import optimizer_of, steps_of

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


class Autoencoder(nn.Module):
    """Sums of item vectors, hidden layers, a score for every item, and the loss.

    `torch_next` uses `torch.nn.functional.linear_cross_entropy` of torch 2.13, which needs a single target
    per example.
    """

    def __init__(self, width: int, hidden: Sequence[int], softmax: bool, sparse: bool = False) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(width, hidden[0], mode="sum", include_last_offset=True, sparse=sparse)
        nn.init.xavier_normal_(self.bag.weight)
        self.bias = nn.Parameter(torch.zeros(hidden[0]))
        self.trunk = nn.ModuleList([nn.Linear(inputs, units) for inputs, units in pairwise(hidden)])
        self.scores = nn.Linear(hidden[-1], width)
        self.softmax = softmax

    def forward(self, indices: Tensor, indptr: Tensor, examples: Tensor, shares: Tensor) -> Tensor:
        """Return the mean cross-entropy of an example.

        Args:
            indices: Items of all examples.
            indptr: Offsets of the examples.
            examples: Example of each entry.
            shares: Share of each entry in its example's targets.
        """
        return self.loss(self.bag(indices, indptr), indices, examples, shares)

    def loss(self, sums: Tensor, indices: Tensor, examples: Tensor, shares: Tensor) -> Tensor:
        """Return the same from the sums of item vectors, in float32 also under autocast."""
        logits = self.scores(self.last_hidden(sums)).float()
        targets = logits[examples, indices]
        if self.softmax:
            total: Tensor = logits.logsumexp(dim=1).sum() - (targets * shares).sum()
        else:
            total = functional.softplus(logits).sum() - targets.sum()
        return total / len(logits)

    def last_hidden(self, sums: Tensor) -> Tensor:
        """Return the units of the last hidden layer from the sums of item vectors."""
        x = torch.sigmoid(sums + self.bias)
        for layer in self.trunk:
            x = torch.sigmoid(layer(x))
        return x


def eager(
    folder: str,
    hidden: Sequence[int],
    softmax: bool,
    batch: int,
    optimizer: str,
    threads: int,
    compiled: bool = False,
    autocast: bool = False,
) -> Callable[[int], dict[str, Any]]:
    """Return steps of the `Autoencoder`."""
    model = partial(Autoencoder, hidden=hidden, softmax=softmax)
    return steps_over(model, folder, batch, optimizer, threads, compiled, autocast)


def compiled(**arguments: Any) -> Callable[[int], dict[str, Any]]:
    """Return the same steps with model and optimizer compiled by `torch.compile`."""
    return eager(**arguments, compiled=True)


def autocast(**arguments: Any) -> Callable[[int], dict[str, Any]]:
    """Return the same compiled steps under `torch.autocast` in bfloat16."""
    return eager(**arguments, compiled=True, autocast=True)


def steps_over(
    model_of: Callable[[int], nn.Module],
    folder: str,
    batch: int,
    optimizer: str,
    threads: int,
    compiled: bool,
    autocast: bool,
) -> Callable[[int], dict[str, Any]]:
    """Return steps of a model of a width, which takes the arguments of `Autoencoder.forward`."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    matrix = histories(folder)
    model = model_of(matrix.shape[1])
    chosen = optimizer_of(optimizer, model.parameters())
    return steps_of(model, chosen, map(of_rows, batches(matrix, batch)), compiled, autocast=autocast)


def of_rows(rows: "csr_matrix") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the arguments of `Autoencoder.forward` for a batch of histories."""
    return arguments_of(rows.indices, rows.indptr)


def arguments_of(indices: np.ndarray, indptr: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the arguments of `Autoencoder.forward` for histories in CSR form."""
    counts = np.diff(indptr)
    examples = np.repeat(np.arange(len(counts)), counts)
    shares = (1 / np.maximum(counts, 1)).astype(np.float32)[examples]
    return (
        torch.from_numpy(indices).long(),
        torch.from_numpy(indptr).long(),
        torch.from_numpy(examples),
        torch.from_numpy(shares),
    )
