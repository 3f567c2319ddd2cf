"""Weights: wide ones, whose rows are cut into shards, and those of hidden layers, whole in every process."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient, Touched, gather_sum, gather_sums, split
from widenet.kernels.fixed_point import Terms
from widenet.kernels.native import Packed
from widenet.kernels.rows import copied, roomy
from widenet.model import storage
from widenet.model.limits import shorten_rows
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.storage import Scratch, Store, sweep_over, tile_ranges
from widenet.parallel.exchange import Exchange
from widenet.plan.tiles import Shards, block_rows, blocks
from widenet.sparse import SparseBatch


@dataclass
class Part:
    """One shard of a wide weight.

    Attributes:
        weight: float32 [R, H], or [R] for biases.
        state: In training, the optimizer's tensors, of the weight's shape or [R, 1].
        moved: Last step of each row, int32 [R]; None unless the optimizer changes rows without a gradient.
        by_columns: Whether a batch touches columns, which are then contiguous in memory; `moved` is [H].
        store: Where weight and state lie; None: in the memory of the device that computes them.
        near: While a pass over the rows is under way, the first row of its range, and the rows.
        brought: The rows of a store that a step has at hand.
        in_8_bits: Whether this is a `QuantizedPart`.
    """

    weight: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    moved: Tensor | None = None
    by_columns: bool = False
    store: Store | None = None
    near: tuple[int, list[Tensor]] | None = None
    brought: "Brought | None" = None
    in_8_bits: ClassVar[bool] = False

    @property
    def columns(self) -> int:
        """H."""
        return self.weight.shape[1]

    def prepare(self, rule: Optimizer, remembers: bool, has_vectors: bool = False) -> None:
        """Allocate the optimizer's state, and `moved` if the last step of each row must be remembered."""
        weight = self.weight.T if self.by_columns else self.weight
        state = rule.state_for(weight, self.store, has_vectors)
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
        first, rows = self.near
        weight_TH, *states = (tensor[start - first : stop - first] for tensor in rows)
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
        return storage.blocks(weight_RH, rows or block_rows(weight_RH[:1].nbytes), updates, self.store)

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
        most = self.store.most_rows(self.weight) if isinstance(self.store, Scratch) else None
        together = min((each for each in (rows, most) if each is not None), default=None)
        tiles = list(tile_ranges(starts, together))
        ranges = [(starts[first], starts[last]) for first, last in tiles]
        try:
            for (first, last), at_hand in zip(
                tiles, sweep_over(tensors, updates, ranges, self.store), strict=True
            ):
                self.near = starts[first], at_hand
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


WHOLE = -1
"""In the place of a shard: all shards of a process, as rows of `WideWeight.whole`."""

TouchedRows = dict[str, dict[int, Touched]]
"""Rows that a batch touches, by weight and shard, or of `WHOLE`."""

_ROWS_AT_ONCE = 16_384
"""Rows that catch up together when all rows of a shard do."""


@dataclass
class WideWeight:
    """A weight [width, H] or a bias [width], with its rows cut into shards.

    Attributes:
        shards: All shards.
        parts: The shards of this process.
        norm_limit: Largest length of a row.
        l2: Strength of the penalty on a bias.
        trained: Whether the optimizer moves it; otherwise it has no state.
        by_rows: Whether only rows that a batch touches are updated.
        has_vectors: Whether its rows are vectors of features or units, for which a number of state may do.
        whole: On CUDA, the shards of this process in one allocation, of which the parts are views: a shard
            begins `shards.room` rows after the one before it. Rows beyond a shard's units are zeros.
    """

    shards: Shards
    parts: dict[int, Part]
    norm_limit: float | None = None
    l2: float = 0.0
    by_rows: bool = False
    has_vectors: bool = False
    trained: bool = True
    whole: Part | None = None

    def lay_out(self, whole: Part, held: Sequence[int]) -> None:
        """Take the parts of the shards of this process from one allocation."""
        self.whole, room = whole, self.shards.room
        self.parts = {
            shard: whole.views(place * room, place * room + self.shards.size(shard))
            for place, shard in enumerate(held)
        }

    @property
    def is_bias(self) -> bool:
        """Whether this has one number per unit."""
        return next(iter(self.parts.values())).weight.dim() == 1

    @property
    def columns(self) -> int:
        """H."""
        return next(iter(self.parts.values())).columns

    @property
    def store(self) -> Store | None:
        """Where the rows lie; None: in the memory of the device that computes them."""
        return next(iter(self.parts.values())).store

    @property
    def device(self) -> torch.device:
        """The device that computes the rows."""
        part = next(iter(self.parts.values()))
        return part.weight.device if part.store is None else part.store.device

    @property
    def in_8_bits(self) -> bool:
        """Whether the rows are whole numbers with a scale for each."""
        return next(iter(self.parts.values())).in_8_bits

    @property
    def in_file(self) -> bool:
        """Whether the rows are in a file."""
        return isinstance(self.store, Scratch)

    def part(self, shard: int) -> Part:
        """Return a shard of this process, or all of them for `WHOLE`."""
        if shard != WHOLE:
            return self.parts[shard]
        assert self.whole is not None
        return self.whole

    def prepare(self, rule: Optimizer) -> None:
        """Allocate the optimizer's state."""
        if not self.trained:
            return
        for part in [*self.parts.values()] if self.whole is None else [self.whole]:
            part.prepare(rule, self.by_rows and rule.idles, self.has_vectors)
        if self.whole is not None:
            self.lay_out(self.whole, [*self.parts])

    def update_tile(
        self,
        shard: int,
        start: int,
        stop: int,
        gradient: Tensor | RowGradient,
        rule: Optimizer,
        step: StepNumbers,
    ) -> None:
        """Make a step of the rows [start, stop) of a shard, or of touched columns in all rows."""
        if not self.trained:
            return
        if isinstance(gradient, RowGradient):
            self.update_rows(shard, gradient, rule, step)
            return
        weight, state = self.part(shard).rows(start, stop)
        rule.apply(weight, gradient, state, step, self.l2 if self.is_bias else None)
        if self.norm_limit is not None:
            shorten_rows(weight, self.norm_limit)

    def stepped(self, shard: int, rule: Optimizer, step: StepNumbers) -> Packed | None:
        """Return the step of a shard's rows for the native library; None if it does not make it."""
        part, made = self.parts[shard], rule.made(step, self.l2 if self.is_bias else None)
        is_whole = part.weight.is_contiguous() and not self._waits_for_tiles
        is_native = is_whole and made.runner(part.weight, part.state) == "native"
        return made.packed(part.weight, part.state) if is_native else None

    def update_rows(self, shard: int, touched: RowGradient, rule: Optimizer, step: StepNumbers) -> None:
        """Make a step of the touched rows of a shard, or of `WHOLE`; a bias is a row of one number.

        If only the optimizer's state changes without a gradient, it catches up here.
        """
        with self.part(shard).at_hand(touched.features_U) as (part, rows_U):
            weight_RH, state = part.by_rows()
            own = touched if rows_U is touched.features_U else replace(touched, features_U=rows_U)
            rule.apply_to_rows(weight_RH, own, state, part.moved, step, self.l2 if self.is_bias else None)

    @property
    def _waits_for_tiles(self) -> bool:
        """Whether only `update_tile` can make its steps."""
        return self.norm_limit is not None or not self.trained

    def catch_up(self, shard: int, rows_U: Tensor, rule: Optimizer, step: StepNumbers) -> None:
        """Apply the steps that some rows of a shard, or of `WHOLE`, have skipped, with zero gradients."""
        if self.part(shard).moved is None:
            return
        with self.part(shard).at_hand(rows_U) as (part, own_U):
            weight_RH, state = part.by_rows()
            assert part.moved is not None
            for start, stop in blocks(len(own_U), weight_RH.shape[1], weight_RH.device.type):
                block_U = own_U[start:stop]
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

    @property
    def moves_by_rows(self) -> bool:
        """Whether a step updates the rows that its batch touches, and no others."""
        return self.by_rows and self.trained

    def bring(self, touched: Mapping[int, Touched], updates: bool) -> None:
        """Bring the rows that a batch touches from where they lie to the device that computes them.

        Args:
            touched: The rows by shard, or of `WHOLE`.
            updates: Whether a step updates them.
        """
        for shard, rows in touched.items() if self.store is not None else ():
            self.part(shard).bring(rows.features_U, updates and self.moves_by_rows)

    def give_back(self) -> None:
        """Write the rows that `bring` has brought to where they lie if they may have changed."""
        for part in [*self.parts.values()] if self.whole is None else [self.whole, *self.parts.values()]:
            part.give_back()

    def select(self, shard: int, rows_U: Tensor) -> Tensor:
        """Return float32 copies of some rows of a shard's weight, int64 [U], where they are computed."""
        part = self.parts[shard]
        if part.store is None:
            return part.weight.index_select(0, rows_U).float()
        part.give_back()
        return part.store.select(part.weight, rows_U)

    def gathered(self, batch: SparseBatch, exchange: Exchange) -> Terms:
        """Return the sums of the rows of each example's features, float32 [E, H] for each shard here.

        Args:
            batch: The features; those of `whole` if there is one.
            exchange: Runs the shards of this process.
        """
        if self.whole is not None:
            sums = self._gathered_whole(batch)
            return sums.view(len(self.parts), -1, sums.shape[1])
        count = self.shards.count
        if self.in_8_bits:
            parts = split(batch, count)
            return exchange.each(lambda shard: self.parts[shard].gathered(parts[shard]))
        rows = [self.parts[shard].weight if shard in self.parts else None for shard in range(count)]
        sums = gather_sums(batch, rows, self.columns, exchange.num_threads)
        return sums if len(self.parts) == count else [sums[shard] for shard in self.parts]

    def _gathered_whole(self, batch: SparseBatch) -> Tensor:
        assert self.whole is not None
        firsts = {WHOLE: 0} | {shard: place * self.shards.room for place, shard in enumerate(self.parts)}
        brought = [(first, self.part(shard).brought) for shard, first in firsts.items()]
        at_hand = [(first, own) for first, own in brought if own is not None]
        if not at_hand:
            return gather_sum(batch, self.whole.weight)
        places_U = torch.cat([own.rows_U + first for first, own in at_hand])
        weight_UH = torch.cat([own.copies[0] for _, own in at_hand if own.copies is not None])
        places_Z = torch.searchsorted(places_U, batch.indices)
        return gather_sum(SparseBatch(batch.indptr, places_Z, batch.values), weight_UH)

    def catch_up_all(self, rule: Optimizer, step: StepNumbers) -> None:
        """Let every row of this process catch up, a block at a time."""
        for shard, part in self.parts.items():
            count = 0 if part.moved is None else len(part.by_rows()[0])
            for start in range(0, count, _ROWS_AT_ONCE):
                rows = torch.arange(start, min(start + _ROWS_AT_ONCE, count), device=part.weight.device)
                self.catch_up(shard, rows, rule, step)


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

    def update(self, rule: Optimizer, step: StepNumbers) -> None:
        """Make a step if there is a gradient, and drop the gradient."""
        if self.tensor.grad is None:
            return
        tensor = self.tensor.detach()
        rule.apply(tensor, self.tensor.grad, self.state, step, 0.0 if tensor.dim() == 1 else None)
        if self.norm_limit is not None:
            shorten_rows(tensor, self.norm_limit)
        self.tensor.grad = None
