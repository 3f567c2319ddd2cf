"""One step of a wide output: loss, gradient to the hidden vectors and weight gradients, a tile at a time."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels import RowGradient, exact_sum
from widenet.model.activations import activate, slope
from widenet.model.exchange import Pending
from widenet.model.fused_tiles import passes
from widenet.model.layers.output import Tile, WideOutput
from widenet.model.limits import shortening
from widenet.model.row_activation import RowActivation
from widenet.model.targets import Targets, TileEntries
from widenet.plan.tiles import are_kept, tiles
from widenet.spec.activations import ROW_WISE


@dataclass(frozen=True)
class Takers:
    """Who takes gradients as soon as they are known.

    weight: is given shard, start, stop and gradient [T, H] of each tile. bias: shard and gradient [R] of each
    shard.
    """

    weight: Callable[[int, int, int, Tensor | RowGradient], None]
    bias: Callable[[int, Tensor], None]


class WideLoss:
    """The passes of one step over one output."""

    counts_samples = False
    """Whether units count otherwise than `loss` says."""

    def __init__(
        self, output: WideOutput, direct_EH: Tensor, targets: Targets, weight_E: Tensor, tiled_for: int = 0
    ) -> None:
        """weight_E: float32 [E], what each example counts in the loss (its own weight over the batch size).

        tiled_for: tiles are cut for so many examples, if there are fewer: outputs that share a weight have
        the same tiles.
        """
        self.output, self.direct_EH, self.targets = output, output.operand(direct_EH), targets
        self.activation, self.loss = output.spec.activation, output.loss
        self.num_examples = len(direct_EH)
        self.target_weight_E, self.other_weight_E = self.loss.weights(targets.num_E, output.width, weight_E)
        self.row_wise = self.activation.kind in ROW_WISE
        device, shards = direct_EH.device.type, output.weight.shards
        self.keeps = are_kept(
            self.num_examples, sum(map(shards.size, output.weight.parts)), device, output.kept_bytes
        )
        self.logits: dict[tuple[int, int], Tensor] = {}
        self.deltas: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        cut = max(self.num_examples, tiled_for), device
        self.tiles = [list(tiles(shards.size(shard), *cut)) for shard in range(shards.count)]
        if output.features is not None:  # a weight by columns is updated a whole column of a shard at a time
            self.tiles = [[(0, shards.size(shard))] for shard in range(shards.count)]
        self.edges: dict[int, list[int]] = {}
        self.rows: RowActivation | None = None
        self.fused = passes(self)
        self.exact: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self.shortening_E: Tensor | None = None

    def run(self, takers: Takers | None) -> Pending[list[Tensor]]:
        """The loss float64 [] and the gradient float32 [E, H] to `direct_EH`, on their way.

        takers: None where the weight gradients are asked for later by `gradient`.
        """
        if self.row_wise:
            self.rows = RowActivation.over(self)
        if self.output.spec.delta_norm is not None:
            self.shortening_E = self._shortening(self.output.spec.delta_norm)
        found = self.output.exchange.each(lambda shard: self._sweep(shard, takers))
        return self.output.exchange.start_sum(
            [loss for loss, _ in found], [gradient for _, gradient in found], where=self.output.where
        )

    def gradient(self, shard: int, index: int) -> tuple[Tensor | RowGradient, Tensor]:
        """Weight gradient [T, H] and bias gradient [T] of a tile, after `run`."""
        tile = self.tile(shard, index)
        kept = self.deltas.pop((shard, index), None)
        delta_ET, bias_T = kept or self._delta(shard, index, tile)[1:]
        return tile.weight_gradient(self.direct_EH, delta_ET), bias_T

    def tile_logits(self, shard: int, index: int, tile: Tile | None = None) -> Tensor:
        """Logits [E, T] of a tile, kept or computed again; where tiles are fused, without the biases."""
        kept = self.logits.pop((shard, index), None)
        if kept is not None:
            return kept
        tile = tile or self.tile(shard, index)
        return self.fresh_logits(shard, index, tile) if self.fused is None else tile.products(self.direct_EH)

    def fresh_logits(self, shard: int, index: int, tile: Tile) -> Tensor:
        """Logits [E, T] of a tile, computed."""
        del shard, index
        return tile.logits(self.direct_EH)

    def others(self, logits_ET: Tensor, a_ET: Tensor, shard: int, index: int) -> tuple[Tensor, Tensor]:
        """Value float32 [E] of a tile's units, as if none were a target, and their slopes [E, T], which
        may be `a_ET` itself.
        """
        del shard, index
        value_ET, slope_ET = self.loss.others(logits_ET, a_ET)
        return value_ET.sum(dim=1, dtype=torch.float64), slope_ET

    def as_others(self, z_Z: Tensor, a_Z: Tensor, shard: int, index: int, places_Z: Tensor) -> Tensor:
        """Value [Z] that each of a tile's targets has among those of `others`. places_Z: in the flat tile."""
        del shard, index, places_Z
        return self.loss.others(z_Z, a_Z)[0]

    def keep_logits(self, shard: int, index: int, logits_ET: Tensor) -> None:
        """Hand a tile's logits to the next pass, where memory allows."""
        if self.keeps:
            self.logits[shard, index] = logits_ET

    def entries(self, shard: int, index: int) -> TileEntries:
        """The sparse targets inside a tile."""
        return self.targets.entries(shard, self.tiles[shard][index], self.span(shard, index))

    def span(self, shard: int, index: int) -> slice:
        """Where a tile's entries stand among the shard's in order of units."""
        if shard not in self.edges:
            self.edges[shard] = self.targets.edges(shard, self.tiles[shard])
        return slice(*self.edges[shard][index : index + 2])

    def cells(self, logits_ET: Tensor, a_ET: Tensor, shard: int, index: int) -> tuple[Tensor, Tensor]:
        """Loss float64 [] of a tile and its slope [E, T], weighted, by the activation or the logit as the
        loss has it.
        """
        target_E1, other_E1 = self.target_weight_E[:, None], self.other_weight_E[:, None]
        if self.targets.dense_EL is not None:
            first = self.output.weight.shards.start(shard)
            start, stop = self.tiles[shard][index]
            t_ET = self.targets.dense_EL[:, first + start : first + stop]
            value_ET, slope_ET = self.loss.cells(logits_ET, a_ET, t_ET)
            weight_ET = torch.where(t_ET > 0, target_E1, other_E1)
            return (value_ET * weight_ET).sum(dtype=torch.float64), slope_ET * weight_ET
        entries = self.entries(shard, index)
        z_Z, a_Z = logits_ET.view(-1)[entries.places_Z], a_ET.view(-1)[entries.places_Z]
        if self.output.spec.others == "ignore":
            return self._listed_cells(z_Z, a_Z, entries, logits_ET)
        value_E, slope_ET = self.others(logits_ET, a_ET, shard, index)
        loss = (value_E * self.other_weight_E).sum(dtype=torch.float64)
        slope_ET.mul_(other_E1)
        value_Z, slope_Z = self.loss.cells(z_Z, a_Z, entries.values_Z)
        was_Z = self.as_others(z_Z, a_Z, shard, index, entries.places_Z)
        other_Z = self.other_weight_E[entries.examples_Z]
        weight_Z = torch.where(entries.values_Z > 0, self.target_weight_E[entries.examples_Z], other_Z)
        slope_ET.view(-1)[entries.places_Z] = slope_Z * weight_Z
        return loss + (value_Z * weight_Z - was_Z * other_Z).sum(dtype=torch.float64), slope_ET

    def _listed_cells(
        self, z_Z: Tensor, a_Z: Tensor, entries: TileEntries, logits_ET: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`cells` where only stored targets count."""
        value_Z, slope_Z = self.loss.cells(z_Z, a_Z, entries.values_Z)
        weight_Z = torch.where(
            entries.values_Z > 0,
            self.target_weight_E[entries.examples_Z],
            self.other_weight_E[entries.examples_Z],
        )
        slope_ET = torch.zeros_like(logits_ET)
        slope_ET.view(-1)[entries.places_Z] = slope_Z * weight_Z
        return (value_Z * weight_Z).sum(dtype=torch.float64), slope_ET

    def _sweep(self, shard: int, takers: Takers | None) -> tuple[Tensor, Tensor]:
        loss: Tensor | float = 0.0
        gradient_EH = torch.zeros_like(self.direct_EH, dtype=torch.float32)
        # In one piece: small ones that outlive their tile would keep the C library from giving the tile's
        # memory to the next.
        bias_R = torch.empty(self.output.weight.shards.size(shard), device=gradient_EH.device)
        for index, (start, stop) in enumerate(self.tiles[shard]):
            tile = self.tile(shard, index)
            tile_loss, delta_ET, bias_T = self._delta(shard, index, tile)
            loss = loss + tile_loss
            tile.add_direct_gradient(gradient_EH, delta_ET)
            if takers is not None:
                takers.weight(shard, start, stop, tile.weight_gradient(self.direct_EH, delta_ET))
                bias_R[start:stop] = bias_T
            elif self.keeps:
                self.deltas[shard, index] = delta_ET, bias_T
        if takers is not None and len(bias_R):
            takers.bias(shard, bias_R)
        total = (
            loss
            if isinstance(loss, Tensor)
            else torch.full((), loss, dtype=torch.float64, device=gradient_EH.device)
        )
        return total, gradient_EH

    def tile(self, shard: int, index: int) -> Tile:
        """A tile's units, as the products of this step take them."""
        return self.output.tile(shard, *self.tiles[shard][index], half=self.output.half)

    def _delta(self, shard: int, index: int, tile: Tile) -> tuple[Tensor | float, Tensor, Tensor]:
        """Loss of a tile, the gradient [E, T] to its logits as products take it, and that to its biases,
        float32 [T].
        """
        if self.fused is not None:
            return self.fused.delta(shard, index, tile)
        loss, delta_ET = self._exact_delta(shard, index, tile)
        return loss, self.output.operand(delta_ET), delta_ET.sum(dim=0)

    def _exact_delta(self, shard: int, index: int, tile: Tile) -> tuple[Tensor, Tensor]:
        """Loss float64 [] of a tile and the gradient [E, T] to its logits, boosted and shortened."""
        kept = self.exact.pop((shard, index), None)
        loss, delta_ET = kept or self._boosted_delta(shard, index, tile)
        return loss, delta_ET if self.shortening_E is None else delta_ET * self.shortening_E[:, None]

    def _boosted_delta(self, shard: int, index: int, tile: Tile) -> tuple[Tensor, Tensor]:
        loss, delta_ET = self._plain_delta(shard, index, tile)
        boost = self.output.spec.delta_boost
        if boost is None:
            return loss, delta_ET
        factor_ET = torch.full_like(delta_ET, boost.other)
        if self.targets.dense_EL is not None:
            first = self.output.weight.shards.start(shard)
            start, stop = self.tiles[shard][index]
            factor_ET[self.targets.dense_EL[:, first + start : first + stop] > 0] = boost.target
        else:
            entries = self.entries(shard, index)
            factor_ET.view(-1)[entries.places_Z[entries.values_Z > 0]] = boost.target
        return loss, delta_ET * factor_ET

    def _plain_delta(self, shard: int, index: int, tile: Tile) -> tuple[Tensor, Tensor]:
        if self.rows is not None:
            return self.rows.delta(shard, index, tile)
        logits_ET = self.tile_logits(shard, index, tile)
        a_ET = activate(self.activation, logits_ET)
        loss, slope_ET = self.cells(logits_ET, a_ET, shard, index)
        if not self.loss.slope_of_logit:
            factor_ET = slope(self.activation, logits_ET, a_ET)
            slope_ET = slope_ET if factor_ET is None else slope_ET * factor_ET
        return loss, slope_ET

    def _shortening(self, limit: float) -> Tensor:
        """The factors [E] that keep each example's gradient by its logits within a length, after a pass
        over all of them.
        """
        squares = self.output.exchange.gather(self.output.exchange.each(self._squares), self.output.where)
        return shortening(exact_sum(squares).sqrt(), limit / max(self.num_examples, 1)).float()

    def _squares(self, shard: int) -> Tensor:
        """A shard's part of the squared length of each example's gradient by its logits, float64 [E]."""
        total_E = torch.zeros(self.num_examples, dtype=torch.float64, device=self.direct_EH.device)
        for index in range(len(self.tiles[shard])):
            loss, delta_ET = self._boosted_delta(shard, index, self.tile(shard, index))
            total_E += delta_ET.double().square().sum(dim=1)
            if self.keeps:
                self.exact[shard, index] = loss, delta_ET
        return total_E
