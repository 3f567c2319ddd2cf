"""The trunk over threads and shards: products in fixed blocks, and layers whose examples shards divide.

Threads share the blocks of a product with equal bits. Of split layers, each shard multiplies all vectors by
the rows of the weight that it holds. Layers over pictures are computed for a part of the examples by each
shard, with an autograd graph of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels.best_units import Query, Units, logits
from widenet.kernels.native import library_runs
from widenet.kernels.reference import rounded
from widenet.model.operands import fill_product, filled, matrix_product, wide_enough
from widenet.model.weight import WideWeight
from widenet.parallel.exchange import Exchange
from widenet.plan.layout import Layout
from widenet.plan.tiles import PREDICTED_ROWS, Shards, edges, num_blocks
from widenet.plan.weights import SUMMED_NUMBERS, fields_by_examples

T = TypeVar("T")


@dataclass(frozen=True)
class Blocks:
    """Computes matrix products by blocks of rows.

    Each number belongs to one block, so no sum depends on which thread computes a block.

    Attributes:
        exchange: Runs the blocks: as many as it has shards at most.
        where: Name of the layer for messages, such as 'layer "taste"'.
        half: Whether to round operands to bfloat16.
        predicts: Whether this is no step of a training, so that no row may depend on how many there are.
    """

    exchange: Exchange
    where: str
    half: bool = False
    predicts: bool = False

    def operand(self, values: Tensor) -> Tensor:
        """Return float32 values as operands of a product."""
        return rounded(values) if self.half else values

    def run(self, work: Callable[[T], None], blocks: Sequence[T]) -> None:
        """Do some work for each block; threads share the blocks."""
        self.exchange.workers.run(lambda number: work(blocks[number]), range(len(blocks)))

    def product(self, left_RK: Tensor, right_KC: Tensor) -> Tensor:
        """Return left @ right, float32 [R, C]; both come from `operand`.

        Outside training, rows and columns of zeros may follow, which fill up the last block or narrow ones.
        The native library's blocks are not filled up.
        """
        device = left_RK.device
        is_native = self.predicts and library_runs(device)
        if self.predicts and not is_native:
            left_RK, right_KC = filled(left_RK, PREDICTED_ROWS[device.type]), wide_enough(right_KC)
        (rows, inner), columns = left_RK.shape, right_KC.shape[1]
        units = Units(right_KC.T.contiguous(), range(columns)) if is_native else None
        result_RC = left_RK.new_empty(rows, columns, dtype=torch.promote_types(left_RK.dtype, torch.float32))

        def fill(block: slice) -> None:
            if units is None:
                fill_product(result_RC[block], left_RK[block], right_KC)
            else:
                logits(Query.of(left_RK[block]), units, result_RC[block])

        if self.predicts:
            starts = [*range(0, rows, PREDICTED_ROWS[device.type]), rows]
        else:
            starts = edges(rows, num_blocks(rows, inner, columns, self.exchange.num_shards, device.type))
        self.run(fill, [slice(*span) for span in pairwise(starts)])
        return result_RC

    def times(self, values_EN: Tensor, weight_HN: Tensor) -> Tensor:
        """Return values @ weight.T, float32 [E, H]; both are operands."""
        product_EH = self.product(values_EN, weight_HN.T)
        return product_EH[: len(values_EN), : len(weight_HN)].contiguous()


def leaves_of(weight: WideWeight) -> dict[int, Tensor]:
    """Return views of a weight by shard of this process.

    Autograd puts the gradients into their `grad`, unless the weight is frozen.
    """
    return {
        shard: part.weight.detach().requires_grad_(weight.trained and torch.is_grad_enabled())
        for shard, part in weight.parts.items()
    }


@dataclass(frozen=True)
class Factor:
    """A weight [H, N] by which a layer multiplies vectors.

    Its operands are computed once for the products of a step. Of a split weight, what the shards give is
    gathered, which moves numbers and adds none, and the gradient to the values is an exact sum over the
    shards. Weights and their gradients stay where they are.

    Attributes:
        leaves: The tensors of this process that take the gradients: the weight, or its rows in each shard
            here.
        blocks: The exchange, and how products are computed.
        shards: Shards of the H rows of a split weight; None: this process holds it whole.
    """

    leaves: Sequence[Tensor]
    blocks: Blocks
    shards: Shards | None = None

    def operands(self) -> list[Tensor]:
        """Return the leaves as operands of products."""
        return self.blocks.exchange.workers.run(
            lambda number: self.blocks.operand(self.leaves[number]), range(len(self.leaves))
        )

    def times(self, values_EN: Tensor, operands: Sequence[Tensor]) -> Tensor:
        """Return values @ weight.T, float32 [E, H]; the values are an operand."""
        shards, exchange = self.shards, self.blocks.exchange
        if shards is None:
            return self.blocks.times(values_EN, operands[0])
        alone = replace(self.blocks, exchange=Exchange(1))

        def units_of(shard: int) -> Tensor:
            units_EH = alone.times(values_EN, operands[shard - exchange.shards.start])
            return pad(units_EH, (0, shards.size(0) - shards.size(shard)))

        terms = exchange.gather(exchange.each(units_of), self.blocks.where)
        return torch.stack(terms, dim=2).flatten(start_dim=1)[:, : shards.width].contiguous()

    def start_back(self, gradient_EH: Tensor, operands: Sequence[Tensor]) -> Callable[[], Tensor]:
        """Start gradient @ weight; return what waits for it. Both are operands.

        It is the gradient to the values, float32 [E, N].
        """
        if self.shards is None:
            product_EN = self.blocks.product(gradient_EH, operands[0])
            return lambda: product_EN
        first = self.blocks.exchange.shards.start
        terms = self._each(gradient_EH, lambda own_EH, shard: matrix_product(own_EH, operands[shard - first]))
        sums = self.blocks.exchange.start_sum(terms, where=self.blocks.where)
        return lambda: sums()[0]

    def to_leaves(self, gradient_EH: Tensor, values_EN: Tensor) -> list[Tensor]:
        """Return the gradients to the leaves, from a gradient to the product and the values, as operands."""
        if self.shards is None:
            return [self.blocks.product(gradient_EH.T, values_EN)]
        return self._each(gradient_EH, lambda own_EH, _: matrix_product(own_EH.T, values_EN))

    def _each(self, units_EH: Tensor, work: Callable[[Tensor, int], Tensor]) -> list[Tensor]:
        """Return what some work gives for the units of each shard of this process."""
        count = self.blocks.exchange.num_shards
        return self.blocks.exchange.each(lambda shard: work(units_EH[:, shard::count].contiguous(), shard))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values_EN: Tensor, factor: Factor, *leaves: Tensor) -> Tensor:
        del leaves  # autograd must see them
        operand_EN, operands = factor.blocks.operand(values_EN), factor.operands()
        ctx.save_for_backward(operand_EN, *operands)
        ctx.factor = factor
        return factor.times(operand_EN, operands)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        operand_EN, *operands = ctx.saved_tensors
        factor: Factor = ctx.factor
        gradient_EH = factor.blocks.operand(gradients[0])
        to_values = factor.start_back(gradient_EH, operands) if ctx.needs_input_grad[0] else None
        to_leaves: list[Tensor | None] = [None] * len(operands)
        if any(ctx.needs_input_grad[2:]):
            to_leaves = [*factor.to_leaves(gradient_EH, operand_EN)]
        return None if to_values is None else to_values(), None, *to_leaves


def product(values_EN: Tensor, factor: Factor) -> Tensor:
    """Return values @ weight.T, float32 [E, H]; differentiable by the values and the leaves."""
    result: Tensor = _Product.apply(values_EN, factor, *factor.leaves)  # type: ignore[no-untyped-call]
    return result


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
