"""A weight of the trunk; every process holds all of it."""

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

    def update(self, rule: Rule, step: StepNumbers) -> None:
        """Make a step with the gradient and drop the gradient; do nothing without one."""
        gradient, weight = self.tensor.grad, self.tensor.detach()
        if gradient is None:
            return
        if weight.dim() == 1:
            rule.apply_to_bias(weight, gradient, self.state, step)
        else:
            rule.apply(weight, gradient, self.state, step)
        if self.norm_limit is not None:
            shorten_rows(weight, self.norm_limit)
        self.tensor.grad = None
