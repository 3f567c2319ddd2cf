"""Layers that each shard computes for its own examples; their ends travel, and sums of gradients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
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

    def own(num_examples: int) -> slice:
        starts = edges(num_examples, layout.num_shards)
        return slice(starts[exchange.shards.start], starts[exchange.shards.stop])

    return dict.fromkeys(fields_by_examples(layout), own)


@dataclass(frozen=True)
class Stack:
    """Layers whose examples are divided among shards.

    Attributes:
        exchange: Runs the shards, gathers the ends and adds the gradients.
        compute: Computes the layers.
        ends: Layers whose units others read.
        edges: First example of each shard, then the number of examples.
    """

    exchange: Exchange
    compute: Compute
    ends: Sequence[str]
    edges: Sequence[int]

    @property
    def where(self) -> str:
        """Name of the last layer for messages."""
        return f'layer "{self.ends[-1]}"'

    def values(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the units of the ends, float32 [E, units]; differentiable by the weights.

        The gradient to the weights is an exact sum over the shards.
        """
        found = _Divided.apply(self, [*weights], *weights.values())  # type: ignore[no-untyped-call]
        return dict(zip(self.ends, found, strict=True))

    def gathered(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the units [E, units] of all examples from those of each shard of this process."""
        sizes = [stop - start for start, stop in pairwise(self.edges)]
        padded = [pad(part_EU, (0, 0, 0, max(sizes) - len(part_EU))) for part_EU in parts]
        everyone = self.exchange.gather(padded, self.where)
        return torch.cat([part[:size] for part, size in zip(everyone, sizes, strict=True)])


class _Divided(torch.autograd.Function):
    """Every shard has a graph of its own, whose backward pass runs in the shard's thread."""

    @staticmethod
    def forward(ctx: Any, stack: Stack, names: list[str], *weights: Tensor) -> tuple[Tensor, ...]:
        def of_shard(shard: int) -> tuple[list[Tensor], list[Tensor]]:
            with torch.enable_grad():
                leaves = [weight.detach().requires_grad_() for weight in weights]
                span = stack.edges[shard], stack.edges[shard + 1]
                values = stack.compute(*span, dict(zip(names, leaves, strict=True)))
                return leaves, [values[end] for end in stack.ends]

        graphs = stack.exchange.each(of_shard)
        ctx.stack, ctx.graphs = stack, dict(zip(stack.exchange.shards, graphs, strict=True))
        ctx.shapes = [weight.shape for weight in weights]
        ends = zip(*(ends for _, ends in graphs), strict=True)
        return tuple(stack.gathered([part.detach() for part in parts]) for parts in ends)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        stack: Stack = ctx.stack
        graphs, ctx.graphs = ctx.graphs, None

        def of_shard(shard: int) -> Tensor:
            leaves, ends = graphs.pop(shard)
            own = slice(stack.edges[shard], stack.edges[shard + 1])
            # An end without weights before it, such as a pooled input, has no graph.
            roots = [(end, whole) for end, whole in zip(ends, gradients, strict=True) if end.requires_grad]
            torch.autograd.backward([end for end, _ in roots], [whole[own] for _, whole in roots])
            flat = [(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).flatten() for leaf in leaves]
            numbers_N = torch.cat(flat)
            return pad(numbers_N, (0, -len(numbers_N) % SUMMED_NUMBERS)).view(-1, SUMMED_NUMBERS)

        total = stack.exchange.sum(stack.exchange.each(of_shard), stack.where).flatten()
        sizes = [shape.numel() for shape in ctx.shapes]
        parts = torch.split(total[: sum(sizes)], sizes)
        return None, None, *(part.view(shape) for part, shape in zip(parts, ctx.shapes, strict=True))
