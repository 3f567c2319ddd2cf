"""The native library's passes over an output's tiles: loss, deltas and bias gradient from logits."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels.native import product_routine
from widenet.kernels.output_passes import (
    Entries,
    ShardTiles,
    SlopeNumbers,
    SteppedTensor,
    add_softmax_sums,
    add_tile_softmax_sums,
    fill_gradients,
    kept_numbers,
    kept_place,
    make_slopes,
    tile_slopes,
    update,
)
from widenet.model.layers.output import Tile, lengths, through_lengths
from widenet.model.output_step import OutputStep, Place
from widenet.model.row_sum import RowSum
from widenet.model.rule import CompiledStep, ShardSteps
from widenet.model.sweep import groups
from widenet.plan.tiles import GRADIENT_NUMBERS


class NativePasses:
    """See `Passes`; for sparse targets of cross-entropy under a sigmoid, or of a softmax in closed form."""

    adds_biases = True

    def __init__(self) -> None:
        self._shards: dict[int, tuple[Entries, Tensor | None]] = {}
        self._tiles: dict[int, ShardTiles | None] = {}
        self._kept: dict[int, Tensor | None] = {}
        self._deferred: dict[int, _Deferred] = {}
        self._overwritten: set[Place] = set()

    def statistics(self, step: OutputStep, shard: int) -> RowSum:
        """See `Passes.statistics`."""
        assert step.rows is not None
        logits_Z = step.rows.target_logits[shard] = torch.zeros(step.targets.num_entries(shard))
        total = RowSum.empty(step.kind, step.num_examples, logits_Z.device)
        sums = total.peak_E, total.sum_E
        tiles = self._tiles_of(step, shard)
        if tiles is not None:
            kept = self._kept[shard] = _room_for_logits(step, tiles)
            for some in _in_memory(step, shard, tiles, measures=True):
                add_softmax_sums(some, kept, logits_Z, *sums)
            return total
        for place in step.places(shard):
            start, _ = step.tiles[shard][place[1]]
            tile, span = step.tile(place), step.span(place)
            logits_ET = step.tile_logits(place, tile)
            entries = self._entries(step, shard)[0].within(span, start)
            add_tile_softmax_sums(logits_ET, tile.bias_T, entries, logits_Z[span], *sums)
            step.keep_logits(place, logits_ET)
        return total

    def delta(self, step: OutputStep, place: Place, tile: Tile) -> tuple[Tensor | float, Tensor, Tensor]:
        """See `Passes.delta`."""
        (shard, index), rows = place, step.rows
        logits_ET, span = self._logits(step, place, tile), step.span(place)
        assert _are_apart(logits_ET, step.direct_EH), (
            "slopes overwrite the logits, which must not share memory with their operands"
        )
        entries = self._entries(step, shard)[0].within(span, step.tiles[shard][index][0])
        loss: Tensor | float
        loss, bias_T = tile_slopes(logits_ET, tile.bias_T, entries, self._numbers(step, shard).within(span))
        if rows is not None:
            loss = rows.loss(shard) if index == 0 else 0.0
        return loss, step.output.operand(logits_ET), bias_T

    def swept(
        self, step: OutputStep, shard: int, steps: ShardSteps | None
    ) -> tuple[Tensor | float, Tensor] | None:
        """Make the last pass over a whole shard, and the optimizer's steps of its weights and biases.

        Returns:
            The shard's loss [] and its gradient to the incoming vectors [E, H]; None if its tiles must be
            taken one by one.
        """
        tiles = None if steps is None or step.output.spec.cosine else self._tiles_of(step, shard)
        if tiles is None or steps is None:
            return None
        gradient_EH, loss = torch.zeros_like(step.direct_EH), 0.0
        weight, bias = _stepped(tiles.weight_RH, steps.weight), _stepped(tiles.bias_R, steps.bias)
        assert weight is not None
        kept, numbers = self._kept.pop(shard, None), self._numbers(step, shard)
        for some in _in_memory(step, shard, tiles, updates=True):
            loss = update(some, kept, numbers, gradient_EH, weight, bias, loss)
        return loss if step.rows is None else step.rows.loss(shard), gradient_EH

    def slopes(self, step: OutputStep, shard: int) -> tuple[Tensor | float, Tensor] | None:
        """Make the last pass over a whole shard whose weights are updated later.

        Returns:
            As of `swept`.
        """
        tiles = self._tiles_of(step, shard)
        if tiles is None:
            return None
        gradient_EH, rows, loss = torch.zeros_like(step.direct_EH), step.rows, 0.0
        sum_R = torch.zeros(step.starts(shard)[-1])
        kept = _room_for_logits(step, tiles) if rows is None else self._kept.pop(shard)
        # Gradients are kept in place of slopes if they are fewer numbers: those leave the cache meanwhile.
        is_narrow = (
            step.output.weight.trained and kept is not None and gradient_EH.shape[1] <= len(gradient_EH)
        )
        gradient_RH = torch.empty(len(sum_R), gradient_EH.shape[1]) if is_narrow else None
        has_logits, numbers = rows is not None and kept is not None, self._numbers(step, shard)
        for some in _in_memory(step, shard, tiles, measures=rows is None):
            loss = make_slopes(some, kept, has_logits, numbers, sum_R, gradient_RH, gradient_EH, loss)
        self._deferred[shard] = _Deferred(None if is_narrow else kept, sum_R, gradient_RH)
        return loss if rows is None else rows.loss(shard), gradient_EH

    def rows_together(self, step: OutputStep, shard: int) -> int:
        """Return for how many units `gradient` works at once, at most; 0: for a single tile."""
        return GRADIENT_NUMBERS // max(step.direct_EH.shape[1], 1) if shard in self._deferred else 0

    def gradient(self, step: OutputStep, shard: int, first: int, last: int) -> tuple[Tensor, Tensor] | None:
        """Return the gradients of weights [T, H] and biases [T] in the tiles [first, last), after `slopes`.

        That of a frozen weight is empty. None if the slopes have been made a tile at a time.
        """
        own, tiles = self._deferred.get(shard), self._tiles.get(shard)
        if own is None or tiles is None:
            return None
        start, stop = int(tiles.starts[first]), int(tiles.starts[last])
        bias_gradient_T = own.bias_gradient_R[start:stop]
        if not step.output.weight.trained:
            return torch.zeros(0), bias_gradient_T
        if own.gradient_RH is not None:
            gradient_TH = own.gradient_RH[start:stop].clone()
        else:
            gradient_TH = torch.empty(stop - start, step.direct_EH.shape[1])
            fill_gradients(tiles.part(first, last), own.kept, self._numbers(step, shard), gradient_TH)
        if tiles.length_R is not None:
            weight_TH = step.output.weight.parts[shard].weight[start:stop]
            length_T1 = tiles.length_R[start:stop, None]
            through_lengths(gradient_TH, weight_TH / length_T1, length_T1)
        return gradient_TH, bias_gradient_T

    def _logits(self, step: OutputStep, place: Place, tile: Tile) -> Tensor:
        """Return the logits [E, T] of a tile: those that a sweep kept, if still there."""
        (shard, index), count = place, step.num_examples
        kept = self._kept.get(shard)
        if place in self._overwritten or kept is None:
            return step.tile_logits(place, tile)
        self._overwritten.add(place)
        start, stop = step.tiles[shard][index]
        first = kept_place(count, start, index)
        return kept[first : first + count * (stop - start)].view(count, -1)

    def _tiles_of(self, step: OutputStep, shard: int) -> ShardTiles | None:
        """Return a shard for a compiled sweep, made once; None if it is not sweepable."""
        if shard not in self._tiles:
            self._tiles[shard] = self._sweepable(step, shard)
        return self._tiles[shard]

    def _sweepable(self, step: OutputStep, shard: int) -> ShardTiles | None:
        """Return a shard for a compiled sweep; None if its tiles need more than plain products."""
        output, direct_EH, bounds = step.output, step.direct_EH, step.tiles[shard]
        weight_RH = output.weight.parts[shard].weight
        has_plain_tiles = not (output.spec.weightless or output.weight.in_8_bits)
        # With one example, torch multiplies by other routines.
        is_sweepable = has_plain_tiles and output.features is None and len(direct_EH) > 1 and bounds
        if not (is_sweepable and direct_EH.is_contiguous() and product_routine()):
            return None
        bias_R = torch.zeros(len(weight_RH)) if output.bias is None else output.bias.parts[shard].weight
        return ShardTiles(
            direct_EH,
            weight_RH,
            bias_R,
            torch.tensor(step.starts(shard)),
            torch.tensor(step.edges_of(shard)),
            self._entries(step, shard)[0],
            None if output.spec.cosine is None else torch.zeros(len(weight_RH)),
            output.half,
        )

    def _entries(self, step: OutputStep, shard: int) -> tuple[Entries, Tensor | None]:
        """Return all targets of a shard and their values, made once for all its tiles."""
        if shard not in self._shards:
            part = step.targets.by_unit(shard)
            self._shards[shard] = Entries(part.examples_Z, part.units_Z), part.values_Z
        return self._shards[shard]

    def _numbers(self, step: OutputStep, shard: int) -> SlopeNumbers:
        """Return what turns the logits of a shard into slopes."""
        rows = step.rows
        if rows is not None:
            return SlopeNumbers("softmax", rows.pulls[shard], rows.total_E, rows.coupling_E)
        values_Z = self._entries(step, shard)[1]
        return SlopeNumbers("sigmoid", values_Z, step.target_weight_E, step.other_weight_E)


@dataclass(frozen=True)
class _Deferred:
    """What `slopes` leaves to `gradient`: the kept slopes, and the gradients that are known already."""

    kept: Tensor | None
    bias_gradient_R: Tensor
    gradient_RH: Tensor | None


def _room_for_logits(step: OutputStep, tiles: ShardTiles) -> Tensor | None:
    """Return the room for the logits of all tiles of a shard if they are kept between passes."""
    return torch.empty(kept_numbers(step.num_examples, tiles.starts)) if step.keeps else None


def _in_memory(
    step: OutputStep, shard: int, tiles: ShardTiles, updates: bool = False, measures: bool = False
) -> Iterator[ShardTiles]:
    """Yield all tiles of a shard at once, or if they are in a file, some at a time that are in memory.

    Args:
        step: The step.
        shard: The shard.
        tiles: All of its tiles.
        updates: Whether the weights are updated.
        measures: Whether to measure the lengths by which products divide the weights.
    """
    part = step.output.weight.parts[shard]
    with part.sweep(updates) as sweep:
        for first, last in groups(tiles.starts.tolist(), sweep.chunk_rows):
            start, stop = int(tiles.starts[first]), int(tiles.starts[last])
            sweep.at(start, stop)
            if measures and tiles.length_R is not None:
                tiles.length_R[start:stop] = lengths(part.weight[start:stop])[:, 0]
            yield tiles.part(first, last)


def _stepped(numbers: Tensor, step: CompiledStep | None) -> SteppedTensor | None:
    """Return weights or biases with their step."""
    return None if step is None else SteppedTensor(numbers, step.states, step.step)


def _are_apart(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors share no memory."""
    return not one.numel() or one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
