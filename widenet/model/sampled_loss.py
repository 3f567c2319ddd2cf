"""One step of an output over some of its units: the targets of the batch, and a sample that stands for all
others.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from widenet.kernels import RowGradient
from widenet.model.exchange import Pending
from widenet.model.layers.output import Tile, WideOutput
from widenet.model.rule import Rule, StepNumbers
from widenet.model.sample import Choice
from widenet.model.wide_loss import Takers, WideLoss
from widenet.model.wide_weight import Part, WideWeight
from widenet.plan.shards import Shards

_NEVER = -1e30
"""Added to a logit, so that its unit has no share in a softmax; finite, for two infinities have no
difference.
"""


@dataclass(frozen=True)
class Chosen(Shards):
    """Shards of which only so many units take part."""

    sizes: dict[int, int]

    def size(self, shard: int) -> int:
        """Units that take part; 0 of a shard that is not at hand."""
        return self.sizes.get(shard, 0)


class SampledLoss(WideLoss):
    """The passes of one step over the units that take part, and the gradients of their rows.

    To an example its own targets count as they are; every other unit as often as it stands for others: in
    sums over units its value, in a softmax its exponential. Bengio and Senecal, "Adaptive importance sampling
    to accelerate training of a neural probabilistic language model", IEEE Transactions on Neural Networks
    19(4), 2008.
    """

    counts_samples = True

    def __init__(self, output: WideOutput, choice: Choice, direct_EH: Tensor, weight_E: Tensor) -> None:
        """output: of the chosen units alone. Others as of `WideLoss`."""
        super().__init__(output, direct_EH, choice.targets, weight_E)
        self.choice = choice
        self.rows_of_weight = _room(choice, output.weight)
        self.rows_of_bias = None if output.bias is None else _room(choice, output.bias)

    def start(self) -> Pending[list[Tensor]]:
        """Loss and gradient as of `WideLoss.run`; `rows_of_weight` and `rows_of_bias` are then full."""
        return self.run(Takers(self._collect, self._collect_bias))

    def fresh_logits(self, shard: int, index: int, tile: Tile) -> Tensor:
        """Logits [E, T] of a tile; under a softmax with the logarithm of what others stand for."""
        logits_ET = super().fresh_logits(shard, index, tile)
        if self.row_wise:
            stands_T, places_Z = self._stands(shard, index), self.entries(shard, index).places_Z
            own_Z = logits_ET.view(-1)[places_Z]
            logits_ET.add_(torch.where(stands_T > 0, stands_T.log(), _NEVER)).view(-1)[places_Z] = own_Z
        return logits_ET

    def others(self, logits_ET: Tensor, a_ET: Tensor, shard: int, index: int) -> tuple[Tensor, Tensor]:
        """As of `WideLoss`, every unit as often as it stands for others."""
        value_ET, slope_ET = self.loss.others(logits_ET, a_ET)
        stands_T = self._stands(shard, index)
        return (value_ET * stands_T).sum(dim=1), slope_ET * stands_T

    def as_others(self, z_Z: Tensor, a_Z: Tensor, shard: int, index: int, places_Z: Tensor) -> Tensor:
        """As of `WideLoss`, every unit as often as it stands for others."""
        stands_T = self._stands(shard, index)
        return super().as_others(z_Z, a_Z, shard, index, places_Z) * stands_T[places_Z % len(stands_T)]

    def _stands(self, shard: int, index: int) -> Tensor:
        return self.choice.stands[shard][slice(*self.tiles[shard][index])]

    def _collect(self, shard: int, start: int, stop: int, gradient: Tensor | RowGradient) -> None:
        assert isinstance(gradient, Tensor)
        self.rows_of_weight[shard].gradient_EH[start:stop] = gradient

    def _collect_bias(self, shard: int, gradient: Tensor) -> None:
        if self.rows_of_bias is not None:
            self.rows_of_bias[shard].gradient_EH[:, 0] = gradient


def sampled(
    output: WideOutput, direct_EH: Tensor, choice: Choice, weight_E: Tensor, rule: Rule, step: StepNumbers
) -> SampledLoss:
    """The step of an output over the chosen units. Rows that idled are woken; what is read is copied."""
    bias = output.bias

    def copied(shard: int) -> tuple[int, list[Part]]:
        copies = []
        for weight in (output.weight, bias) if bias is not None else (output.weight,):
            if rule.idle_weights_move:
                weight.wake(shard, choice.units[shard], rule, step)
            copies.append(Part(weight.parts[shard].weight.index_select(0, choice.units[shard])))
        return shard, copies

    found = output.exchange.each(copied)
    chosen = Chosen(
        output.width,
        output.weight.shards.count,
        {shard: len(units_U) for shard, units_U in choice.units.items()},
    )
    narrow = replace(
        output,
        weight=WideWeight(chosen, {shard: copies[0] for shard, copies in found}),
        bias=None if bias is None else WideWeight(chosen, {shard: copies[1] for shard, copies in found}),
    )
    return SampledLoss(narrow, choice, direct_EH, weight_E)


def _room(choice: Choice, chosen: WideWeight) -> dict[int, RowGradient]:
    """Room for the gradients of the chosen rows of every shard."""
    return {
        shard: RowGradient.of_rows(units_U, torch.zeros_like(chosen.parts[shard].by_rows()[0]))
        for shard, units_U in choice.units.items()
    }
