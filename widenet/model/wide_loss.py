"""One step of a wide output: by the native library, by Triton's kernels on CUDA, or by torch."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.fixed_point import Terms
from widenet.kernels.native import library_runs, triton_runs
from widenet.kernels.passes import Gradients, OutputBatch, OutputShard, Pass, make_pass
from widenet.kernels.steps import KINDS
from widenet.model.layers.output import WideOutput
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.output_step import OutputStep, SoftmaxStep, Update
from widenet.model.row_sum import RowSum, over_shards
from widenet.model.targets import Choice, Targets
from widenet.model.triton_step import TritonStep
from widenet.model.weight import Part, WideWeight
from widenet.plan.tiles import GRADIENT_NUMBERS, are_kept, tile_units


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
    has_triton = output.weight.whole is not None and targets.joined is not None and triton_runs(device)
    kind = SoftmaxStep if is_softmax else OutputStep
    if is_plain and is_known and (has_library or has_triton):
        kind = NativeStep if has_library else TritonStep
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
