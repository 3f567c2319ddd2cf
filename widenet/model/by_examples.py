"""Layers that each shard computes for its own examples; their ends travel, and sums of gradients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.parallel.exchange import Exchange
from widenet.plan.layout import Layout
from widenet.plan.narrow import edges
from widenet.plan.picture_layers import SUMMED_NUMBERS, fields_by_examples

Compute = Callable[[int, int, Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Computes the layers of the examples from start to stop - 1 with the given weights."""


def own_examples(layout: Layout, exchange: Exchange) -> dict[str, Callable[[int], slice]]:
    """Return, by field, which examples of a batch a step reads here; it reads other fields whole."""
    held = exchange.each(lambda shard: shard)

    def own(num_examples: int) -> slice:
        starts = edges(num_examples, layout.num_shards)
        return slice(starts[held[0]], starts[held[-1] + 1])

    return dict.fromkeys(fields_by_examples(layout), own)


@dataclass(frozen=True)
class Stack:
    """Layers whose examples are divided among shards.

    Attributes:
        exchange: Runs the shards, gathers the ends and adds the gradients.
        compute: Computes the layers.
        ends: Layers whose units others read.
        edges: First example of each shard, then the number of examples.
        where: Name of the last layer for messages.
    """

    exchange: Exchange
    compute: Compute
    ends: Sequence[str]
    edges: Sequence[int]
    where: str

    @classmethod
    def of(
        cls, exchange: Exchange, compute: Compute, ends: Sequence[str], num_examples: int, num_shards: int
    ) -> "Stack":
        """Divide the examples of a batch among shards, by their number alone."""
        return cls(exchange, compute, ends, edges(num_examples, num_shards), f'layer "{ends[-1]}"')

    def values(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the units of the ends, float32 [E, units]; differentiable by the weights.

        The gradient to the weights is an exact sum over the shards.
        """
        found = _Divided.apply(self, [*weights], *weights.values())  # type: ignore[no-untyped-call]
        return dict(zip(self.ends, found, strict=True))

    def gathered(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the units [E, units] of all examples from those of each shard of this process."""
        most = max(stop - start for start, stop in self.spans())
        padded = [pad(part_EU, (0, 0, 0, most - len(part_EU))) for part_EU in parts]
        everyone = self.exchange.gather(padded, self.where)
        return torch.cat(
            [part[: stop - start] for part, (start, stop) in zip(everyone, self.spans(), strict=True)]
        )

    def spans(self) -> list[tuple[int, int]]:
        """Return the first example of every shard and that after its last."""
        return [*zip(self.edges, self.edges[1:], strict=False)]


class _Divided(torch.autograd.Function):
    """Every shard has a graph of its own, whose backward pass runs in the shard's thread."""

    @staticmethod
    def forward(ctx: Any, stack: Stack, names: list[str], *weights: Tensor) -> tuple[Tensor, ...]:
        spans = stack.spans()

        def of_shard(shard: int) -> tuple[int, list[Tensor], list[Tensor]]:
            with torch.enable_grad():
                leaves = [weight.detach().requires_grad_() for weight in weights]
                values = stack.compute(*spans[shard], dict(zip(names, leaves, strict=True)))
                return shard, leaves, [values[end] for end in stack.ends]

        ctx.stack, ctx.graphs = stack, stack.exchange.each(of_shard)
        ctx.shapes = [weight.shape for weight in weights]
        ends = zip(*(ends for _, _, ends in ctx.graphs), strict=True)
        return tuple(stack.gathered([part.detach() for part in parts]) for parts in ends)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        stack: Stack = ctx.stack
        graphs = {shard: (leaves, ends) for shard, leaves, ends in ctx.graphs}
        ctx.graphs, spans = None, stack.spans()

        def of_shard(shard: int) -> Tensor:
            leaves, ends = graphs.pop(shard)
            start, stop = spans[shard]
            # An end without weights before it, such as a pooled input, has no graph.
            roots = [(end, whole) for end, whole in zip(ends, gradients, strict=True) if end.requires_grad]
            torch.autograd.backward([end for end, _ in roots], [whole[start:stop] for _, whole in roots])
            flat = [(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).flatten() for leaf in leaves]
            numbers_N = torch.cat(flat)
            return pad(numbers_N, (0, -len(numbers_N) % SUMMED_NUMBERS)).view(-1, SUMMED_NUMBERS)

        total = stack.exchange.sum(stack.exchange.each(of_shard), stack.where).flatten()
        sizes = [shape.numel() for shape in ctx.shapes]
        parts = torch.split(total[: sum(sizes)], sizes)
        return None, None, *(part.view(shape) for part, shape in zip(parts, ctx.shapes, strict=True))
