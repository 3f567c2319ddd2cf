"""What a layer between inputs and outputs reads in a step."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from widenet.model.positions import Positions
from widenet.model.product import Blocks, Factor
from widenet.model.weight import TrunkWeight
from widenet.plan.layout import Layout
from widenet.randomness import StepRandom


@dataclass(frozen=True)
class Flow:
    """Everything that a layer reads in a step.

    E is the number of examples, or of all their positions where the layer goes along a sequence.

    Attributes:
        layout: Layout of the network.
        trunk: Weights of hidden layers, by name.
        sources: Values of its sources, [E, units] each; without those of sparse inputs.
        sums: Products of its sources and their weights, [E, sums] each.
        skips: Values [E, units] of the layers to add.
        random: Random numbers of the step; None outside training.
        positions: Where the layer goes along a sequence.
        state: Weight of the state before, of a layer that is its own source.
        blocks: Computes further products.
        penalties: Takes the layer's penalty, if there is one.
        statistics: Takes the batch's mean and variance by channel, of a layer with a batch normalization.
    """

    layout: Layout
    trunk: Mapping[str, TrunkWeight]
    sources: list[Tensor]
    sums: list[Tensor]
    skips: list[Tensor]
    random: StepRandom | None
    positions: Positions | None
    state: Factor | None
    blocks: Blocks
    penalties: list[Tensor]
    statistics: dict[str, tuple[Tensor, Tensor]]

    def tensor(self, name: str) -> Tensor:
        """Return a weight of the trunk by its name."""
        return self.trunk[name].tensor
