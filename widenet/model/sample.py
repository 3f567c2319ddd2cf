"""Which units stand for all the others in a step, drawn shard by shard."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from widenet.model.draws import Draws
from widenet.model.sharding import split
from widenet.model.targets import Targets
from widenet.plan.shards import Shards
from widenet.sparse import SparseBatch
from widenet.spec.samples import PopularitySample, Sample
from widenet.transfer import sent


@dataclass(frozen=True)
class Choice:
    """The units that take part in a step: the targets of its batch, and a sample that stands for all others.

    units: of each shard at hand, int64 [U], ascending. stands: for how many others each stands, float32 [U];
    a target that was not drawn for none. targets: by their places among the units.
    """

    units: dict[int, Tensor]
    stands: dict[int, Tensor]
    targets: Targets


@dataclass(frozen=True)
class Sampler:
    """Draws units of a layer.

    Every unit has a stretch of a line; of as many equal pieces as there are draws, each gets a point at
    random.

    So a unit is drawn (draws x its share of the line) times in the mean, and hardly more often or less.
    purpose: names the random numbers. draws: points. length: of the line.
    starts: where the stretches of each shard at hand begin.
    ends: where the stretches of each shard at hand end, float64 [R]; None where all are of length 1.
    """

    purpose: str
    draws: int
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
        device: torch.device,
    ) -> "Sampler":
        """The sampler of an output. own: shards at hand. counts: of the field's features, int64 [up to the
        width]; None: not needed.
        """
        purpose = f"sample/{name}"
        if not isinstance(spec, PopularitySample):
            return cls(
                purpose,
                spec.units,
                shards,
                float(shards.width),
                {shard: float(shards.start(shard)) for shard in own},
                None,
            )
        assert counts is not None
        ends_L = np.ones(shards.width)
        ends_L[: len(counts)] += counts
        np.cumsum(np.power(ends_L, spec.power, out=ends_L), out=ends_L)
        ends = {
            shard: torch.from_numpy(ends_L[shards.start(shard) : shards.stop(shard)].copy()).to(device)
            for shard in own
        }
        starts = {
            shard: float(ends_L[shards.start(shard) - 1]) if shards.start(shard) else 0.0 for shard in own
        }
        return cls(purpose, spec.units, shards, float(ends_L[-1]), starts, ends)

    def choice(self, asked: SparseBatch, draws: Draws) -> Choice:
        """The units of a step whose batch asks for these targets."""
        points_N, parts = self.points(draws, asked.indices.device), split(asked, self.shards)
        units, stands = {}, {}
        for shard in self.starts:
            (drawn_N, stands_N), part = self.drawn(shard, points_N), parts[shard]
            asked_Z = part.indices.long()
            units_U = torch.unique(torch.cat([drawn_N, asked_Z]))
            units[shard] = units_U
            stands[shard] = stands_N.new_zeros(len(units_U)).index_copy_(
                0, torch.searchsorted(units_U, drawn_N), stands_N
            )
            parts[shard] = SparseBatch(part.indptr, torch.searchsorted(units_U, asked_Z), part.values)
        return Choice(units, stands, Targets.of_parts(asked, parts))

    def points(self, draws: Draws, device: torch.device) -> Tensor:
        """This step's points on the line, float64 [draws], ascending."""
        last = np.nextafter(self.length, 0)
        return sent(
            torch.from_numpy((draws.spread(self.purpose, self.draws) * self.length).clip(max=last)), device
        )

    def drawn(self, shard: int, points_N: Tensor) -> tuple[Tensor, Tensor]:
        """The units of a shard that are drawn, int64 [U], ascending, and for how many each stands, float32
        [U].

        A unit stands for the times it is drawn over those it is drawn in the mean: the sum of anything over
        the units that are drawn, times for how many they stand, is in the mean the sum over all units.
        """
        start, num = self.starts[shard], self.shards.size(shard)
        stop = (float(self.ends[shard][-1]) if num else start) if self.ends is not None else start + num
        low, high = torch.searchsorted(
            points_N, torch.tensor([start, stop], dtype=torch.float64, device=points_N.device)
        ).tolist()
        if self.ends is None:
            units_U, counts_U = torch.unique_consecutive(
                (points_N[low:high] - start).long(), return_counts=True
            )
            lengths_U = torch.ones_like(counts_U, dtype=torch.float64)
        else:
            places_N = torch.searchsorted(self.ends[shard], points_N[low:high], right=True)
            units_U, counts_U = torch.unique_consecutive(places_N, return_counts=True)
            lengths_U = self.ends[shard].diff(
                prepend=torch.tensor([start], dtype=torch.float64, device=points_N.device)
            )[units_U]
        return units_U, (counts_U * self.length / (self.draws * lengths_U)).float()
