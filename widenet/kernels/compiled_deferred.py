"""All tiles of a shard whose weights are updated later, in two compiled calls: slopes, then gradients.

The numbers are to the bit those of `compiled_tiles` and of torch's products. Needs Numba, and
`product_routine`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numba.extending import register_jitable

from widenet.kernels import compiled_sweep
from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.compiled_products import (
    add_direct_gradient,
    fill_logits,
    fill_weight_gradient,
    view,
)
from widenet.kernels.compiled_sweep import (
    BLOCK,
    ROW,
    SHARD,
    ShardTiles,
    largest,
    logits_place,
    operand,
    part_of,
    room,
    rooms,
    round_to_half,
    sources,
)
from widenet.kernels.compiled_tiles import whole_pass


@dataclass(frozen=True)
class TileNumbers:
    """What turns logits into slopes, and the memory for both.

    Attributes:
        kind: The activation.
        numbers: For a sigmoid the targets' values, float32 [Z] or [0], and the loss weights of targets and
            of other units, float32 [E]; for a softmax as in `compiled_tiles.softmax`.
        kept: Room for the slopes of all tiles, float32 [`kept_numbers`]; empty if each pass makes them again.
        bias_gradient_R: Receives the sums of the slopes over examples, float32.
        gradient_RH: Receives the gradient to the weights, float32, at once; [0, H] if `fill_gradients` makes
            it later, from the slopes.
    """

    kind: Literal["sigmoid", "softmax"]
    numbers: tuple[np.ndarray, np.ndarray, np.ndarray]
    kept: np.ndarray
    bias_gradient_R: np.ndarray
    gradient_RH: np.ndarray


@register_jitable
def _fill_aligned(
    routine: Any, slope_ET: Any, direct_EH: Any, gradients: Any, gradient_RH: Any, row: Any
) -> None:
    """Write the gradient to a tile's weights from a row on, by way of room that begins at a cache line."""
    shape = slope_ET.shape[1], direct_EH.shape[1]
    gradient_TH = view(gradients, 0, shape)
    fill_weight_gradient(routine, slope_ET, direct_EH, gradient_TH)
    own_TH = view(gradient_RH, row * shape[1], shape)
    for unit in range(shape[0]):  # Numba compiles loops much sooner than an assignment of arrays
        for place in range(shape[1]):
            own_TH[unit, place] = gradient_TH[unit, place]


def _slopes(whole: Any) -> Any:
    """See `make_slopes`; `whole` turns a tile's logits into slopes."""

    def make(
        shard: Any,
        kept: Any,
        has_logits: Any,
        of_target_Z: Any,
        one_E: Any,
        other_E: Any,
        bias_gradient_R: Any,
        gradient_RH: Any,
        gradient_EH: Any,
        loss: Any,
    ) -> Any:
        routine, direct_EH, weight_RH, length_R, bias_R, starts, edges, examples_Z, units_Z, before, half = (
            shard
        )
        (count, inner), most = direct_EH.shape, largest(starts)
        logits, operands = rooms(most, count, inner, kept, length_R, half)
        gradients = room(most * inner if len(gradient_RH) > 0 else 0)
        for index in range(len(starts) - 1):
            start, stop, low, high = starts[index], starts[index + 1], edges[index], edges[index + 1]
            weight_TH = view(weight_RH, start * inner, (stop - start, inner))
            slope_ET = logits_place(kept, logits, before + index, start, (count, stop - start))
            operand_TH = operand(weight_TH, length_R, start, half, operands)
            if not has_logits:
                fill_logits(routine, direct_EH, operand_TH, slope_ET)
            loss += whole(
                slope_ET,
                part_of(bias_R, start, stop),
                part_of(examples_Z, low, high),
                part_of(units_Z, low, high),
                start,
                part_of(of_target_Z, low, high),
                one_E,
                other_E,
                part_of(bias_gradient_R, start, stop),
            )
            if half:
                round_to_half(slope_ET, slope_ET)
            add_direct_gradient(routine, slope_ET, operand_TH, gradient_EH)
            if len(gradient_RH) > 0:
                _fill_aligned(routine, slope_ET, direct_EH, gradients, gradient_RH, start)
        return loss

    return make


def _gradients(whole: Any) -> Any:
    """See `fill_gradients`; `whole` turns a tile's logits into slopes."""

    def fill(shard: Any, kept: Any, of_target_Z: Any, one_E: Any, other_E: Any, gradient_RH: Any) -> None:
        routine, direct_EH, weight_RH, length_R, bias_R, starts, edges, examples_Z, units_Z, before, half = (
            shard
        )
        (count, inner), most = direct_EH.shape, largest(starts)
        logits, operands = rooms(most, count, inner, kept, length_R, half)
        gradients = room(most * inner)
        for index in range(len(starts) - 1):
            start, stop, low, high = starts[index], starts[index + 1], edges[index], edges[index + 1]
            slope_ET = logits_place(kept, logits, before + index, start, (count, stop - start))
            if len(kept) == 0:
                weight_TH = view(weight_RH, start * inner, (stop - start, inner))
                operand_TH = operand(weight_TH, length_R, start, half, operands)
                fill_logits(routine, direct_EH, operand_TH, slope_ET)
                whole(
                    slope_ET,
                    part_of(bias_R, start, stop),
                    part_of(examples_Z, low, high),
                    part_of(units_Z, low, high),
                    start,
                    part_of(of_target_Z, low, high),
                    one_E,
                    other_E,
                    np.zeros(stop - start, np.float32),
                )
                if half:
                    round_to_half(slope_ET, slope_ET)
            _fill_aligned(routine, slope_ET, direct_EH, gradients, gradient_RH, start - starts[0])

    return fill


@made_once
def compiled_slopes(kind: Literal["sigmoid", "softmax"]) -> Any:
    """Return `make_slopes` of an activation, compiled at the first call."""
    arguments = f"{SHARD}, {ROW}, boolean, {ROW}, {ROW}, {ROW}, {ROW}, {BLOCK}, {BLOCK}, float64"
    kernel = _slopes(whole_pass(kind))
    return compile_for(kernel, f"float64({arguments})", *sources(compiled_sweep), kind)


@made_once
def compiled_gradients(kind: Literal["sigmoid", "softmax"]) -> Any:
    """Return `fill_gradients` of an activation, compiled at the first call."""
    arguments = f"{SHARD}, {ROW}, {ROW}, {ROW}, {ROW}, {BLOCK}"
    kernel = _gradients(whole_pass(kind))
    return compile_for(kernel, f"void({arguments})", *sources(compiled_sweep), kind)


def make_slopes(
    shard: ShardTiles, tiles: TileNumbers, gradient_EH: np.ndarray, has_logits: bool, loss: float = 0.0
) -> float:
    """Turn logits into slopes, and add the gradient to the incoming vectors; return the loss.

    Args:
        shard: The tiles.
        tiles: Their numbers; `bias_gradient_R` must be zero.
        gradient_EH: Receives the gradient, float32.
        has_logits: Whether the logits are kept already.
        loss: That of the tiles before these, which the result includes.
    """
    kernel = compiled_slopes(tiles.kind)
    rooms = tiles.bias_gradient_R, tiles.gradient_RH
    total: float = kernel(shard.argument(), tiles.kept, has_logits, *tiles.numbers, *rooms, gradient_EH, loss)
    return total


def fill_gradients(shard: ShardTiles, tiles: TileNumbers, gradient_RH: np.ndarray) -> None:
    """Write the gradient to the tiles' weights, float32 [R, H], R their units, after `make_slopes`.

    It is that of operands of products: of directions, if products divide the weights by their lengths.
    """
    compiled_gradients(tiles.kind)(shard.argument(), tiles.kept, *tiles.numbers, gradient_RH)
