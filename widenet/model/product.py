"""The product of a narrow layer: in fixed blocks, so that threads and processes share it with equal bits."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from widenet.model.exchange import Exchange, Pending
from widenet.model.operands import fill_product, rounded
from widenet.plan.narrow import edges, num_blocks


@dataclass(frozen=True)
class Blocks:
    """Computes matrix products by blocks of rows.

    Each number belongs to one block, so no sum depends on who computes a block.

    Attributes:
        exchange: Runs the blocks.
        most: Largest number of blocks.
        where: Name of the layer for messages, such as 'layer "taste"'.
        half: Whether to round operands to bfloat16.
    """

    exchange: Exchange
    most: int
    where: str
    half: bool = False

    def operand(self, values: Tensor) -> Tensor:
        """Return float32 values as operands of a product."""
        return rounded(values) if self.half else values

    def start(self, left_RK: Tensor, right_KC: Tensor) -> Pending[Tensor]:
        """Start left @ right, float32 [R, C]; both come from `operand`."""
        (rows, inner), columns = left_RK.shape, right_KC.shape[1]
        result_RC = left_RK.new_empty(rows, columns, dtype=torch.promote_types(left_RK.dtype, torch.float32))

        def fill(start: int, stop: int) -> None:
            fill_product(result_RC[start:stop], left_RK[start:stop], right_KC)

        count = num_blocks(rows, inner, columns, self.most, left_RK.device.type)
        return self.exchange.start_blocks(result_RC, edges(rows, count), fill, inner, self.where)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values_EN: Tensor, weight_HN: Tensor, blocks: Blocks) -> Tensor:
        operand_EN, operand_HN = blocks.operand(values_EN), blocks.operand(weight_HN)
        ctx.save_for_backward(operand_EN, operand_HN)
        ctx.blocks = blocks
        return blocks.start(operand_EN, operand_HN.T).result()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        operand_EN, operand_HN = ctx.saved_tensors
        gradient_EH = ctx.blocks.operand(gradients[0])
        to_values = ctx.blocks.start(gradient_EH, operand_HN) if ctx.needs_input_grad[0] else None
        to_weight = ctx.blocks.start(gradient_EH.T, operand_EN) if ctx.needs_input_grad[1] else None
        return to_values and to_values.result(), to_weight and to_weight.result(), None


def product(values_EN: Tensor, weight_HN: Tensor, blocks: Blocks) -> Tensor:
    """Return values @ weight.T, float32 [E, H]; differentiable by both."""
    result: Tensor = _Product.apply(values_EN, weight_HN, blocks)  # type: ignore[no-untyped-call]
    return result
