"""A wide weight: rows of units cut into shards, each with its optimizer state, updated by tiles or by touched rows."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from widenet.kernels import RowGradient, roomy
from widenet.kernels.rows import copied
from widenet.model.limits import shorten_rows
from widenet.model.rule import Rule, StepNumbers
from widenet.plan.shards import Shards
from widenet.plan.tiles import blocks


@dataclass
class Part:
    """One shard of a wide weight.

    weight: float32 [R, H], or [R] for biases.
    state: the optimizer's tensors, each shaped like the weight; where the rows drift, what `Drift` keeps of each; empty outside training.
    moved: int32 [R], the step that moved each row last; None unless the optimizer's idle rows move.
    """

    weight: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    moved: Tensor | None = None

    def by_rows(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Weight and state as [R, H], of biases as [R, 1]; the same memory."""
        if self.weight.dim() == 2:
            return self.weight, self.state
        return self.weight[:, None], {name: tensor[:, None] for name, tensor in self.state.items()}

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint holds of this shard."""
        moved = {} if self.moved is None else {"moved": self.moved}
        return {"weight": self.weight, **{f"state.{name}": tensor for name, tensor in self.state.items()}, **moved}


@dataclass
class WideWeight:
    """A weight [width, H] or a bias [width], its rows cut into shards; `parts` holds the shards at hand.

    by_rows: only rows that a batch touches are updated.
    """

    shards: Shards
    parts: dict[int, Part]
    norm_limit: float | None = None
    l2: float = 0.0
    by_rows: bool = False

    @property
    def is_bias(self) -> bool:
        """Whether it has one number a unit."""
        return next(iter(self.parts.values())).weight.dim() == 1

    def prepare(self, rule: Rule) -> None:
        """Make room for the optimizer's state."""
        for part in self.parts.values():
            part.state = rule.state_for(part.weight)
            if self.by_rows and rule.idles:
                part.moved = roomy(part.weight.shape[:1], torch.int32, part.weight.device)

    def update_tile(self, shard: int, start: int, stop: int, gradient: Tensor, rule: Rule, step: StepNumbers) -> None:
        """One step of the rows [start, stop) of a shard."""
        part = self.parts[shard]
        weight = part.weight[start:stop]
        state = {name: tensor[start:stop] for name, tensor in part.state.items()}
        if self.is_bias:
            rule.apply_to_bias(weight, gradient, state, step, self.l2)
        else:
            rule.apply(weight, gradient, state, step)
        if self.norm_limit is not None:
            shorten_rows(weight, self.norm_limit)

    def update_rows(self, shard: int, touched: RowGradient, rule: Rule, step: StepNumbers) -> None:
        """One step of the touched rows of a shard; the others stay. Where `wake` need not go first, what idled catches up here.

        A bias counts as a row of one number.
        """
        part = self.parts[shard]
        weight_RH, state = part.by_rows()
        rule.apply_to_rows(weight_RH, touched, state, part.moved, step, self.l2 if self.is_bias else None)
        if part.moved is not None:
            part.moved.index_fill_(0, touched.features_U, step.number)

    def wake(self, shard: int, rows_U: Tensor, rule: Rule, step: StepNumbers) -> None:
        """Bring some rows of a shard to where the steps since they last moved, with zero gradients, would have led them."""
        part = self.parts[shard]
        if part.moved is None:
            return
        weight_RH, state = part.by_rows()
        for start, stop in blocks(len(rows_U), weight_RH.shape[1], weight_RH.device.type):
            block_U = rows_U[start:stop]
            with copied(weight_RH, state, block_U) as (weight_UH, state_of_rows):
                rule.idle(weight_UH, state_of_rows, part.moved.index_select(0, block_U), step.number - 1, step.rates, self.is_bias)
            part.moved.index_fill_(0, block_U, step.number - 1)

    def wake_all(self, rule: Rule, step: StepNumbers) -> None:
        """`wake` for every row at hand, a block at a time."""
        for shard, part in self.parts.items():
            for start in range(0, len(part.weight), 65_536):
                rows = torch.arange(start, min(start + 65_536, len(part.weight)), device=part.weight.device)
                self.wake(shard, rows, rule, step)
