"""One step of a wide output: its loss, and the gradients to the incoming vectors and to its units.

The native library makes the steps that it knows, torch all others.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.table import runner
from widenet.model.layers.output import Tile, WideOutput
from widenet.model.native_passes import NativePasses, Update
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.output_step import OutputStep, Place, Slopes, slopes_of
from widenet.model.targets import Targets
from widenet.parallel.line import Pending
from widenet.plan.tiles import are_kept, tiles


class TorchPasses:
    """A step tile by tile.

    Attributes:
        step: The step.
        rows_at_once: For how many units `gradient` works at once, at most; 0: for a single tile.
    """

    rows_at_once = 0

    def __init__(self, step: OutputStep) -> None:
        self.step = step
        self._slopes: Slopes | None = None
        self._deltas: dict[Place, tuple[Tensor, Tensor]] = {}

    def moves(self, rule: Optimizer, of_weights: StepNumbers, of_biases: StepNumbers) -> bool:
        """Return whether `run` can make the steps of the units."""
        return True

    def run(self, update: Update | None) -> tuple[list[Tensor], list[Tensor]]:
        """Return every shard's loss, float64 [], and gradient to the incoming vectors, float32 [E, H]."""
        self._slopes = slopes_of(self.step)
        results = self.step.output.exchange.each(lambda shard: self._sweep(shard, update))
        return [loss for loss, _ in results], [gradient_EH for _, gradient_EH in results]

    def gradient(self, shard: int, first: int, last: int) -> tuple[Tensor | RowGradient, Tensor]:
        """Return the gradients of weights [T, H] and biases [T] in the tiles [first, last), after `run`.

        That of a frozen weight is empty.
        """
        assert last == first + 1
        tile = self.step.tile((shard, first))
        kept = self._deltas.pop((shard, first), None)
        delta_ET, bias_T = kept or self._delta((shard, first), tile)[1:]
        if not self.step.output.weight.trained:
            return delta_ET.new_zeros(0), bias_T
        return tile.weight_gradient(self.step.direct_EH, delta_ET), bias_T

    def finish(
        self,
        rule: Optimizer,
        of_weights: StepNumbers,
        of_biases: StepNumbers,
        touched: Mapping[int, RowGradient],
    ) -> bool:
        """Return that the steps of the units are not made here; see `NativePasses.finish`."""
        return False

    def _delta(self, place: Place, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
        """Return a tile's loss, its slopes as an operand of products, and the gradient to its biases."""
        assert self._slopes is not None
        loss, slope_ET = self._slopes(place, tile)
        return loss, self.step.output.operand(slope_ET), slope_ET.sum(dim=0)

    def _sweep(self, shard: int, update: Update | None) -> tuple[Tensor, Tensor]:
        """Make the last pass over a shard: return its loss and its gradient [E, H]."""
        step, weight, bias = self.step, self.step.output.weight, self.step.output.bias
        gradient_EH = torch.zeros_like(step.direct_EH, dtype=torch.float32)
        loss = torch.zeros((), dtype=torch.float64, device=gradient_EH.device)
        # One tensor for all tiles: small tensors that outlive their tile would keep the C library from
        # reusing the tile's memory for the next one.
        bias_R = torch.empty(step.size(shard), device=gradient_EH.device)
        for place in step.places(shard, updates=update is not None):
            (start, stop), tile = step.tiles[shard][place[1]], step.tile(place)
            tile_loss, delta_ET, bias_T = self._delta(place, tile)
            loss = loss + tile_loss
            tile.add_direct_gradient(gradient_EH, delta_ET)
            if update is None:
                if step.keeps:
                    self._deltas[place] = delta_ET, bias_T
                continue
            if weight.trained:
                weight.update_tile(
                    shard, start, stop, tile.weight_gradient(step.direct_EH, delta_ET), *update
                )
            bias_R[start:stop] = bias_T
        if update is not None and bias is not None and len(bias_R):
            bias.update_tile(shard, 0, len(bias_R), bias_R, *update)
        return loss, gradient_EH


Passes = NativePasses | TorchPasses


def output_passes(
    output: WideOutput,
    direct_EH: Tensor,
    targets: Targets,
    weight_E: Tensor,
    tiled_for: int = 0,
    stands: dict[int, Tensor] | None = None,
) -> Passes:
    """Return a step before its first pass.

    Args:
        output: The output, for the batch.
        direct_EH: The incoming vectors, float32.
        targets: Targets of the E examples.
        weight_E: Per-example loss weights, float32 (own weight over the batch size).
        tiled_for: Smallest number of examples for which to cut tiles; outputs that share a weight need equal
            tiles.
        stands: See `OutputStep`.
    """
    loss, shards, device = output.loss, output.known or output.weight.shards, direct_EH.device
    target_weight_E, other_weight_E = loss.weights(targets.num_E, shards.width, weight_E)
    sizes = [shards.size(shard) for shard in range(shards.count)]
    cut = [list(tiles(size, max(len(direct_EH), tiled_for), device.type)) for size in sizes]
    if output.features is not None:  # a weight by columns is updated a whole column of a shard at a time
        cut = [[(0, size)] for size in sizes]
    units_here = sum(sizes[shard] for shard in output.weight.parts)
    step = OutputStep(
        output=output,
        loss=loss,
        direct_EH=output.operand(direct_EH),
        targets=targets,
        target_weight_E=target_weight_E,
        other_weight_E=other_weight_E,
        tiles=cut,
        keeps=are_kept(len(direct_EH), units_here, device.type, output.kept_bytes),
        stands=stands,
    )
    is_known = NativePasses.knows(step) and runner("tile", device) == "native"
    return NativePasses(step) if is_known else TorchPasses(step)


def start(passes: Passes, update: Update | None) -> Pending[list[Tensor]]:
    """Start the loss float64 [] and the gradient float32 [E, H] to the incoming vectors.

    Without an update, `passes.gradient` gives the gradients of the units afterwards.
    """
    output = passes.step.output
    losses, gradients = passes.run(update)
    return output.exchange.start_sum(losses, gradients, where=output.where)
