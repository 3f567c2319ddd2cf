"""One step of a wide output: its loss, and the gradients to the incoming vectors and to its units.

The native library makes the steps that it knows, torch all others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.native import runner
from widenet.kernels.passes import (
    Gradients,
    OutputBatch,
    OutputShard,
    Stepped,
    add_shares,
    add_slopes,
    finish,
    finish_hidden,
)
from widenet.model.layers.output import Tile, WideOutput
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.output_step import OutputStep, Place, RowSum, Slopes, over_shards, slopes_of
from widenet.model.targets import Targets
from widenet.parallel.line import Pending
from widenet.plan.tiles import GRADIENT_NUMBERS, are_kept, tiles

Update = tuple[Optimizer, StepNumbers]
"""The rule and the numbers of a step that moves units as soon as their gradients are known."""


class NativePasses:
    """A step in which one call of the library is one pass over all units of this process; see `TorchPasses`.

    Attributes:
        step: The step.
        rows_at_once: See `TorchPasses`.
    """

    def __init__(self, step: OutputStep) -> None:
        self.step = step
        self.rows_at_once = GRADIENT_NUMBERS // max(step.direct_EH.shape[1], 1)
        parts = [step.targets.parts[shard] for shard in step.output.weight.parts]
        self._sizes = [len(own.units_Z) for own in parts]
        self._examples_Z = _joined([own.examples_Z for own in parts])
        has_values = any(own.values_Z is not None for own in parts)
        is_softmax, num = step.output.spec.is_row_wise, step.num_examples
        self._of_target_Z = self._logits_Z = None
        if is_softmax:
            self._of_target_Z, self._logits_Z = (torch.zeros(sum(self._sizes)) for _ in range(2))
        elif has_values:
            self._of_target_Z = _joined([own.values_or_ones() for own in parts])
        self._batch = OutputBatch(
            "softmax" if is_softmax else "sigmoid",
            step.direct_EH.contiguous(),
            max((stop - start for bounds in step.tiles for start, stop in bounds), default=1),
            step.output.half,
            torch.zeros(num) if is_softmax else step.weight_E,
            torch.zeros(num) if is_softmax else step.weight_E,
        )
        self._shards: dict[int, OutputShard] = {}

    @staticmethod
    def knows(step: OutputStep) -> bool:
        """Return whether the library makes a step."""
        output, spec = step.output, step.output.spec
        is_sigmoid = spec.activation.kind == "sigmoid" and spec.loss.kind == "cross_entropy"
        is_plain = spec.others != "ignore" and spec.delta_boost is None and spec.delta_norm is None
        has_vectors = not spec.weightless and output.features is None
        return (spec.is_closed or is_sigmoid) and is_plain and has_vectors and step.stands is None

    def moves(self, rule: Optimizer, of_weights: StepNumbers, of_biases: StepNumbers) -> bool:
        """See `TorchPasses.moves`."""
        weight, bias = self.step.output.weight, self.step.output.bias
        own = self._steps(next(iter(weight.parts)), rule, of_weights, of_biases)
        is_missing = bias is not None and bias.trained and own[1] is None
        return not is_missing and (own[0] is not None or not weight.trained)

    def run(self, update: Update | None) -> tuple[list[Tensor], list[Tensor]]:
        """See `TorchPasses.run`."""
        keeps = self.step.keeps and (self._batch.kind == "softmax" or update is None)
        self._shards = self._started(keeps)
        moved = None if update is None else self._moved(update[0], update[1], update[1])
        if self._batch.kind == "sigmoid":
            gradients = dict.fromkeys(self._shards, Gradients()) if moved is None else moved
            self._over(add_slopes, gradients, updates=moved is not None)
            losses = [own.total_E.sum() for own in self._shards.values()]
        else:
            self._over(add_shares)
            losses = self._pull()
            finish_hidden(self._batch, [*self._shards.values()], self.step.output.exchange.num_threads)
            if moved is not None:
                self._over(finish, moved, updates=True)
        gradients_EH = [own.hidden_EH for own in self._shards.values()]
        if update is not None:
            self._shards = {}  # what they keep is used
        return losses, gradients_EH

    def finish(
        self,
        rule: Optimizer,
        of_weights: StepNumbers,
        of_biases: StepNumbers,
        touched: Mapping[int, RowGradient],
    ) -> bool:
        """Make the steps of the units, after `run` has made none; return whether the library does.

        Args:
            rule: The optimizer.
            of_weights: The numbers of the weights' steps.
            of_biases: Those of the biases' steps.
            touched: Gradients of some rows, by shard, which are added before.
        """
        moves = self.moves(rule, of_weights, of_biases)
        if moves:
            self._over(finish, self._moved(rule, of_weights, of_biases, touched), updates=True)
        return moves

    def gradient(self, shard: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        """See `TorchPasses.gradient`."""
        starts, trained = self.step.starts(shard), self.step.output.weight.trained
        start, stop, columns = starts[first], starts[last], self._batch.direct_EH.shape[1]
        weight_TH, bias_T = torch.empty(stop - start if trained else 0, columns), torch.empty(stop - start)
        gradients = Gradients(weight_TH=weight_TH if trained else None, bias_T=bias_T)
        finish(self._batch, [self._shards[shard].within(start, stop)], 1, [gradients])
        return weight_TH, bias_T

    def _started(self, keeps: bool) -> dict[int, OutputShard]:
        """Return the shards before the first pass, which keep shares or slopes or do not."""
        step, output, num, shards = self.step, self.step.output, self.step.num_examples, {}
        is_softmax, start = self._batch.kind == "softmax", 0
        for (shard, part), size in zip(output.weight.parts.items(), self._sizes, strict=True):
            units, own = step.size(shard), slice(start, start + size)
            leaves_memory, start = is_softmax and output.weight.in_file, start + size
            shards[shard] = OutputShard(
                weight_RH=part.weight,
                length_R=None if output.spec.cosine is None else torch.empty(len(part.weight)),
                bias_R=None if output.bias is None else output.bias.parts[shard].weight,
                span=(0, units),
                examples_Z=self._examples_Z[own],
                units_Z=step.targets.parts[shard].units_Z,
                of_target_Z=None if self._of_target_Z is None else self._of_target_Z[own],
                kept=torch.empty(self._batch.kept_numbers(units)) if keeps else None,
                scales=torch.empty(self._batch.num_blocks(units), num) if is_softmax else None,
                hidden_EH=torch.zeros(self._batch.direct_EH.shape),
                total_E=torch.zeros(num, dtype=torch.float64),
                peak_E=torch.full((num,), -torch.inf) if is_softmax else None,
                logits_Z=None if self._logits_Z is None else self._logits_Z[own],
                vectors_ZH=torch.empty(size, part.columns) if leaves_memory else None,
            )
        return shards

    def _pull(self) -> list[Tensor]:
        """Give the shards what turns shares into slopes, once all divisors are known; return the losses."""
        step, output = self.step, self.step.output
        assert self._logits_Z is not None
        assert self._of_target_Z is not None
        sums = [_row_sum(own) for own in self._shards.values()]
        total_E = over_shards(RowSum.stacked(sums), output.exchange, output.where)
        losses, pull_Z, coupling_E = step.pulls(total_E, [*torch.split(self._logits_Z, self._sizes)])
        torch.cat(pull_Z, out=self._of_target_Z)
        self._batch = replace(self._batch, one_E=total_E, other_E=coupling_E)
        return losses

    def _steps(
        self, shard: int, rule: Optimizer, of_weights: StepNumbers, of_biases: StepNumbers
    ) -> tuple[Stepped | None, Stepped | None]:
        """Return the library's steps of a shard's weights and biases; None for frozen or missing ones."""
        weight, bias = self.step.output.weight, self.step.output.bias
        of_bias = None if bias is None else bias.stepped(shard, rule, of_biases)
        return weight.stepped(shard, rule, of_weights), of_bias

    def _moved(
        self,
        rule: Optimizer,
        of_weights: StepNumbers,
        of_biases: StepNumbers,
        touched: Mapping[int, RowGradient] | None = None,
    ) -> dict[int, Gradients]:
        return {
            shard: Gradients(*self._steps(shard, rule, of_weights, of_biases), (touched or {}).get(shard))
            for shard in self._shards
        }

    def _over(
        self,
        make: Callable[..., None],
        gradients: Mapping[int, Gradients] | None = None,
        updates: bool = False,
    ) -> None:
        """Make a pass over all units: in one call, or of rows in files as they come into memory."""
        exchange, parts = self.step.output.exchange, self.step.output.weight.parts

        def passed(shards: Sequence[OutputShard], numbers: Sequence[int], num_threads: int) -> None:
            given = [] if gradients is None else [[gradients[shard] for shard in numbers]]
            make(self._batch, shards, num_threads, *given)

        def of_shard(shard: int) -> None:
            starts = self.step.starts(shard)
            for first, last in parts[shard].tiles(starts, updates):
                passed([self._shards[shard].within(starts[first], starts[last])], [shard], 1)

        if self.step.output.weight.in_file:
            exchange.each(of_shard)
        else:
            passed([*self._shards.values()], [*self._shards], exchange.num_threads)


def _row_sum(shard: OutputShard) -> RowSum:
    assert shard.peak_E is not None
    return RowSum("softmax", shard.peak_E, shard.total_E)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat([*parts])


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
    shards, device = output.known or output.weight.shards, direct_EH.device
    sizes = [shards.size(shard) for shard in range(shards.count)]
    cut = [list(tiles(size, max(len(direct_EH), tiled_for), device.type)) for size in sizes]
    if output.features is not None:  # a weight by columns is updated a whole column of a shard at a time
        cut = [[(0, size)] for size in sizes]
    units_here = sum(sizes[shard] for shard in output.weight.parts)
    step = OutputStep(
        output=output,
        direct_EH=output.operand(direct_EH),
        targets=targets,
        weight_E=weight_E,
        tiles=cut,
        keeps=are_kept(len(direct_EH), units_here, device.type, output.kept_bytes),
        stands=stands,
    )
    is_known = NativePasses.knows(step) and runner("tile", device) == "native"
    return NativePasses(step) if is_known else TorchPasses(step)


def start_passes(passes: Passes, update: Update | None) -> Pending[list[Tensor]]:
    """Start the loss float64 [] and the gradient float32 [E, H] to the incoming vectors.

    Without an update, `passes.gradient` gives the gradients of the units afterwards.
    """
    output = passes.step.output
    losses, gradients = passes.run(update)
    return output.exchange.start_sum(losses, gradients, where=output.where)
