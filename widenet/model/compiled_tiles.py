"""An output's tiles on a CPU with Numba: one pass over a tile's logits gives loss, deltas and bias gradient, in the logits' place."""

import weakref
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from widenet.kernels.compiled import can_compile
from widenet.spec.losses import CrossEntropy

if TYPE_CHECKING:
    from widenet.kernels.compiled_tiles import CompiledTiles, Entries
    from widenet.model.layers.output import Tile
    from widenet.model.wide_loss import WideLoss


class CompiledPasses:
    """The passes over the tiles of a step whose targets are sparse: cross-entropy under a sigmoid, or a softmax in closed form."""

    def __init__(self, step: "WideLoss") -> None:
        self.step: WideLoss = weakref.proxy(step)  # it owns us

    @classmethod
    def where_possible(cls, step: "WideLoss") -> "CompiledPasses | None":
        """These passes; None where the step's device or its units ask for torch's."""
        kind, loss = step.activation.kind, step.output.spec.loss
        possible = (kind == "sigmoid" and isinstance(loss, CrossEntropy)) or (kind == "softmax" and step.loss.slope_of_logit)
        return cls(step) if possible and step.direct_EH.device.type == "cpu" and can_compile() else None

    def delta(self, shard: int, index: int, tile: "Tile") -> tuple[Tensor, Tensor, Tensor]:
        """As of `WideLoss`: loss float64 [], the gradient [E, T] to the logits as products take it, that to the biases, float32 [T]."""
        step, rows = self.step, self.step.rows
        logits_ET, span = step.tile_logits(shard, index, tile), step.span(shard, index)
        entries = self._entries(shard, index, span)
        if rows is not None:
            bias_T = _passes(logits_ET).softmax(logits_ET, tile.bias_T, entries, rows.pulls[shard][span], rows.total_E, rows.coupling_E)
            return rows.loss(shard, index), step.output.operand(logits_ET), bias_T
        assert step.targets.sparse is not None
        values_Z = step.targets.sparse[shard].values_Z
        asked = entries, None if values_Z is None else values_Z[span], step.target_weight_E, step.other_weight_E
        loss, bias_T = _passes(logits_ET).sigmoid(logits_ET, tile.bias_T, *asked)
        return torch.tensor(loss, dtype=torch.float64), step.output.operand(logits_ET), bias_T

    def softmax_sums(self, shard: int, entry_logits_Z: Tensor) -> tuple[Tensor, Tensor]:
        """A shard's largest logit float32 [E] and its sum of exp(z - largest), float64 [E]; its targets' logits are written down."""
        step = self.step
        peak_E = torch.full((step.num_examples,), -torch.inf)
        total_E = torch.zeros_like(peak_E, dtype=torch.float64)
        for index in range(len(step.tiles[shard])):
            tile, span = step.tile(shard, index), step.span(shard, index)
            logits_ET = step.tile_logits(shard, index, tile)
            counted = tile.bias_T, self._entries(shard, index, span), peak_E, total_E
            entry_logits_Z[span] = _passes(logits_ET).add_softmax_sums(logits_ET, *counted)
            step.keep_logits(shard, index, logits_ET)
        return peak_E, total_E

    def _entries(self, shard: int, index: int, span: slice) -> "Entries":
        from widenet.kernels.compiled_tiles import Entries

        assert self.step.targets.sparse is not None
        part, first = self.step.targets.sparse[shard], self.step.tiles[shard][index][0]
        return Entries(part.examples_Z[span], part.units_Z[span] - first)


def _passes(logits_ET: Tensor) -> "CompiledTiles":
    from widenet.kernels.compiled_tiles import compiled_tiles

    return compiled_tiles(logits_ET.dtype)
