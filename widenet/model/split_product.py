"""The product of a split layer: each shard multiplies all examples by the weights of its own units."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.model.operands import matrix_product
from widenet.model.product import Blocks
from widenet.model.wide_weight import WideWeight
from widenet.plan.shards import Shards


def leaves_of(weight: WideWeight) -> dict[int, Tensor]:
    """Return views of a weight by shard of this process; autograd puts the gradients into their `grad`."""
    return {
        shard: part.weight.detach().requires_grad_(torch.is_grad_enabled())
        for shard, part in weight.parts.items()
    }


def split_product(values_EN: Tensor, leaves: Mapping[int, Tensor], shards: Shards, blocks: Blocks) -> Tensor:
    """Return values @ weight.T, float32 [E, H]; differentiable by the values and the leaves.

    The shards' units are gathered, which moves numbers and adds none. The gradient to the values is an exact
    sum over the shards. Weights and their gradients stay where they are.

    Args:
        values_EN: The source's values, the same in every process.
        leaves: The weight, by shard of this process; see `leaves_of`.
        shards: Shards of the H units.
        blocks: The exchange, and how operands are rounded.
    """
    result: Tensor = _SplitProduct.apply(values_EN, shards, blocks, [*leaves], *leaves.values())  # type: ignore[no-untyped-call]
    return result


class _SplitProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values_EN: Tensor, shards: Shards, blocks: Blocks, held: list[int], *leaves: Tensor
    ) -> Tensor:
        operand_EN, weights = blocks.operand(values_EN), dict(zip(held, leaves, strict=True))

        def units_of(shard: int) -> Tensor:
            units_ER = matrix_product(operand_EN, blocks.operand(weights[shard]).T)
            return pad(units_ER, (0, shards.size(0) - shards.size(shard)))

        ctx.save_for_backward(operand_EN, *leaves)
        ctx.shards, ctx.blocks, ctx.held = shards, blocks, held
        terms = blocks.exchange.gather(blocks.exchange.each(units_of), blocks.where)
        units_EH: Tensor = torch.stack(terms, dim=2).flatten(start_dim=1)[:, : shards.width]
        return units_EH.contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        operand_EN, *leaves = ctx.saved_tensors
        shards, blocks, weights = ctx.shards, ctx.blocks, dict(zip(ctx.held, leaves, strict=True))
        gradient_EH, exchange = blocks.operand(gradients[0]), blocks.exchange

        def units_of(shard: int) -> Tensor:
            units_ER: Tensor = gradient_EH[:, shard :: shards.count]
            return units_ER.contiguous()

        parts = dict(zip(ctx.held, exchange.each(units_of), strict=True))
        pending = None
        if ctx.needs_input_grad[0]:
            terms = exchange.each(lambda shard: matrix_product(parts[shard], blocks.operand(weights[shard])))
            pending = exchange.start_sum(terms, where=blocks.where)
        to_weights = exchange.each(lambda shard: matrix_product(parts[shard].T, operand_EN))
        to_values = None if pending is None else pending.result()[0]
        return to_values, None, None, None, *to_weights
