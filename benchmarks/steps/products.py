"""The bound: the three matrix products of the output layer, and nothing else."""

from collections.abc import Callable
from typing import Any

import torch

_LARGEST_BLOCK = 2**27


def alone(width: int, hidden: int, batch: int, threads: int) -> Callable[[int], dict[str, Any]]:
    """Logits, gradient to the hidden vectors, weight gradient; by blocks of units where the logits do not fit in 512 MB."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    units = min(width, _LARGEST_BLOCK // batch)
    hidden_EH, weight_LH = torch.randn(batch, hidden), torch.randn(width, hidden)
    logits_EU, gradient_EH, gradient_UH = torch.empty(batch * units), torch.empty(batch, hidden), torch.empty(units, hidden)

    def steps(number: int) -> dict[str, Any]:
        for _ in range(number):
            for weight_UH in torch.split(weight_LH, units):
                block_EU = logits_EU[: batch * len(weight_UH)].view(batch, len(weight_UH))
                torch.mm(hidden_EH, weight_UH.T, out=block_EU)
                torch.mm(block_EU, weight_UH, out=gradient_EH)
                torch.mm(block_EU.T, hidden_EH, out=gradient_UH[: len(weight_UH)])
        return {}

    return steps
