"""The weights of the trunk, which every process holds whole."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from widenet.model.limits import shorten_rows
from widenet.model.optimizers import Optimizer, StepNumbers


@dataclass
class TrunkWeight:
    """A weight [units, inputs] or bias [units] of a hidden layer; torch puts its gradient into `tensor.grad`.

    Attributes:
        tensor: The numbers.
        state: The optimizer's tensors, of the same shape; empty outside training.
        norm_limit: Largest length of a row.
        trained: Whether it has a gradient; otherwise it follows the batches, as running statistics do.
    """

    tensor: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    norm_limit: float | None = None
    trained: bool = True

    def prepare(self, rule: Optimizer) -> None:
        """Allocate the optimizer's state."""
        if self.trained:
            self.state = rule.state_for(self.tensor)
            self.tensor.requires_grad_(True)


def update(weights: Sequence[TrunkWeight], rule: Optimizer, step: StepNumbers) -> None:
    """Make a step of all weights with a gradient, and drop the gradients."""
    for weight in weights:
        tensor = weight.tensor
        if tensor.grad is not None:
            own_l2 = 0.0 if tensor.dim() == 1 else None
            rule.apply(tensor.detach(), tensor.grad, weight.state, step, own_l2)
            if weight.norm_limit is not None:
                shorten_rows(tensor.detach(), weight.norm_limit)
            tensor.grad = None
