"""Optimizer steps on a CPU, compiled: one pass over a weight, its gradient and its state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import getsource
from typing import TYPE_CHECKING, Any

import numpy as np

from widenet.kernels.compiled import compile_c, compile_for, made_once, named_for
from widenet.kernels.compiled_elements import ELEMENTS

if TYPE_CHECKING:
    from torch import Tensor

    from widenet.kernels.bags import RowGradient

_ROWS_AHEAD, _CACHE_LINE = 4, 16
"""Number of rows by which prefetching is ahead, and of float32 numbers in a cache line."""

_NUM_PENALTIES, _ZERO, _MOST_CONSTANTS = 6, 4, 6
"""Numbers of `Penalties.numbers`, and the most constants of an optimizer."""


@dataclass(frozen=True)
class Penalties:
    """Changes before an optimizer's own step: g = scale * g + l2 * w + l1 * sign(w), then w = keep * w."""

    scale: float = 1.0
    l2: float = 0.0
    l1: float = 0.0
    keep: float = 1.0

    def numbers(self) -> np.ndarray:
        """Return the numbers as float32, then 0 and 1: a literal would make compiled code use float64."""
        return _float32(self.scale, self.l2, self.l1, self.keep, 0.0, 1.0)


@dataclass(frozen=True)
class TileStep:
    """An optimizer's step as compiled code calls it.

    Attributes:
        routine: Address of a C function of a count, and the addresses of the weight, its gradient, two
            states, `penalties` and `constants`.
        penalties: See `Penalties.numbers`.
        constants: Constants of `compiled_elements.Element`, float32.
    """

    routine: int
    penalties: np.ndarray
    constants: np.ndarray


class CompiledSteps:
    """The compiled steps of one optimizer."""

    def __init__(self, tile: Any, rows: Callable[..., None]) -> None:
        self._tile, self._rows = tile, rows

    def tile_step(self, penalties: Penalties, constants: Sequence[float]) -> TileStep:
        """Return the step of tiles for other compiled code."""
        assert len(constants) <= _MOST_CONSTANTS
        return TileStep(self._tile.address, penalties.numbers(), _float32(*constants))

    def tile(
        self,
        weight: "Tensor",
        gradient: "Tensor",
        states: "Sequence[Tensor]",
        penalties: Penalties,
        constants: Sequence[float],
    ) -> None:
        """Make a step of a contiguous weight, in place; gradient and states have its shape."""
        tensors = [weight, gradient.contiguous(), *states]
        # Reshaping another layout would copy it, and the step would change only the copy.
        assert all(tensor.is_contiguous() for tensor in tensors)
        assert all(tensor.numpy().dtype == np.float32 for tensor in tensors)
        pointers = [tensor.data_ptr() for tensor in tensors]
        step = self.tile_step(penalties, constants)  # keeps its arrays during the call
        numbers = step.penalties.ctypes.data, step.constants.ctypes.data
        self._tile.ctypes(weight.numel(), *pointers, *pointers[: 4 - len(pointers)], *numbers)

    def rows(
        self,
        weight_RH: "Tensor",
        touched: "RowGradient",
        states: "Sequence[Tensor]",
        fade_U: "Tensor",
        penalties: Penalties,
        constants: Sequence[float],
    ) -> None:
        """Make a step of the touched rows of a weight, in place.

        Args:
            weight_RH: The weight.
            touched: The rows and their gradient.
            states: The optimizer's states, float32 [R, H].
            fade_U: Factors on the states before the step, float32.
            penalties: See `Penalties`.
            constants: See `TileStep`.
        """
        values_Z = np.zeros(0, dtype=np.float32) if touched.values_Z is None else touched.values_Z.numpy()
        entries = [
            tensor.long().contiguous().numpy()
            for tensor in (touched.features_U, touched.indptr, touched.examples_Z)
        ]
        two = [*states, *[weight_RH] * (2 - len(states))]  # the weight itself in place of missing states
        arrays = [tensor.numpy() for tensor in (weight_RH, *two, touched.gradient_EH.contiguous())]
        self._rows(*arrays, *entries, values_Z, fade_U.numpy(), penalties.numbers(), _float32(*constants))


@made_once
def compiled_steps(kind: str, num_states: int) -> CompiledSteps:
    """Compile the float32 step of a kind of optimizer that has `num_states` states."""
    from numba.extending import register_jitable

    element = ELEMENTS[kind]
    advance: Any = register_jitable(
        named_for(_advance(register_jitable(element), num_states), getsource(element), str(num_states))
    )
    row, block, places = "float32[::1]", "float32[:, ::1]", "int64[::1]"
    tile = compile_c(_tile(advance), f"void(intp, {', '.join(['voidptr'] * 6)})", advance.__qualname__)
    rows = compile_for(
        _rows(advance, num_states),
        f"void({', '.join([block] * 4 + [places] * 3 + [row] * 4)})",
        advance.__qualname__,
    )
    return CompiledSteps(tile, rows)


@lru_cache(maxsize=64)
def _float32(*numbers: float) -> np.ndarray:
    """Return numbers as a float32 array; cached, since all tiles of a step need the same."""
    return np.array(numbers, dtype=np.float32)


def _advance(element: Any, num_states: int) -> Callable[..., None]:
    """Return a function that makes the step of one row, in place.

    It takes whole arrays, because counting the references of a view would take as long as the step.
    """

    def advance(
        row: Any,
        weight_RH: Any,
        gradient_H: Any,
        first_RH: Any,
        second_RH: Any,
        fade: Any,
        penalties: Any,
        constants: Any,
    ) -> None:
        scale, l2, l1, keep, zero, one = penalties
        for h in range(len(gradient_H)):
            weight, gradient = weight_RH[row, h], scale * gradient_H[h]
            sign = (one if weight > zero else zero) - (one if weight < zero else zero)
            gradient = gradient + (l2 * weight if l2 > zero else zero) + l1 * sign
            first = fade * first_RH[row, h] if num_states > 0 else zero
            second = fade * second_RH[row, h] if num_states > 1 else zero
            weight_RH[row, h], first, second = element(keep * weight, gradient, first, second, constants)
            if num_states > 0:
                first_RH[row, h] = first
            if num_states > 1:
                second_RH[row, h] = second

    return advance


def _tile(advance: Any) -> Callable[..., None]:
    """See `TileStep.routine`."""
    from numba import carray  # type: ignore[attr-defined]

    def tile(
        count: Any, weight: Any, gradient: Any, first: Any, second: Any, penalties: Any, constants: Any
    ) -> None:
        whole, row = (1, count), np.uint64(0)
        numbers = carray(penalties, _NUM_PENALTIES, np.float32)
        advance(
            row,
            carray(weight, whole, np.float32),
            carray(gradient, count, np.float32),
            carray(first, whole, np.float32),
            carray(second, whole, np.float32),
            numbers[5],
            numbers,
            carray(constants, _MOST_CONSTANTS, np.float32),
        )

    return tile


@made_once
def _fetching() -> Any:
    """Return an intrinsic that prefetches a number of an array [R, H] into the cache, to be written."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    def fetch(typing: Any, array_RH: Any, row: Any, column: Any) -> Any:
        del typing, row, column

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            unpack: Any = cgutils.unpack_tuple
            _, columns = unpack(builder, array.shape, 2)
            place = builder.gep(array.data, [builder.add(builder.mul(arguments[1], columns), arguments[2])])
            pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            shape = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
            prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], shape)
            to_write, to_keep, of_data = number(1), number(3), number(1)
            builder.call(prefetch, [builder.bitcast(place, pointer), to_write, to_keep, of_data])
            return context.get_dummy_value()

        return types.void(array_RH, types.int64, types.int64), generate

    return intrinsic(fetch)


_fetch: Any = None
"""The result of `_fetching`. It is a global because Numba's cache on disk depends on enclosed variables, and
the intrinsic is a new object in every process.
"""


def _rows(advance: Any, num_states: int) -> Callable[..., None]:
    """See `CompiledSteps.rows`.

    The gradient of a row is summed in the order of its entries. Later rows are prefetched.
    """
    global _fetch
    _fetch = _fetching()

    def rows(
        weight_RH: Any,
        first_RH: Any,
        second_RH: Any,
        gradient_EH: Any,
        rows_U: Any,
        indptr: Any,
        examples_Z: Any,
        values_Z: Any,
        fade_U: Any,
        penalties: Any,
        constants: Any,
    ) -> None:
        gradient_H = np.empty(weight_RH.shape[1], dtype=np.float32)
        zero = penalties[_ZERO]
        for u in range(len(rows_U)):
            row = np.uint64(rows_U[u])  # unsigned, so that Numba need not check for a negative index
            if u + _ROWS_AHEAD < len(rows_U):
                later = rows_U[u + _ROWS_AHEAD]
                for h in range(0, len(gradient_H), _CACHE_LINE):
                    _fetch(weight_RH, later, h)
                    if num_states > 0:
                        _fetch(first_RH, later, h)
                    if num_states > 1:
                        _fetch(second_RH, later, h)
            for h in range(len(gradient_H)):
                gradient_H[h] = zero
            for z in range(indptr[u], indptr[u + 1]):
                example = np.uint64(examples_Z[z])
                if len(values_Z):
                    value = values_Z[z]
                    for h in range(len(gradient_H)):
                        gradient_H[h] += value * gradient_EH[example, h]
                else:
                    for h in range(len(gradient_H)):
                        gradient_H[h] += gradient_EH[example, h]
            advance(
                row,
                weight_RH,
                gradient_H,
                first_RH,
                second_RH,
                fade_U[u],
                penalties,
                constants,
            )

    return rows
