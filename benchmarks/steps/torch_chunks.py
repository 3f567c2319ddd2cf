"""A softmax's cross-entropy without all logits at once, as PyTorch's users write it for very wide outputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class ChunkedCrossEntropy(torch.autograd.Function):
    """Cross-entropy of an output layer; the forward pass makes the gradients, of some examples at a time.

    So nothing is multiplied twice. The loss must be the last operation: its gradient is taken to be 1.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_EH: Tensor,
        weight_LH: Tensor,
        bias_L: Tensor,
        targets: tuple[Tensor, Tensor, Tensor, Tensor],
        dtype: torch.dtype,
        cells: int,
        divide: Callable[[Tensor, float], tuple[Tensor, Tensor]],
    ) -> Tensor:
        """Return the mean loss.

        Args:
            ctx: Keeps the gradients.
            x_EH: The last hidden units.
            weight_LH: The output's weight.
            bias_L: Its bias.
            targets: Arguments of `torch_bags.Autoencoder.forward`.
            dtype: Type of the products.
            cells: Most logits at a time.
            divide: `shares`, or compiled.
        """
        indices, indptr, examples, parts = targets
        num, rows = len(x_EH), rows_of(len(x_EH), cells // len(weight_LH))
        edges = [*indptr[:-1:rows].tolist(), len(indices)]
        x, weight, bias = x_EH.to(dtype), weight_LH.to(dtype), bias_L.to(dtype)
        total = torch.zeros((), device=x.device)
        to_x, to_weight, to_bias = torch.zeros_like(x), torch.zeros_like(weight_LH), torch.zeros_like(bias_L)
        for number, start in enumerate(range(0, num, rows)):
            block, span = slice(start, start + rows), slice(edges[number], edges[number + 1])
            own = examples[span] - start, indices[span]
            logits = torch.addmm(bias, x[block], weight.T)
            total -= (logits[own].float() * parts[span]).sum()
            sums, delta = divide(logits, 1 / num)
            total += sums.sum()
            delta[own] -= (parts[span] / num).to(dtype)
            to_x[block] = delta @ weight
            to_weight += delta.T @ x[block]
            to_bias += delta.sum(dim=0, dtype=torch.float32)
        ctx.gradients = to_x.to(x_EH.dtype), to_weight, to_bias
        return total / num

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients to units, weight and bias."""
        del gradient
        found = (*ctx.gradients, None, None, None, None)
        del ctx.gradients
        return found


def rows_of(num: int, most: int) -> int:
    """Return the largest divisor of a number up to another one: chunks of one size are compiled once."""
    return next((rows for rows in range(min(num, most), 0, -1) if num % rows == 0), 1)


def shares(logits_EL: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """Return the logarithms of a softmax's sums, float32 [E], and its shares times a factor."""
    wide_EL = logits_EL.float()
    sums_E = wide_EL.logsumexp(dim=1)
    return sums_E, (wide_EL - sums_E[:, None]).exp_().mul_(factor).to(logits_EL.dtype)
