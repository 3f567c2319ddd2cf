"""A batch cut by shards of units, the targets of an output, and samples of its units in their place."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from widenet.devices import ON_HOST
from widenet.kernels.bags import split, stable_sort
from widenet.kernels.fixed_point import power, sum_by
from widenet.plan.tiles import Shards, as_slice
from widenet.randomness import StepRandom
from widenet.sparse import SparseBatch, stacked
from widenet.spec.losses import PopularitySample, Sample


def joined(parts: Sequence[SparseBatch], shards: Shards, held: Sequence[int]) -> SparseBatch:
    """Return the parts of the shards of a process as one batch.

    It has an example for each shard and example, shard by shard, whose features are rows of
    `WideWeight.whole`, int64.
    """
    return stacked(
        [
            SparseBatch(
                parts[shard].indptr, parts[shard].indices.long() + place * shards.room, parts[shard].values
            )
            for place, shard in enumerate(held)
        ]
    )


@dataclass(frozen=True)
class ByUnit:
    """A shard's entries in ascending order of units, so that a tile's entries are contiguous.

    Attributes:
        examples_Z: int64.
        units_Z: int64.
        values_Z: float32; None: ones.
        host_Z: The units in the host's memory.
        order_Z: Their former places, by example, then storage order, int64; none where targets are dense.
        indptr: The first former place of each example, int64 [E + 1]; as `order_Z`.
    """

    examples_Z: Tensor
    units_Z: Tensor
    values_Z: Tensor | None
    host_Z: Tensor = field(metadata=ON_HOST)
    order_Z: Tensor
    indptr: Tensor

    @classmethod
    def of(cls, part: SparseBatch) -> "ByUnit":
        """Return the sorted entries of one shard's part of a batch."""
        units_Z, order_Z = stable_sort(part.indices)
        values_Z = None if part.values is None else part.values[order_Z]
        examples_Z = part.example_of_entry()[order_Z]
        return cls(examples_Z, units_Z, values_Z, units_Z, order_Z, part.indptr)

    def values_or_ones(self, span: slice = slice(None)) -> Tensor:
        """Return the values of a span of entries, float32."""
        units_Z = self.units_Z[span]
        return (
            torch.ones(len(units_Z), device=units_Z.device) if self.values_Z is None else self.values_Z[span]
        )

    def edges(self, starts: list[int]) -> list[int]:
        """Return the first entry whose unit is at least each of `starts`."""
        edges: list[int] = np.searchsorted(self.host_Z.numpy(), starts).tolist()
        return edges


@dataclass
class Entries:
    """The targets inside a tile, or of all units.

    Attributes:
        examples_Z: int64.
        places_Z: Positions in the flat tile, int64.
        values_Z: float32.
    """

    examples_Z: Tensor
    places_Z: Tensor
    values_Z: Tensor


@dataclass
class Targets:
    """Targets of E examples over the units of an output.

    Attributes:
        total_E: Sum of each example's values, float32.
        parts: The targets of every shard, in order of units; dense targets have all of its units.
        are_dense: Whether every unit is a target.
        joined: On CUDA, sparse targets of the shards of this process, of `joined`.
    """

    total_E: Tensor
    parts: list[ByUnit]
    are_dense: bool = False
    joined: SparseBatch | None = None

    @classmethod
    def of_parts(cls, batch: SparseBatch, parts: list[SparseBatch]) -> "Targets":
        """Return sparse targets from a batch's parts by shard, with units as their users count them.

        A batch without values has targets of 1.
        """
        if batch.values is None:
            total_E = batch.counts().to(torch.float32)
        else:
            total_E = sum_by(batch.values, batch.example_of_entry(), batch.num_examples)
        return cls(total_E, [*map(ByUnit.of, parts)])

    @classmethod
    def of_dense(cls, targets_EL: Tensor, shards: Shards) -> "Targets":
        """Return dense targets, one for every unit."""
        num_examples, none = len(targets_EL), torch.zeros(0, dtype=torch.int64)
        parts = []
        for shard in range(shards.count):
            own_ER = targets_EL[:, as_slice(shards.units(shard))]
            examples_Z = torch.arange(num_examples).repeat(own_ER.shape[1])
            units_Z = torch.arange(own_ER.shape[1]).repeat_interleave(num_examples)
            values_Z = own_ER.T.flatten().contiguous()
            parts.append(ByUnit(examples_Z, units_Z, values_Z, units_Z, none, none))
        return cls(targets_EL.sum(dim=1), parts, are_dense=True)

    def entries(self, shard: int, start: int, stop: int) -> Entries:
        """Return the targets among the units [start, stop) of a shard."""
        part = self.parts[shard]
        span = slice(*part.edges([start, stop]))
        examples_Z, units_Z = part.examples_Z[span], part.units_Z[span]
        places_Z = torch.add(units_Z, examples_Z, alpha=stop - start).sub_(start)
        return Entries(examples_Z, places_Z, part.values_or_ones(span))

    def of_all_units(self, shards: Shards) -> Entries:
        """Return the targets of all shards, with places in logits [E, L]."""
        examples_Z = torch.cat([part.examples_Z for part in self.parts])
        units = [part.units_Z * shards.count + shard for shard, part in enumerate(self.parts)]
        values_Z = torch.cat([part.values_or_ones() for part in self.parts])
        return Entries(examples_Z, examples_Z * shards.width + torch.cat(units), values_Z)


@dataclass(frozen=True)
class Choice:
    """The units that take part in a step: the batch's targets, and a sample that represents all others.

    Attributes:
        units: Units by shard of this process, int64 [U], ascending.
        stands: Number of units that each one represents, float32 [U]; 0 for a target that was not drawn.
        targets: Targets, by their positions among the units.
    """

    units: dict[int, Tensor]
    stands: dict[int, Tensor]
    targets: Targets


@dataclass(frozen=True)
class Sampler:
    """Draws units of a layer by stratified sampling, in the host's memory.

    Every unit owns an interval of a line, on which the shards follow one another. The line is cut into as
    many equal pieces as there are points, and each piece gets a random point; the owners of the points are
    drawn. So the expected number of draws of a unit is num_points x its share of the line, with little
    variance.

    Attributes:
        purpose: Name of the random stream.
        num_points: Number of points.
        shards: Shards of the layer.
        length: Length of the line.
        spans: Start and end of the intervals of each shard of this process.
        ends: Ends of the intervals of each shard of this process, float64 [R]; None if all have length 1.
    """

    purpose: str
    num_points: int
    shards: Shards
    length: float
    spans: dict[int, tuple[float, float]]
    ends: dict[int, Tensor] | None

    @classmethod
    def of(
        cls,
        spec: Sample,
        name: str,
        shards: Shards,
        own: Sequence[int],
        counts: np.ndarray | None,
    ) -> "Sampler":
        """Return the sampler of an output.

        Args:
            spec: The sample's setting.
            name: Name of the output.
            shards: Shards of the output.
            own: Shards of this process.
            counts: Training interactions of the field's features, int64, at least of these shards; None if
                not needed.
        """
        edges, ends = np.cumsum([0, *(shards.size(shard) for shard in range(shards.count))]), None
        line = [float(edge) for edge in edges]
        if isinstance(spec, PopularitySample):
            assert counts is not None
            counts_L = np.ones(shards.width)
            counts_L[: len(counts)] += counts[: shards.width]
            by_shard = [counts_L[as_slice(shards.units(shard))] for shard in range(shards.count)]
            ends_L = power(torch.from_numpy(np.concatenate(by_shard)), spec.power).numpy()
            np.cumsum(ends_L, out=ends_L)
            ends = {shard: torch.from_numpy(ends_L[slice(*edges[shard : shard + 2])].copy()) for shard in own}
            line = [float(ends_L[edge - 1]) if edge else 0.0 for edge in edges]
        spans = {shard: (line[shard], line[shard + 1]) for shard in own}
        return cls(f"sample/{name}", spec.units, shards, line[-1], spans, ends)

    def choice(self, targets: SparseBatch, random: StepRandom) -> Choice:
        """Return the units of a step whose batch has these targets."""
        points_N, parts = self.points(random), split(targets, self.shards.count)
        units, stands = {}, {}
        for shard in self.spans:
            (drawn_N, stands_N), part = self.drawn(shard, points_N), parts[shard]
            targets_Z = part.indices.long()
            units_U = torch.unique(torch.cat([drawn_N, targets_Z]))
            units[shard] = units_U
            stands[shard] = stands_N.new_zeros(len(units_U)).index_copy_(
                0, torch.searchsorted(units_U, drawn_N), stands_N
            )
            parts[shard] = SparseBatch(part.indptr, torch.searchsorted(units_U, targets_Z), part.values)
        return Choice(units, stands, Targets.of_parts(targets, parts))

    def points(self, random: StepRandom) -> Tensor:
        """Return this step's points on the line, float64 [num_points], ascending."""
        last = np.nextafter(self.length, 0)
        numbers = random.stratified(self.purpose, self.num_points) * self.length
        return torch.from_numpy(numbers.clip(max=last))

    def drawn(self, shard: int, points_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return the drawn units of a shard, int64 [U], ascending, and how many each represents, float32 [U].

        A unit represents its number of draws over their expected number. So the expected sum over the drawn
        units, weighted by this number, is the sum over all units.
        """
        start, stop = self.spans[shard]
        low, high = torch.searchsorted(points_N, torch.tensor([start, stop], dtype=torch.float64)).tolist()
        own_N, ends_R = points_N[low:high], None if self.ends is None else self.ends[shard]
        places_N = (own_N - start).long() if ends_R is None else torch.searchsorted(ends_R, own_N, right=True)
        units_U, counts_U = torch.unique_consecutive(places_N, return_counts=True)
        lengths_U = torch.ones_like(counts_U, dtype=torch.float64)
        if ends_R is not None:
            lengths_U = ends_R[units_U] - torch.where(units_U > 0, ends_R[(units_U - 1).clamp(min=0)], start)
        return units_U, (counts_U * self.length / (self.num_points * lengths_U)).float()
