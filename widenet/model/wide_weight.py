"""A wide weight: rows cut into shards with their optimizer state, updated by tiles or by touched rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from widenet.kernels import RowGradient, roomy
from widenet.kernels.rows import copied
from widenet.model.limits import shorten_rows
from widenet.model.rule import CompiledStep, Rule, StepNumbers
from widenet.model.sweep import Sweep
from widenet.plan.shards import Shards
from widenet.plan.tiles import blocks
from widenet.scratch import fetch_rows, release, scratch_of, unmap

if TYPE_CHECKING:
    from widenet.kernels.triton.steps import Steps

_BLOCK_NUMBERS = 2**21
"""Numbers of a weight that are read together."""

WHOLE = -1
"""In the place of a shard: all shards of a process, as rows of `WideWeight.whole`."""

_ROWS_AT_ONCE = 65_536
"""Rows that catch up together when all rows of a shard do."""


@dataclass
class Part:
    """One shard of a wide weight.

    Attributes:
        weight: float32 [R, H], or [R] for biases.
        state: The optimizer's tensors, of the weight's shape, or the state of `DeferredRows`; empty outside
            training.
        moved: Last step of each row, int32 [R]; None unless the optimizer changes rows without a gradient.
        by_columns: Whether a batch touches columns, which are then contiguous in memory; `moved` is [H].
    """

    weight: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    moved: Tensor | None = None
    by_columns: bool = False

    def prepare(self, rule: Rule, remembers: bool) -> None:
        """Allocate the optimizer's state, and `moved` if the last step of each row must be remembered."""
        weight = self.weight.T if self.by_columns else self.weight
        state = rule.state_for(weight)
        self.state = {name: tensor.T for name, tensor in state.items()} if self.by_columns else state
        if remembers:
            self.moved = roomy(weight.shape[:1], torch.int32, weight.device)

    def rows(self, start: int, stop: int) -> "Part":
        """Return views of the rows [start, stop); not of a weight by columns."""
        assert not self.by_columns
        state = {name: tensor[start:stop] for name, tensor in self.state.items()}
        return Part(self.weight[start:stop], state, None if self.moved is None else self.moved[start:stop])

    def by_rows(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Return views of weight and state whose rows are what a batch touches.

        They are [R, H], for biases [R, 1], and for a weight by columns [H, R].
        """
        if self.by_columns:
            return self.weight.T, {name: tensor.T for name, tensor in self.state.items()}
        if self.weight.dim() == 2:
            return self.weight, self.state
        return self.weight[:, None], {name: tensor[:, None] for name, tensor in self.state.items()}

    def blocks(self) -> Iterator[Tensor]:
        """Yield the weight in small blocks of rows."""
        weight_RH, _ = self.by_rows()
        rows = max(1, _BLOCK_NUMBERS // max(weight_RH.shape[1], 1))
        with Sweep([] if self.by_columns else [self.weight]) as sweep:
            for block, block_RH in enumerate(torch.split(weight_RH, rows)):
                sweep.at(block * rows, block * rows + len(block_RH))
                yield block_RH

    def sweep(self, updates: bool) -> Sweep:
        """Return a pass over the rows, which also updates them or only reads the weight."""
        return Sweep([self.weight, *self.state.values()] if updates else [self.weight], updates)

    def fetch_rows(self, rows_U: Tensor) -> None:
        """Begin to read the rows that a batch touches, int64 [U], ascending, if they are in a file."""
        if not self.by_columns:
            for tensor in [self.weight, *self.state.values()]:
                fetch_rows(tensor, rows_U)

    def unmap(self) -> None:
        """Let the kernel free the memory of rows that are in a file."""
        if not self.by_columns:
            for tensor in [self.weight, *self.state.values()]:
                unmap(tensor)

    def tensors(self) -> dict[str, Tensor]:
        """Return this shard's tensors for a checkpoint, by name."""
        moved = {} if self.moved is None else {"moved": self.moved}
        return {
            "weight": self.weight,
            **{f"state.{name}": tensor for name, tensor in self.state.items()},
            **moved,
        }


@dataclass
class WideWeight:
    """A weight [width, H] or a bias [width], with its rows cut into shards.

    Attributes:
        shards: All shards.
        parts: The shards of this process.
        norm_limit: Largest length of a row.
        l2: Strength of the penalty on a bias.
        by_rows: Whether only rows that a batch touches are updated.
        whole: On CUDA, the shards of this process in one allocation, of which the parts are views: a shard
            begins `shards.room` rows after the one before it. Rows beyond a shard's units are zeros.
    """

    shards: Shards
    parts: dict[int, Part]
    norm_limit: float | None = None
    l2: float = 0.0
    by_rows: bool = False
    whole: Part | None = None

    def lay_out(self, whole: Part, held: Sequence[int]) -> None:
        """Take the parts of the shards of this process from one allocation."""
        self.whole, room = whole, self.shards.room
        self.parts = {
            shard: whole.rows(place * room, place * room + self.shards.size(shard))
            for place, shard in enumerate(held)
        }

    @property
    def is_bias(self) -> bool:
        """Whether this has one number per unit."""
        return next(iter(self.parts.values())).weight.dim() == 1

    @property
    def in_files(self) -> bool:
        """Whether the rows are in a file."""
        return any(scratch_of(part.weight) is not None for part in self.parts.values())

    def part(self, shard: int) -> Part:
        """Return a shard of this process, or all of them for `WHOLE`."""
        if shard != WHOLE:
            return self.parts[shard]
        assert self.whole is not None
        return self.whole

    def prepare(self, rule: Rule) -> None:
        """Allocate the optimizer's state."""
        for part in [*self.parts.values()] if self.whole is None else [self.whole]:
            part.prepare(rule, remembers=self.by_rows and rule.idles)
        if self.whole is not None:
            self.lay_out(self.whole, [*self.parts])

    def update_tile(
        self, shard: int, start: int, stop: int, gradient: Tensor | RowGradient, rule: Rule, step: StepNumbers
    ) -> None:
        """Make a step of the rows [start, stop) of a shard or `WHOLE`, or of touched columns in all rows."""
        if isinstance(gradient, RowGradient):
            self.update_rows(shard, gradient, rule, step)
            return
        part = self.part(shard)
        weight = part.weight[start:stop]
        state = {name: tensor[start:stop] for name, tensor in part.state.items()}
        if self.is_bias:
            rule.apply_to_bias(weight, gradient, state, step, self.l2)
        else:
            rule.apply(weight, gradient, state, step)
        if self.norm_limit is not None:
            shorten_rows(weight, self.norm_limit)

    def compiled_step(self, shard: int, rule: Rule, step: StepNumbers) -> CompiledStep | None:
        """Return the step of a shard's rows for compiled code; None if `update_tile` must make it."""
        if self.norm_limit is not None:
            return None
        part = self.parts[shard]
        compiled = rule.compiled_step(part.weight, step, self.l2 if self.is_bias else None)
        return None if compiled is None else CompiledStep(compiled, [*part.state.values()])

    def launched_steps(self, rule: Rule, step: StepNumbers) -> "Steps | None":
        """Return the steps of the rows for Triton's kernels; None if `update_tile` must make them."""
        if self.norm_limit is not None:
            return None
        return rule.launched_steps(next(iter(self.parts.values())).weight, step)

    def update_rows(self, shard: int, touched: RowGradient, rule: Rule, step: StepNumbers) -> None:
        """Make a step of the touched rows of a shard, or of `WHOLE`; a bias is a row of one number.

        If only the optimizer's state changes without a gradient, it catches up here.
        """
        part = self.part(shard)
        weight_RH, state = part.by_rows()
        rule.apply_to_rows(weight_RH, touched, state, part.moved, step, self.l2 if self.is_bias else None)

    def catch_up(self, shard: int, rows_U: Tensor, rule: Rule, step: StepNumbers) -> None:
        """Apply the steps that some rows of a shard, or of `WHOLE`, have skipped, with zero gradients."""
        part = self.part(shard)
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
        """Let every row of this process catch up, a block at a time."""
        for shard, part in self.parts.items():
            count = 0 if part.moved is None else len(part.by_rows()[0])
            for start in range(0, count, _ROWS_AT_ONCE):
                rows = torch.arange(start, min(start + _ROWS_AT_ONCE, count), device=part.weight.device)
                self.catch_up(shard, rows, rule, step)
                for tensor in [] if part.by_columns else [part.weight, *part.state.values()]:
                    release(tensor[start : start + len(rows)])
