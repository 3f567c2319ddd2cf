"""A weight of the trunk, whole on every process."""

from dataclasses import dataclass, field

from torch import Tensor

from widenet.model.limits import shorten_rows
from widenet.model.rule import Rule, StepNumbers


@dataclass
class TrunkWeight:
    """A weight [units, inputs] or bias [units] of a hidden layer; its gradient is torch's, in `tensor.grad`.

    state: the optimizer's tensors, each shaped like it; empty outside training. trained: otherwise it follows
    the batches.
    """

    tensor: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    norm_limit: float | None = None
    trained: bool = True

    def prepare(self, rule: Rule) -> None:
        """Make room for the optimizer's state."""
        if self.trained:
            self.state = rule.state_for(self.tensor)
            self.tensor.requires_grad_(True)

    def update(self, rule: Rule, step: StepNumbers) -> None:
        """One step by its gradient, which is dropped; nothing where it has none."""
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
