"""Numba's passes over an output's tiles: one pass turns logits into loss, deltas and bias gradient."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from widenet.model.layers.output import Tile, lengths, through_lengths
from widenet.model.output_step import OutputStep, Place, RowWise
from widenet.model.row_sum import RowSum
from widenet.model.rule import CompiledStep, ShardSteps
from widenet.model.sweep import groups
from widenet.plan.tiles import GRADIENT_NUMBERS

if TYPE_CHECKING:
    from widenet.kernels.compiled_deferred import TileNumbers
    from widenet.kernels.compiled_sweep import ShardTiles, SteppedArrays
    from widenet.kernels.compiled_tiles import Entries


class CompiledPasses:
    """See `Passes`; for sparse targets of cross-entropy under a sigmoid, or of a softmax in closed form."""

    adds_biases = True

    def __init__(self) -> None:
        self._shards: dict[int, tuple[Entries, np.ndarray | None]] = {}
        self._tiles: dict[int, ShardTiles | None] = {}
        self._kept: dict[int, np.ndarray] = {}
        self._deferred: dict[int, TileNumbers] = {}
        self._overwritten: set[Place] = set()

    def statistics(self, step: OutputStep, shard: int) -> RowSum:
        """See `Passes.statistics`."""
        from widenet.kernels import compiled_sweep, compiled_tiles

        assert step.rows is not None
        logits_Z = step.rows.target_logits[shard] = torch.zeros(step.targets.num_entries(shard))
        total = RowSum.empty(step.kind, step.num_examples, logits_Z.device)
        z_Z, sums = logits_Z.numpy(), (total.peak_E.numpy(), total.sum_E.numpy())
        tiles = self._tiles_of(step, shard)
        if tiles is not None:
            kept = self._kept[shard] = _room_for_logits(step, tiles)
            for some in _in_memory(step, shard, tiles, measures=True):
                compiled_sweep.add_softmax_sums(some, kept, z_Z, *sums)
            return total
        for place in step.places(shard):
            start, _ = step.tiles[shard][place[1]]
            tile, span = step.tile(place), step.span(place)
            logits_ET = step.tile_logits(place, tile)
            entries = self._entries(step, shard)[0].within(span, start)
            compiled_tiles.add_softmax_sums(logits_ET, tile.bias_T, entries, z_Z[span], *sums)
            step.keep_logits(place, logits_ET)
        return total

    def delta(self, step: OutputStep, place: Place, tile: Tile) -> tuple[Tensor | float, Tensor, Tensor]:
        """See `Passes.delta`."""
        from widenet.kernels import compiled_tiles

        (shard, index), rows = place, step.rows
        logits_ET, span = self._logits(step, place, tile), step.span(place)
        assert _are_apart(logits_ET, step.direct_EH), (
            "slopes overwrite the logits, which must not share memory with their operands"
        )
        entries, values_Z = self._entries(step, shard)
        tile_and_entries = logits_ET, tile.bias_T, entries.within(span, step.tiles[shard][index][0])
        loss: Tensor | float
        if rows is not None:
            pulls_Z, *of_examples = _of_softmax(rows, shard)
            bias_T = compiled_tiles.softmax(*tile_and_entries, pulls_Z[span], *of_examples)
            loss = rows.loss(shard) if index == 0 else 0.0
        else:
            values = None if values_Z is None else values_Z[span]
            weights = step.target_weight_E.numpy(), step.other_weight_E.numpy()
            loss, bias_T = compiled_tiles.sigmoid(*tile_and_entries, values, *weights)
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
        from widenet.kernels import compiled_sweep

        gradient_EH = torch.zeros_like(step.direct_EH)
        weight, bias = _stepped(tiles.weight_RH, steps.weight), _stepped(tiles.bias_R, steps.bias)
        assert weight is not None
        update = compiled_sweep.ShardUpdate(gradient_EH.numpy(), weight, bias)
        parts = _in_memory(step, shard, tiles, updates=True)
        if step.rows is not None:
            rows, kept = step.rows, self._kept.pop(shard)
            for some in parts:
                compiled_sweep.softmax(some, update, kept, *_of_softmax(rows, shard))
            return rows.loss(shard), gradient_EH
        weights, loss = (step.target_weight_E.numpy(), step.other_weight_E.numpy()), 0.0
        for some in parts:
            values = self._entries(step, shard)[1]
            loss = compiled_sweep.sigmoid(some, update, values, *weights, loss=loss)
        return loss, gradient_EH

    def slopes(self, step: OutputStep, shard: int) -> tuple[Tensor | float, Tensor] | None:
        """Make the last pass over a whole shard whose weights are updated later.

        Returns:
            As of `swept`.
        """
        tiles = self._tiles_of(step, shard)
        if tiles is None:
            return None
        from widenet.kernels.compiled_deferred import TileNumbers, make_slopes

        gradient_EH, rows, loss = torch.zeros_like(step.direct_EH), step.rows, 0.0
        sum_R = torch.zeros(step.starts(shard)[-1])
        if rows is None:
            values_Z = self._entries(step, shard)[1]
            values = np.zeros(0, np.float32) if values_Z is None else values_Z
            numbers = values, step.target_weight_E.numpy(), step.other_weight_E.numpy()
            kept = _room_for_logits(step, tiles)
        else:
            numbers, kept = _of_softmax(rows, shard), self._kept.pop(shard)
        # Gradients are kept in place of slopes if they are fewer numbers: those leave the cache meanwhile.
        is_narrow = step.output.weight.trained and len(kept) > 0 and gradient_EH.shape[1] <= len(gradient_EH)
        gradient_RH = torch.empty(len(sum_R) if is_narrow else 0, gradient_EH.shape[1])
        kind: Literal["sigmoid", "softmax"] = "sigmoid" if rows is None else "softmax"
        own = TileNumbers(kind, numbers, kept, sum_R.numpy(), gradient_RH.numpy())
        self._deferred[shard] = own
        has_logits = rows is not None and len(kept) > 0
        for some in _in_memory(step, shard, tiles, measures=rows is None):
            loss = make_slopes(some, own, gradient_EH.numpy(), has_logits, loss)
        if is_narrow:
            self._deferred[shard] = replace(own, kept=kept[:0])
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
        from widenet.kernels.compiled_deferred import fill_gradients

        start, stop = int(tiles.starts[first]), int(tiles.starts[last])
        bias_gradient_T = torch.from_numpy(own.bias_gradient_R[start:stop])
        if not step.output.weight.trained:
            return torch.zeros(0), bias_gradient_T
        gradient_TH = torch.empty(stop - start, step.direct_EH.shape[1])
        if len(own.gradient_RH):
            gradient_TH.numpy()[:] = own.gradient_RH[start:stop]
        else:
            fill_gradients(tiles.part(first, last), own, gradient_TH.numpy())
        if step.output.spec.cosine is not None:
            weight_TH = step.output.weight.parts[shard].weight[start:stop]
            length_T1 = torch.from_numpy(tiles.length_R[start:stop, None])
            through_lengths(gradient_TH, weight_TH / length_T1, length_T1)
        return gradient_TH, bias_gradient_T

    def _logits(self, step: OutputStep, place: Place, tile: Tile) -> Tensor:
        """Return the logits [E, T] of a tile: those that a compiled pass kept, if still there."""
        (shard, index), count = place, step.num_examples
        if place in self._overwritten or not len(self._kept.get(shard, ())):
            return step.tile_logits(place, tile)
        from widenet.kernels.compiled_sweep import kept_place

        self._overwritten.add(place)
        start, stop = step.tiles[shard][index]
        first = kept_place(count, start, index)
        return torch.from_numpy(self._kept[shard][first : first + count * (stop - start)]).view(count, -1)

    def _tiles_of(self, step: OutputStep, shard: int) -> "ShardTiles | None":
        """Return a shard for a compiled sweep, made once; None if it is not sweepable."""
        if shard not in self._tiles:
            self._tiles[shard] = self._sweepable(step, shard)
        return self._tiles[shard]

    def _sweepable(self, step: OutputStep, shard: int) -> "ShardTiles | None":
        """Return a shard for a compiled sweep; None if its tiles need more than plain products."""
        from widenet.kernels.compiled_products import product_routine
        from widenet.kernels.compiled_sweep import ShardTiles

        output, direct_EH, bounds = step.output, step.direct_EH, step.tiles[shard]
        weight_RH = output.weight.parts[shard].weight
        has_plain_tiles = not (output.spec.weightless or output.weight.in_8_bits)
        # With one example, torch multiplies by other routines.
        is_sweepable = has_plain_tiles and output.features is None and len(direct_EH) > 1 and bounds
        if not (is_sweepable and direct_EH.is_contiguous() and product_routine()):
            return None
        bias_R = torch.zeros(len(weight_RH)) if output.bias is None else output.bias.parts[shard].weight
        return ShardTiles(
            direct_EH.numpy(),
            weight_RH.numpy(),
            bias_R.numpy(),
            np.array(step.starts(shard), np.int64),
            np.array(step.edges_of(shard), np.int64),
            self._entries(step, shard)[0],
            np.zeros(0 if output.spec.cosine is None else len(weight_RH), np.float32),
            output.half,
        )

    def _entries(self, step: OutputStep, shard: int) -> "tuple[Entries, np.ndarray | None]":
        """Return all targets of a shard and their values, as arrays that are made once for all its tiles."""
        if shard not in self._shards:
            from widenet.kernels.compiled_tiles import Entries

            part = step.targets.by_unit(shard)
            values_Z = None if part.values_Z is None else part.values_Z.numpy()
            self._shards[shard] = Entries(part.examples_Z.numpy(), part.units_Z.numpy()), values_Z
        return self._shards[shard]


def _room_for_logits(step: OutputStep, tiles: "ShardTiles") -> np.ndarray:
    """Return the room for the logits of all tiles of a shard if they are kept between passes, or none."""
    from widenet.kernels.compiled_sweep import kept_numbers

    number = kept_numbers(step.num_examples, tiles.starts) if step.keeps else 0
    return torch.empty(number).numpy()  # aligned, which NumPy's arrays are not


def _of_softmax(rows: RowWise, shard: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pulls of a shard's targets, and each example's sum of exponentials and coupling."""
    return rows.pulls[shard].numpy(), rows.total_E.numpy(), rows.coupling_E.numpy()


def _in_memory(
    step: OutputStep, shard: int, tiles: "ShardTiles", updates: bool = False, measures: bool = False
) -> Iterator["ShardTiles"]:
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
            if measures and len(tiles.length_R):
                tiles.length_R[start:stop] = lengths(part.weight[start:stop])[:, 0].numpy()
            yield tiles.part(first, last)


def _stepped(numbers: np.ndarray, step: CompiledStep | None) -> "SteppedArrays | None":
    """Return weights or biases with their step, as arrays."""
    from widenet.kernels.compiled_sweep import SteppedArrays

    if step is None:
        return None
    return SteppedArrays(numbers, [state.numpy() for state in step.states], step.step)


def _are_apart(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors share no memory."""
    return not one.numel() or one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
