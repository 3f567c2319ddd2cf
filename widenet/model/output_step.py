"""One step of a wide output as data, and the losses and slopes of its units by torch."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.optimizer_steps import Stepped
from widenet.model.layers.output import Tile, WideOutput
from widenet.model.losses import Loss
from widenet.model.sweep import groups
from widenet.model.targets import Targets, TileEntries
from widenet.plan.shards import as_slice

Place = tuple[int, int]
"""A shard, and the index of one of its tiles."""


@dataclass
class RowWise:
    """Numbers shared by all units under an activation that divides by a sum over the whole layer.

    Attributes:
        closed: Whether the activation is a softmax whose gradient has the closed form p * sum(pulls) - pull.
        total_E: The divisor, float32, or its logarithm for a softmax; known after the statistics.
        coupling_E: Common part of all units' gradients, float32; known after the couplings.
        target_logits: Under the closed form, logits of each shard's targets, float32 [Z].
        pulls: Likewise, the targets' pulls.
        losses: Likewise, the targets' losses.
        shares: exp(z - peak) [E, T] and peak [E] of kept tiles.
    """

    closed: bool
    total_E: Tensor = field(default_factory=lambda: torch.zeros(0))
    coupling_E: Tensor = field(default_factory=lambda: torch.zeros(0))
    target_logits: dict[int, Tensor] = field(default_factory=dict)
    pulls: dict[int, Tensor] = field(default_factory=dict)
    losses: dict[int, Tensor] = field(default_factory=dict)
    shares: dict[Place, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def loss(self, shard: int) -> Tensor:
        """Return the loss of a shard's targets under the closed form, float64 []."""
        return self.losses[shard].sum(dtype=torch.float64)


@dataclass
class OutputStep:
    """One step of one output: its operands, and the results kept between passes.

    Attributes:
        output: The output, for the batch.
        loss: Its loss.
        direct_EH: The incoming vectors, as operands of products.
        targets: The targets.
        target_weight_E: Loss weights of targets, float32.
        other_weight_E: Loss weights of other units, float32.
        tiles: Start and stop of each shard's tiles.
        keeps: Whether memory allows keeping logits and deltas between passes.
        whole: Passes over all units at once; None: tiles are taken one by one.
        stands: For a sample, by shard, the number of units that each unit represents if it is no target,
            float32; None if all units take part.
        rows: None if units are activated one by one.
        shortening_E: Factors that shorten each example's gradient to its limit, float32.
        logits: Kept logits [E, T].
        slopes: Loss and gradient to the logits [E, T] of tiles, before shortening.
        deltas: The gradient as an operand of products, and the gradient to the biases [T].
        edges: Positions of each tile's entries among its shard's.
    """

    output: WideOutput
    loss: Loss
    direct_EH: Tensor
    targets: Targets
    target_weight_E: Tensor
    other_weight_E: Tensor
    tiles: list[list[tuple[int, int]]]
    keeps: bool
    whole: "WholePasses | None" = None
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
        """Kind of the activation."""
        return str(self.output.spec.activation.kind)

    def places(self, shard: int, updates: bool = False) -> Iterator[Place]:
        """Yield the tiles of a shard in order, each with its weight in memory; see `spans`."""
        return ((shard, first) for first, _ in self.spans(shard, 0, updates))

    def spans(self, shard: int, rows: int, updates: bool = False) -> Iterator[tuple[int, int]]:
        """Yield ranges [first, last) of the tiles of a shard in order, each with its weights in memory.

        Args:
            shard: The shard.
            rows: Most units of a range, unless a single tile has more.
            updates: Whether each range is updated before the next one.
        """
        weight, starts = self.output.weight, self.starts(shard)
        with weight.parts[shard].sweep(updates and weight.trained) as sweep:
            for first, last in groups(starts, min(rows, sweep.chunk_rows or rows)):
                sweep.at(starts[first], starts[last])
                yield first, last

    def starts(self, shard: int) -> list[int]:
        """Return the first unit of each tile of a shard, then the end of the last tile."""
        bounds = self.tiles[shard]
        return [start for start, _ in bounds] + [stop for _, stop in bounds[-1:]]

    def tile(self, place: Place) -> Tile:
        """Return a tile's units, as operands of this step's products."""
        shard, index = place
        return self.output.tile(shard, *self.tiles[shard][index], half=self.output.half)

    def tile_logits(self, place: Place, tile: Tile | None = None) -> Tensor:
        """Return logits [E, T] of a tile, kept or recomputed."""
        kept = self.logits.pop(place, None)
        if kept is not None:
            return kept
        tile = tile or self.tile(place)
        logits_ET = tile.logits(self.direct_EH)
        if self.rows is not None and self.stands is not None:
            self._count_samples(logits_ET, place, self.stands)
        return logits_ET

    def keep_logits(self, place: Place, logits_ET: Tensor) -> None:
        """Keep a tile's logits for the next pass if memory allows."""
        if self.keeps:
            self.logits[place] = logits_ET

    def entries(self, place: Place) -> TileEntries:
        """Return the sparse targets inside a tile."""
        shard, index = place
        return self.targets.entries(shard, self.tiles[shard][index], self.span(place))

    def span(self, place: Place) -> slice:
        """Return the positions of a tile's entries among its shard's, in order of units."""
        shard, index = place
        return slice(*self.edges_of(shard)[index : index + 2])

    def edges_of(self, shard: int) -> list[int]:
        """Return the first entry of each tile among those of its shard, then the end of the last tile."""
        if shard not in self.edges:
            self.edges[shard] = self.targets.edges(shard, self.tiles[shard])
        return self.edges[shard]

    def dense_targets(self, place: Place) -> Tensor | None:
        """Return the targets [E, T] of a tile; None if they are sparse."""
        if self.targets.dense_EL is None:
            return None
        shard, index = place
        units = self.output.weight.shards.units(shard)[slice(*self.tiles[shard][index])]
        return self.targets.dense_EL[:, as_slice(units)]

    def stands_of(self, place: Place) -> Tensor | None:
        """Return how many units each unit of a tile represents, float32 [T]; None without a sample."""
        shard, index = place
        return None if self.stands is None else self.stands[shard][slice(*self.tiles[shard][index])]

    def _count_samples(self, logits_ET: Tensor, place: Place, stands: dict[int, Tensor]) -> None:
        """Add the logarithm of the number of represented units to the logits of units that are no target."""
        shard, index = place
        stands_T, places_Z = stands[shard][slice(*self.tiles[shard][index])], self.entries(place).places_Z
        own_Z = logits_ET.view(-1)[places_Z]
        logits_ET.add_(torch.where(stands_T > 0, stands_T.log(), _NEVER)).view(-1)[places_Z] = own_Z


class WholePasses(Protocol):
    """An implementation of a step over all units of this process."""

    def run(self, steps: "LibrarySteps | None") -> tuple[list[Tensor], list[Tensor]]:
        """Return every shard's loss, float64 [], and gradient to the incoming vectors, float32 [E, H].

        Args:
            steps: The steps of weights and biases; None: `finish` or `gradient` come later.
        """

    def finish(self, steps: "LibrarySteps", touched: Mapping[int, RowGradient] | None = None) -> None:
        """Make the steps of the weights and biases.

        Args:
            steps: The steps.
            touched: Gradients of some rows, by shard, which are added before.
        """

    def gradient(self, shard: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the gradients of the weights [T, H] and biases [T] of some units, from one tile to another.

        That of a frozen weight is empty.
        """


LibrarySteps = Callable[[int], tuple[Stepped | None, Stepped | None]]
"""Returns the steps of a shard's weights and biases; None for frozen or missing ones."""

_NEVER = -math.inf
"""Added to a logit to exclude its unit from a softmax. Its exponential takes a third of that of -1e30."""


def unit_losses(step: OutputStep, place: Place, logits_ET: Tensor, a_ET: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted loss float64 [] of a tile and its slope [E, T].

    The slope is by the activation or by the logit, as the loss has it (`slope_of_logit`).
    """
    t_ET = step.dense_targets(place)
    if t_ET is not None:
        value_ET, slope_ET = step.loss.cells(logits_ET, a_ET, t_ET)
        weight_ET = torch.where(t_ET > 0, step.target_weight_E[:, None], step.other_weight_E[:, None])
        return (value_ET * weight_ET).sum(dtype=torch.float64), slope_ET * weight_ET
    entries = step.entries(place)
    z_Z, a_Z = logits_ET.view(-1)[entries.places_Z], a_ET.view(-1)[entries.places_Z]
    value_Z, slope_Z = step.loss.cells(z_Z, a_Z, entries.values_Z)
    other_Z = step.other_weight_E[entries.examples_Z]
    weight_Z = torch.where(entries.values_Z > 0, step.target_weight_E[entries.examples_Z], other_Z)
    if step.output.spec.others == "ignore":
        slope_ET = torch.zeros_like(logits_ET)
        slope_ET.view(-1)[entries.places_Z] = slope_Z * weight_Z
        return (value_Z * weight_Z).sum(dtype=torch.float64), slope_ET
    stands_T = step.stands_of(place)
    value_E, slope_ET = _others(step, logits_ET, a_ET, stands_T)
    loss = (value_E * step.other_weight_E).sum(dtype=torch.float64)
    slope_ET.mul_(step.other_weight_E[:, None])
    other_value_Z = step.loss.others(z_Z, a_Z)[0]
    if stands_T is not None:
        other_value_Z = other_value_Z * stands_T[entries.places_Z % len(stands_T)]
    slope_ET.view(-1)[entries.places_Z] = slope_Z * weight_Z
    return loss + (value_Z * weight_Z - other_value_Z * other_Z).sum(dtype=torch.float64), slope_ET


def _others(
    step: OutputStep, logits_ET: Tensor, a_ET: Tensor, stands_T: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the loss [E] of a tile's units, as if none were a target, and their slopes [E, T].

    The slopes may be `a_ET` itself. Each unit of a sample counts as often as the units it represents.
    """
    value_ET, slope_ET = step.loss.others(logits_ET, a_ET)
    if stands_T is None:
        return value_ET.sum(dim=1, dtype=torch.float64), slope_ET
    return (value_ET * stands_T).sum(dim=1), slope_ET * stands_T
