"""All tiles of a shard of an output in one compiled call: products, slopes and the optimizer's steps.

Threads that sweep different shards never wait for each other's Python. The numbers are to the bit those of
`compiled_tiles` and of torch's products. Needs Numba, and `product_routine`.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numba.extending import register_jitable

from widenet.kernels import compiled_products, compiled_tiles
from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.compiled_products import (
    add_direct_gradient,
    call,
    fill_logits,
    fill_weight_gradient,
    product_routine,
    view,
)
from widenet.kernels.compiled_steps import TileStep
from widenet.kernels.compiled_tiles import Entries, Pass, whole_pass

_NO_NUMBERS = np.zeros(0, np.float32)
_LINE = 16
"""float32 numbers in a cache line."""
_ONE, _SIXTEEN, _HALF, _HIGH_BITS = map(np.uint32, (1, 16, 0x7FFF, 0xFFFF0000))
_NO_SIGN, _INFINITE, _NAN = map(np.uint32, (0x7FFFFFFF, 0x7F800000, 0x7FC00000))
"""Masks for the bits of float32, of which bfloat16 keeps the high half."""


@dataclass(frozen=True)
class ShardTiles:
    """The tiles of a shard, and the targets in them.

    Attributes:
        direct_EH: The incoming vectors, float32, contiguous.
        weight_RH: The units' weights, float32, contiguous.
        bias_R: Their biases, float32; zeros if there are none.
        starts: First unit of each tile, then R, int64.
        edges: First entry of each tile, then the number of entries, int64.
        entries: The shard's targets.
        length_R: Lengths by which products divide the units' weights, float32; empty if by none.
        half: Whether products take operands rounded to bfloat16; `direct_EH` is rounded already.
        first: Number of the first of these tiles among all of the shard.
    """

    direct_EH: np.ndarray
    weight_RH: np.ndarray
    bias_R: np.ndarray
    starts: np.ndarray
    edges: np.ndarray
    entries: Entries
    length_R: np.ndarray = field(default_factory=lambda: _NO_NUMBERS)
    half: bool = False
    first: int = 0

    def part(self, first: int, last: int) -> "ShardTiles":
        """Return the tiles [first, last) alone."""
        if first == 0 and last == len(self.starts) - 1:
            return self
        starts, edges = self.starts[first : last + 1], self.edges[first : last + 1]
        return replace(self, starts=starts, edges=edges, first=self.first + first)

    def argument(self) -> tuple[Any, ...]:
        """Return the first argument of all kernels."""
        return (
            np.uint64(product_routine()),
            self.direct_EH,
            self.weight_RH,
            self.length_R,
            self.bias_R,
            self.starts,
            self.edges,
            self.entries.examples_Z,
            self.entries.units_Z,
            self.first,
            self.half,
        )


@dataclass(frozen=True)
class SteppedArrays:
    """What an optimizer's step moves in a sweep: a shard's weights or its biases.

    Attributes:
        numbers: The weights, float32 [R, H], or the biases, float32 [R].
        states: Their states, at most two, of the same shape.
        step: The step.
    """

    numbers: np.ndarray
    states: list[np.ndarray]
    step: TileStep

    def arguments(self) -> tuple[Any, ...]:
        """Return two states, of which only as many count as the step has, and its penalties."""
        assert len(self.states) <= 2
        first, second = [*self.states, self.numbers, self.numbers][:2]
        return first, second, self.step.penalties


@dataclass(frozen=True)
class ShardUpdate:
    """What a sweep changes.

    Attributes:
        gradient_EH: Receives the gradient to the incoming vectors.
        weight: The weights.
        bias: The biases; None if the shard has none.
    """

    gradient_EH: np.ndarray
    weight: SteppedArrays
    bias: SteppedArrays | None

    def arguments(self) -> tuple[Any, ...]:
        """Return the last arguments of the kernels that update."""
        step, no_biases = self.weight.step, (_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS)
        biases = no_biases if self.bias is None else self.bias.arguments()
        return self.gradient_EH, np.uint64(step.routine), step.constants, self.weight.arguments(), biases


def kept_numbers(num_examples: int, starts: np.ndarray) -> int:
    """Return how many numbers hold the logits of all tiles, each beginning at a cache line."""
    return int(kept_place(num_examples, int(starts[-1]), len(starts) - 1))


def kept_place(count: Any, start: Any, index: Any) -> Any:
    """Return where the logits of a tile begin among those that are kept: at a cache line, as any tensor does.

    MKL sums in another order if an operand is not aligned.
    """
    return ((count * start + _LINE - 1) // _LINE + index) * _LINE


_place = register_jitable(kept_place)


@register_jitable
def room(size: Any) -> Any:
    """Return an array for so many numbers; it begins at a cache line."""
    numbers = np.empty(size + _LINE, np.float32)
    first = -np.int64(numbers.ctypes.data) % (4 * _LINE) // 4
    return numbers[first : first + size]


@register_jitable
def largest(starts: Any) -> Any:
    """Return the number of units of the largest tile."""
    units = 0
    for index in range(1, len(starts)):
        units = max(units, starts[index] - starts[index - 1])
    return units


@register_jitable
def round_to_half(numbers_RN: Any, rounded_RN: Any) -> None:
    """Round numbers to the nearest bfloat16, to even in the middle, as torch does."""
    bits_RN, nearest_RN = numbers_RN.view(np.uint32), rounded_RN.view(np.uint32)
    for row in range(len(numbers_RN)):
        for place in range(numbers_RN.shape[1]):
            bits = bits_RN[row, place]
            nearest = (bits + _HALF + ((bits >> _SIXTEEN) & _ONE)) & _HIGH_BITS
            nearest_RN[row, place] = np.uint32(nearest if bits & _NO_SIGN <= _INFINITE else _NAN)


# Arguments of compiled functions are few and plain: with the tuple of a shard, compiling takes twice as long.


@register_jitable
def rooms(most: Any, count: Any, inner: Any, kept: Any, length_R: Any, half: Any) -> Any:
    """Return room for the largest tile: its logits, if none are kept, and its weights as other operands."""
    return room(most * count if len(kept) == 0 else 0), room(most * inner if half or len(length_R) > 0 else 0)


@register_jitable
def operand(weight_TH: Any, length_R: Any, start: Any, half: Any, operands: Any) -> Any:
    """Return weights of the units from `start` on as operands of products: as they are, or in the room."""
    if len(length_R) > 0:
        direction_TH = view(operands, 0, weight_TH.shape)
        for row in range(len(weight_TH)):
            for place in range(weight_TH.shape[1]):
                direction_TH[row, place] = weight_TH[row, place] / length_R[start + row]
        weight_TH = direction_TH
    if half:
        rounded_TH = view(operands, 0, weight_TH.shape)
        round_to_half(weight_TH, rounded_TH)
        weight_TH = rounded_TH
    return weight_TH


@register_jitable
def logits_place(kept: Any, logits: Any, number: Any, start: Any, shape: Any) -> Any:
    """Return the place of a tile's logits [E, T]: its own among those that are kept, or the room of all."""
    return view(kept, _place(shape[0], start, number), shape) if len(kept) > 0 else view(logits, 0, shape)


@register_jitable
def part_of(number_Z: Any, low: Any, high: Any) -> Any:
    """Return the numbers from `low` to before `high`; none of none."""
    return view(number_Z, low, (high - low if len(number_Z) > 0 else 0,))


@register_jitable
def _make_step(routine: Any, numbers: Any, gradient: Any, first: Any, second: Any, more: Any) -> None:
    """Call the optimizer's step of a tile: see `TileStep.routine`; `more` are penalties and constants."""
    penalties, constants = more
    places = numbers.ctypes.data, gradient.ctypes.data, first.ctypes.data, second.ctypes.data
    call(routine, (np.uintp(numbers.size), *places, penalties.ctypes.data, constants.ctypes.data))


def _sums(whole_sums: Any) -> Any:
    """See `add_softmax_sums`."""

    def sums(shard: Any, kept: Any, z_Z: Any, peak_E: Any, total_E: Any) -> None:
        routine, direct_EH, weight_RH, length_R, bias_R, starts, edges, examples_Z, units_Z, before, half = (
            shard
        )
        (count, inner), most = direct_EH.shape, largest(starts)
        logits, operands = rooms(most, count, inner, kept, length_R, half)
        for index in range(len(starts) - 1):
            start, stop, low, high = starts[index], starts[index + 1], edges[index], edges[index + 1]
            weight_TH = view(weight_RH, start * inner, (stop - start, inner))
            logits_ET = logits_place(kept, logits, before + index, start, (count, stop - start))
            fill_logits(routine, direct_EH, operand(weight_TH, length_R, start, half, operands), logits_ET)
            whole_sums(
                logits_ET,
                part_of(bias_R, start, stop),
                part_of(examples_Z, low, high),
                part_of(units_Z, low, high),
                start,
                part_of(z_Z, low, high),
                peak_E,
                total_E,
            )

    return sums


def _updates(whole: Any) -> Any:
    """See `sigmoid` and `softmax`; `whole` turns a tile's logits into slopes."""

    def updates(
        shard: Any,
        kept: Any,
        of_target_Z: Any,
        one_E: Any,
        other_E: Any,
        gradient_EH: Any,
        step: Any,
        constants: Any,
        of_weights: Any,
        of_biases: Any,
        loss: Any,
    ) -> Any:
        routine, direct_EH, weight_RH, length_R, bias_R, starts, edges, examples_Z, units_Z, before, half = (
            shard
        )
        (first_RH, second_RH, weight_penalties), (first_R, second_R, bias_penalties) = of_weights, of_biases
        (count, inner), most = direct_EH.shape, largest(starts)
        logits, operands = rooms(most, count, inner, kept, length_R, half)
        gradients = room(most * inner)
        for index in range(len(starts) - 1):
            start, stop, low, high = starts[index], starts[index + 1], edges[index], edges[index + 1]
            first, shape = start * inner, (stop - start, inner)
            weight_TH, bias_T = view(weight_RH, first, shape), part_of(bias_R, start, stop)
            slope_ET = logits_place(kept, logits, before + index, start, (count, stop - start))
            operand_TH = operand(weight_TH, length_R, start, half, operands)
            if len(kept) == 0:
                fill_logits(routine, direct_EH, operand_TH, slope_ET)
            bias_gradient_T = np.zeros(stop - start, np.float32)
            loss += whole(
                slope_ET,
                bias_T,
                part_of(examples_Z, low, high),
                part_of(units_Z, low, high),
                start,
                part_of(of_target_Z, low, high),
                one_E,
                other_E,
                bias_gradient_T,
            )
            if half:
                round_to_half(slope_ET, slope_ET)
            gradient_TH = view(gradients, 0, shape)
            add_direct_gradient(routine, slope_ET, operand_TH, gradient_EH)
            fill_weight_gradient(routine, slope_ET, direct_EH, gradient_TH)
            one, other = view(first_RH, first, shape), view(second_RH, first, shape)
            _make_step(step, weight_TH, gradient_TH, one, other, (weight_penalties, constants))
            if len(bias_penalties) > 0:
                one, other = part_of(first_R, start, stop), part_of(second_R, start, stop)
                _make_step(step, bias_T, bias_gradient_T, one, other, (bias_penalties, constants))
        return loss

    return updates


ROW, BLOCK, PLACES = "float32[::1]", "float32[:, ::1]", "int64[::1]"
SHARD = f"Tuple((uint64, {BLOCK}, {BLOCK}, {ROW}, {ROW}, {', '.join([PLACES] * 4)}, int64, boolean))"
"""Types of arguments of kernels, as Numba writes them."""


def sources(*modules: Any) -> list[str]:
    """Return the sources of the modules that kernels are made of, and of their own."""
    made_of = (compiled_tiles, compiled_products, *modules)
    return [Path(module.__file__ or "").read_text("utf-8") for module in made_of]


@made_once
def compiled_sweep(name: Pass) -> Any:
    """Return a pass over all tiles of a shard, compiled at the first call."""
    if name == "softmax_sums":
        arguments = f"{SHARD}, {ROW}, {ROW}, {ROW}, float64[::1]"
        return compile_for(_sums(whole_pass(name)), f"void({arguments})", *sources())
    steps = f"Tuple(({BLOCK}, {BLOCK}, {ROW})), UniTuple({ROW}, 3)"
    arguments = f"{SHARD}, {ROW}, {ROW}, {ROW}, {ROW}, {BLOCK}, uint64, {ROW}, {steps}, float64"
    return compile_for(_updates(whole_pass(name)), f"float64({arguments})", *sources(), name)


def sigmoid(
    shard: ShardTiles,
    update: ShardUpdate,
    values_Z: np.ndarray | None,
    target_weight_E: np.ndarray,
    other_weight_E: np.ndarray,
    loss: float = 0.0,
) -> float:
    """Make the step of a shard under a sigmoid; return the loss. See `compiled_tiles.sigmoid`.

    `loss` is that of the tiles before these; the result includes it.
    """
    values = _NO_NUMBERS if values_Z is None else values_Z
    numbers = values, target_weight_E, other_weight_E
    kernel = compiled_sweep("sigmoid")
    total: float = kernel(shard.argument(), _NO_NUMBERS, *numbers, *update.arguments(), loss)
    return total


def add_softmax_sums(
    shard: ShardTiles, kept: np.ndarray, z_Z: np.ndarray, peak_E: np.ndarray, total_E: np.ndarray
) -> None:
    """Add a shard to the running sums of a softmax. See `compiled_tiles.add_softmax_sums`.

    `kept` receives the logits of all tiles, float32 [`kept_numbers`], unless it is empty.
    """
    compiled_sweep("softmax_sums")(shard.argument(), kept, z_Z, peak_E, total_E)


def softmax(
    shard: ShardTiles,
    update: ShardUpdate,
    kept: np.ndarray,
    pulls_Z: np.ndarray,
    log_sum_E: np.ndarray,
    coupling_E: np.ndarray,
) -> None:
    """Make the step of a shard under a softmax. See `compiled_tiles.softmax`.

    `kept` holds the logits of `add_softmax_sums`, which slopes overwrite, or is empty.
    """
    numbers = pulls_Z, log_sum_E, coupling_E
    compiled_sweep("softmax")(shard.argument(), kept, *numbers, *update.arguments(), 0.0)
