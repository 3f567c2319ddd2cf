"""One shard of a wide weight: its rows, their optimizer state, and where they are computed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from widenet.kernels.bags import gather_sum
from widenet.kernels.rows import roomy
from widenet.model.optimizers import Optimizer
from widenet.model.storage import Store, Sweep, blocks, sweep_over, tile_ranges
from widenet.plan.streaming import block_rows
from widenet.sparse import SparseBatch


@dataclass
class Part:
    """One shard of a wide weight.

    Attributes:
        weight: float32 [R, H], or [R] for biases.
        state: In training, the optimizer's tensors of the weight's shape.
        moved: Last step of each row, int32 [R]; None unless the optimizer changes rows without a gradient.
        by_columns: Whether a batch touches columns, which are then contiguous in memory; `moved` is [H].
        store: Where weight and state lie; None: in the memory of the device that computes them.
        near: A pass over the rows, while it is under way.
        brought: The rows of a store that a step has at hand.
        in_8_bits: Whether this is a `QuantizedPart`.
    """

    weight: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    moved: Tensor | None = None
    by_columns: bool = False
    store: Store | None = None
    near: Sweep | None = None
    brought: "Brought | None" = None
    in_8_bits: ClassVar[bool] = False

    @property
    def columns(self) -> int:
        """H."""
        return self.weight.shape[1]

    def prepare(self, rule: Optimizer, remembers: bool) -> None:
        """Allocate the optimizer's state, and `moved` if the last step of each row must be remembered."""
        weight = self.weight.T if self.by_columns else self.weight
        state = rule.state_for(weight, self.store)
        self.state = {name: tensor.T for name, tensor in state.items()} if self.by_columns else state
        if remembers:
            self.moved = roomy(weight.shape[:1], torch.int32, weight.device)

    def views(self, start: int, stop: int) -> "Part":
        """Return views of the rows [start, stop); not of a weight by columns."""
        assert not self.by_columns
        state = {name: tensor[start:stop] for name, tensor in self.state.items()}
        moved = None if self.moved is None else self.moved[start:stop]
        return Part(self.weight[start:stop], state, moved, store=self.store)

    def rows(self, start: int, stop: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Return weight and state of the rows [start, stop) where they are computed.

        Of a weight in a store these are rows that a pass has brought; a pass that only reads brings no state.
        Without a pass the weight is a copy.
        """
        if self.store is None:
            return self.weight[start:stop], {name: state[start:stop] for name, state in self.state.items()}
        if self.near is None:
            self.give_back()
            return self.store.copy(self.weight[start:stop]), {}
        weight_TH, *states = self.near.rows(start, stop)
        return weight_TH, dict(zip(self.state, states, strict=False))

    def gathered(self, batch: SparseBatch) -> Tensor:
        """Return the sums of the rows of each example's features, float32 [E, H]; see `gather_sum`."""
        return gather_sum(batch, self.weight)

    def bring(self, rows_U: Tensor, with_state: bool) -> None:
        """Bring some rows, int64 [U], ascending, from a store; with their state they may change."""
        self.give_back()
        if self.store is not None:
            copies = self.store.bring(self._moving(with_state), rows_U)
            self.brought = Brought(rows_U, with_state, copies)

    def give_back(self) -> None:
        """Write the rows that `bring` has brought to their store if they may have changed."""
        own, self.brought = self.brought, None
        if own is not None and self.store is not None:
            tensors = self._moving(own.with_state)
            self.store.give_back(tensors, own.rows_U, own.with_state, own.copies or ())

    @contextmanager
    def at_hand(self, rows_U: Tensor) -> Iterator[tuple["Part", Tensor]]:
        """Give a part that holds some rows where they are computed, and their places in it.

        Args:
            rows_U: The rows, int64, ascending. They may change.
        """
        own = self.brought
        is_at_hand = own is not None and own.rows_U is rows_U and own.with_state
        if self.store is not None and not is_at_hand:
            self.bring(rows_U, with_state=True)
        copies = None if self.brought is None else self.brought.copies
        if copies is None:
            yield self, rows_U
        else:
            weight_UH, *others = copies
            moved = None if self.moved is None else others.pop()
            places_U = torch.arange(len(rows_U), device=weight_UH.device)
            yield Part(weight_UH, dict(zip(self.state, others, strict=True)), moved), places_U
        if not is_at_hand:
            self.give_back()

    def by_rows(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Return views of weight and state whose rows are what a batch touches.

        They are [R, H], for biases [R, 1], and for a weight by columns [H, R].
        """
        if self.by_columns:
            return self.weight.T, {name: tensor.T for name, tensor in self.state.items()}
        if self.weight.dim() == 2:
            return self.weight, self.state
        return self.weight[:, None], {name: tensor[:, None] for name, tensor in self.state.items()}

    def blocks(self, rows: int | None = None, updates: bool = False) -> Iterator[Tensor]:
        """Yield the weight in blocks of rows, where they are computed.

        Args:
            rows: Rows of a block; None: those of `BLOCK_BYTES`.
            updates: Whether each block is changed before the next one.
        """
        self.give_back()
        weight_RH, _ = self.by_rows()
        return blocks(weight_RH, rows or block_rows(weight_RH[:1].nbytes), updates, self.store)

    def tiles(
        self, starts: Sequence[int], updates: bool = False, rows: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """Pass over the rows: yield ranges [first, last) of tiles, which `rows` gives until the next range.

        Args:
            starts: First row of each tile, then the end of the last one.
            updates: Whether each range is updated before the next one.
            rows: Most rows of a range, unless a single tile has more; None: as many as can be at hand.
        """
        self.give_back()
        tensors = [self.weight, *self.state.values()] if updates else [self.weight]
        with sweep_over(tensors, updates, self.store) as self.near:
            together = [most for most in (rows, self.near.rows_together) if most is not None]
            try:
                for first, last in tile_ranges(starts, min(together, default=None)):
                    self.near.at(starts[first], starts[last])
                    yield first, last
            finally:
                self.near = None

    def _moving(self, with_state: bool) -> list[Tensor]:
        return [*self.tensors().values()] if with_state else [self.weight]

    def tensors(self) -> dict[str, Tensor]:
        """Return this shard's tensors for a checkpoint, by name."""
        moved = {} if self.moved is None else {"moved": self.moved}
        return {
            "weight": self.weight,
            **{f"state.{name}": tensor for name, tensor in self.state.items()},
            **moved,
        }


@dataclass(frozen=True)
class Brought:
    """Rows of a store that a step has at hand.

    Attributes:
        rows_U: The rows, int64.
        with_state: Whether their state came along, so that they may change.
        copies: If they are not in their own place: weight, state and `moved`, as far as they came.
    """

    rows_U: Tensor
    with_state: bool
    copies: Sequence[Tensor] | None
