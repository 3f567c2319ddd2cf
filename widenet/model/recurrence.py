"""Recurrent cells, and their forward and backward passes along sequences."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal

import torch
from torch import Tensor

from widenet.model.product import Factor

Numbers = tuple[Tensor, ...]
"""The state [B, H] that a cell passes to the next position, and for an lstm its memory [B, H]."""


class Gru:
    """h' = (1 - z) n + z h, where r and z are sigmoids and n is a tanh; r scales the part of n from h."""

    gates = 3

    @staticmethod
    def forward(own_BG: Tensor, carried_BG: Tensor, before: Numbers) -> tuple[Numbers, Numbers]:
        """Return the numbers after a position, and those that `backward` needs.

        Args:
            own_BG: Products of the sources.
            carried_BG: Products of the previous state.
            before: Numbers before the position.
        """
        own, carried = own_BG.chunk(3, dim=1), carried_BG.chunk(3, dim=1)
        r_BH, z_BH = torch.sigmoid(own[0] + carried[0]), torch.sigmoid(own[1] + carried[1])
        n_BH = torch.tanh(own[2] + r_BH * carried[2])
        return (n_BH + z_BH * (before[0] - n_BH),), (r_BH, z_BH, n_BH, carried[2])

    @staticmethod
    def backward(gradients: Numbers, before: Numbers, kept: Numbers) -> tuple[Tensor, Tensor, Numbers]:
        """Return the gradients to both products [B, G] and to the numbers before a position.

        Args:
            gradients: Gradients to the numbers after the position.
            before: Numbers before it.
            kept: Second result of `forward`.
        """
        (d_BH,), (r_BH, z_BH, n_BH, carried_BH) = gradients, kept
        to_n_BH = d_BH * (1 - z_BH) * (1 - n_BH * n_BH)
        to_z_BH = d_BH * (before[0] - n_BH) * z_BH * (1 - z_BH)
        to_r_BH = to_n_BH * carried_BH * r_BH * (1 - r_BH)
        gates = torch.cat([to_r_BH, to_z_BH, to_n_BH], dim=1)
        return gates, torch.cat([to_r_BH, to_z_BH, to_n_BH * r_BH], dim=1), (d_BH * z_BH,)


class Lstm:
    """c' = f c + i g and h' = o tanh(c'), where i, f and o are sigmoids and g is a tanh."""

    gates = 4

    @staticmethod
    def forward(own_BG: Tensor, carried_BG: Tensor, before: Numbers) -> tuple[Numbers, Numbers]:
        """See `Gru.forward`."""
        i_BH, f_BH, g_BH, o_BH = (own_BG + carried_BG).chunk(4, dim=1)
        i_BH, f_BH = torch.sigmoid(i_BH), torch.sigmoid(f_BH)
        g_BH, o_BH = torch.tanh(g_BH), torch.sigmoid(o_BH)
        memory_BH = f_BH * before[1] + i_BH * g_BH
        shown_BH = torch.tanh(memory_BH)
        return (o_BH * shown_BH, memory_BH), (i_BH, f_BH, g_BH, o_BH, shown_BH)

    @staticmethod
    def backward(gradients: Numbers, before: Numbers, kept: Numbers) -> tuple[Tensor, Tensor, Numbers]:
        """See `Gru.backward`."""
        (d_BH, memory_BH), (i_BH, f_BH, g_BH, o_BH, shown_BH) = gradients, kept
        to_memory_BH = memory_BH + d_BH * o_BH * (1 - shown_BH * shown_BH)
        gates = torch.cat(
            [
                to_memory_BH * g_BH * i_BH * (1 - i_BH),
                to_memory_BH * before[1] * f_BH * (1 - f_BH),
                to_memory_BH * i_BH * (1 - g_BH * g_BH),
                d_BH * shown_BH * o_BH * (1 - o_BH),
            ],
            dim=1,
        )
        return gates, gates, (torch.zeros_like(d_BH), to_memory_BH * f_BH)


CELLS: dict[Literal["gru", "lstm"], type[Gru] | type[Lstm]] = {"gru": Gru, "lstm": Lstm}


def states(
    cell: type[Gru] | type[Lstm],
    own_NG: Tensor,
    weight: Factor,
    bias_G: Tensor | None,
    sizes: Sequence[int],
) -> Tensor:
    """Return the state [N, H] after every position, from zeros; differentiable by tensors and leaves.

    The backward pass adds gradients to the states in reverse order of time. The gradient to the weight is one
    product over all positions.

    Args:
        cell: The cell.
        own_NG: Products of the sources with their weights.
        weight: Weight [G, H] of the previous state.
        bias_G: Added to its product; None: nothing.
        sizes: Number of positions at each time; see `Positions`.
    """
    result: Tensor = _States.apply(cell, own_NG, bias_G, sizes, weight, *weight.leaves)  # type: ignore[no-untyped-call]
    return result


class _States(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        cell: Any,
        own_NG: Tensor,
        bias_G: Tensor | None,
        sizes: Sequence[int],
        weight: Factor,
        *leaves: Tensor,
    ) -> Tensor:
        del leaves  # autograd must see them
        operands, units = weight.operands(), own_NG.shape[1] // cell.gates
        after: Numbers = (own_NG.new_zeros(sizes[0] if sizes else 0, units),) * (2 if cell is Lstm else 1)
        passed: list[tuple[Numbers, Numbers]] = []
        result_NH = own_NG.new_empty(len(own_NG), units)
        for (start, stop), size in zip(_spans(sizes), sizes, strict=True):
            before = tuple(numbers[:size] for numbers in after)
            carried_BG = weight.times(weight.blocks.operand(before[0]), operands)
            if bias_G is not None:
                carried_BG = carried_BG + bias_G
            after, kept = cell.forward(own_NG[start:stop], carried_BG, before)
            result_NH[start:stop] = after[0]
            passed.append((before, kept))
        ctx.cell, ctx.sizes, ctx.weight = cell, sizes, weight
        ctx.passed, ctx.has_bias = passed, bias_G is not None
        ctx.save_for_backward(*operands)
        return result_NH

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        operands, weight, (gradient_NH,) = ctx.saved_tensors, ctx.weight, gradients
        operand = weight.blocks.operand
        own_NG = gradient_NH.new_empty(len(gradient_NH), ctx.cell.gates * gradient_NH.shape[1])
        carried_NG, before_NH = torch.empty_like(own_NG), torch.empty_like(gradient_NH)
        later: Numbers = ()
        for (start, stop), (before, kept) in zip(
            reversed(_spans(ctx.sizes)), reversed(ctx.passed), strict=True
        ):
            to_after: Numbers = tuple(torch.zeros_like(numbers) for numbers in before)
            to_after[0].copy_(gradient_NH[start:stop])
            for numbers, more in zip(to_after, later, strict=False):
                numbers[: len(more)] += more
            own_NG[start:stop], carried_BG, later = ctx.cell.backward(to_after, before, kept)
            carried_NG[start:stop], before_NH[start:stop] = carried_BG, before[0]
            later = (later[0] + weight.start_back(operand(carried_BG), operands)(), *later[1:])
        to_leaves = weight.to_leaves(operand(carried_NG), operand(before_NH))
        return None, own_NG, carried_NG.sum(dim=0) if ctx.has_bias else None, None, None, *to_leaves


def _spans(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first position of each time, and the one after its last."""
    stops = list(accumulate(sizes))
    return list(zip([0, *stops], stops, strict=False))
