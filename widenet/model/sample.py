"""Samples of units that represent all others in a step, drawn shard by shard."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.bags import split
from widenet.kernels.fixed_point import power
from widenet.model.targets import Targets
from widenet.plan.tiles import Shards, as_slice
from widenet.randomness import StepRandom
from widenet.sparse import SparseBatch
from widenet.spec.losses import PopularitySample, Sample


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
        starts: Start of the first interval of each shard of this process.
        ends: Ends of the intervals of each shard of this process, float64 [R]; None if all have length 1.
    """

    purpose: str
    num_points: int
    shards: Shards
    length: float
    starts: dict[int, float]
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
        purpose = f"sample/{name}"
        edges = np.cumsum([0, *(shards.size(shard) for shard in range(shards.count))])
        if not isinstance(spec, PopularitySample):
            return cls(
                purpose,
                spec.units,
                shards,
                float(shards.width),
                {shard: float(edges[shard]) for shard in own},
                None,
            )
        assert counts is not None
        counts_L = np.ones(shards.width)
        counts_L[: len(counts)] += counts[: shards.width]
        by_shard = [counts_L[as_slice(shards.units(shard))] for shard in range(shards.count)]
        ends_L = np.concatenate(by_shard)
        ends_L = power(torch.from_numpy(ends_L), spec.power).numpy()
        np.cumsum(ends_L, out=ends_L)
        ends = {shard: torch.from_numpy(ends_L[edges[shard] : edges[shard + 1]].copy()) for shard in own}
        starts = {shard: float(ends_L[edges[shard] - 1]) if edges[shard] else 0.0 for shard in own}
        return cls(purpose, spec.units, shards, float(ends_L[-1]), starts, ends)

    def choice(self, targets: SparseBatch, random: StepRandom) -> Choice:
        """Return the units of a step whose batch has these targets."""
        points_N, parts = self.points(random), split(targets, self.shards.count)
        units, stands = {}, {}
        for shard in self.starts:
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
        start, num = self.starts[shard], self.shards.size(shard)
        stop = (float(self.ends[shard][-1]) if num else start) if self.ends is not None else start + num
        low, high = torch.searchsorted(points_N, torch.tensor([start, stop], dtype=torch.float64)).tolist()
        if self.ends is None:
            units_U, counts_U = torch.unique_consecutive(
                (points_N[low:high] - start).long(), return_counts=True
            )
            lengths_U = torch.ones_like(counts_U, dtype=torch.float64)
        else:
            ends_R = self.ends[shard]
            places_N = torch.searchsorted(ends_R, points_N[low:high], right=True)
            units_U, counts_U = torch.unique_consecutive(places_N, return_counts=True)
            starts_U = torch.where(units_U > 0, ends_R[(units_U - 1).clamp(min=0)], start)
            lengths_U = ends_R[units_U] - starts_U
        return units_U, (counts_U * self.length / (self.num_points * lengths_U)).float()
