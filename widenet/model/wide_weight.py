"""A wide weight: rows of units cut into shards, each with its optimizer state, updated by tiles or by
touched rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from widenet.kernels import RowGradient, roomy
from widenet.kernels.rows import copied
from widenet.model.limits import shorten_rows
from widenet.model.rule import Rule, StepNumbers
from widenet.plan.shards import Shards
from widenet.plan.tiles import blocks

_BLOCK_NUMBERS = 2**21
"""Numbers of a weight that are looked at together."""

_ROWS_AT_ONCE = 65_536
"""Rows that are brought up to date together, where all are."""


@dataclass
class Part:
    """One shard of a wide weight.

    weight: float32 [R, H], or [R] for biases.
    state: the optimizer's tensors, each shaped like the weight; where the rows drift, what `Drift` keeps of
    each; empty outside training.
    moved: int32 [R], the step that moved each row last; None unless the optimizer's idle rows move.
    by_columns: what a batch touches are columns, which lie together in memory; `moved` is then [H].
    """

    weight: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    moved: Tensor | None = None
    by_columns: bool = False

    def by_rows(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Weight and state as [R, H], a row what a batch may touch; of biases as [R, 1], by columns as [H,
        R]. The same memory.
        """
        if self.by_columns:
            return self.weight.T, {name: tensor.T for name, tensor in self.state.items()}
        if self.weight.dim() == 2:
            return self.weight, self.state
        return self.weight[:, None], {name: tensor[:, None] for name, tensor in self.state.items()}

    def blocks(self) -> Iterator[Tensor]:
        """The weight in pieces that are small beside it."""
        weight_RH, _ = self.by_rows()
        return iter(torch.split(weight_RH, max(1, _BLOCK_NUMBERS // max(weight_RH.shape[1], 1))))

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint holds of this shard."""
        moved = {} if self.moved is None else {"moved": self.moved}
        return {
            "weight": self.weight,
            **{f"state.{name}": tensor for name, tensor in self.state.items()},
            **moved,
        }


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
            weight = part.weight.T if part.by_columns else part.weight
            state = rule.state_for(weight)
            part.state = {name: tensor.T for name, tensor in state.items()} if part.by_columns else state
            if self.by_rows and rule.idles:
                part.moved = roomy(weight.shape[:1], torch.int32, weight.device)

    def update_tile(
        self, shard: int, start: int, stop: int, gradient: Tensor | RowGradient, rule: Rule, step: StepNumbers
    ) -> None:
        """One step of the rows [start, stop) of a shard; by columns, of all of them, by what a batch
        touches.
        """
        if isinstance(gradient, RowGradient):
            self.update_rows(shard, gradient, rule, step)
            return
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
        """One step of the touched rows of a shard; the others stay.

        Where `catch_up` need not go first, what idled catches up here.

        A bias counts as a row of one number.
        """
        part = self.parts[shard]
        weight_RH, state = part.by_rows()
        rule.apply_to_rows(weight_RH, touched, state, part.moved, step, self.l2 if self.is_bias else None)

    def catch_up(self, shard: int, rows_U: Tensor, rule: Rule, step: StepNumbers) -> None:
        """Bring some rows of a shard to where the steps since they last moved, with zero gradients, would
        have led them.
        """
        part = self.parts[shard]
        if part.moved is None:
            return
        weight_RH, state = part.by_rows()
        for start, stop in blocks(len(rows_U), weight_RH.shape[1], weight_RH.device.type):
            block_U = rows_U[start:stop]
            with copied(weight_RH, state, block_U) as (weight_UH, state_of_rows):
                rule.idle(
                    weight_UH,
                    state_of_rows,
                    part.moved.index_select(0, block_U),
                    step.number - 1,
                    step.rates,
                    self.is_bias,
                )
            part.moved.index_fill_(0, block_U, step.number - 1)

    def catch_up_all(self, rule: Rule, step: StepNumbers) -> None:
        """`catch_up` for every row at hand, a block at a time."""
        for shard, part in self.parts.items():
            count = len(part.by_rows()[0])
            for start in range(0, count, _ROWS_AT_ONCE):
                rows = torch.arange(start, min(start + _ROWS_AT_ONCE, count), device=part.weight.device)
                self.catch_up(shard, rows, rule, step)
