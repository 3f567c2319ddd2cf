"""One step of an output over some of its units: the batch's targets, and a sample of all others."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.exchange import Pending
from widenet.model.layers.output import WideOutput
from widenet.model.optimizers import Optimizer
from widenet.model.output_step import OutputStep
from widenet.model.part import Part
from widenet.model.rule import StepNumbers
from widenet.model.sample import Choice
from widenet.model.wide_loss import GradientSinks, output_step, run
from widenet.model.wide_weight import WideWeight
from widenet.plan.shards import Shards


@dataclass(frozen=True)
class Chosen(Shards):
    """Shards of which only some units take part."""

    sizes: dict[int, int]

    def size(self, shard: int) -> int:
        """Return the number of units that take part; 0 for shards of other processes."""
        return self.sizes.get(shard, 0)


@dataclass
class SampledStep:
    """The step of an output over the chosen units, and the gradients of their rows.

    An example's own targets count once. Every other unit counts as often as the number of units it
    represents: its value in sums over units, its exponential in a softmax. See Bengio and Senecal, "Adaptive
    importance sampling to accelerate training of a neural probabilistic language model", IEEE Transactions on
    Neural Networks 19(4), 2008.

    Attributes:
        step: Step of the chosen units alone.
        rows_of_weight: Gradients of the weight's rows, by shard; None if it is frozen.
        rows_of_bias: Gradients of the biases, by shard; None without biases or if they are frozen.
    """

    step: OutputStep
    rows_of_weight: dict[int, RowGradient] | None
    rows_of_bias: dict[int, RowGradient] | None

    def start(self) -> Pending[list[Tensor]]:
        """Start the step and fill the gradients; see `wide_loss.run`."""
        return run(self.step, GradientSinks(self._collect, self._collect_bias))

    def _collect(self, shard: int, start: int, stop: int, gradient: Tensor | RowGradient) -> None:
        assert isinstance(gradient, Tensor)
        assert self.rows_of_weight is not None
        self.rows_of_weight[shard].gradient_EH[start:stop] = gradient

    def _collect_bias(self, shard: int, gradient: Tensor) -> None:
        if self.rows_of_bias is not None:
            self.rows_of_bias[shard].gradient_EH[:, 0] = gradient


def sampled(
    output: WideOutput,
    direct_EH: Tensor,
    choice: Choice,
    weight_E: Tensor,
    rule: Optimizer,
    step: StepNumbers,
) -> SampledStep:
    """Return the step of an output over the chosen units, on copies of their rows, which catch up first."""
    bias = output.bias

    def copied(shard: int) -> tuple[int, list[Part]]:
        copies = []
        for weight in (output.weight, bias) if bias is not None else (output.weight,):
            if rule.idle_weights_move:
                weight.catch_up(shard, choice.units[shard], rule, step)
            copies.append(Part(weight.select(shard, choice.units[shard])))
        return shard, copies

    parts = output.exchange.each(copied)
    chosen = Chosen(
        (output.known or output.weight.shards).width,
        output.weight.shards.count,
        {shard: len(units_U) for shard, units_U in choice.units.items()},
    )
    weight, is_moved = output.weight, bias is not None and bias.trained
    narrow = replace(
        output,
        known=None,
        weight=WideWeight(chosen, {shard: copies[0] for shard, copies in parts}, trained=weight.trained),
        bias=None if bias is None else WideWeight(chosen, {shard: copies[1] for shard, copies in parts}),
    )
    return SampledStep(
        output_step(narrow, direct_EH, choice.targets, weight_E, stands=choice.stands),
        _zero_gradients(choice, narrow.weight) if weight.trained else None,
        _zero_gradients(choice, narrow.bias) if narrow.bias is not None and is_moved else None,
    )


def _zero_gradients(choice: Choice, chosen: WideWeight) -> dict[int, RowGradient]:
    """Allocate the gradients of the chosen rows of every shard."""
    return {
        shard: RowGradient.of_rows(units_U, torch.zeros_like(chosen.parts[shard].by_rows()[0]))
        for shard, units_U in choice.units.items()
    }
