"""Numba's passes over an output's tiles: one pass turns logits into loss, deltas and bias gradient."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from widenet.model.layers.output import Tile
from widenet.model.output_step import OutputStep, Place
from widenet.model.row_sum import RowSum

if TYPE_CHECKING:
    from widenet.kernels.compiled_tiles import CompiledTiles, Entries


class CompiledPasses:
    """See `Passes`; for sparse targets of cross-entropy under a sigmoid, or of a softmax in closed form."""

    adds_biases = True

    def __init__(self) -> None:
        self._shards: dict[int, tuple[Entries, np.ndarray | None]] = {}

    def statistics(self, step: OutputStep, shard: int) -> RowSum:
        """See `Passes.statistics`."""
        assert step.rows is not None
        logits_Z = step.rows.target_logits[shard] = torch.zeros(step.targets.num_entries(shard))
        total = RowSum.empty(step.kind, step.num_examples, logits_Z.device)
        z_Z, sums = logits_Z.numpy(), (total.peak_E.numpy(), total.sum_E.numpy())
        for index, (start, _) in enumerate(step.tiles[shard]):
            place = shard, index
            tile, span = step.tile(place), step.span(place)
            logits_ET = step.tile_logits(place, tile)
            entries = self._entries(step, shard)[0].within(span, start)
            _kernels().add_softmax_sums(logits_ET, tile.bias_T, entries, z_Z[span], *sums)
            step.keep_logits(place, logits_ET)
        return total

    def delta(self, step: OutputStep, place: Place, tile: Tile) -> tuple[Tensor | float, Tensor, Tensor]:
        """See `Passes.delta`."""
        (shard, index), rows = place, step.rows
        logits_ET, span = step.tile_logits(place, tile), step.span(place)
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
            bias_T = _kernels().softmax(*tile_and_entries, pulls_Z[span], *of_examples)
            loss = rows.loss(shard) if index == 0 else 0.0
        else:
            values = None if values_Z is None else values_Z[span]
            weights = step.target_weight_E.numpy(), step.other_weight_E.numpy()
            loss, bias_T = _kernels().sigmoid(*tile_and_entries, values, *weights)
        return loss, step.output.operand(logits_ET), bias_T

    def _entries(self, step: OutputStep, shard: int) -> "tuple[Entries, np.ndarray | None]":
        """Return all targets of a shard and their values, as arrays that are made once for all its tiles."""
        if shard not in self._shards:
            from widenet.kernels.compiled_tiles import Entries

            part = step.targets.by_unit(shard)
            values_Z = None if part.values_Z is None else part.values_Z.numpy()
            self._shards[shard] = Entries(part.examples_Z.numpy(), part.units_Z.numpy()), values_Z
        return self._shards[shard]


def _are_apart(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors share no memory."""
    return not one.numel() or one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()


def _kernels() -> "CompiledTiles":
    from widenet.kernels.compiled_tiles import compiled_tiles

    return compiled_tiles()
