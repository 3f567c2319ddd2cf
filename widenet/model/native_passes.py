"""A step of a wide output by the native library: a closed softmax, or a sigmoid, on sparse targets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.fixed_point import exact_sum, sum_by
from widenet.kernels.optimizer_steps import Stepped
from widenet.kernels.output_passes import (
    Gradients,
    OutputBatch,
    OutputShard,
    add_shares,
    add_slopes,
    finish,
    finish_hidden,
)
from widenet.model.layers.output import WideOutput
from widenet.model.optimizers import Optimizer
from widenet.model.output_step import LibrarySteps, OutputStep
from widenet.model.row_sum import RowSum, over_shards
from widenet.model.rule import StepNumbers
from widenet.model.sweep import groups


def library_steps(
    output: WideOutput, rule: Optimizer, of_weights: StepNumbers, of_biases: StepNumbers
) -> LibrarySteps | None:
    """Return the steps that the library makes of an output's weights and biases; None if it makes none."""
    weight, bias = output.weight, output.bias

    def steps(shard: int) -> tuple[Stepped | None, Stepped | None]:
        of_bias = None if bias is None else bias.stepped(shard, rule, of_biases)
        return weight.stepped(shard, rule, of_weights), of_bias

    own, of_bias = steps(next(iter(weight.parts)))
    is_missing = bias is not None and bias.trained and of_bias is None
    return None if is_missing or (weight.trained and own is None) else steps


class NativePasses:
    """See `WholePasses`: one call of the library is one pass."""

    def __init__(self, step: OutputStep) -> None:
        self._step, self._output = step, step.output
        parts = [step.targets.by_unit(shard) for shard in step.output.weight.parts]
        self._sizes, self._examples_Z = (
            [len(own.units_Z) for own in parts],
            _joined([own.examples_Z for own in parts]),
        )
        has_values = any(own.values_Z is not None for own in parts)
        self._values_Z = _joined([own.values_or_ones() for own in parts]) if has_values else None
        is_softmax, num = step.rows is not None, step.num_examples
        self._logits_Z = torch.zeros(sum(self._sizes)) if is_softmax else None
        self._pull_Z = torch.zeros(sum(self._sizes)) if is_softmax else self._values_Z
        one_E = torch.zeros(num) if is_softmax else step.target_weight_E.contiguous()
        other_E = torch.zeros(num) if is_softmax else step.other_weight_E.contiguous()
        tile = max((stop - start for bounds in step.tiles for start, stop in bounds), default=1)
        self._batch = OutputBatch(
            "softmax" if is_softmax else "sigmoid",
            step.direct_EH.contiguous(),
            tile,
            step.output.half,
            one_E,
            other_E,
        )
        self._shards: dict[int, OutputShard] = {}

    def run(self, steps: LibrarySteps | None) -> tuple[list[Tensor], list[Tensor]]:
        """See `WholePasses.run`."""
        self._shards = self._started(self._step.keeps and (self._batch.kind == "softmax" or steps is None))
        if self._batch.kind == "sigmoid":
            gradients = dict.fromkeys(self._shards, Gradients()) if steps is None else self._moved(steps, {})
            self._over(add_slopes, gradients, updates=steps is not None)
            losses = [own.total_E.sum() for own in self._shards.values()]
        else:
            self._over(add_shares)
            losses = self._pull()
            finish_hidden(self._batch, [*self._shards.values()], self._output.exchange.num_threads)
            if steps is not None:
                self.finish(steps)
        gradients_EH = [own.hidden_EH for own in self._shards.values()]
        if steps is not None:
            self._shards = {}  # what they keep is used
        return losses, gradients_EH

    def finish(self, steps: LibrarySteps, touched: Mapping[int, RowGradient] | None = None) -> None:
        """See `WholePasses.finish`."""
        self._over(finish, self._moved(steps, touched or {}), updates=True)

    def gradient(self, shard: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """See `WholePasses.gradient`."""
        trained, columns = self._output.weight.trained, self._batch.direct_EH.shape[1]
        weight_TH, bias_T = torch.empty(stop - start if trained else 0, columns), torch.empty(stop - start)
        gradients = Gradients(weight_TH=weight_TH if trained else None, bias_T=bias_T)
        finish(self._batch, [self._shards[shard].within(start, stop)], 1, [gradients])
        return weight_TH, bias_T

    def _started(self, keeps: bool) -> dict[int, OutputShard]:
        """Return the shards before the first pass, which keep shares or slopes or do not."""
        step, output, num, shards = self._step, self._output, self._step.num_examples, {}
        is_softmax, start = self._batch.kind == "softmax", 0
        for (shard, part), size in zip(output.weight.parts.items(), self._sizes, strict=True):
            units, own = max(step.starts(shard)[-1:], default=0), slice(start, start + size)
            leaves_memory, start = is_softmax and output.weight.in_files, start + size
            shards[shard] = OutputShard(
                weight_RH=part.weight,
                length_R=None if output.spec.cosine is None else torch.empty(len(part.weight)),
                bias_R=None if output.bias is None else output.bias.parts[shard].weight,
                span=(0, units),
                examples_Z=self._examples_Z[own],
                units_Z=step.targets.by_unit(shard).units_Z,
                of_target_Z=None if self._pull_Z is None else self._pull_Z[own],
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
        step, output, num, examples_Z = self._step, self._output, self._step.num_examples, self._examples_Z
        assert step.rows is not None
        assert self._logits_Z is not None
        assert self._pull_Z is not None
        sums = [_row_sum(own) for own in self._shards.values()]
        total_E = over_shards(sums, output.exchange, output.where)
        values_Z = torch.ones(len(examples_Z)) if self._values_Z is None else self._values_Z
        share_Z = values_Z / step.targets.total_E[examples_Z].clamp_min(1e-30)
        value_Z, pull_Z = step.loss.pulls(self._logits_Z - total_E[examples_Z], values_Z, share_Z)
        weight_Z = step.target_weight_E[examples_Z]
        torch.mul(pull_Z, weight_Z, out=self._pull_Z)
        places_Z = torch.repeat_interleave(torch.arange(len(self._sizes)), torch.tensor(self._sizes))
        num_targets = sum(step.targets.num_entries(shard) for shard in range(len(step.tiles)))
        groups_Z = places_Z * num + examples_Z
        parts = sum_by(self._pull_Z.double(), groups_Z, len(self._sizes) * num, num_targets)
        coupling_E = exact_sum(
            output.exchange.gather([*parts.view(len(self._sizes), num)], output.where)
        ).float()
        self._batch = replace(self._batch, one_E=total_E, other_E=coupling_E)
        value_Z = value_Z * weight_Z
        return [own_Z.sum(dtype=torch.float64) for own_Z in torch.split(value_Z, self._sizes)]

    def _moved(self, steps: LibrarySteps, touched: Mapping[int, RowGradient]) -> dict[int, Gradients]:
        return {shard: Gradients(*steps(shard), touched.get(shard)) for shard in self._shards}

    def _over(
        self,
        make: Callable[..., None],
        gradients: Mapping[int, Gradients] | None = None,
        updates: bool = False,
    ) -> None:
        """Make a pass over all units: in one call, or of rows in files as they come into memory."""
        exchange, parts = self._output.exchange, self._output.weight.parts

        def passed(shards: Sequence[OutputShard], numbers: Sequence[int], num_threads: int) -> None:
            given = [] if gradients is None else [[gradients[shard] for shard in numbers]]
            make(self._batch, shards, num_threads, *given)

        def of_shard(shard: int) -> None:
            starts = self._step.starts(shard)
            with parts[shard].sweep(updates) as sweep:
                for first, last in groups(starts, sweep.chunk_rows):
                    sweep.at(starts[first], starts[last])
                    passed([self._shards[shard].within(starts[first], starts[last])], [shard], 1)

        if self._output.weight.in_files:
            exchange.each(of_shard)
        else:
            passed([*self._shards.values()], [*self._shards], exchange.num_threads)


def _row_sum(shard: OutputShard) -> RowSum:
    assert shard.peak_E is not None
    return RowSum("softmax", shard.peak_E, shard.total_E)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat([*parts])
