"""PyTorch with multi-hot input; each CSR batch becomes a dense matrix, as in common autoencoder code."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.steps.histories import batches, histories


def optimizer_of(kind: str, parameters: Any) -> torch.optim.Optimizer:
    """The fastest implementation that torch has of it."""
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, fused=True)
    if kind == "adam":
        return torch.optim.Adam(parameters, lr=0.001, fused=True)
    return torch.optim.RMSprop(parameters, lr=0.001, alpha=0.99, eps=1e-8, foreach=True)


def loss_of(softmax: bool, logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of an example: multinomial over its targets' shares, or binary summed over all items."""
    if softmax:
        return functional.cross_entropy(logits, targets / targets.sum(dim=1, keepdim=True))
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / len(logits)


def steps_of(
    objective: Callable[..., Tensor],
    chosen: torch.optim.Optimizer,
    stream: Iterator[tuple[Tensor, ...]],
    compiled: bool,
    update: Callable[[], Any] | None = None,
    autocast: bool = False,
) -> Callable[[int], dict[str, Any]]:
    """Return training steps over a stream of inputs.

    Args:
        objective: Computes the loss of one item of the stream.
        chosen: The optimizer.
        stream: The inputs.
        compiled: Compile loss and optimizer with `torch.compile`.
        update: Makes the optimizer's step; None: the optimizer does, compiled or not.
        autocast: Compute the loss under `torch.autocast` in bfloat16.
    """
    step = update or (torch.compile(chosen.step) if compiled else chosen.step)
    if compiled:
        objective = torch.compile(objective)

    def steps(number: int) -> dict[str, Any]:
        loss = 0.0
        for _ in range(number):
            chosen.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                value = objective(*next(stream))
            torch.autograd.backward(value)
            step()
            loss = value.item()
        return {"loss": loss}

    return steps


def eager(
    folder: str,
    hidden: Sequence[int],
    softmax: bool,
    batch: int,
    optimizer: str,
    threads: int,
    compiled: bool = False,
) -> Callable[[int], dict[str, Any]]:
    """Return steps of a stack of `nn.Linear`."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    matrix = histories(folder)
    layers: list[nn.Module] = []
    for inputs, units in zip([matrix.shape[1], *hidden], hidden, strict=False):
        layers += [nn.Linear(inputs, units), nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.Linear(hidden[-1], matrix.shape[1]))
    chosen = optimizer_of(optimizer, model.parameters())

    def objective(x: Tensor) -> Tensor:
        return loss_of(softmax, model(x), x)

    return steps_of(
        objective, chosen, ((torch.from_numpy(rows.toarray()),) for rows in batches(matrix, batch)), compiled
    )


def compiled(**arguments: Any) -> Callable[[int], dict[str, Any]]:
    """Return the same steps with model and optimizer compiled by `torch.compile`."""
    return eager(**arguments, compiled=True)
