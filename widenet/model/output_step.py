"""One step of a wide output as data, and its losses and slopes by torch.

There are three ways to the slopes, the gradients to the logits. Under a softmax, cross-entropies have the
closed form p * sum(pulls) - pull: a first pass over the tiles finds the divisors. Units that are activated
one by one are differentiated tile by tile. What is left, activations that divide by a sum over the layer and
have no closed form, is differentiated over all units at once, so such outputs should be small.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels.fixed_point import exact_sum, sum_by
from widenet.model import losses
from widenet.model.activations import activate
from widenet.model.layers.output import Tile, WideOutput
from widenet.model.limits import shortening
from widenet.model.operands import filled_columns
from widenet.model.targets import Entries, Targets
from widenet.parallel.exchange import Exchange
from widenet.plan.tiles import as_slice


@dataclass
class RowSum:
    """A shard's part of the divisors of E examples, or those of S shards, [S, E].

    Attributes:
        kind: Kind of the activation.
        peak_E: Largest logit, float32; only for a softmax.
        sum_E: The sum, float64; for a softmax of exp(z - peak).
    """

    kind: str
    peak_E: Tensor
    sum_E: Tensor

    @classmethod
    def empty(cls, kind: str, num_examples: int, device: torch.device) -> "RowSum":
        """Return the sum over no units."""
        peak_E = torch.full((num_examples,), -torch.inf, device=device)
        return cls(kind, peak_E, torch.zeros_like(peak_E, dtype=torch.float64))

    @classmethod
    def stacked(cls, sums: Sequence["RowSum"]) -> "RowSum":
        """Return the sums of shards as one."""
        peaks, totals = [own.peak_E for own in sums], [own.sum_E for own in sums]
        return cls(sums[0].kind, torch.stack(peaks), torch.stack(totals))

    def add(self, logits_ET: Tensor, columns: int = 1) -> None:
        """Add a tile's logits, with columns after them that add nothing, up to a multiple of `columns`."""
        num_examples, units = logits_ET.shape
        if self.kind == "softmax":
            self._raise_peak(logits_ET.amax(dim=1))
            share_EC = logits_ET.new_empty(num_examples, units + -units % columns)
            torch.sub(logits_ET, self.peak_E[:, None], out=share_EC[:, :units])
            share_EC[:, units:] = -torch.inf
            self.sum_E += share_EC.exp_().sum(dim=1)
        else:
            part_EC = filled_columns(logits_ET, columns)
            self.sum_E += (torch.relu(part_EC) if self.kind == "relu_max" else part_EC.abs()).sum(dim=1)

    def add_part(self, peak_E: Tensor, sum_E: Tensor) -> None:
        """Add the sum of a softmax over some units: their largest logit [E], and that of exp(z - it) [E]."""
        self._raise_peak(peak_E)
        self.sum_E += sum_E * torch.exp((peak_E - self.peak_E).double())

    def _raise_peak(self, peak_E: Tensor) -> None:
        higher_E = torch.maximum(self.peak_E, peak_E)
        self.sum_E *= torch.exp((self.peak_E - higher_E).double())
        self.peak_E = higher_E


def over_shards(own: RowSum, exchange: Exchange, where: str) -> Tensor:
    """Return the divisors, or a softmax's logarithms of them, from the sums of this process's shards: [E]."""
    if own.kind != "softmax":
        return exact_sum(exchange.gather(own.sum_E.unbind(), where)).float()
    both = torch.stack((own.peak_E.double(), own.sum_E), dim=1).unbind()
    both_S2E = torch.stack(exchange.gather(both, where))
    peak_SE, total_SE = both_S2E[:, 0].float(), both_S2E[:, 1]
    peak_E = peak_SE.amax(dim=0)
    scaled_SE = (peak_SE - peak_E).double().exp_().mul_(total_SE)
    return exact_sum(scaled_SE).log_().add_(peak_E).float()


def divided(kind: str, logits: Tensor, total_E1: Tensor) -> Tensor:
    """Return the activations of logits [E, N] from `over_shards`; zero if the divisor is zero."""
    if kind == "softmax":
        return torch.exp(logits - total_E1)
    parts = torch.relu(logits) if kind == "relu_max" else logits
    return torch.where(total_E1 == 0, 0.0, parts / total_E1)


Place = tuple[int, int]
"""A shard, and the index of one of its tiles."""

Slopes = Callable[[Place, Tile], tuple[Tensor, Tensor]]
"""Returns the loss of a tile, float64 [], and its slopes [E, T].

What belongs to no single tile is in the loss of a shard's first one.
"""


@dataclass
class OutputStep:
    """One step of one output: its operands.

    Attributes:
        output: The output, for the batch.
        direct_EH: The incoming vectors, as operands of products.
        targets: The targets.
        weight_E: Per-example loss weights, float32.
        tiles: Start and stop of each shard's tiles.
        keeps: Whether memory allows keeping numbers of all logits between passes.
        stands: For a sample, by shard, the number of units that each unit represents if it is no target,
            float32; None if all units take part.
        edges: Positions of each tile's entries among its shard's.
    """

    output: WideOutput
    direct_EH: Tensor
    targets: Targets
    weight_E: Tensor
    tiles: list[list[tuple[int, int]]]
    keeps: bool
    stands: dict[int, Tensor] | None = None
    edges: dict[int, list[int]] = field(default_factory=dict)

    @property
    def num_examples(self) -> int:
        """E."""
        return len(self.direct_EH)

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
        weight = self.output.weight
        return weight.parts[shard].tiles(self.starts(shard), updates and weight.trained, rows)

    def starts(self, shard: int) -> list[int]:
        """Return the first unit of each tile of a shard, then the end of the last tile."""
        bounds = self.tiles[shard]
        return [start for start, _ in bounds] + [stop for _, stop in bounds[-1:]]

    def size(self, shard: int) -> int:
        """Return how many units of a shard take part."""
        return self.tiles[shard][-1][1] if self.tiles[shard] else 0

    def tile(self, place: Place) -> Tile:
        """Return a tile's units, as operands of this step's products."""
        shard, index = place
        return self.output.tile(shard, *self.tiles[shard][index], half=self.output.half)

    def logits(self, place: Place, tile: Tile) -> Tensor:
        """Return logits [E, T] of a tile."""
        logits_ET = tile.logits(self.direct_EH)
        if self.output.spec.is_row_wise and self.stands is not None:
            self._count_samples(logits_ET, place)
        return logits_ET

    def entries(self, place: Place) -> Entries:
        """Return the targets inside a tile."""
        shard, index = place
        if shard not in self.edges:
            self.edges[shard] = self.targets.edges(shard, self.tiles[shard])
        span = slice(*self.edges[shard][index : index + 2])
        return self.targets.entries(shard, self.tiles[shard][index], span)

    def stands_of(self, place: Place) -> Tensor | None:
        """Return how many units each unit of a tile represents, float32 [T]; None without a sample."""
        shard, index = place
        return None if self.stands is None else self.stands[shard][slice(*self.tiles[shard][index])]

    def pulls(self, total_E: Tensor, logits_Z: list[Tensor]) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return what the closed form takes from the targets, once the divisors are known.

        Args:
            total_E: The logarithms of the divisors.
            logits_Z: The logits of the targets of each shard of this process.

        Returns:
            The losses float64 [] and the pulls [Z] of each shard, and the sum of each example's pulls [E].
        """
        output, num = self.output, self.num_examples
        parts, sizes = [self.targets.parts[shard] for shard in output.weight.parts], [*map(len, logits_Z)]
        examples_Z = torch.cat([part.examples_Z for part in parts])
        values_Z = torch.cat([part.values_or_ones() for part in parts])
        share_Z = values_Z / self.targets.total_E[examples_Z].clamp_min(1e-30)
        log_p_Z = torch.cat(logits_Z) - total_E[examples_Z]
        value_Z, pull_Z = losses.pulls(output.spec.loss, log_p_Z, values_Z, share_Z)
        weight_Z = self.weight_E[examples_Z]
        value_Z, pull_Z = value_Z * weight_Z, pull_Z * weight_Z
        # A device that is asked for as many repeats as another tensor says would have to be waited for.
        firsts = [torch.full((size,), place * num, device=pull_Z.device) for place, size in enumerate(sizes)]
        groups_Z = torch.cat(firsts) + examples_Z
        num_targets = sum(map(self.targets.num_entries, range(len(self.tiles))))
        sums = sum_by(pull_Z.double(), groups_Z, len(sizes) * num, num_targets)
        coupling_E = exact_sum(output.exchange.gather([*sums.view(len(sizes), num)], output.where)).float()
        totals = [own_Z.sum(dtype=torch.float64) for own_Z in torch.split(value_Z, sizes)]
        return totals, [*torch.split(pull_Z, sizes)], coupling_E

    def _count_samples(self, logits_ET: Tensor, place: Place) -> None:
        """Add the logarithm of the number of represented units to the logits of units that are no target."""
        stands_T, places_Z = self.stands_of(place), self.entries(place).places_Z
        assert stands_T is not None
        own_Z = logits_ET.view(-1)[places_Z]
        logits_ET.add_(torch.where(stands_T > 0, stands_T.log(), _NEVER)).view(-1)[places_Z] = own_Z


_NEVER = -math.inf
"""Added to a logit to exclude its unit from a softmax. Its exponential takes a third of that of -1e30."""


def slopes_of(step: OutputStep) -> Slopes:
    """Return the slopes of a step, after the passes over all tiles that they need."""
    if step.output.spec.is_closed:
        slopes = _of_closed_softmax(step)
    elif step.output.spec.is_row_wise:
        slopes = _of_all_units(step)
    else:
        slopes = _of_single_units(step)
    limit = step.output.spec.delta_norm
    return slopes if limit is None else _shortened(step, slopes, limit)


def _of_single_units(step: OutputStep) -> Slopes:
    def slopes(place: Place, tile: Tile) -> tuple[Tensor, Tensor]:
        return _differentiated(step, step.logits(place, tile), step.entries(place), step.stands_of(place))

    return slopes


def _of_all_units(step: OutputStep) -> Slopes:
    """See above; every process computes the slopes of all units."""
    output = step.output
    shards, exchange = output.known or output.weight.shards, output.exchange

    def of_shard(shard: int) -> Tensor:
        tiles = [step.logits(place, step.tile(place)) for place in step.places(shard)]
        own_ER = torch.cat([step.direct_EH.new_zeros(step.num_examples, 0), *tiles], dim=1)
        return pad(own_ER, (0, shards.size(0) - own_ER.shape[1]))

    of_shards = exchange.gather(exchange.each(of_shard), output.where)
    logits_EL = torch.stack(of_shards, dim=2).flatten(1)[:, : shards.width].contiguous()
    loss, slope_EL = _differentiated(step, logits_EL, step.targets.of_all_units(shards))

    def slopes(place: Place, _: Tile) -> tuple[Tensor, Tensor]:
        shard, index = place
        units = as_slice(shards.units(shard)[slice(*step.tiles[shard][index])])
        return loss if place == (0, 0) else torch.zeros_like(loss), slope_EL[:, units].contiguous()

    return slopes


def _differentiated(
    step: OutputStep, logits_EN: Tensor, entries: Entries, stands_N: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the loss float64 [] of some units, and its slopes by autograd."""
    with torch.enable_grad():
        z_EN = logits_EN.requires_grad_()
        loss = _weighted_loss(step, z_EN, entries, stands_N)
        (slope_EN,) = torch.autograd.grad(loss, z_EN)
    return loss.detach(), _boosted(step, slope_EN, entries)


def _weighted_loss(step: OutputStep, z_EN: Tensor, entries: Entries, stands_N: Tensor | None) -> Tensor:
    spec, places_Z, examples_Z = step.output.spec, entries.places_Z, entries.examples_Z
    a_EN = activate(spec.activation, z_EN)
    z_Z, a_Z = z_EN.flatten()[places_Z], a_EN.flatten()[places_Z]
    value_Z = losses.of_targets(spec.loss, z_Z, a_Z, entries.values_Z) * step.weight_E[examples_Z]
    if spec.others == "ignore":
        return value_Z.sum(dtype=torch.float64)
    value_EN = losses.of_others(spec.loss, z_EN, a_EN) * step.weight_E[:, None]
    if stands_N is not None:
        value_EN = value_EN * stands_N
    return value_EN.flatten().scatter(0, places_Z, value_Z).sum(dtype=torch.float64)


def _boosted(step: OutputStep, slope_EN: Tensor, entries: Entries) -> Tensor:
    """Return slopes with the output's "delta_boost"."""
    boost = step.output.spec.delta_boost
    if boost is None:
        return slope_EN
    factor_EN = torch.full_like(slope_EN, boost.other)
    factor_EN.view(-1)[entries.places_Z[entries.values_Z > 0]] = boost.target
    return slope_EN * factor_EN


def _of_closed_softmax(step: OutputStep) -> Slopes:
    shares: dict[Place, tuple[Tensor, Tensor]] = {}

    def of_shard(shard: int) -> tuple[RowSum, Tensor]:
        """Return a shard's part of the divisors, and the logits of its targets."""
        total = RowSum.empty("softmax", step.num_examples, step.direct_EH.device)
        logits_Z = torch.zeros(step.targets.num_entries(shard), device=step.direct_EH.device)
        for place in step.places(shard):
            logits_ET, entries = step.logits(place, step.tile(place)), step.entries(place)
            logits_Z[entries.span] = logits_ET.view(-1)[entries.places_Z]
            share_ET, peak_E = _shares(logits_ET)
            total.add_part(peak_E, share_ET.sum(dim=1))
            if step.keeps:
                shares[place] = share_ET, peak_E
        return total, logits_Z

    sums = step.output.exchange.each(of_shard)
    total_E = over_shards(
        RowSum.stacked([total for total, _ in sums]), step.output.exchange, step.output.where
    )
    values, pulls, coupling_E = step.pulls(total_E, [logits_Z for _, logits_Z in sums])
    held = {shard: number for number, shard in enumerate(step.output.weight.parts)}

    def slopes(place: Place, tile: Tile) -> tuple[Tensor, Tensor]:
        number, entries = held[place[0]], step.entries(place)
        kept = shares.pop(place, None)
        share_ET, peak_E = kept or _shares(step.logits(place, tile))
        slope_ET = share_ET.mul_((torch.exp(peak_E - total_E) * coupling_E)[:, None])
        slope_ET.view(-1)[entries.places_Z] -= pulls[number][entries.span]
        loss = values[number] if place[1] == 0 else torch.zeros_like(values[number])
        return loss, _boosted(step, slope_ET, entries)

    return slopes


def _shares(logits_ET: Tensor) -> tuple[Tensor, Tensor]:
    """Return exp(z - largest of the tile) [E, T], in place of the logits, and the largest [E]."""
    # A sample can exclude all units of a tile for an example: all logits are -inf, and inf - inf is NaN.
    peak_E = logits_ET.amax(dim=1).clamp_(min=_LOWEST_PEAK)
    return logits_ET.sub_(peak_E[:, None]).exp_(), peak_E


_LOWEST_PEAK = -1e30


def _shortened(step: OutputStep, slopes: Slopes, limit: float) -> Slopes:
    """Return slopes that are no longer than a limit over all units, for each example."""
    kept: dict[Place, tuple[Tensor, Tensor]] = {}

    def squares(shard: int) -> Tensor:
        total_E = torch.zeros(step.num_examples, dtype=torch.float64, device=step.direct_EH.device)
        for place in step.places(shard):
            found = slopes(place, step.tile(place))
            total_E += found[1].double().square().sum(dim=1)
            if step.keeps:
                kept[place] = found
        return total_E

    exchange = step.output.exchange
    length_E = exact_sum(exchange.gather(exchange.each(squares), step.output.where)).sqrt()
    factor_E = shortening(length_E, limit / max(step.num_examples, 1)).float()

    def shortened(place: Place, tile: Tile) -> tuple[Tensor, Tensor]:
        own = kept.pop(place, None)
        loss, slope_ET = own or slopes(place, tile)
        return loss, slope_ET * factor_E[:, None]

    return shortened
