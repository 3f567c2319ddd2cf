"""One step of an output over some of its units: the batch's targets, and a sample of all others."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.model.layers.output import WideOutput
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.sample import Choice
from widenet.model.weight import Part, WideWeight
from widenet.model.wide_loss import Passes, output_passes
from widenet.plan.tiles import Shards


@dataclass(frozen=True)
class Chosen(Shards):
    """Shards of which only some units take part."""

    sizes: dict[int, int]

    def size(self, shard: int) -> int:
        """Return the number of units that take part; 0 for shards of other processes."""
        return self.sizes.get(shard, 0)


def sampled(
    output: WideOutput,
    direct_EH: Tensor,
    choice: Choice,
    weight_E: Tensor,
    rule: Optimizer,
    step: StepNumbers,
) -> Passes:
    """Return the step of an output over the chosen units, on copies of their rows, which catch up first.

    An example's own targets count once. Every other unit counts as often as the number of units it
    represents: its value in sums over units, its exponential in a softmax. See Bengio and Senecal, "Adaptive
    importance sampling to accelerate training of a neural probabilistic language model", IEEE Transactions on
    Neural Networks 19(4), 2008.
    """
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
    weight = WideWeight(chosen, {shard: copies[0] for shard, copies in parts}, trained=output.weight.trained)
    narrow = replace(
        output,
        known=None,
        weight=weight,
        bias=None if bias is None else WideWeight(chosen, {shard: copies[1] for shard, copies in parts}),
    )
    return output_passes(narrow, direct_EH, choice.targets, weight_E, stands=choice.stands)


def gradients_of_rows(
    passes: Passes, units: Mapping[int, Tensor]
) -> tuple[dict[int, RowGradient], dict[int, RowGradient]]:
    """Return the gradients of the chosen rows of weight and biases, by shard, after the step has run.

    Those of a frozen weight have no columns.
    """
    step = passes.step
    columns = step.direct_EH.shape[1] if step.output.weight.trained else 0

    def of_shard(shard: int) -> tuple[int, RowGradient, RowGradient]:
        rows_U = units[shard]
        weight_UH, bias_U1 = (step.direct_EH.new_empty(len(rows_U), size) for size in (columns, 1))
        for first, (start, stop) in enumerate(step.tiles[shard]):
            of_weight, of_bias = passes.gradient(shard, first, first + 1)
            assert isinstance(of_weight, Tensor)
            weight_UH[start:stop], bias_U1[start:stop, 0] = of_weight.view(stop - start, columns), of_bias
        return shard, RowGradient.of_rows(rows_U, weight_UH), RowGradient.of_rows(rows_U, bias_U1)

    found = step.output.exchange.each(of_shard)
    return {shard: own for shard, own, _ in found}, {shard: own for shard, _, own in found}
