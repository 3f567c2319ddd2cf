"""Numba's passes over an output's tiles: one pass turns logits into loss, deltas and bias gradient."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from widenet.model.layers.output import Tile
from widenet.model.output_step import OutputStep, Place
from widenet.model.row_sum import RowSum
from widenet.model.rule import CompiledStep, ShardSteps
from widenet.model.sweep import Sweep, groups

if TYPE_CHECKING:
    from widenet.kernels.compiled_sweep import ShardTiles, SteppedArrays
    from widenet.kernels.compiled_tiles import Entries


class CompiledPasses:
    """See `Passes`; for sparse targets of cross-entropy under a sigmoid, or of a softmax in closed form."""

    adds_biases = True

    def __init__(self) -> None:
        self._shards: dict[int, tuple[Entries, np.ndarray | None]] = {}
        self._tiles: dict[int, ShardTiles | None] = {}
        self._kept: dict[int, np.ndarray] = {}
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
            num_kept = compiled_sweep.kept_numbers(step.num_examples, tiles.starts) if step.keeps else 0
            self._kept[shard] = torch.empty(num_kept).numpy()  # aligned, which NumPy's arrays are not
            for some in _in_memory(tiles, step.output.weight.parts[shard].sweep(updates=False)):
                compiled_sweep.add_softmax_sums(some, self._kept[shard], z_Z, *sums)
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
            pulls_Z, *of_examples = (
                numbers.numpy() for numbers in (rows.pulls[shard], rows.total_E, rows.coupling_E)
            )
            bias_T = compiled_tiles.softmax(*tile_and_entries, pulls_Z[span], *of_examples)
            loss = rows.loss(shard) if index == 0 else 0.0
        else:
            values = None if values_Z is None else values_Z[span]
            weights = step.target_weight_E.numpy(), step.other_weight_E.numpy()
            loss, bias_T = compiled_tiles.sigmoid(*tile_and_entries, values, *weights)
        return loss, step.output.operand(logits_ET), bias_T

    def swept(self, step: OutputStep, shard: int, steps: ShardSteps) -> tuple[Tensor | float, Tensor] | None:
        """Make the last pass over a whole shard, and the optimizer's steps of its weights and biases.

        Returns:
            The shard's loss [] and its gradient to the incoming vectors [E, H]; None if its tiles must be
            taken one by one.
        """
        tiles = self._tiles_of(step, shard)
        if tiles is None:
            return None
        from widenet.kernels import compiled_sweep

        gradient_EH = torch.zeros_like(step.direct_EH)
        weight, bias = _stepped(tiles.weight_RH, steps.weight), _stepped(tiles.bias_R, steps.bias)
        assert weight is not None
        update = compiled_sweep.ShardUpdate(gradient_EH.numpy(), weight, bias)
        parts = _in_memory(tiles, step.output.weight.parts[shard].sweep(updates=True))
        if step.rows is not None:
            rows, kept = step.rows, self._kept.pop(shard)
            numbers = (rows.pulls[shard].numpy(), rows.total_E.numpy(), rows.coupling_E.numpy())
            for some in parts:
                compiled_sweep.softmax(some, update, kept, *numbers)
            return rows.loss(shard), gradient_EH
        weights, loss = (step.target_weight_E.numpy(), step.other_weight_E.numpy()), 0.0
        for some in parts:
            values = self._entries(step, shard)[1]
            loss = compiled_sweep.sigmoid(some, update, values, *weights, loss=loss)
        return loss, gradient_EH

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
        has_plain_tiles = not (output.spec.weightless or output.spec.cosine or output.weight.makes_copies)
        # With one example, torch multiplies by other routines.
        is_sweepable = has_plain_tiles and output.features is None and len(direct_EH) > 1 and bounds
        if not (is_sweepable and direct_EH.is_contiguous() and product_routine()):
            return None
        bias_R = torch.zeros(len(weight_RH)) if output.bias is None else output.bias.parts[shard].weight
        starts = [start for start, _ in bounds] + [bounds[-1][1]]
        return ShardTiles(
            direct_EH.numpy(),
            weight_RH.numpy(),
            bias_R.numpy(),
            np.array(starts, np.int64),
            np.array(step.edges_of(shard), np.int64),
            self._entries(step, shard)[0],
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


def _in_memory(tiles: "ShardTiles", passing: AbstractContextManager[Sweep]) -> Iterator["ShardTiles"]:
    """Yield all tiles of a shard at once, or if they are in a file, some at a time that are in memory."""
    with passing as sweep:
        for first, last in groups(tiles.starts.tolist(), sweep.chunk_rows):
            sweep.at(int(tiles.starts[first]), int(tiles.starts[last]))
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
