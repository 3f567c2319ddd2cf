"""The weights of the trunk; every process holds all of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from widenet.model.limits import shorten_rows
from widenet.model.rule import Rule, StepNumbers


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

    def prepare(self, rule: Rule) -> None:
        """Allocate the optimizer's state."""
        if self.trained:
            self.state = rule.state_for(self.tensor)
            self.tensor.requires_grad_(True)


def update(weights: Sequence[TrunkWeight], rule: Rule, step: StepNumbers) -> None:
    """Make a step of all weights with a gradient, and drop the gradients."""
    for are_biases in (False, True):
        rule.apply_to_many(
            [
                (weight.tensor.detach(), weight.tensor.grad, weight.state)
                for weight in weights
                if weight.tensor.grad is not None and (weight.tensor.dim() == 1) == are_biases
            ],
            step,
            are_biases,
        )
    for weight in weights:
        if weight.tensor.grad is not None and weight.norm_limit is not None:
            shorten_rows(weight.tensor.detach(), weight.norm_limit)
        weight.tensor.grad = None
