"""The weights of the trunk: whole in every process, or stepped in pieces.

Layers divided by examples have pieces: each shard steps its own, and all gather the results. Every process
holds these weights whole, but the optimizer's state of its shards' pieces alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from widenet.model.limits import shorten_rows
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.parallel.exchange import Exchange
from widenet.plan.layout import Layout
from widenet.plan.picture_layers import Stretch, piece_numbers, stretches, weights_by_examples


@dataclass
class TrunkWeight:
    """A weight [units, inputs] or bias [units] of a hidden layer; torch puts its gradient into `tensor.grad`.

    Attributes:
        tensor: The numbers.
        state: The optimizer's tensors, of the same shape; empty outside training.
        norm_limit: Largest length of a row.
        trained: Whether it has a gradient; otherwise it follows the batches, as running statistics do.
    """

    tensor: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    norm_limit: float | None = None
    trained: bool = True

    def prepare(self, rule: Optimizer) -> None:
        """Allocate the optimizer's state."""
        if self.trained:
            self.state = rule.state_for(self.tensor)
            self.tensor.requires_grad_(True)


def update(weights: Sequence[TrunkWeight], rule: Optimizer, step: StepNumbers) -> None:
    """Make a step of all weights with a gradient, and drop the gradients."""
    for weight in weights:
        tensor = weight.tensor
        if tensor.grad is not None:
            own_l2 = 0.0 if tensor.dim() == 1 else None
            rule.apply(tensor.detach(), tensor.grad, weight.state, step, own_l2)
            if weight.norm_limit is not None:
                shorten_rows(tensor.detach(), weight.norm_limit)
            tensor.grad = None


@dataclass
class Part:
    """A stretch of a weight in a shard's piece.

    Attributes:
        stretch: Which numbers of which weight.
        weight: The whole weight.
        state: The optimizer's tensors, of the stretch's length; empty outside training.
    """

    stretch: Stretch
    weight: TrunkWeight
    state: dict[str, Tensor] = field(default_factory=dict)

    @property
    def numbers(self) -> Tensor:
        """A view of the weight's numbers, [N]."""
        return self.weight.tensor.detach().view(-1)[self.stretch.start : self.stretch.stop]


@dataclass
class Pieces:
    """The pieces of this process's shards.

    Attributes:
        weights: The weights of layers divided by examples, by name.
        by_shard: The parts of each piece, in order; their state is what this process holds.
        of_all: The parts of the pieces of all shards.
        length: Numbers of a piece, with the zeros that fill it up.
    """

    weights: Mapping[str, TrunkWeight]
    by_shard: Mapping[int, Sequence[Part]]
    of_all: Sequence[Sequence[Part]]
    length: int

    @classmethod
    def of(cls, layout: Layout, trunk: Mapping[str, TrunkWeight], exchange: Exchange) -> "Pieces":
        """Return the pieces of a network's weights, without state."""
        of_all = [
            [Part(stretch, trunk[stretch.weight]) for stretch in stretches(layout, [shard])]
            for shard in range(layout.num_shards)
        ]
        weights = {name: trunk[name] for name in weights_by_examples(layout)}
        held = exchange.each(lambda shard: (shard, of_all[shard]))
        return cls(weights, dict(held), of_all, piece_numbers(layout))

    def prepare(self, rule: Optimizer) -> None:
        """Allocate the optimizer's state."""
        for weight in self.weights.values():
            weight.tensor.requires_grad_(True)
        for part in (part for parts in self.by_shard.values() for part in parts):
            part.state = rule.state_for(part.numbers)

    def cut(self, shard: int, piece: Tensor) -> list[tuple[Part, Tensor]]:
        """Return each part of a shard's piece with its numbers of a tensor [length]."""
        parts = self.of_all[shard]
        lengths = [part.numbers.numel() for part in parts]
        return [*zip(parts, torch.split(piece[: sum(lengths)], lengths), strict=True)]

    def step(
        self, gradients: Mapping[int, Tensor], rule: Optimizer, numbers: StepNumbers, exchange: Exchange
    ) -> None:
        """Make an optimizer step of the pieces, and gather those of the other processes.

        Args:
            gradients: Gradients of the pieces by shard, each [length].
            rule: The optimizer.
            numbers: The numbers of the step.
            exchange: Gathers the stepped pieces.
        """

        def stepped(shard: int) -> Tensor:
            for part, gradient in self.cut(shard, gradients[shard]):
                own_l2 = 0.0 if part.weight.tensor.dim() == 1 else None
                rule.apply(part.numbers, gradient, part.state, numbers, own_l2)
            # Zeros fill up the last pieces, since all that is gathered has one shape.
            own = [part.numbers for part in self.by_shard[shard]]
            missing = self.length - sum(map(len, own))
            return torch.cat([*own, gradients[shard].new_zeros(missing)])

        pieces = exchange.gather(exchange.each(stepped), "stepped weights")
        for shard in range(len(self.of_all)):
            for part, numbers_N in self.cut(shard, pieces[shard]) if shard not in self.by_shard else []:
                part.numbers.copy_(numbers_N)
