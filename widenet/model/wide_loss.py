"""One step of a wide output: its loss, and the gradients to the incoming vectors and to its units.

The native library makes it for a softmax or a sigmoid without rare options (`NativeStep`), and torch else.

Under a softmax, the slopes of cross-entropies, the gradients to the logits, have the closed form
p * sum(pulls) - pull: `SoftmaxStep` takes one pass over the logits. Units that are activated one by one are
differentiated tile by tile. What is left is differentiated over all units at once, so such outputs should be
small: activations that divide by a sum over the layer and have no closed form, "delta_norm", dense targets,
and a softmax over sparse inputs or without weights.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient, gather_sum
from widenet.kernels.fixed_point import Terms, exact_sum, sum_by
from widenet.kernels.passes import Gradients, OutputBatch, OutputShard, Pass, make_pass
from widenet.kernels.reference import LOWEST_PEAK, tile_shares
from widenet.model import losses
from widenet.model.activations import activate
from widenet.model.layers.output import Tile, WideOutput
from widenet.model.losses import RowSum, over_shards
from widenet.model.operands import matrix_product
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.targets import Entries, Targets
from widenet.model.weight import shortening
from widenet.plan.tiles import as_slice
from widenet.sparse import SparseBatch

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
        kept: By shard and first unit, what is kept of a tile for its gradients: of a softmax its shares,
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
    kept: dict[tuple[int, int], Tensor] = field(default_factory=dict)

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

    def over(self, work: Callable[[Tile], None], updates: bool = False) -> None:
        """Do some work for every tile.

        Args:
            work: What to do.
            updates: Whether each tile is updated before the next one.
        """

        def of_shard(shard: int) -> None:
            for tile in self.tiles(shard, updates):
                work(tile)

        self.output.exchange.each(of_shard)

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

    def pulled(
        self, total_E: Tensor, logits_Z: Tensor, examples_Z: Tensor, values_Z: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the losses and the pulls [Z] of targets under a softmax, from the logarithms of divisors."""
        share_Z = values_Z / self.targets.total_E[examples_Z].clamp_min(1e-30)
        log_p_Z = logits_Z - total_E[examples_Z]
        value_Z, pull_Z = losses.pulls(self.output.spec.loss, log_p_Z, values_Z, share_Z)
        weight_Z = self.weight_E[examples_Z]
        return value_Z * weight_Z, pull_Z * weight_Z

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
        value_Z, pull_Z = self.pulled(total_E, torch.cat(logits_Z), examples_Z, values_Z)
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
            log_p_Z = torch.cat(logits_Z) - total_E[examples_Z]
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
        loss_S, hidden_SEH = self._zeros(dtype=torch.float64), self._begun()
        is_plain = not self.output.spec.is_row_wise and self.output.spec.delta_norm is None
        self._slopes = self._of_single_units if is_plain else _of_all_units(self)

        def sweep(tile: Tile) -> None:
            place = self.place(tile.shard)
            loss, slope_ET = self._slopes(tile)
            loss_S[place] += loss
            self.bias_SR[place, tile.start : tile.stop] = slope_ET.sum(dim=0)
            delta_ET = self.output.operand(slope_ET)
            tile.add_direct_gradient(hidden_SEH[place], delta_ET)
            if update is not None or self.keeps:
                self.kept[tile.shard, tile.start] = delta_ET
            if update is not None:
                self._finish(update, tile)

        self.over(sweep, updates=update is not None)
        self.step_biases(update)
        return loss_S, hidden_SEH

    def _of_single_units(self, tile: Tile) -> tuple[Tensor, Tensor]:
        return _differentiated(self, self.logits(tile), self.entries(tile), self.stands_of(tile))

    def place(self, shard: int) -> int:
        """Return where a shard is among those of this process."""
        return shard - next(iter(self.sizes))

    def gradient(self, shard: int, start: int, stop: int) -> tuple[Tensor | RowGradient, Tensor]:
        """Return the gradients of weights [T, H] and biases [T] of some units, after `run`.

        The units are a span of `spans`. The gradient of a frozen weight is empty.
        """
        return self.gradients(self.tile(shard, start, stop), self.kept.pop((shard, start), None))

    def gradients(self, tile: Tile, kept_ET: Tensor | None) -> tuple[Tensor | RowGradient, Tensor]:
        """Return the gradients of the weights and biases of a tile from what is kept of it, if anything."""
        bias_T = self.bias_SR[self.place(tile.shard), tile.start : tile.stop]
        if not self.output.weight.trained:
            return bias_T.new_zeros(0), bias_T
        delta_ET = self.output.operand(self._slopes(tile)[1]) if kept_ET is None else kept_ET
        return tile.weight_gradient(self.direct_EH, delta_ET), bias_T

    def _finish(self, update: Update, tile: Tile) -> None:
        """Make the step of the weights of a tile."""
        shard, start, stop = tile.shard, tile.start, tile.stop
        kept_ET = self.kept.pop((shard, start), None)
        gradient_TH, self.bias_SR[self.place(shard), start:stop] = self.gradients(tile, kept_ET)
        self.output.weight.update_tile(shard, start, stop, gradient_TH, *update)

    def step_biases(self, update: Update | None) -> None:
        """Make the step of all biases at once."""
        bias = self.output.bias
        for shard, size in self.sizes.items():
            if update is not None and bias is not None:
                bias.update_tile(shard, 0, size, self.bias_SR[self.place(shard), :size], *update)

    def _begun(self) -> Tensor:
        """Return zeros for the gradient to the incoming vectors, [S, E, H], and begin that of the biases."""
        self.bias_SR = self._zeros(max(self.sizes.values()))
        return self._zeros(*self.direct_EH.shape)

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(len(self.sizes), *shape, dtype=dtype, device=self.direct_EH.device)


_NEVER = -math.inf
"""Added to a logit to exclude its unit from a softmax. Its exponential takes a third of that of -1e30."""


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
        units = as_slice(shards.units(tile.shard)[tile.start : tile.stop])
        is_first = tile.shard == tile.start == 0
        return loss if is_first else torch.zeros_like(loss), slope_EL[:, units].contiguous()

    return slopes


def _differentiated(
    step: OutputStep, logits_EN: Tensor, entries: Entries, stands_N: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the loss float64 [] of some units, and its slopes by autograd."""
    spec, places_Z, examples_Z = step.output.spec, entries.places_Z, entries.examples_Z
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
        loss = value_EN.flatten().sum(dim=-1, dtype=torch.float64)
        (slope_EN,) = torch.autograd.grad(loss, z_EN)
    if spec.delta_boost is not None:
        factor_EN = torch.full_like(slope_EN, spec.delta_boost.other)
        factor_EN.view(-1)[places_Z[entries.values_Z > 0]] = spec.delta_boost.target
        slope_EN = slope_EN * factor_EN
    return loss.detach(), slope_EN


class SoftmaxStep(OutputStep):
    """A softmax with a cross-entropy, in one pass over the logits; see `kernels.passes`.

    Each tile leaves shares exp(z - peak), where `peak` is the largest logit so far, and the sums of the
    units' vectors times them. Once the divisors are known, these sums become the gradient to the incoming
    vectors, but for sums of the targets' vectors. The gradient of the weights is the product of the shares,
    less the pulls of the targets, with incoming vectors that are scaled.
    """

    def run(self, update: Update | None) -> tuple[Terms, Terms]:
        """See `OutputStep.run`."""
        output, exchange = self.output, self.output.exchange
        hidden_SEH, total_SE = self._begun(), self._zeros(self.num_examples, dtype=torch.float64)
        peak_SE = self._zeros(self.num_examples).fill_(LOWEST_PEAK)
        num_tiles = -(-self.bias_SR.shape[1] // self.tile_units)
        self._peak_NSE = torch.zeros(num_tiles, *peak_SE.shape, device=peak_SE.device)
        logits = exchange.each(self._of_targets)

        def add_shares(tile: Tile) -> None:
            place = self.place(tile.shard)
            own = peak_SE[place], total_SE[place], hidden_SEH[place]
            share_ET = tile_shares(self.logits(tile), *own, output.half)
            self._peak_NSE[tile.start // self.tile_units, place] = peak_SE[place]
            tile.add_direct_gradient(hidden_SEH[place], share_ET)
            if self.keeps:
                self.kept[tile.shard, tile.start] = share_ET

        self.over(add_shares)
        sums = [RowSum("softmax", *own) for own in zip(peak_SE, total_SE, strict=True)]
        total_E = over_shards(sums, exchange, output.where)
        totals, pulls, coupling_E = self.pulls(total_E, logits)
        self._factor_NSE1 = (torch.exp(self._peak_NSE - total_E) * coupling_E)[..., None].clamp_min_(1e-30)
        hidden_SEH.mul_((torch.exp(peak_SE - total_E) * coupling_E)[..., None])
        self.targets = replace(self.targets, parts=[*self.targets.parts])
        self._pulls = pulls
        exchange.each(lambda shard: self._add_pulls(shard, hidden_SEH[self.place(shard)]))
        if update is not None:
            self.over(partial(self._finish, update), updates=True)
            self.step_biases(update)
        return totals, hidden_SEH

    def gradients(self, tile: Tile, kept_ET: Tensor | None) -> tuple[Tensor | RowGradient, Tensor]:
        """See `OutputStep.gradients`."""
        place, operand = self.place(tile.shard), self.output.operand
        factor_E1 = self._factor_NSE1[tile.start // self.tile_units, place]
        share_ET = kept_ET
        if share_ET is None:
            peak_E = self._peak_NSE[tile.start // self.tile_units, place]
            nothing = torch.zeros_like(peak_E, dtype=torch.float64), peak_E.new_zeros(len(peak_E), 0)
            share_ET = tile_shares(self.logits(tile), peak_E, *nothing, self.output.half)
        entries = self.entries(tile)
        share_Z = share_ET.view(-1)[entries.places_Z].float() - entries.values_Z
        share_ET.view(-1)[entries.places_Z] = operand(share_Z)
        bias_T = self.bias_SR[place, tile.start : tile.stop]
        if self.output.bias is not None:
            bias_T = matrix_product(share_ET.T, operand(factor_E1))[:, 0]
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
        part, place = self.targets.parts[shard], self.place(shard)
        pull_Z = self._pulls[place]
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
            self._over("add_shares")
            total_E = over_shards(sums, output.exchange, output.where)
            totals, pulls, coupling_E = self.pulls(total_E, logits)
            for shard, pull_Z in zip(parts, pulls, strict=True):
                self._shards[shard] = replace(self._shards[shard], of_target_Z=pull_Z)
            self._batch = replace(self._batch, one_E=total_E, other_E=coupling_E)
            make_pass("finish_hidden", self._batch, [*self._shards.values()], num_threads)
            if update is not None:
                self._over("finish", steps)
        else:
            self._over("add_slopes", steps)
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
        self._over("finish", self._steps(rule, of_weights, of_biases, touched))

    def gradient(self, shard: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """See `OutputStep.gradient`."""
        is_trained, columns = self.output.weight.trained, self._batch.direct_EH.shape[1]
        weight_TH, bias_T = torch.empty(stop - start if is_trained else 0, columns), torch.empty(stop - start)
        gradients = Gradients(weight_TH=weight_TH if is_trained else None, bias_T=bias_T)
        make_pass("finish", self._batch, [self._shards[shard].within(start, stop)], 1, [gradients])
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

    def _over(self, name: Pass, gradients: Mapping[int, Gradients] | None = None) -> None:
        """Make a pass over all units: in one call, or of rows in files as they come into memory."""
        weight, exchange = self.output.weight, self.output.exchange
        updates = any(own.weight_step is not None for own in (gradients or {}).values())

        def of_shard(shard: int) -> None:
            for start, stop in self.spans(shard, updates=updates):
                within = self._shards[shard].within(start, stop)
                make_pass(name, self._batch, [within], 1, None if gradients is None else [gradients[shard]])
                if updates:
                    weight.shorten(shard, start, stop)

        if weight.store is not None:
            exchange.each(of_shard)
            return
        shards, given = [*self._shards.values()], None if gradients is None else [*gradients.values()]
        make_pass(name, self._batch, shards, exchange.num_threads, given)
        if updates and weight.norm_limit is not None:
            exchange.each(lambda shard: weight.shorten(shard, 0, self.sizes[shard]))


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
