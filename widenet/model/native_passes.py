"""A step of a wide output by the native library: a closed softmax, or a sigmoid, on sparse targets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.passes import (
    Gradients,
    OutputBatch,
    OutputShard,
    Stepped,
    add_shares,
    add_slopes,
    finish,
    finish_hidden,
)
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.output_step import OutputStep, RowSum, over_shards
from widenet.plan.tiles import GRADIENT_NUMBERS

Update = tuple[Optimizer, StepNumbers]
"""The rule and the numbers of a step that moves units as soon as their gradients are known."""


class NativePasses:
    """A step in which one call of the library is one pass over all units of this process; see `TorchPasses`.

    Attributes:
        step: The step.
        rows_at_once: See `TorchPasses`.
    """

    def __init__(self, step: OutputStep) -> None:
        self.step = step
        self.rows_at_once = GRADIENT_NUMBERS // max(step.direct_EH.shape[1], 1)
        parts = [step.targets.parts[shard] for shard in step.output.weight.parts]
        self._sizes = [len(own.units_Z) for own in parts]
        self._examples_Z = _joined([own.examples_Z for own in parts])
        has_values = any(own.values_Z is not None for own in parts)
        is_softmax, num = step.output.spec.is_row_wise, step.num_examples
        self._of_target_Z = _joined([own.values_or_ones() for own in parts]) if has_values else None
        if is_softmax:
            self._of_target_Z = torch.zeros(sum(self._sizes))
        self._logits_Z = torch.zeros(sum(self._sizes)) if is_softmax else None
        self._batch = OutputBatch(
            "softmax" if is_softmax else "sigmoid",
            step.direct_EH.contiguous(),
            max((stop - start for bounds in step.tiles for start, stop in bounds), default=1),
            step.output.half,
            torch.zeros(num) if is_softmax else step.target_weight_E.contiguous(),
            torch.zeros(num) if is_softmax else step.other_weight_E.contiguous(),
        )
        self._shards: dict[int, OutputShard] = {}

    @staticmethod
    def knows(step: OutputStep) -> bool:
        """Return whether the library makes a step."""
        output, spec = step.output, step.output.spec
        is_sigmoid = spec.activation.kind == "sigmoid" and spec.loss.kind == "cross_entropy"
        is_plain = spec.others != "ignore" and spec.delta_boost is None and spec.delta_norm is None
        has_vectors = not spec.weightless and output.features is None
        return (spec.is_closed or is_sigmoid) and is_plain and has_vectors and step.stands is None

    def moves(self, rule: Optimizer, of_weights: StepNumbers, of_biases: StepNumbers) -> bool:
        """See `TorchPasses.moves`."""
        weight, bias = self.step.output.weight, self.step.output.bias
        own = self._steps(next(iter(weight.parts)), rule, of_weights, of_biases)
        is_missing = bias is not None and bias.trained and own[1] is None
        return not is_missing and (own[0] is not None or not weight.trained)

    def run(self, update: Update | None) -> tuple[list[Tensor], list[Tensor]]:
        """See `TorchPasses.run`."""
        keeps = self.step.keeps and (self._batch.kind == "softmax" or update is None)
        self._shards = self._started(keeps)
        moved = None if update is None else self._moved(update[0], update[1], update[1])
        if self._batch.kind == "sigmoid":
            gradients = dict.fromkeys(self._shards, Gradients()) if moved is None else moved
            self._over(add_slopes, gradients, updates=moved is not None)
            losses = [own.total_E.sum() for own in self._shards.values()]
        else:
            self._over(add_shares)
            losses = self._pull()
            finish_hidden(self._batch, [*self._shards.values()], self.step.output.exchange.num_threads)
            if moved is not None:
                self._over(finish, moved, updates=True)
        gradients_EH = [own.hidden_EH for own in self._shards.values()]
        if update is not None:
            self._shards = {}  # what they keep is used
        return losses, gradients_EH

    def finish(
        self,
        rule: Optimizer,
        of_weights: StepNumbers,
        of_biases: StepNumbers,
        touched: Mapping[int, RowGradient],
    ) -> bool:
        """Make the steps of the units, after `run` has made none; return whether the library does.

        Args:
            rule: The optimizer.
            of_weights: The numbers of the weights' steps.
            of_biases: Those of the biases' steps.
            touched: Gradients of some rows, by shard, which are added before.
        """
        moves = self.moves(rule, of_weights, of_biases)
        if moves:
            self._over(finish, self._moved(rule, of_weights, of_biases, touched), updates=True)
        return moves

    def gradient(self, shard: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        """See `TorchPasses.gradient`."""
        starts, trained = self.step.starts(shard), self.step.output.weight.trained
        start, stop, columns = starts[first], starts[last], self._batch.direct_EH.shape[1]
        weight_TH, bias_T = torch.empty(stop - start if trained else 0, columns), torch.empty(stop - start)
        gradients = Gradients(weight_TH=weight_TH if trained else None, bias_T=bias_T)
        finish(self._batch, [self._shards[shard].within(start, stop)], 1, [gradients])
        return weight_TH, bias_T

    def _started(self, keeps: bool) -> dict[int, OutputShard]:
        """Return the shards before the first pass, which keep shares or slopes or do not."""
        step, output, num, shards = self.step, self.step.output, self.step.num_examples, {}
        is_softmax, start = self._batch.kind == "softmax", 0
        for (shard, part), size in zip(output.weight.parts.items(), self._sizes, strict=True):
            units, own = step.size(shard), slice(start, start + size)
            leaves_memory, start = is_softmax and output.weight.in_file, start + size
            shards[shard] = OutputShard(
                weight_RH=part.weight,
                length_R=None if output.spec.cosine is None else torch.empty(len(part.weight)),
                bias_R=None if output.bias is None else output.bias.parts[shard].weight,
                span=(0, units),
                examples_Z=self._examples_Z[own],
                units_Z=step.targets.parts[shard].units_Z,
                of_target_Z=None if self._of_target_Z is None else self._of_target_Z[own],
                kept=torch.empty(self._batch.kept_numbers(units)) if keeps else None,
                scales=torch.empty(self._batch.num_blocks(units), num) if is_softmax else None,
                hidden_EH=torch.zeros(self._batch.direct_EH.shape),
                total_E=torch.zeros(num, dtype=torch.float64),
                peak_E=torch.full((num,), -torch.inf) if is_softmax else None,
                logits_Z=None if self._logits_Z is None else self._logits_Z[own],
                vectors_ZH=torch.empty(size, part.columns) if leaves_memory else None,
            )
        return shards

    def _pull(self) -> list[Tensor]:
        """Give the shards what turns shares into slopes, once all divisors are known; return the losses."""
        step, output = self.step, self.step.output
        assert self._logits_Z is not None
        assert self._of_target_Z is not None
        sums = [_row_sum(own) for own in self._shards.values()]
        total_E = over_shards(RowSum.stacked(sums), output.exchange, output.where)
        losses, pull_Z, coupling_E = step.pulls(total_E, [*torch.split(self._logits_Z, self._sizes)])
        torch.cat(pull_Z, out=self._of_target_Z)
        self._batch = replace(self._batch, one_E=total_E, other_E=coupling_E)
        return losses

    def _steps(
        self, shard: int, rule: Optimizer, of_weights: StepNumbers, of_biases: StepNumbers
    ) -> tuple[Stepped | None, Stepped | None]:
        """Return the library's steps of a shard's weights and biases; None for frozen or missing ones."""
        weight, bias = self.step.output.weight, self.step.output.bias
        of_bias = None if bias is None else bias.stepped(shard, rule, of_biases)
        return weight.stepped(shard, rule, of_weights), of_bias

    def _moved(
        self,
        rule: Optimizer,
        of_weights: StepNumbers,
        of_biases: StepNumbers,
        touched: Mapping[int, RowGradient] | None = None,
    ) -> dict[int, Gradients]:
        return {
            shard: Gradients(*self._steps(shard, rule, of_weights, of_biases), (touched or {}).get(shard))
            for shard in self._shards
        }

    def _over(
        self,
        make: Callable[..., None],
        gradients: Mapping[int, Gradients] | None = None,
        updates: bool = False,
    ) -> None:
        """Make a pass over all units: in one call, or of rows in files as they come into memory."""
        exchange, parts = self.step.output.exchange, self.step.output.weight.parts

        def passed(shards: Sequence[OutputShard], numbers: Sequence[int], num_threads: int) -> None:
            given = [] if gradients is None else [[gradients[shard] for shard in numbers]]
            make(self._batch, shards, num_threads, *given)

        def of_shard(shard: int) -> None:
            starts = self.step.starts(shard)
            for first, last in parts[shard].tiles(starts, updates):
                passed([self._shards[shard].within(starts[first], starts[last])], [shard], 1)

        if self.step.output.weight.in_file:
            exchange.each(of_shard)
        else:
            passed([*self._shards.values()], [*self._shards], exchange.num_threads)


def _row_sum(shard: OutputShard) -> RowSum:
    assert shard.peak_E is not None
    return RowSum("softmax", shard.peak_E, shard.total_E)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat([*parts])
