"""Layers that each shard computes for its own examples; their ends travel, and sums of gradients."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.parallel.exchange import Exchange
from widenet.plan.layout import Layout
from widenet.plan.tiles import edges
from widenet.plan.weights import SUMMED_NUMBERS, fields_by_examples

Compute = Callable[[slice, Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Computes the layers of some examples with the given weights."""


def own_examples(layout: Layout, exchange: Exchange) -> dict[str, Callable[[int], slice]]:
    """Return, by field, which examples of a batch a step reads here; it reads other fields whole."""

    def own(num_examples: int) -> slice:
        starts = edges(num_examples, layout.num_shards)
        return slice(starts[exchange.shards.start], starts[exchange.shards.stop])

    return dict.fromkeys(fields_by_examples(layout), own)


def divided(
    exchange: Exchange,
    compute: Compute,
    ends: Sequence[str],
    num_examples: int,
    weights: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Compute layers whose examples are divided among shards; differentiable by the weights.

    The gradient to the weights is an exact sum over the shards.

    Args:
        exchange: Runs the shards, gathers the ends and adds the gradients.
        compute: Computes the layers.
        ends: Layers whose units others read.
        num_examples: Number of examples of the batch.
        weights: Weights of the layers, by name.

    Returns:
        The units of the ends, float32 [E, units].
    """
    starts = edges(num_examples, exchange.num_shards)
    parts = [slice(*span) for span in pairwise(starts)]
    values = _Divided.apply(exchange, compute, ends, parts, [*weights], *weights.values())  # type: ignore[no-untyped-call]
    return dict(zip(ends, values, strict=True))


class _Divided(torch.autograd.Function):
    """Every shard has a graph of its own, whose backward pass runs in the shard's thread."""

    @staticmethod
    def forward(
        ctx: Any,
        exchange: Exchange,
        compute: Compute,
        ends: Sequence[str],
        parts: Sequence[slice],
        names: Sequence[str],
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        def of_shard(shard: int) -> tuple[list[Tensor], list[Tensor]]:
            with torch.enable_grad():
                leaves = [weight.detach().requires_grad_() for weight in weights]
                values = compute(parts[shard], dict(zip(names, leaves, strict=True)))
                return leaves, [values[end] for end in ends]

        graphs = exchange.each(of_shard)
        ctx.exchange, ctx.parts, ctx.where = exchange, parts, f'layer "{ends[-1]}"'
        ctx.graphs, ctx.shapes = graphs, [weight.shape for weight in weights]
        sizes = [part.stop - part.start for part in parts]

        def gathered(own: Sequence[Tensor]) -> Tensor:
            padded = [pad(part_EU.detach(), (0, 0, 0, max(sizes) - len(part_EU))) for part_EU in own]
            everyone = exchange.gather(padded, ctx.where)
            return torch.cat([part[:size] for part, size in zip(everyone, sizes, strict=True)])

        return tuple(gathered(own) for own in zip(*(values for _, values in graphs), strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        exchange: Exchange = ctx.exchange
        graphs = dict(zip(exchange.shards, ctx.graphs, strict=True))
        ctx.graphs = None

        def of_shard(shard: int) -> Tensor:
            leaves, ends = graphs.pop(shard)
            # An end without weights before it, such as a pooled input, has no graph.
            roots = [(end, whole) for end, whole in zip(ends, gradients, strict=True) if end.requires_grad]
            torch.autograd.backward(
                [end for end, _ in roots], [whole[ctx.parts[shard]] for _, whole in roots]
            )
            flat = [(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).flatten() for leaf in leaves]
            numbers_N = torch.cat(flat)
            return pad(numbers_N, (0, -len(numbers_N) % SUMMED_NUMBERS)).view(-1, SUMMED_NUMBERS)

        total = exchange.sum(exchange.each(of_shard), ctx.where).flatten()
        sizes = [shape.numel() for shape in ctx.shapes]
        parts = torch.split(total[: sum(sizes)], sizes)
        to_weights = [part.view(shape) for part, shape in zip(parts, ctx.shapes, strict=True)]
        return *[None] * 5, *to_weights
