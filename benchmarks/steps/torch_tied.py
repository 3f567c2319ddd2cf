"""PyTorch with the network of the default documents: an item's vector is both input and output."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, normalize

from benchmarks.steps.histories import batches, histories
from benchmarks.steps.torch_bags import of_rows, steps_over
from benchmarks.steps.torch_dense import optimizer_of

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
    autocast: bool = False,
) -> Callable[[int], dict[str, Any]]:
    """Return steps of `Cosines`."""
    assert softmax
    model = partial(Cosines, units=hidden[0])
    return steps_over(model, folder, batch, optimizer, threads, compiled, autocast)


def compiled(**arguments: Any) -> Callable[[int], dict[str, Any]]:
    """Return the same steps with model and optimizer compiled by `torch.compile`."""
    return eager(**arguments, compiled=True)


def autocast(**arguments: Any) -> Callable[[int], dict[str, Any]]:
    """Return the same compiled steps under `torch.autocast` in bfloat16."""
    return eager(**arguments, compiled=True, autocast=True)


def by_hand(
    folder: str, hidden: Sequence[int], softmax: bool, batch: int, optimizer: str, threads: int
) -> Callable[[int], dict[str, Any]]:
    """Return steps of `Cosines` whose gradients are written by hand, with one pass over the logits."""
    assert softmax
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    matrix = histories(folder)
    model = Cosines(matrix.shape[1], *hidden)
    chosen, stream = optimizer_of(optimizer, model.parameters()), map(of_rows, batches(matrix, batch))

    def steps(number: int) -> dict[str, Any]:
        loss = 0.0
        with torch.no_grad():
            for _ in range(number):
                loss = _fill_gradients(model, *next(stream))
                chosen.step()
        return {"loss": loss}

    return steps


def _fill_gradients(
    model: Cosines, indices: Tensor, indptr: Tensor, examples: Tensor, shares: Tensor
) -> float:
    """Write the gradients of a batch; return the mean cross-entropy of an example."""
    length_L1 = model.vectors.norm(dim=1, keepdim=True)
    unit_LH, num = model.vectors / length_L1, len(indptr) - 1
    sums_EH = embedding_bag(indices, model.vectors, indptr, mode="sum", include_last_offset=True)
    length_E1 = sums_EH.norm(dim=1, keepdim=True)
    direction_EH = sums_EH / length_E1
    scaled_EH = direction_EH / TEMPERATURE
    share_EL = torch.addmm(model.bias, scaled_EH, unit_LH.T)
    target_Z, bound = share_EL[examples, indices], 1 / TEMPERATURE + model.bias.amax()
    share_EL.sub_(bound).exp_()
    total_E = share_EL.sum(dim=1)
    factor_E1, pull_Z = 1 / (num * total_E[:, None]), shares / num
    to_direction_EH = factor_E1 * (share_EL @ unit_LH)
    to_direction_EH.index_add_(0, examples, -pull_Z[:, None] * unit_LH[indices])
    gradient_LH = share_EL.T @ (factor_E1 * scaled_EH)
    gradient_LH.index_add_(0, indices, -pull_Z[:, None] * scaled_EH[examples])
    gradient_L = (share_EL.T @ factor_E1)[:, 0].index_add_(0, indices, -pull_Z)
    gradient_LH -= (gradient_LH * unit_LH).sum(dim=1, keepdim=True) * unit_LH
    gradient_LH /= length_L1
    to_direction_EH -= (to_direction_EH * direction_EH).sum(dim=1, keepdim=True) * direction_EH
    gradient_LH.index_add_(0, indices, (to_direction_EH / length_E1 / TEMPERATURE)[examples])
    model.vectors.grad, model.bias.grad = gradient_LH, gradient_L
    return ((total_E.log() + bound).sum() - (target_Z * shares).sum()).item() / num
