"""One step of a wide output: its loss, and the gradients to the incoming vectors and to its units.

The native library makes the steps that it knows, torch all others.

There are three ways to the slopes, the gradients to the logits. Under a softmax, cross-entropies have the
closed form p * sum(pulls) - pull: a first pass over the tiles finds the divisors. Units that are activated
one by one are differentiated tile by tile. What is left, activations that divide by a sum over the layer and
have no closed form, is differentiated over all units at once, so such outputs should be small.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels.bags import RowGradient
from widenet.kernels.fixed_point import exact_sum, sum_by
from widenet.kernels.native import library_runs
from widenet.kernels.passes import (
    Gradients,
    OutputBatch,
    OutputShard,
    add_shares,
    add_slopes,
    finish,
    finish_hidden,
)
from widenet.kernels.steps import KINDS
from widenet.model import losses
from widenet.model.activations import activate
from widenet.model.layers.output import Tile, WideOutput
from widenet.model.operands import filled_columns
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.targets import Choice, Entries, Targets
from widenet.model.weight import Part, WideWeight, shortening
from widenet.parallel.exchange import Exchange
from widenet.plan.tiles import GRADIENT_NUMBERS, are_kept, as_slice, tile_units


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
"""Returns the loss of a tile of a step, float64 [], and its slopes [E, T].

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
        slopes: The slopes, once they are known.
        deltas: By shard and first unit, a tile's slopes as operands of products, and the gradient to its
            biases, kept for `gradient`.
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
    slopes: Slopes | None = None
    deltas: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)

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

    def tile(self, shard: int, start: int, stop: int) -> Tile:
        """Return a tile's units, as operands of this step's products."""
        return self.output.tile(shard, start, stop, half=self.output.half)

    def entries(self, tile: Tile) -> Entries:
        """Return the targets inside a tile."""
        return self.targets.entries(tile.shard, tile.start, tile.stop)

    def stands_of(self, tile: Tile) -> Tensor | None:
        """Return how many units each unit of a tile represents, float32 [T]; None without a sample."""
        return None if self.stands is None else self.stands[tile.shard][tile.start : tile.stop]

    def logits(self, tile: Tile) -> Tensor:
        """Return logits [E, T] of a tile.

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
        return totals, [*torch.split(pull_Z, sizes)], coupling_E

    def start(self, update: Update | None) -> Callable[[], list[Tensor]]:
        """Start the loss float64 [] and the gradient float32 [E, H] to the incoming vectors.

        Without an update, `gradient` gives the gradients of the units afterwards.
        """
        output = self.output
        return output.exchange.start_sum(*self.run(update), where=output.where)

    def run(self, update: Update | None) -> tuple[list[Tensor], list[Tensor]]:
        """Return every shard's loss, float64 [], and gradient to the incoming vectors, float32 [E, H]."""
        self.slopes = slopes_of(self)
        results = self.output.exchange.each(lambda shard: self._sweep(shard, update))
        return [loss for loss, _ in results], [gradient_EH for _, gradient_EH in results]

    def gradient(self, shard: int, start: int, stop: int) -> tuple[Tensor | RowGradient, Tensor]:
        """Return the gradients of weights [T, H] and biases [T] of some units, after `run`.

        The units are a span of `spans`. The gradient of a frozen weight is empty.
        """
        tile = self.tile(shard, start, stop)
        kept = self.deltas.pop((shard, start), None)
        delta_ET, bias_T = kept or self._delta(tile)[1:]
        if not self.output.weight.trained:
            return delta_ET.new_zeros(0), bias_T
        return tile.weight_gradient(self.direct_EH, delta_ET), bias_T

    def _delta(self, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
        """Return a tile's loss, its slopes as an operand of products, and the gradient to its biases."""
        assert self.slopes is not None
        loss, slope_ET = self.slopes(tile)
        return loss, self.output.operand(slope_ET), slope_ET.sum(dim=0)

    def _sweep(self, shard: int, update: Update | None) -> tuple[Tensor, Tensor]:
        """Make the last pass over a shard: return its loss and its gradient [E, H]."""
        weight, bias = self.output.weight, self.output.bias
        gradient_EH = torch.zeros_like(self.direct_EH, dtype=torch.float32)
        loss = torch.zeros((), dtype=torch.float64, device=gradient_EH.device)
        # One tensor for all tiles: small tensors that outlive their tile would keep the C library from
        # reusing the tile's memory for the next one.
        bias_R = torch.empty(self.sizes[shard], device=gradient_EH.device)
        for tile in self.tiles(shard, updates=update is not None):
            tile_loss, delta_ET, bias_T = self._delta(tile)
            loss = loss + tile_loss
            tile.add_direct_gradient(gradient_EH, delta_ET)
            bias_R[tile.start : tile.stop] = bias_T
            if update is not None and weight.trained:
                gradient_TH = tile.weight_gradient(self.direct_EH, delta_ET)
                weight.update_tile(shard, tile.start, tile.stop, gradient_TH, *update)
            elif update is None and self.keeps:
                self.deltas[shard, tile.start] = delta_ET, bias_T
        if update is not None and bias is not None and len(bias_R):
            bias.update_tile(shard, 0, len(bias_R), bias_R, *update)
        return loss, gradient_EH


_NEVER = -math.inf
"""Added to a logit to exclude its unit from a softmax. Its exponential takes a third of that of -1e30."""


def slopes_of(step: OutputStep) -> Slopes:
    """Return the slopes of a step, after the passes over all tiles that they need."""
    if step.output.is_closed:
        slopes = _of_closed_softmax(step)
    elif step.output.spec.is_row_wise:
        slopes = _of_all_units(step)
    else:
        slopes = partial(_of_single_units, step)
    limit = step.output.spec.delta_norm
    return slopes if limit is None else _shortened(step, slopes, limit)


def _of_single_units(step: OutputStep, tile: Tile) -> tuple[Tensor, Tensor]:
    return _differentiated(step, step.logits(tile), step.entries(tile), step.stands_of(tile))


def _of_all_units(step: OutputStep) -> Slopes:
    """See above; every process computes the slopes of all units."""
    output = step.output
    shards, exchange = output.known, output.exchange

    def of_shard(shard: int) -> Tensor:
        filling_EM = step.direct_EH.new_zeros(step.num_examples, shards.size(0) - step.sizes[shard])
        return torch.cat([*map(step.logits, step.tiles(shard)), filling_EM], dim=1)

    of_shards = exchange.gather(exchange.each(of_shard), output.where)
    logits_EL = torch.stack(of_shards, dim=2).flatten(1)[:, : shards.width].contiguous()
    loss, slope_EL = _differentiated(step, logits_EL, step.targets.of_all_units(shards))

    def slopes(tile: Tile) -> tuple[Tensor, Tensor]:
        units = as_slice(shards.units(tile.shard)[tile.start : tile.stop])
        is_first = tile.shard == tile.start == 0
        return loss if is_first else torch.zeros_like(loss), slope_EL[:, units].contiguous()

    return slopes


def _differentiated(
    step: OutputStep, logits_EN: Tensor, entries: Entries, stands_N: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the loss float64 [] of some units, and its slopes by autograd."""
    spec, places_Z = step.output.spec, entries.places_Z
    with torch.enable_grad():
        z_EN = logits_EN.requires_grad_()
        a_EN = activate(spec.activation, z_EN)
        z_Z, a_Z = z_EN.flatten()[places_Z], a_EN.flatten()[places_Z]
        value = losses.of_targets(spec.loss, z_Z, a_Z, entries.values_Z) * step.weight_E[entries.examples_Z]
        if spec.others == "use":
            value_EN = losses.of_others(spec.loss, z_EN, a_EN) * step.weight_E[:, None]
            if stands_N is not None:
                value_EN = value_EN * stands_N
            value = value_EN.flatten().scatter(0, places_Z, value)
        loss = value.sum(dtype=torch.float64)
        (slope_EN,) = torch.autograd.grad(loss, z_EN)
    return loss.detach(), _boosted(step, slope_EN, entries)


def _boosted(step: OutputStep, slope_EN: Tensor, entries: Entries) -> Tensor:
    """Return slopes with the output's "delta_boost"."""
    boost = step.output.spec.delta_boost
    if boost is None:
        return slope_EN
    factor_EN = torch.full_like(slope_EN, boost.other)
    factor_EN.view(-1)[entries.places_Z[entries.values_Z > 0]] = boost.target
    return slope_EN * factor_EN


def _of_closed_softmax(step: OutputStep) -> Slopes:
    shares: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def of_shard(shard: int) -> tuple[RowSum, Tensor]:
        """Return a shard's part of the divisors, and the logits of its targets."""
        total = RowSum.empty("softmax", step.num_examples, step.direct_EH.device)
        logits_Z = torch.zeros(len(step.targets.parts[shard].units_Z), device=step.direct_EH.device)
        for tile in step.tiles(shard):
            logits_ET, entries = step.logits(tile), step.entries(tile)
            logits_Z[entries.span] = logits_ET.view(-1)[entries.places_Z]
            share_ET, peak_E = _shares(logits_ET)
            total.add_part(peak_E, share_ET.sum(dim=1))
            if step.keeps:
                shares[shard, tile.start] = share_ET, peak_E
        return total, logits_Z

    output, found = step.output, step.output.exchange.each(of_shard)
    total_E = over_shards([total for total, _ in found], output.exchange, output.where)
    values, pulls, coupling_E = step.pulls(total_E, [logits_Z for _, logits_Z in found])
    of_targets = dict(zip(output.weight.parts, zip(values, pulls, strict=True), strict=True))

    def slopes(tile: Tile) -> tuple[Tensor, Tensor]:
        entries, (value, pull_Z) = step.entries(tile), of_targets[tile.shard]
        kept = shares.pop((tile.shard, tile.start), None)
        share_ET, peak_E = kept or _shares(step.logits(tile))
        slope_ET = share_ET.mul_((torch.exp(peak_E - total_E) * coupling_E)[:, None])
        slope_ET.view(-1)[entries.places_Z] -= pull_Z[entries.span]
        return value if tile.start == 0 else torch.zeros_like(value), _boosted(step, slope_ET, entries)

    return slopes


def _shares(logits_ET: Tensor) -> tuple[Tensor, Tensor]:
    """Return exp(z - largest of the tile) [E, T], in place of the logits, and the largest [E]."""
    # A sample can exclude all units of a tile for an example: all logits are -inf, and inf - inf is NaN.
    peak_E = logits_ET.amax(dim=1).clamp_(min=_LOWEST_PEAK)
    return logits_ET.sub_(peak_E[:, None]).exp_(), peak_E


_LOWEST_PEAK = -1e30


def _shortened(step: OutputStep, slopes: Slopes, limit: float) -> Slopes:
    """Return slopes that are no longer than a limit over all units, for each example."""
    kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def squares(shard: int) -> Tensor:
        total_E = torch.zeros(step.num_examples, dtype=torch.float64, device=step.direct_EH.device)
        for tile in step.tiles(shard):
            found = slopes(tile)
            total_E += found[1].double().square().sum(dim=1)
            if step.keeps:
                kept[shard, tile.start] = found
        return total_E

    exchange = step.output.exchange
    length_E = exact_sum(exchange.gather(exchange.each(squares), step.output.where)).sqrt()
    factor_E = shortening(length_E, limit / max(step.num_examples, 1)).float()

    def shortened(tile: Tile) -> tuple[Tensor, Tensor]:
        own = kept.pop((tile.shard, tile.start), None)
        loss, slope_ET = own or slopes(tile)
        return loss, slope_ET * factor_E[:, None]

    return shortened


class NativeStep(OutputStep):
    """A step in which one call of the library is one pass over all units of this process."""

    def run(self, update: Update | None) -> tuple[list[Tensor], list[Tensor]]:
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
    kind = NativeStep if is_plain and is_known and has_library else OutputStep
    return kind(
        output=output,
        direct_EH=output.operand(direct_EH),
        targets=targets,
        weight_E=weight_E,
        sizes=sizes,
        # A weight by columns is updated a whole column of a shard at a time.
        tile_units=tile_units(max(num, tiled_for), device.type) if output.features is None else output.width,
        keeps=are_kept(num, sum(sizes.values()), device.type, output.kept_bytes),
        stands=stands,
        rows_at_once=GRADIENT_NUMBERS // max(direct_EH.shape[1], 1) if kind is NativeStep else 0,
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
