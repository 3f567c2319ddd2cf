"""Weights: wide ones, in shards of rows, also in 8 bits; and hidden layers', whole in every process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient, Touched, copied, gather_sum, gather_sums, roomy, split
from widenet.kernels.best_units import MOST_COLUMNS, dequantized, quantized
from widenet.kernels.fixed_point import Terms
from widenet.kernels.native import Packed
from widenet.kernels.steps import make_all
from widenet.model import storage
from widenet.model.operands import SHORTEST
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.storage import Scratch, Store, sweep_over
from widenet.parallel.exchange import Exchange
from widenet.plan import tiles
from widenet.plan.layout import Weight
from widenet.plan.tiles import Shards, block_rows, blocks
from widenet.sparse import SparseBatch

_LEAST_LENGTH = 1e-30
"""Shorter vectors count as having this length, to avoid a division by zero."""


def shortening(length: Tensor, limit: float) -> Tensor:
    """Return the factors, at most 1, that shorten vectors of these lengths to a limit."""
    return (limit / length.clamp_min(_LEAST_LENGTH)).clamp_max(1.0)


def shorten_rows(weight_RH: Tensor, limit: float) -> None:
    """Shorten the rows of a weight that exceed a limit, in place."""
    weight_RH.mul_(shortening(weight_RH.norm(dim=-1, keepdim=True), limit))


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
        brought: Copies of rows of a store that a step has at hand.
    """

    weight: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    moved: Tensor | None = None
    by_columns: bool = False
    store: Store | None = None
    near: "tuple[int, Part] | None" = None
    brought: "Brought | None" = None

    def prepare(self, rule: Optimizer, remembers: bool, has_vectors: bool = False) -> None:
        """Allocate the optimizer's state, and `moved` if the last step of each row must be remembered."""
        weight = self.weight.T if self.by_columns else self.weight
        state = rule.state_for(weight, self.store, has_vectors)
        self.state = {name: tensor.T for name, tensor in state.items()} if self.by_columns else state
        if remembers:
            self.moved = roomy(weight.shape[:1], torch.int32, weight.device)

    def views(self, start: int, stop: int) -> "Part":
        """Return views of the rows [start, stop)."""
        state = {name: tensor[start:stop] for name, tensor in self.state.items()}
        moved = None if self.moved is None else self.moved[start:stop]
        return Part(self.weight[start:stop], state, moved, self.by_columns, self.store)

    def rows(self, start: int, stop: int) -> "Part":
        """Return the rows [start, stop) where they are computed.

        Of a weight in a store these are rows that a pass has brought; a pass that only reads brings no state.
        Without a pass they are a copy of the weight alone.
        """
        if self.store is None:
            return self.views(start, stop)
        if self.near is not None:
            first, held = self.near
            return held.views(start - first, stop - first)
        self.give_back()
        return Part(self.store.copy(self.weight[start:stop]))

    def gathered(self, batch: SparseBatch) -> Tensor:
        """Return the sums of the rows of each example's features, float32 [E, H]; see `gather_sum`."""
        if self.brought is None:
            return gather_sum(batch, self.weight)
        return gather_sum(renumbered(batch, self.brought.rows_U), self.brought.part.weight)

    def bring(self, rows_U: Tensor, writes: bool = True) -> tuple["Part", Tensor]:
        """Return a part that holds some rows where they are computed, and their places in it, int64 [U].

        Those of a store are copies, at hand until they are given back.

        Args:
            rows_U: The rows, int64, ascending.
            writes: Whether they may change; then their state comes along.
        """
        if self.store is None:
            return self, rows_U
        if self.brought is None or self.brought.rows_U is not rows_U or not self.brought.writes:
            self.give_back()
            select = partial(self.store.select, rows_U=rows_U)
            state = {name: select(tensor) for name, tensor in self.state.items() if writes}
            moved = None if self.moved is None or not writes else select(self.moved)
            self.brought = Brought(rows_U, Part(select(self.weight), state, moved), writes)
        part = self.brought.part
        return part, torch.arange(len(rows_U), device=part.weight.device)

    def give_back(self) -> None:
        """Write the rows that `bring` has copied to their store if they may have changed."""
        own, self.brought = self.brought, None
        if own is not None and own.writes and self.store is not None:
            self.store.put([*self.tensors().values()], own.rows_U, [*own.part.tensors().values()])

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
        self, size: int, tile: int, updates: bool = False, rows: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """Pass over the rows: yield ranges [start, stop) of tiles, which `rows` gives until the next range.

        Args:
            size: Number of rows.
            tile: Rows of a tile.
            updates: Whether each range is updated before the next one.
            rows: Most rows of a range, unless a single tile has more; None: as many as can be at hand.
        """
        self.give_back()
        most = size + tile if rows is None else rows  # all tiles, of which the last one may be smaller
        if isinstance(self.store, Scratch):
            most = min(most, tiles.REQUEST_BYTES // max(self.weight[:1].nbytes, 1))
        step = tile * max(1, most // tile)
        ranges = [(start, min(start + step, size)) for start in range(0, size, step)]
        tensors = [self.weight, *self.state.values()] if updates else [self.weight]
        swept = sweep_over(tensors, updates, ranges, self.store)
        for (start, stop), own in zip(ranges, swept, strict=True):
            self.near = start, Part(own[0], dict(zip(self.state, own[1:], strict=False)))
            try:
                yield start, stop
            finally:
                self.near = None

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
    """Copies of rows of a store that a step has at hand.

    Attributes:
        rows_U: The rows, int64, ascending.
        part: The copies.
        writes: Whether they may change; then their state came along.
    """

    rows_U: Tensor
    part: Part
    writes: bool


def renumbered(batch: SparseBatch, rows_U: Tensor) -> SparseBatch:
    """Return a batch whose features are the places of its rows among ascending ones, int64 [U]."""
    return replace(batch, indices=torch.searchsorted(rows_U, batch.indices.long()))


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
        by_rows: Whether a step updates the rows that its batch touches, and no others.
        has_vectors: Whether its rows are vectors of features or units, for which a number of state may do.
        trained: Whether the optimizer moves it; otherwise it has no state.
        whole: On CUDA, the shards of this process in one allocation, of which the parts are views: a shard
            begins `shards.room` rows after the one before it. Rows beyond a shard's units are zeros.
    """

    shards: Shards
    parts: dict[int, Part]
    norm_limit: float | None = None
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
        return next(iter(self.parts.values())).weight.shape[1]

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
        return isinstance(next(iter(self.parts.values())), QuantizedPart)

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

    def places(self, shards: range) -> slice:
        """Return where some shards are among those of this process."""
        first = next(iter(self.parts))
        return slice(shards.start - first, shards.stop - first)

    def rows(self, shards: int | range, start: int, stop: int) -> Part:
        """Return the rows [start, stop) of a shard where they are computed, or of several [S, T, H].

        In a store, several are one.
        """
        if isinstance(shards, int):
            return self.part(shards).rows(start, stop)
        if self.store is not None:
            own = self.part(shards.start).rows(start, stop)
            return Part(own.weight[None], {name: state[None] for name, state in own.state.items()})
        assert self.whole is not None
        places = self.places(shards)

        def view(tensor: Tensor) -> Tensor:
            return tensor.view(-1, self.shards.room, *tensor.shape[1:])[places, start:stop]

        return Part(view(self.whole.weight), {name: view(state) for name, state in self.whole.state.items()})

    def update_tile(
        self,
        shards: int | range,
        start: int,
        stop: int,
        gradient: Tensor | RowGradient,
        rule: Optimizer,
        step: StepNumbers,
        sums: Tensor | None = None,
    ) -> None:
        """Make a step of the rows [start, stop) of a shard or several, or of touched columns in all rows.

        See `OptimizerStep.tile` for `sums`.
        """
        if not self.trained:
            return
        if isinstance(gradient, RowGradient):
            assert isinstance(shards, int)
            self.update_rows(shards, gradient, rule, step)
            return
        own = self.rows(shards, start, stop)
        rule.made(step, self.is_bias).tile(own.weight, gradient, own.state, sums)
        self.shorten(shards, start, stop)

    def shorten(self, shards: int | range, start: int, stop: int) -> None:
        """Shorten the rows [start, stop) of a shard or several that exceed the limit, after their step."""
        if self.norm_limit is not None:
            shorten_rows(self.rows(shards, start, stop).weight, self.norm_limit)

    def stepped(self, shard: int, rule: Optimizer, step: StepNumbers) -> Packed | None:
        """Return the step of a shard's rows for the native library; None if they are frozen."""
        part = self.parts[shard]
        made = rule.made(step, self.is_bias)
        return made.packed(part.weight, part.state) if self.trained else None

    def update_rows(self, shard: int, touched: RowGradient, rule: Optimizer, step: StepNumbers) -> None:
        """Make a step of the touched rows of a shard, or of `WHOLE`; a bias is a row of one number.

        If only the optimizer's state changes without a gradient, it catches up here.
        """
        part, rows_U = self.part(shard).bring(touched.features_U)
        weight_RH, state = part.by_rows()
        own = replace(touched, features_U=rows_U)
        rule.apply_to_rows(weight_RH, own, state, part.moved, step, self.is_bias)

    def catch_up(self, shard: int, rows_U: Tensor, rule: Optimizer, step: StepNumbers) -> None:
        """Apply the steps that some rows of a shard, or of `WHOLE`, have skipped, with zero gradients."""
        if self.part(shard).moved is None:
            return
        part, own_U = self.part(shard).bring(rows_U)
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

    def give_back(self) -> None:
        """Write the rows that parts have brought to where they lie if they may have changed."""
        for part in [*self.parts.values()] if self.whole is None else [self.whole, *self.parts.values()]:
            part.give_back()

    def select(self, shard: int, rows_U: Tensor) -> Tensor:
        """Return float32 copies of some rows of a shard's weight, or of `WHOLE`, where they are computed."""
        part = self.part(shard)
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
            sums = self._gathered_whole(batch, self.whole)
            return sums.view(len(self.parts), -1, sums.shape[1])
        count = self.shards.count
        if self.in_8_bits or self.store is not None:
            parts = split(batch, count)
            return exchange.each(lambda shard: self.parts[shard].gathered(parts[shard]))
        rows = [self.parts[shard].weight if shard in self.parts else None for shard in range(count)]
        sums = gather_sums(batch, rows, self.columns, exchange.num_threads)
        return sums if len(self.parts) == count else [sums[shard] for shard in self.parts]

    def _gathered_whole(self, batch: SparseBatch, whole: Part) -> Tensor:
        firsts = (place * self.shards.room for place in range(len(self.parts)))
        brought = [(first, part.brought) for first, part in zip(firsts, self.parts.values(), strict=True)]
        at_hand = [(first, own) for first, own in brought if own is not None]
        if not at_hand:
            return whole.gathered(batch)
        rows_U = torch.cat([own.rows_U + first for first, own in at_hand])
        return gather_sum(renumbered(batch, rows_U), torch.cat([own.part.weight for _, own in at_hand]))

    def catch_up_all(self, rule: Optimizer, step: StepNumbers) -> None:
        """Let every row of this process catch up, a block at a time."""
        for shard, part in self.parts.items():
            count = 0 if part.moved is None else len(part.by_rows()[0])
            for start in range(0, count, _ROWS_AT_ONCE):
                rows = torch.arange(start, min(start + _ROWS_AT_ONCE, count), device=part.weight.device)
                self.catch_up(shard, rows, rule, step)
            part.give_back()


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

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors for a checkpoint, by name."""
        state = {f"state.{name}": tensor for name, tensor in self.state.items()}
        return {"weight": self.tensor.detach(), **state}


def update_trunk(weights: Sequence[tuple[TrunkWeight, StepNumbers]], rule: Optimizer) -> None:
    """Make the steps of all weights that have a gradient, and drop the gradients."""
    live = [(own, own.tensor.detach(), step) for own, step in weights if own.tensor.grad is not None]
    steps = [rule.made(step, tensor.dim() == 1) for _, tensor, step in live]
    make_all(
        [
            (step, tensor, own.tensor.grad, own.state)
            for step, (own, tensor, _) in zip(steps, live, strict=True)
            if own.tensor.grad is not None
        ]
    )
    for own, tensor, _ in live:
        if own.norm_limit is not None:
            shorten_rows(tensor, own.norm_limit)
        own.tensor.grad = None


@dataclass
class QuantizedPart(Part):
    """One shard of a wide weight: whole numbers in 8 bits, and a scale for each row.

    Attributes:
        weight: The whole numbers, int8 [R, H].
        scale_R: The scales, float32. Row r is `scale_R[r] * weight[r]`, which float32 holds exactly.
    """

    scale_R: Tensor = field(default_factory=lambda: torch.zeros(0))

    @classmethod
    def blank(cls, rows: int, columns: int) -> "QuantizedPart":
        """Return zeros."""
        return cls(roomy((rows, columns), torch.int8), scale_R=roomy((rows,)))

    @classmethod
    def of(cls, part: Part) -> "QuantizedPart":
        """Return a shard in 8 bits; see `quantized`."""
        made, start = cls.blank(*part.weight.shape), 0
        for block_RH in part.blocks():
            own = slice(start, start + len(block_RH))
            made.weight[own], made.scale_R[own] = quantized(block_RH)
            start = own.stop
        return made

    @cached_property
    def for_directions(self) -> Tensor:
        """What the whole numbers of each row are multiplied by for a vector of length 1, float32 [R].

        It is 0 for rows without a direction.
        """
        rows = block_rows(4 * self.weight.shape[1])
        blocks = zip(torch.split(self.weight, rows), torch.split(self.scale_R, rows), strict=True)
        return torch.cat([directions(whole_RH, scale_R) for whole_RH, scale_R in blocks])

    def rows(self, start: int, stop: int) -> Part:
        """Return the rows [start, stop) in float32, and no state."""
        return Part(dequantized(self.weight[start:stop], self.scale_R[start:stop]))

    def blocks(self, rows: int | None = None, updates: bool = False) -> Iterator[Tensor]:
        """Yield the rows in float32, in blocks."""
        assert not updates, "a weight in 8 bits is not trained"
        step = rows or block_rows(4 * self.weight.shape[1])
        for start in range(0, len(self.weight), step):
            yield self.rows(start, start + step).weight

    def gathered(self, batch: SparseBatch) -> Tensor:
        """See `Part.gathered`; only rows that the batch has become float32."""
        features_U, indices_Z = torch.unique(batch.indices, return_inverse=True)
        rows_UH = dequantized(
            self.weight.index_select(0, features_U), self.scale_R.index_select(0, features_U)
        )
        return gather_sum(SparseBatch(batch.indptr, indices_Z, batch.values), rows_UH)

    def tensors(self) -> dict[str, Tensor]:
        """Return this shard's tensors for a checkpoint, by name."""
        return {"weight": self.weight, "scale": self.scale_R}


def directions(whole_RH: Tensor, scale_R: Tensor) -> Tensor:
    """Return what whole numbers are multiplied by, float32 [R]; see `QuantizedPart.for_directions`."""
    length_R = whole_RH.int().square().sum(dim=1).double().sqrt_()
    return torch.where(length_R * scale_R <= SHORTEST, 0.0, 1 / length_R).float()


def fits_in_8_bits(weight: Weight) -> bool:
    """Return whether a weight is a matrix whose rows are gathered or multiplied by whole."""
    is_matrix = weight.wide and not weight.split and not weight.by_columns
    return is_matrix and 0 < (weight.columns or 0) <= MOST_COLUMNS
