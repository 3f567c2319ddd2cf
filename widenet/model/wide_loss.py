"""One step of a wide output: its loss, and the gradients to the incoming vectors and to its units.

The native library makes the steps that it knows, torch all others.

Under a softmax, the slopes of cross-entropies, the gradients to the logits, have the closed form
p * sum(pulls) - pull: `SoftmaxStep` takes one pass over the logits. Units that are activated one by one are
differentiated tile by tile. What is left is differentiated over all units at once, so such outputs should be
small: activations that divide by a sum over the layer and have no closed form, "delta_norm", dense targets,
and a softmax over sparse inputs or without weights.

On CUDA, the shards of a process lie in one allocation, and tiles of several are computed together.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels.bags import RowGradient, gather_sum
from widenet.kernels.fixed_point import Terms, exact_sum, sum_by
from widenet.kernels.native import library_runs
from widenet.kernels.passes import (
    Gradients,
    OutputBatch,
    OutputShard,
    add_shares,
    add_slopes,
    finish,
    finish_hidden,
    tile_shares,
)
from widenet.kernels.reference import LOWEST_PEAK
from widenet.kernels.steps import KINDS
from widenet.model import losses
from widenet.model.activations import activate
from widenet.model.layers.output import Tile, WideOutput
from widenet.model.operands import filled_columns, matrix_product
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.targets import Choice, Entries, Targets
from widenet.model.weight import Part, WideWeight, shortening
from widenet.parallel.exchange import Exchange
from widenet.plan.tiles import GRADIENT_NUMBERS, SHARDS_AT_ONCE, are_kept, as_slice, tile_units
from widenet.sparse import SparseBatch


@dataclass
class RowSum:
    """A shard's part of the divisors of E examples.

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

    def add(self, logits_ET: Tensor, columns: int = 1) -> None:
        """Add a tile's logits, with columns after them that add nothing, up to a multiple of `columns`."""
        if self.kind == "softmax":
            peak_E, missing = torch.maximum(self.peak_E, logits_ET.amax(dim=1)), -logits_ET.shape[1] % columns
            share_EC = pad(logits_ET - peak_E[:, None], (0, missing), value=-torch.inf).exp_()
            self.add_part(peak_E, share_EC.sum(dim=1))
        else:
            part_EC = filled_columns(logits_ET, columns)
            self.sum_E += (torch.relu(part_EC) if self.kind == "relu_max" else part_EC.abs()).sum(dim=1)

    def add_part(self, peak_E: Tensor, sum_E: Tensor) -> None:
        """Add the sum of a softmax over some units: their largest logit [E], and that of exp(z - it) [E]."""
        higher_E = torch.maximum(self.peak_E, peak_E)
        self.sum_E *= torch.exp((self.peak_E - higher_E).double())
        self.sum_E += sum_E * torch.exp((peak_E - higher_E).double())
        self.peak_E = higher_E


def over_shards(sums: Sequence[RowSum], exchange: Exchange, where: str) -> Tensor:
    """Return the divisors, or a softmax's logarithms of them, from the sums of this process's shards: [E]."""
    if sums[0].kind != "softmax":
        return exact_sum(exchange.gather([own.sum_E for own in sums], where)).float()
    both = [torch.stack((own.peak_E.double(), own.sum_E)) for own in sums]
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


Slopes = Callable[[Tile], tuple[Tensor, Tensor]]
"""Returns the loss of a tile of a step, float64 [] or [S], and its slopes [E, T] or [S, E, T].

What belongs to no single tile is in the loss of a shard's first one.
"""

Update = tuple[Optimizer, StepNumbers]
"""The rule and the numbers of a step that moves units as soon as their gradients are known."""


@dataclass
class OutputStep:
    """One step of one output, tile by tile, by torch.

    Attributes:
        output: The output, for the batch.
        direct_EH: The incoming vectors, as operands of products.
        targets: The targets.
        weight_E: Per-example loss weights, float32 (own weight over the batch size).
        sizes: How many units of each shard of this process take part.
        tile_units: Units of a tile.
        keeps: Whether memory allows keeping numbers of all logits between passes.
        stands: For a sample, by shard, the number of units that each unit represents if it is no target,
            float32; None if all units take part.
        rows_at_once: For how many units `gradient` works at once, at most; 0: for a single tile.
        together: Whether tiles of several shards are computed together.
        kept: By shards and first unit, what is kept of a tile for its gradients: of a softmax its shares,
            otherwise its slopes, as operands of products.
    """

    output: WideOutput
    direct_EH: Tensor
    targets: Targets
    weight_E: Tensor
    sizes: dict[int, int]
    tile_units: int
    keeps: bool
    stands: dict[int, Tensor] | None = None
    rows_at_once: int = 0
    together: bool = False
    kept: dict[tuple[int | range, int], Tensor] = field(default_factory=dict)

    @property
    def num_examples(self) -> int:
        """E."""
        return len(self.direct_EH)

    def spans(self, shard: int, rows: int | None = None, updates: bool = False) -> Iterator[tuple[int, int]]:
        """Return the units [start, stop) of whole tiles of a shard in order, with their weights in memory.

        Args:
            shard: The shard.
            rows: Most units of a span, unless a single tile has more; None: as many as can be at hand.
            updates: Whether each span is updated before the next one.
        """
        weight = self.output.weight
        return weight.parts[shard].tiles(self.sizes[shard], self.tile_units, updates and weight.trained, rows)

    def tiles(self, shard: int, updates: bool = False) -> Iterator[Tile]:
        """Yield the tiles of a shard in order, each with its weight in memory; see `spans`."""
        return (self.tile(shard, start, stop) for start, stop in self.spans(shard, 0, updates))

    def tile(self, shards: int | range, start: int, stop: int) -> Tile:
        """Return a tile's units, as operands of this step's products."""
        return self.output.tile(shards, start, stop, half=self.output.half)

    def over(self, work: Callable[[Tile], None], updates: bool = False) -> None:
        """Do some work for every tile.

        Args:
            work: What to do.
            updates: Whether each tile is updated before the next one.
        """

        def of_shard(shard: int) -> None:
            for tile in self.tiles(shard, updates):
                work(tile)

        if not self.together:
            self.output.exchange.each(of_shard)
            return
        for start in range(0, max(self.sizes.values()), self.tile_units):
            for shards, stop in self.alike(start, start + self.tile_units):
                work(self.tile(shards, start, stop))

    def alike(self, start: int, stop: int) -> Iterator[tuple[int | range, int]]:
        """Yield the shards that have units from `start` on, and the end of these, `stop` at most.

        Those that are computed together and have equally many come together.
        """
        at_once, first = SHARDS_AT_ONCE if self.together else 1, next(iter(self.sizes))
        ends = {shard: min(stop, size) for shard, size in self.sizes.items()}
        for (end, _), found in groupby(ends, lambda shard: (ends[shard], (shard - first) // at_once)):
            shards = [*found]
            if end > start:
                yield shards[0] if len(shards) == 1 else range(shards[0], shards[-1] + 1), end

    def entries(self, tile: Tile) -> Entries:
        """Return the targets inside a tile."""
        shards = [tile.shards] if isinstance(tile.shards, int) else tile.shards
        return self.targets.entries(shards, tile.start, tile.stop)

    def stands_of(self, tile: Tile) -> Tensor | None:
        """Return how many units each unit of a tile represents, float32 [T]; None without a sample."""
        if self.stands is None:
            return None
        assert isinstance(tile.shards, int)
        return self.stands[tile.shards][tile.start : tile.stop]

    def logits(self, tile: Tile) -> Tensor:
        """Return logits [E, T] or [S, E, T] of a tile.

        Under a softmax, the logarithm of the number of units that a unit represents is added to its own,
        unless it is a target.
        """
        logits_ET, stands_T = tile.logits(self.direct_EH), self.stands_of(tile)
        if stands_T is not None and self.output.spec.is_row_wise:
            places_Z = self.entries(tile).places_Z
            own_Z = logits_ET.view(-1)[places_Z]
            logits_ET.add_(torch.where(stands_T > 0, stands_T.log(), _NEVER)).view(-1)[places_Z] = own_Z
        return logits_ET

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
        num_targets = sum(len(part.units_Z) for part in self.targets.parts)
        sums = sum_by(pull_Z.double(), groups_Z, len(sizes) * num, num_targets)
        coupling_E = exact_sum(output.exchange.gather([*sums.view(len(sizes), num)], output.where)).float()
        totals = [own_Z.sum(dtype=torch.float64) for own_Z in torch.split(value_Z, sizes)]
        boost = output.spec.delta_boost
        if boost is not None:
            factor_Z = torch.where(values_Z > 0, boost.target, boost.other)
            slope_Z = torch.exp(log_p_Z) * coupling_E[examples_Z]
            pull_Z = boost.other * slope_Z - factor_Z * (slope_Z - pull_Z)
            coupling_E = coupling_E * boost.other
        return totals, [*torch.split(pull_Z, sizes)], coupling_E

    def start(self, update: Update | None) -> Callable[[], list[Tensor]]:
        """Start the loss float64 [] and the gradient float32 [E, H] to the incoming vectors.

        Without an update, `gradient` gives the gradients of the units afterwards.
        """
        output = self.output
        return output.exchange.start_sum(*self.run(update), where=output.where)

    def run(self, update: Update | None) -> tuple[Terms, Terms]:
        """Return every shard's loss, float64 [], and gradient to the incoming vectors, float32 [E, H]."""
        weight, loss_S, hidden_SEH = self.output.weight, self._zeros(dtype=torch.float64), self._begun()
        is_plain = not self.output.spec.is_row_wise and self.output.spec.delta_norm is None
        self._slopes = partial(_of_single_units, self) if is_plain else _of_all_units(self)

        def sweep(tile: Tile) -> None:
            places = weight.places(tile.shards)
            loss, slope_ET = self._slopes(tile)
            loss_S[places] += loss
            self.bias_SR[places, tile.start : tile.stop] = slope_ET.sum(dim=-2)
            delta_ET = self.output.operand(slope_ET)
            tile.add_direct_gradient(hidden_SEH[places], delta_ET)
            if update is not None or self.keeps:
                self.keep(tile, delta_ET, apart=update is None)
            if update is not None:
                self._finish(update, tile)

        self.over(sweep, updates=update is not None)
        self.step_biases(update)
        return loss_S, hidden_SEH

    def gradient(self, shard: int, start: int, stop: int) -> tuple[Tensor | RowGradient, Tensor]:
        """Return the gradients of weights [T, H] and biases [T] of some units, after `run`.

        The units are a span of `spans`. The gradient of a frozen weight is empty.
        """
        return self.gradients(self.tile(shard, start, stop), self.kept.pop((shard, start), None))

    def gradients(self, tile: Tile, kept_ET: Tensor | None) -> tuple[Tensor | RowGradient, Tensor]:
        """Return the gradients of the weights and biases of a tile from what is kept of it, if anything."""
        bias_T = self.bias_SR[self.output.weight.places(tile.shards), tile.start : tile.stop]
        if not self.output.weight.trained:
            return bias_T.new_zeros(0), bias_T
        delta_ET = self.output.operand(self._slopes(tile)[1]) if kept_ET is None else kept_ET
        return tile.weight_gradient(self.direct_EH, delta_ET), bias_T

    def keep(self, tile: Tile, numbers: Tensor, apart: bool) -> None:
        """Keep numbers of all logits of a tile, each shard apart if `gradient` takes one after the other."""
        if isinstance(tile.shards, int) or not apart:
            self.kept[tile.shards, tile.start] = numbers
        else:
            self.kept |= {(shard, tile.start): own for shard, own in zip(tile.shards, numbers, strict=True)}

    def _finish(self, update: Update, tile: Tile) -> None:
        """Make the step of the weights of a tile."""
        weight, start, stop = self.output.weight, tile.start, tile.stop
        kept_ET = self.kept.pop((tile.shards, start), None)
        gradient_TH, self.bias_SR[weight.places(tile.shards), start:stop] = self.gradients(tile, kept_ET)
        weight.update_tile(tile.shards, start, stop, gradient_TH, *update)

    def step_biases(self, update: Update | None) -> None:
        """Make the step of all biases at once."""
        bias = self.output.bias
        for shards, stop in self.alike(0, max(self.sizes.values())):
            if update is not None and bias is not None:
                bias.update_tile(shards, 0, stop, self.bias_SR[bias.places(shards), :stop], *update)

    def _begun(self) -> Tensor:
        """Return zeros for the gradient to the incoming vectors, [S, E, H], and begin that of the biases."""
        self.bias_SR = self._zeros(max(self.sizes.values()))
        return self._zeros(*self.direct_EH.shape)

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(len(self.sizes), *shape, dtype=dtype, device=self.direct_EH.device)


_NEVER = -math.inf
"""Added to a logit to exclude its unit from a softmax. Its exponential takes a third of that of -1e30."""


def _of_single_units(step: OutputStep, tile: Tile) -> tuple[Tensor, Tensor]:
    return _differentiated(step, step.logits(tile), step.entries(tile), step.stands_of(tile))


def _of_all_units(step: OutputStep) -> Slopes:
    """See above; every process computes the slopes of all units."""
    output, limit = step.output, step.output.spec.delta_norm
    shards, exchange = output.known, output.exchange

    def of_shard(shard: int) -> Tensor:
        filling_EM = step.direct_EH.new_zeros(step.num_examples, shards.size(0) - step.sizes[shard])
        return torch.cat([*map(step.logits, step.tiles(shard)), filling_EM], dim=1)

    of_shards = exchange.gather(exchange.each(of_shard), output.where)
    logits_EL = torch.stack(of_shards, dim=2).flatten(1)[:, : shards.width].contiguous()
    loss, slope_EL = _differentiated(step, logits_EL, step.targets.of_all_units(shards))
    if limit is not None:
        length_E1 = slope_EL.double().square().sum(dim=1, keepdim=True).sqrt()
        slope_EL = slope_EL * shortening(length_E1, limit / max(step.num_examples, 1)).float()

    def slopes(tile: Tile) -> tuple[Tensor, Tensor]:
        assert isinstance(tile.shards, int)
        units = as_slice(shards.units(tile.shards)[tile.start : tile.stop])
        is_first = tile.shards == tile.start == 0
        return loss if is_first else torch.zeros_like(loss), slope_EL[:, units].contiguous()

    return slopes


def _differentiated(
    step: OutputStep, logits_EN: Tensor, entries: Entries, stands_N: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the loss float64 of some units, [] or [S], and its slopes by autograd."""
    spec, places_Z, examples_Z = step.output.spec, entries.places_Z, entries.rows_Z % step.num_examples
    with torch.enable_grad():
        z_EN = logits_EN.requires_grad_()
        a_EN = activate(spec.activation, z_EN)
        z_Z, a_Z = z_EN.flatten()[places_Z], a_EN.flatten()[places_Z]
        if step.output.is_closed:
            log_p_Z = torch.log_softmax(z_EN, dim=1).flatten()[places_Z]
            share_Z = entries.values_Z / step.targets.total_E[examples_Z].clamp_min(1e-30)
            value_Z, _ = losses.pulls(spec.loss, log_p_Z, entries.values_Z, share_Z)
        else:
            value_Z = losses.of_targets(spec.loss, z_Z, a_Z, entries.values_Z)
        value_Z, value_EN = value_Z * step.weight_E[examples_Z], torch.zeros_like(z_EN)
        if spec.others == "use" and not step.output.is_closed:
            value_EN = losses.of_others(spec.loss, z_EN, a_EN) * step.weight_E[:, None]
            if stands_N is not None:
                value_EN = value_EN * stands_N
        value_EN = value_EN.flatten().scatter(0, places_Z, value_Z).view_as(z_EN)
        loss = value_EN.flatten(-2).sum(dim=-1, dtype=torch.float64)
        (slope_EN,) = torch.autograd.grad(loss.sum(), z_EN)
    return loss.detach(), _boosted(step, slope_EN, entries)


def _boosted(step: OutputStep, slope_EN: Tensor, entries: Entries) -> Tensor:
    """Return slopes with the output's "delta_boost"."""
    boost = step.output.spec.delta_boost
    if boost is None:
        return slope_EN
    factor_EN = torch.full_like(slope_EN, boost.other)
    factor_EN.view(-1)[entries.places_Z[entries.values_Z > 0]] = boost.target
    return slope_EN * factor_EN


class SoftmaxStep(OutputStep):
    """A softmax with a cross-entropy, in one pass over the logits; see `kernels.passes`.

    Each tile leaves shares exp(z - peak), where `peak` is the largest logit so far, and the sums of the
    units' vectors times them. Once the divisors are known, these sums become the gradient to the incoming
    vectors, but for sums of the targets' vectors. The gradient of the weights is the product of the shares,
    less the pulls of the targets, with incoming vectors that are scaled.
    """

    def run(self, update: Update | None) -> tuple[Terms, Terms]:
        """See `OutputStep.run`."""
        output, weight, exchange = self.output, self.output.weight, self.output.exchange
        hidden_SEH, total_SE = self._begun(), self._zeros(self.num_examples, dtype=torch.float64)
        peak_SE = self._zeros(self.num_examples).fill_(LOWEST_PEAK)
        num_tiles = -(-self.bias_SR.shape[1] // self.tile_units)
        self._peak_NSE = torch.zeros(num_tiles, *peak_SE.shape, device=peak_SE.device)
        logits = exchange.each(self._of_targets)

        def add_shares(tile: Tile) -> None:
            places = weight.places(tile.shards)
            own = peak_SE[places], total_SE[places], hidden_SEH[places]
            share_ET = tile_shares(self.logits(tile), *own, output.half)
            self._peak_NSE[tile.start // self.tile_units, places] = peak_SE[places]
            tile.add_direct_gradient(hidden_SEH[places], share_ET)
            if self.keeps:
                self.keep(tile, share_ET, apart=update is None)

        self.over(add_shares)
        sums = [RowSum("softmax", *own) for own in zip(peak_SE, total_SE, strict=True)]
        total_E = over_shards(sums, exchange, output.where)
        totals, pulls, coupling_E = self.pulls(total_E, logits)
        self._factor_NSE1 = (torch.exp(self._peak_NSE - total_E) * coupling_E)[..., None].clamp_min_(1e-30)
        hidden_SEH.mul_((torch.exp(peak_SE - total_E) * coupling_E)[..., None])
        self.targets = replace(self.targets, parts=[*self.targets.parts])
        self._pulls = pulls
        exchange.each(lambda shard: self._add_pulls(shard, hidden_SEH[weight.places(shard)]))
        if update is not None:
            self.over(partial(self._finish, update), updates=True)
            self.step_biases(update)
        return totals, hidden_SEH

    def gradients(self, tile: Tile, kept_ET: Tensor | None) -> tuple[Tensor | RowGradient, Tensor]:
        """See `OutputStep.gradients`."""
        places, operand = self.output.weight.places(tile.shards), self.output.operand
        factor_E1 = self._factor_NSE1[tile.start // self.tile_units, places]
        share_ET = kept_ET
        if share_ET is None:
            peak_E = self._peak_NSE[tile.start // self.tile_units, places]
            nothing = torch.zeros_like(peak_E, dtype=torch.float64), peak_E.new_zeros(*peak_E.shape, 0)
            share_ET = tile_shares(self.logits(tile), peak_E, *nothing, self.output.half)
        entries = self.entries(tile)
        share_Z = share_ET.view(-1)[entries.places_Z].float() - entries.values_Z
        share_ET.view(-1)[entries.places_Z] = operand(share_Z)
        bias_T = self.bias_SR[places, tile.start : tile.stop]
        if self.output.bias is not None:
            bias_T = matrix_product(share_ET.mT, operand(factor_E1))[..., 0]
        if not self.output.weight.trained:
            return bias_T.new_zeros(0), bias_T
        return tile.weight_gradient(operand(self.direct_EH * factor_E1), share_ET), bias_T

    def _of_targets(self, shard: int) -> Tensor:
        """Return the logits of a shard's targets."""
        part, bias = self.targets.parts[shard], self.output.bias
        vector_ZH = self.output.vectors(shard, part.units_Z)
        logits_Z = (self.direct_EH[part.examples_Z].float() * vector_ZH).sum(dim=1)
        return logits_Z if bias is None else logits_Z + bias.select(shard, part.units_Z)

    def _add_pulls(self, shard: int, hidden_EH: Tensor) -> None:
        """Subtract the vectors of a shard's targets times their pulls; turn pulls into parts of shares."""
        part, place = self.targets.parts[shard], shard - next(iter(self.sizes))
        pull_Z = self._pulls[place]
        assert part.order_Z is not None
        assert part.indptr is not None
        numbers_Z = torch.arange(len(pull_Z), device=pull_Z.device)
        places_Z = torch.empty_like(part.order_Z).index_copy_(0, part.order_Z, numbers_Z)
        bag = SparseBatch(part.indptr, places_Z, pull_Z[places_Z])
        hidden_EH -= gather_sum(bag, self.output.vectors(shard, part.units_Z).float())
        factor_Z = self._factor_NSE1[part.units_Z // self.tile_units, place, part.examples_Z, 0]
        self.targets.parts[shard] = replace(part, values_Z=pull_Z / factor_Z)


class NativeStep(OutputStep):
    """A step in which one call of the library is one pass over all units of this process."""

    def run(self, update: Update | None) -> tuple[Terms, Terms]:
        """See `OutputStep.run`."""
        output, device, num_threads = self.output, self.direct_EH.device, self.output.exchange.num_threads
        parts, is_softmax = output.weight.parts, output.is_closed
        sums = [RowSum.empty("softmax", self.num_examples, device) for _ in parts]
        logits = [torch.zeros(len(self.targets.parts[shard].units_Z)) for shard in parts]
        self._batch = OutputBatch(
            "softmax" if is_softmax else "sigmoid",
            self.direct_EH.contiguous(),
            self.tile_units,
            output.half,
            self.weight_E,
            self.weight_E,
        )
        self._shards = {
            shard: self._started(shard, total, logits_Z, update is None)
            for shard, total, logits_Z in zip(parts, sums, logits, strict=True)
        }
        steps = dict.fromkeys(parts, Gradients()) if update is None else self._steps(*update, update[1], {})
        if is_softmax:
            self._over(add_shares)
            total_E = over_shards(sums, output.exchange, output.where)
            totals, pulls, coupling_E = self.pulls(total_E, logits)
            for shard, pull_Z in zip(parts, pulls, strict=True):
                self._shards[shard] = replace(self._shards[shard], of_target_Z=pull_Z)
            self._batch = replace(self._batch, one_E=total_E, other_E=coupling_E)
            finish_hidden(self._batch, [*self._shards.values()], num_threads)
            if update is not None:
                self._over(finish, steps)
        else:
            self._over(add_slopes, steps)
            totals = [own.sum_E.sum() for own in sums]
        gradients_EH = [own.hidden_EH for own in self._shards.values()]
        if update is not None:
            self._shards = {}  # what they keep is used
        return totals, gradients_EH

    def finish(
        self,
        rule: Optimizer,
        of_weights: StepNumbers,
        of_biases: StepNumbers,
        touched: Mapping[int, RowGradient],
    ) -> None:
        """Make the steps of the units, after `run` has made none.

        Args:
            rule: The optimizer.
            of_weights: The numbers of the weights' steps.
            of_biases: Those of the biases' steps.
            touched: Gradients of some rows, by shard, which are added before.
        """
        self._over(finish, self._steps(rule, of_weights, of_biases, touched))

    def gradient(self, shard: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """See `OutputStep.gradient`."""
        is_trained, columns = self.output.weight.trained, self._batch.direct_EH.shape[1]
        weight_TH, bias_T = torch.empty(stop - start if is_trained else 0, columns), torch.empty(stop - start)
        gradients = Gradients(weight_TH=weight_TH if is_trained else None, bias_T=bias_T)
        finish(self._batch, [self._shards[shard].within(start, stop)], 1, [gradients])
        return weight_TH, bias_T

    def _started(self, shard: int, total: RowSum, logits_Z: Tensor, is_late: bool) -> OutputShard:
        """Return a shard before the first pass.

        Args:
            shard: The shard.
            total: Receives the divisors of a softmax, or the loss.
            logits_Z: Receives the logits of the targets of a softmax.
            is_late: Whether `finish` or `gradient` follows.
        """
        output, units, targets = self.output, self.sizes[shard], self.targets.parts[shard]
        part, is_softmax = output.weight.parts[shard], output.is_closed
        keeps, leaves = self.keeps and (is_softmax or is_late), is_softmax and output.weight.store is not None
        scales = torch.empty(self._batch.num_blocks(units), self.num_examples) if is_softmax else None
        return OutputShard(
            weight_RH=part.weight,
            length_R=None if output.spec.cosine is None else torch.empty(len(part.weight)),
            bias_R=None if output.bias is None else output.bias.parts[shard].weight,
            span=(0, units),
            examples_Z=targets.examples_Z,
            units_Z=targets.units_Z,
            of_target_Z=None if is_softmax else targets.values_Z,
            kept=torch.empty(self._batch.kept_numbers(units)) if keeps else None,
            scales=scales,
            hidden_EH=torch.zeros(self._batch.direct_EH.shape),
            total_E=total.sum_E,
            peak_E=total.peak_E if is_softmax else None,
            logits_Z=logits_Z if is_softmax else None,
            vectors_ZH=torch.empty(len(targets.units_Z), part.weight.shape[1]) if leaves else None,
        )

    def _steps(
        self,
        rule: Optimizer,
        of_weights: StepNumbers,
        of_biases: StepNumbers,
        touched: Mapping[int, RowGradient],
    ) -> dict[int, Gradients]:
        """Return the library's steps of each shard, without those of frozen or missing weights."""
        weight, bias = self.output.weight, self.output.bias
        return {
            shard: Gradients(
                weight.stepped(shard, rule, of_weights),
                None if bias is None else bias.stepped(shard, rule, of_biases),
                touched.get(shard),
            )
            for shard in weight.parts
        }

    def _over(self, make: Callable[..., None], gradients: Mapping[int, Gradients] | None = None) -> None:
        """Make a pass over all units: in one call, or of rows in files as they come into memory."""
        weight, exchange = self.output.weight, self.output.exchange
        given = [] if gradients is None else [gradients]
        updates = any(own.weight_step is not None for own in (gradients or {}).values())

        def of_shard(shard: int) -> None:
            for start, stop in self.spans(shard, updates=updates):
                within = self._shards[shard].within(start, stop)
                make(self._batch, [within], 1, *([own[shard]] for own in given))
                if updates:
                    weight.shorten(shard, start, stop)

        if weight.store is not None:
            exchange.each(of_shard)
            return
        shards = [*self._shards.values()]
        make(self._batch, shards, exchange.num_threads, *([*own.values()] for own in given))
        if updates and weight.norm_limit is not None:
            exchange.each(lambda shard: weight.shorten(shard, 0, self.sizes[shard]))


def output_step(
    output: WideOutput,
    direct_EH: Tensor,
    targets: Targets,
    weight_E: Tensor,
    rule: Optimizer,
    tiled_for: int = 0,
    stands: dict[int, Tensor] | None = None,
) -> OutputStep:
    """Return a step before its first pass: the library's if it knows it and the optimizer.

    Args:
        output: The output, for the batch.
        direct_EH: The incoming vectors, float32.
        targets: Targets of the E examples.
        weight_E: See `OutputStep`.
        rule: The optimizer of the units.
        tiled_for: Smallest number of examples for which to cut tiles; outputs that share a weight need equal
            tiles.
        stands: See `OutputStep`.
    """
    shards, num, device = output.known, len(direct_EH), direct_EH.device
    sizes = {
        shard: shards.size(shard) if stands is None else len(stands[shard]) for shard in output.weight.parts
    }
    spec, is_plain = output.spec, stands is None and output.features is None and not output.spec.weightless
    is_plain &= spec.others == "use" and spec.delta_boost is None and spec.delta_norm is None
    is_known = output.is_closed or (spec.activation.kind, spec.loss.kind) == ("sigmoid", "cross_entropy")
    has_library = library_runs(device) and rule.spec.kind in KINDS
    has_rows = output.features is None and not spec.weightless
    is_softmax = output.is_closed and has_rows and spec.delta_norm is None and not targets.are_dense
    lies_together = output.weight.whole is not None and output.weight.store is None and has_rows
    kind = SoftmaxStep if is_softmax else OutputStep
    kind = NativeStep if is_plain and is_known and has_library else kind
    return kind(
        output=output,
        direct_EH=output.operand(direct_EH),
        targets=targets,
        weight_E=weight_E,
        sizes=sizes,
        # A weight by columns is updated a whole column of a shard at a time.
        tile_units=tile_units(max(num, tiled_for), device.type) if output.features is None else output.width,
        keeps=are_kept(num, sum(sizes.values()), device.type, output.half, output.kept_bytes),
        stands=stands,
        rows_at_once=GRADIENT_NUMBERS // max(direct_EH.shape[1], 1) if kind is NativeStep else 0,
        together=lies_together and (is_softmax or not (spec.is_row_wise or spec.delta_norm)),
    )


def sampled(
    output: WideOutput,
    direct_EH: Tensor,
    choice: Choice,
    weight_E: Tensor,
    rule: Optimizer,
    step: StepNumbers,
) -> OutputStep:
    """Return the step of an output over the chosen units, on copies of their rows, which catch up first.

    An example's own targets count once. Every other unit counts as often as the number of units it
    represents: its value in sums over units, its exponential in a softmax. See Bengio and Senecal, "Adaptive
    importance sampling to accelerate training of a neural probabilistic language model", IEEE Transactions on
    Neural Networks 19(4), 2008.
    """

    def copied(weight: WideWeight) -> WideWeight:
        def of_shard(shard: int) -> tuple[int, Part]:
            if rule.idle_weights_move:
                weight.catch_up(shard, choice.units[shard], rule, step)
            return shard, Part(weight.select(shard, choice.units[shard]))

        return WideWeight(weight.shards, dict(output.exchange.each(of_shard)), trained=weight.trained)

    bias = None if output.bias is None else copied(output.bias)
    narrow = replace(output, weight=copied(output.weight), bias=bias, updates_at_once=False)
    return output_step(narrow, direct_EH, choice.targets, weight_E, rule, stands=choice.stands)


def gradients_of_rows(
    step: OutputStep, units: Mapping[int, Tensor]
) -> tuple[dict[int, RowGradient], dict[int, RowGradient]]:
    """Return the gradients of the chosen rows of weight and biases, by shard, after the step has run.

    Those of a frozen weight have no columns.
    """
    columns = step.direct_EH.shape[1] if step.output.weight.trained else 0

    def of_shard(shard: int) -> tuple[int, RowGradient, RowGradient]:
        rows_U = units[shard]
        weight_UH, bias_U1 = (step.direct_EH.new_empty(len(rows_U), size) for size in (columns, 1))
        for start, stop in step.spans(shard, 0):
            of_weight, bias_U1[start:stop, 0] = step.gradient(shard, start, stop)
            assert isinstance(of_weight, Tensor)
            weight_UH[start:stop] = of_weight.view(stop - start, columns)
        return shard, RowGradient.of_rows(rows_U, weight_UH), RowGradient.of_rows(rows_U, bias_U1)

    found = step.output.exchange.each(of_shard)
    return {shard: own for shard, own, _ in found}, {shard: own for shard, _, own in found}
