"""Products of hidden layers: in fixed blocks, so that threads and processes share them with equal bits.

Of split layers, each shard multiplies all vectors by the rows of the weight that it holds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels.best_units import Query, Units, logits
from widenet.model.operands import fill_product, filled, matrix_product, rounded, wide_enough
from widenet.model.weight import WideWeight
from widenet.parallel.exchange import Exchange
from widenet.parallel.line import Pending
from widenet.plan.narrow import edges, num_blocks
from widenet.plan.tiles import Shards


@dataclass(frozen=True)
class Blocks:
    """Computes matrix products by blocks of rows.

    Each number belongs to one block, so no sum depends on who computes a block.

    Attributes:
        exchange: Runs the blocks.
        most: Largest number of blocks.
        where: Name of the layer for messages, such as 'layer "taste"'.
        half: Whether to round operands to bfloat16.
        rows: Rows of every block outside training, where no row may depend on how many there are; None:
            shapes decide.
        is_native: Whether products outside training are the native library's, whose blocks are not filled up.
    """

    exchange: Exchange
    most: int
    where: str
    half: bool = False
    rows: int | None = None
    is_native: bool = False

    def operand(self, values: Tensor) -> Tensor:
        """Return float32 values as operands of a product."""
        return rounded(values) if self.half else values

    def start(self, left_RK: Tensor, right_KC: Tensor) -> Pending[Tensor]:
        """Start left @ right, float32 [R, C]; both come from `operand`.

        With `rows`, more rows and columns may follow, of zeros that fill up the last block or narrow ones.
        """
        if self.rows is not None and not self.is_native:
            left_RK, right_KC = filled(left_RK, self.rows), wide_enough(right_KC)
        (rows, inner), columns = left_RK.shape, right_KC.shape[1]
        units = Units(right_KC.T.contiguous(), range(columns)) if self.is_native else None
        result_RC = left_RK.new_empty(rows, columns, dtype=torch.promote_types(left_RK.dtype, torch.float32))

        def fill(start: int, stop: int) -> None:
            if units is None:
                fill_product(result_RC[start:stop], left_RK[start:stop], right_KC)
            else:
                logits(Query.of(left_RK[start:stop]), units, result_RC[start:stop])

        if self.rows is None:
            starts = edges(rows, num_blocks(rows, inner, columns, self.most, left_RK.device.type))
        else:
            starts = [*range(0, rows, self.rows), rows]
        return self.exchange.start_blocks(result_RC, starts, fill, inner, self.where)

    def times(self, values_EN: Tensor, weight_HN: Tensor) -> Tensor:
        """Return values @ weight.T, float32 [E, H]; both are operands."""
        product_EH = self.start(values_EN, weight_HN.T).result()
        return product_EH[: len(values_EN), : len(weight_HN)].contiguous()


@dataclass(frozen=True)
class Whole:
    """A weight [H, N] that this process holds whole, by which a layer multiplies vectors.

    Its operands are computed once for the products of a step.

    Attributes:
        weight_HN: The weight.
        blocks: Computes the products.
    """

    weight_HN: Tensor
    blocks: Blocks

    @property
    def leaves(self) -> list[Tensor]:
        """Tensors of this process that take the gradients."""
        return [self.weight_HN]

    def operands(self) -> list[Tensor]:
        """Return the leaves as operands of products."""
        return [self.blocks.operand(self.weight_HN)]

    def times(self, values_EN: Tensor, operands: Sequence[Tensor]) -> Tensor:
        """Return values @ weight.T, float32 [E, H]; the values are an operand."""
        return self.blocks.times(values_EN, operands[0])

    def start_back(self, gradient_EH: Tensor, operands: Sequence[Tensor]) -> Callable[[], Tensor]:
        """Start gradient @ weight; return what waits for it. Both are operands.

        It is the gradient to the values, float32 [E, N].
        """
        return self.blocks.start(gradient_EH, operands[0]).result

    def to_leaves(self, gradient_EH: Tensor, values_EN: Tensor) -> list[Tensor]:
        """Return the gradients to the leaves, from a gradient to the product and the values, as operands."""
        return [self.blocks.start(gradient_EH.T, values_EN).result()]


def leaves_of(weight: WideWeight) -> dict[int, Tensor]:
    """Return views of a weight by shard of this process.

    Autograd puts the gradients into their `grad`, unless the weight is frozen.
    """
    return {
        shard: part.weight.detach().requires_grad_(weight.trained and torch.is_grad_enabled())
        for shard, part in weight.parts.items()
    }


@dataclass(frozen=True)
class Split:
    """A weight [H, N] whose rows are in shards; see `Whole`.

    What the shards give is gathered, which moves numbers and adds none. The gradient to the values is an
    exact sum over the shards. Weights and their gradients stay where they are.

    Attributes:
        by_shard: The rows of each shard of this process; see `leaves_of`.
        shards: Shards of the H rows.
        blocks: The exchange, and how operands are rounded.
    """

    by_shard: Mapping[int, Tensor]
    shards: Shards
    blocks: Blocks

    @property
    def leaves(self) -> list[Tensor]:
        """See `Whole.leaves`."""
        return [*self.by_shard.values()]

    def operands(self) -> list[Tensor]:
        """See `Whole.operands`."""
        return self.blocks.exchange.each(lambda shard: self.blocks.operand(self.by_shard[shard]))

    def times(self, values_EN: Tensor, operands: Sequence[Tensor]) -> Tensor:
        """See `Whole.times`."""
        exchange, rows = self.blocks.exchange, dict(zip(self.by_shard, operands, strict=True))

        of_shard = replace(self.blocks, exchange=Exchange(1), most=1)

        def units_of(shard: int) -> Tensor:
            missing = self.shards.size(0) - self.shards.size(shard)
            return pad(of_shard.times(values_EN, rows[shard]), (0, missing))

        terms = exchange.gather(exchange.each(units_of), self.blocks.where)
        units_EH = torch.stack(terms, dim=2).flatten(start_dim=1)[:, : self.shards.width]
        return units_EH.contiguous()

    def start_back(self, gradient_EH: Tensor, operands: Sequence[Tensor]) -> Callable[[], Tensor]:
        """See `Whole.start_back`."""
        exchange, rows = self.blocks.exchange, dict(zip(self.by_shard, operands, strict=True))
        terms = exchange.each(lambda shard: matrix_product(self._of_shard(shard, gradient_EH), rows[shard]))
        sums = exchange.start_sum(terms, where=self.blocks.where)
        return lambda: sums.result()[0]

    def to_leaves(self, gradient_EH: Tensor, values_EN: Tensor) -> list[Tensor]:
        """See `Whole.to_leaves`."""
        return self.blocks.exchange.each(
            lambda shard: matrix_product(self._of_shard(shard, gradient_EH).T, values_EN)
        )

    def _of_shard(self, shard: int, units_EH: Tensor) -> Tensor:
        return units_EH[:, shard :: self.shards.count].contiguous()


Factor = Whole | Split


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
