"""One step of a wide output as data: operands, targets, tiles, weights, and what passes keep."""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from widenet.model.layers.output import Tile, WideOutput
from widenet.model.losses import Loss
from widenet.model.row_sum import RowSum
from widenet.model.targets import Targets, TileEntries

Place = tuple[int, int]
"""A shard, and the index of one of its tiles."""


@dataclass
class RowWise:
    """What all units share under an activation that divides by a sum over the whole layer.

    closed: a softmax whose loss has the closed form p * sum(pulls) - pull.
    total_E: the divisor, float32; of a softmax its logarithm. Known after the statistics.
    coupling_E: float32, what every unit's gradient shares. Known after the couplings.
    target_logits, pulls, losses: under the closed form, of the targets of each shard, float32 [Z].
    shares: exp(z - peak) [E, T] and peak [E] of tiles that are kept.
    """

    closed: bool
    total_E: Tensor = field(default_factory=lambda: torch.zeros(0))
    coupling_E: Tensor = field(default_factory=lambda: torch.zeros(0))
    target_logits: dict[int, Tensor] = field(default_factory=dict)
    pulls: dict[int, Tensor] = field(default_factory=dict)
    losses: dict[int, Tensor] = field(default_factory=dict)
    shares: dict[Place, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def loss(self, shard: int) -> Tensor:
        """What a shard's targets add to the loss under the closed form, float64 []."""
        return self.losses[shard].sum(dtype=torch.float64)


@dataclass
class OutputStep:
    """One step of one output, from its operands to what is kept of it.

    direct_EH: the incoming vectors, as products take them.
    target_weight_E, other_weight_E: float32, what targets and other units count.
    tiles: of each shard, where its tiles start and stop.
    keeps: memory allows to keep logits and deltas between passes.
    stands: of a sample, by shard for how many units each unit stands that is no target, float32; None where
        all units take part.
    rows: None where units are activated one by one.
    shortening_E: float32, what brings each example's gradient by its logits within its limit.
    logits: kept [E, T]; with the biases where `passes.adds_biases`.
    slopes: loss and gradient by the logits [E, T] of tiles, before they are shortened.
    deltas: the same as products take it, and the gradient to the biases [T].
    """

    output: WideOutput
    loss: Loss
    direct_EH: Tensor
    targets: Targets
    target_weight_E: Tensor
    other_weight_E: Tensor
    tiles: list[list[tuple[int, int]]]
    keeps: bool
    passes: "Passes"
    stands: dict[int, Tensor] | None = None
    rows: RowWise | None = None
    shortening_E: Tensor | None = None
    logits: dict[Place, Tensor] = field(default_factory=dict)
    slopes: dict[Place, tuple[Tensor, Tensor]] = field(default_factory=dict)
    deltas: dict[Place, tuple[Tensor, Tensor]] = field(default_factory=dict)
    edges: dict[int, list[int]] = field(default_factory=dict)

    @property
    def num_examples(self) -> int:
        """E."""
        return len(self.direct_EH)

    @property
    def kind(self) -> str:
        """The activation's."""
        return str(self.output.spec.activation.kind)

    def tile(self, place: Place) -> Tile:
        """A tile's units, as the products of this step take them."""
        shard, index = place
        return self.output.tile(shard, *self.tiles[shard][index], half=self.output.half)

    def tile_logits(self, place: Place, tile: Tile | None = None) -> Tensor:
        """Logits [E, T] of a tile, kept or computed again; without the biases where the passes add them."""
        kept = self.logits.pop(place, None)
        if kept is not None:
            return kept
        tile = tile or self.tile(place)
        if self.passes.adds_biases:
            return tile.products(self.direct_EH)
        logits_ET = tile.logits(self.direct_EH)
        if self.rows is not None and self.stands is not None:
            self._count_samples(logits_ET, place, self.stands)
        return logits_ET

    def keep_logits(self, place: Place, logits_ET: Tensor) -> None:
        """Hand a tile's logits to the next pass, where memory allows."""
        if self.keeps:
            self.logits[place] = logits_ET

    def entries(self, place: Place) -> TileEntries:
        """The sparse targets inside a tile."""
        shard, index = place
        return self.targets.entries(shard, self.tiles[shard][index], self.span(place))

    def span(self, place: Place) -> slice:
        """Where a tile's entries stand among the shard's in order of units."""
        shard, index = place
        if shard not in self.edges:
            self.edges[shard] = self.targets.edges(shard, self.tiles[shard])
        return slice(*self.edges[shard][index : index + 2])

    def dense_targets(self, place: Place) -> Tensor | None:
        """The targets [E, T] of a tile where every unit has one; None where they are sparse."""
        if self.targets.dense_EL is None:
            return None
        shard, index = place
        first, (start, stop) = self.output.weight.shards.start(shard), self.tiles[shard][index]
        return self.targets.dense_EL[:, first + start : first + stop]

    def stands_of(self, place: Place) -> Tensor | None:
        """For how many units each unit of a tile stands, float32 [T]; None where all take part."""
        shard, index = place
        return None if self.stands is None else self.stands[shard][slice(*self.tiles[shard][index])]

    def _count_samples(self, logits_ET: Tensor, place: Place, stands: dict[int, Tensor]) -> None:
        """Add to the logits, but for those of targets, the logarithm of what each unit stands for."""
        shard, index = place
        stands_T, places_Z = stands[shard][slice(*self.tiles[shard][index])], self.entries(place).places_Z
        own_Z = logits_ET.view(-1)[places_Z]
        logits_ET.add_(torch.where(stands_T > 0, stands_T.log(), _NEVER)).view(-1)[places_Z] = own_Z


class Passes(Protocol):
    """The passes over the tiles of a step, by torch or by compiled kernels."""

    adds_biases: bool
    """Whether they take products, and add the biases themselves."""

    def statistics(self, step: OutputStep, shard: int) -> RowSum:
        """A shard's part of what a row-wise activation divides by; notes the targets' logits for the closed
        form.
        """

    def delta(self, step: OutputStep, place: Place, tile: Tile) -> tuple[Tensor | float, Tensor, Tensor]:
        """Loss of a tile (of a shard's targets, with its first tile, under the closed form), the gradient
        [E, T] to its logits as products take it, and that to its biases, float32 [T].
        """


_NEVER = -1e30
"""Added to a logit, so that its unit has no share in a softmax; finite, for two infinities have no
difference.
"""
