"""The recurrent layer: cells, and their forward and backward passes along sequences."""

from typing import Any, Literal

import torch
from torch import Tensor

from widenet.model.activations import masked
from widenet.model.flow import Flow
from widenet.model.product import Factor
from widenet.spec.layers import RecurrentLayer

Numbers = tuple[Tensor, ...]
"""The state [B, H] that a cell passes to the next position, and for an lstm its memory [B, H]."""


class Gru:
    """h' = (1 - z) n + z h, where r and z are sigmoids and n is a tanh; r scales the part of n from h."""

    numbers = 1

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

    numbers = 2

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


def forward(layer: RecurrentLayer, flow: Flow) -> Tensor:
    """Return the layer's states, as the next layers see them."""
    assert flow.positions is not None
    assert flow.state is not None
    total_NG, carried_G = sum(flow.sums[1:], flow.sums[0]), None
    if layer.bias:
        bias = flow.tensor(f"{layer.name} bias")
        total_NG = total_NG + bias[: layer.sums]
        if layer.cell == "gru":
            carried_G = torch.cat([bias.new_zeros(2 * layer.units), bias[layer.sums :]])
    state_NH = _States.apply(  # type: ignore[no-untyped-call]
        layer, total_NG, carried_G, flow.positions.sizes, flow.state, *flow.state.leaves
    )
    return sum(flow.skips, masked(state_NH, flow.random, layer.name, layer.dropout))


class _States(torch.autograd.Function):
    """The state [N, H] after every position, from zeros.

    The backward pass adds gradients to the states in reverse order of time. The gradient to the weight is one
    product over all positions.
    """

    @staticmethod
    def forward(
        ctx: Any,
        layer: RecurrentLayer,
        own_NG: Tensor,
        bias_G: Tensor | None,
        sizes: list[int],
        weight: Factor,
        *leaves: Tensor,
    ) -> Tensor:
        """Return the states.

        Args:
            ctx: Takes what the backward pass needs.
            layer: The layer.
            own_NG: Products of the sources with their weights.
            bias_G: Added to the product of the previous state; None: nothing.
            sizes: Number of positions at each time; see `Positions`.
            weight: Weight [G, H] of the previous state.
            leaves: Its leaves, which autograd must see.
        """
        del leaves
        cell, operands, ctx.passed = CELLS[layer.cell], weight.operands(), []
        ctx.layer, ctx.sizes, ctx.weight, ctx.has_bias = layer, sizes, weight, bias_G is not None
        ctx.save_for_backward(*operands)
        result_NH = own_NG.new_empty(len(own_NG), layer.units)
        after: Numbers = (own_NG.new_zeros(max(sizes, default=0), layer.units),) * cell.numbers
        for own_BG, result_BH in zip(torch.split(own_NG, sizes), torch.split(result_NH, sizes), strict=True):
            before = tuple(numbers[: len(own_BG)] for numbers in after)
            carried_BG = weight.times(weight.blocks.operand(before[0]), operands)
            if bias_G is not None:
                carried_BG = carried_BG + bias_G
            after, kept = cell.forward(own_BG, carried_BG, before)
            result_BH.copy_(after[0])
            ctx.passed.append((before, kept))
        return result_NH

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        operands, weight, (gradient_NH,) = ctx.saved_tensors, ctx.weight, gradients
        cell, operand = CELLS[ctx.layer.cell], weight.blocks.operand
        own_NG = gradient_NH.new_empty(len(gradient_NH), ctx.layer.sums)
        carried_NG, before_NH = torch.empty_like(own_NG), torch.empty_like(gradient_NH)
        whole, later = (gradient_NH, own_NG, carried_NG, before_NH), Numbers()
        times = list(zip(ctx.passed, *(torch.split(each, ctx.sizes) for each in whole), strict=True))
        for (before, kept), gradient_BH, own_BG, carried_BG, before_BH in reversed(times):
            to_after = (gradient_BH.clone(), *map(torch.zeros_like, before[1:]))
            for numbers, more in zip(to_after, later, strict=False):
                numbers[: len(more)] += more
            to_own_BG, to_carried_BG, later = cell.backward(to_after, before, kept)
            own_BG.copy_(to_own_BG)
            carried_BG.copy_(to_carried_BG)
            before_BH.copy_(before[0])
            later = (later[0] + weight.start_back(operand(to_carried_BG), operands)(), *later[1:])
        to_leaves = weight.to_leaves(operand(carried_NG), operand(before_NH))
        return None, own_NG, carried_NG.sum(dim=0) if ctx.has_bias else None, None, None, *to_leaves
