"""Products of split layers: each shard multiplies all vectors by the rows of the weight that it holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.model.exchange import Pending
from widenet.model.operands import matrix_product, product_by_rows
from widenet.model.product import Blocks
from widenet.model.wide_weight import WideWeight
from widenet.plan.shards import Shards


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
    """A weight [H, N] whose rows are in shards; see `widenet.model.product.Factor`.

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
        """See `Factor.leaves`."""
        return [*self.by_shard.values()]

    def operands(self) -> list[Tensor]:
        """See `Factor.operands`."""
        return self.blocks.exchange.each(lambda shard: self.blocks.operand(self.by_shard[shard]))

    def times(self, values_EN: Tensor, operands: Sequence[Tensor]) -> Tensor:
        """See `Factor.times`."""
        exchange, rows = self.blocks.exchange, dict(zip(self.by_shard, operands, strict=True))

        def units_of(shard: int) -> Tensor:
            if self.blocks.rows is None:
                units_ER = matrix_product(values_EN, rows[shard].T)
            else:
                units_ER = product_by_rows(values_EN, rows[shard].T, self.blocks.rows)
            return pad(units_ER, (0, self.shards.size(0) - self.shards.size(shard)))

        terms = exchange.gather(exchange.each(units_of), self.blocks.where)
        units_EH = torch.stack(terms, dim=2).flatten(start_dim=1)[:, : self.shards.width]
        return units_EH.contiguous()

    def start_back(self, gradient_EH: Tensor, operands: Sequence[Tensor]) -> Pending[Tensor]:
        """See `Factor.start_back`."""
        exchange, rows = self.blocks.exchange, dict(zip(self.by_shard, operands, strict=True))
        terms = exchange.each(lambda shard: matrix_product(self._of_shard(shard, gradient_EH), rows[shard]))
        return _Single(exchange.start_sum(terms, where=self.blocks.where))

    def to_leaves(self, gradient_EH: Tensor, values_EN: Tensor) -> list[Tensor]:
        """See `Factor.to_leaves`."""
        return self.blocks.exchange.each(
            lambda shard: matrix_product(self._of_shard(shard, gradient_EH).T, values_EN)
        )

    def _of_shard(self, shard: int, units_EH: Tensor) -> Tensor:
        return units_EH[:, shard :: self.shards.count].contiguous()


@dataclass(frozen=True)
class _Single:
    """A pending sum that was started alone."""

    sums: Pending[list[Tensor]]

    def result(self) -> Tensor:
        """See `Pending.result`."""
        (total,) = self.sums.result()
        return total
