"""An output's tiles on a CPU with Numba: one pass over a tile's logits gives loss, deltas and bias
gradient, in the logits' place.
"""

import weakref
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.compiled import can_compile
from widenet.spec.losses import CrossEntropy

if TYPE_CHECKING:
    from widenet.kernels.compiled_tiles import CompiledTiles, Entries
    from widenet.model.layers.output import Tile
    from widenet.model.wide_loss import WideLoss


class CompiledPasses:
    """The passes over the tiles of a step whose targets are sparse: cross-entropy under a sigmoid, or a
    softmax in closed form.
    """

    def __init__(self, step: "WideLoss") -> None:
        self.step: WideLoss = weakref.proxy(step)  # it owns us
        self.weights = step.target_weight_E.numpy(), step.other_weight_E.numpy()
        self.shards: dict[int, tuple[Entries, np.ndarray | None]] = {}

    @classmethod
    def where_possible(cls, step: "WideLoss") -> "CompiledPasses | None":
        """These passes; None where the step's device or its units ask for torch's."""
        kind, loss = step.activation.kind, step.output.spec.loss
        possible = (kind == "sigmoid" and isinstance(loss, CrossEntropy)) or (
            kind == "softmax" and step.loss.slope_of_logit
        )
        return cls(step) if possible and step.direct_EH.device.type == "cpu" and can_compile() else None

    def delta(self, shard: int, index: int, tile: "Tile") -> tuple[Tensor | float, Tensor, Tensor]:
        """As of `WideLoss`: loss, the gradient [E, T] to the logits as products take it, that to the
        biases, float32 [T].
        """
        step, rows = self.step, self.step.rows
        logits_ET, span = step.tile_logits(shard, index, tile), step.span(shard, index)
        assert _are_apart(logits_ET, step.direct_EH), (
            "slopes take the place of logits, and must not take that of what these were made of"
        )
        entries, values_Z = self._entries(shard)
        asked = logits_ET, tile.bias_T, entries.within(span, step.tiles[shard][index][0])
        if rows is not None:
            pulls_Z, *of_examples = (
                numbers.numpy() for numbers in (rows.pulls[shard], rows.total_E, rows.coupling_E)
            )
            bias_T = _passes().softmax(*asked, pulls_Z[span], *of_examples)
            return rows.loss(shard) if index == 0 else 0.0, step.output.operand(logits_ET), bias_T
        loss, bias_T = _passes().sigmoid(*asked, None if values_Z is None else values_Z[span], *self.weights)
        return loss, step.output.operand(logits_ET), bias_T

    def softmax_sums(self, shard: int, entry_logits_Z: Tensor) -> tuple[Tensor, Tensor]:
        """A shard's largest logit float32 [E] and its sum of exp(z - largest), float64 [E]; its targets'
        logits are written down.
        """
        step = self.step
        peak_E = torch.full((step.num_examples,), -torch.inf)
        total_E = torch.zeros_like(peak_E, dtype=torch.float64)
        found_Z, sums = entry_logits_Z.numpy(), (peak_E.numpy(), total_E.numpy())
        for index in range(len(step.tiles[shard])):
            tile, span = step.tile(shard, index), step.span(shard, index)
            logits_ET = step.tile_logits(shard, index, tile)
            asked = logits_ET, tile.bias_T, self._entries(shard)[0].within(span, step.tiles[shard][index][0])
            _passes().add_softmax_sums(*asked, found_Z[span], *sums)
            step.keep_logits(shard, index, logits_ET)
        return peak_E, total_E

    def _entries(self, shard: int) -> "tuple[Entries, np.ndarray | None]":
        """All targets of a shard and their values; as arrays, which are made once for all its tiles."""
        if shard not in self.shards:
            from widenet.kernels.compiled_tiles import Entries

            assert self.step.targets.sparse is not None
            part = self.step.targets.sparse[shard]
            values_Z = None if part.values_Z is None else part.values_Z.numpy()
            self.shards[shard] = Entries(part.examples_Z.numpy(), part.units_Z.numpy()), values_Z
        return self.shards[shard]


def _are_apart(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have no memory in common."""
    return not one.numel() or one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()


def _passes() -> "CompiledTiles":
    from widenet.kernels.compiled_tiles import compiled_tiles

    return compiled_tiles()
