"""Rounding up or down by chance, compiled for CPUs: `stochastic` to the bit. Needs Numba."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.extending import register_jitable

from widenet.kernels import constants
from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.constants import FIRST_BELOW_TOP, LEAST_FIRST
from widenet.plan.tiles import BLOCK

if TYPE_CHECKING:
    from torch import Tensor

_GOLDEN, _FIRST_MIXER, _SECOND_MIXER = map(np.uint64, (constants.GOLDEN, *constants.MIXERS))
_ONE, _27, _30, _31, _32 = map(np.uint64, (1, 27, 30, 31, 32))
_MAGNITUDE, _INFINITY = map(np.uint32, (0x7FFFFFFF, 0x7F800000))
_SIXTEEN, _QUIET = map(np.uint32, (16, 0x40))
_MANTISSA, _IMPLICIT, _23, _NOTHING = map(np.uint32, (2**23 - 1, 2**23, 23, 0))
_31_BITS, _SEVEN, _SIGN_SHIFT = map(np.uint32, (31, 7, 24))
_MANTISSA_BITS = 23


@register_jitable
def _mixed(word: Any) -> Any:
    """Return SplitMix64's result of a state."""
    word = (word ^ (word >> _30)) * _FIRST_MIXER
    word = (word ^ (word >> _27)) * _SECOND_MIXER
    return word ^ (word >> _31)


@register_jitable
def _fill(key: Any, unit: Any, chance_H: Any) -> None:
    """Fill an even number of 32-bit words, those of a unit; see `stochastic.random_bits`."""
    state = _mixed(key + _GOLDEN * (np.uint64(unit) + _ONE))
    for pair in range(len(chance_H) // 2):
        word = _mixed(state + _GOLDEN * np.uint64(pair + 1))
        chance_H[2 * pair] = np.uint32(word)
        chance_H[2 * pair + 1] = np.uint32(word >> _32)


@made_once
def compiled_to_bfloat16() -> Callable[..., None]:
    """Compile `to_bfloat16` on bits, which writes its result into an array."""

    def rounds(bits_NH: Any, key: Any, units_N: Any, high_NH: Any) -> None:
        columns = bits_NH.shape[1]
        chance_H = np.empty(columns + columns % 2, np.uint32)
        for n in range(len(units_N)):
            _fill(key, units_N[n], chance_H)
            for h in range(columns):
                bits = bits_NH[n, h]
                moved = np.uint32(bits + (chance_H[h] >> _SIXTEEN))
                high = moved if bits & _MAGNITUDE <= _INFINITY else np.uint32(bits | (_QUIET << _SIXTEEN))
                high_NH[n, h] = np.uint16(high >> _SIXTEEN)

    block = "uint32[:, ::1]"
    return compile_for(rounds, f"void({block}, uint64, int64[::1], uint16[:, ::1])", *_sources())


@made_once
def compiled_packing(is_square: bool) -> Callable[..., None]:
    """Compile `packed` on bits, which writes its results into arrays."""
    drop, largest = _MANTISSA_BITS - 3 - is_square, np.uint32(255 if is_square else 127)
    dropped, left, most = np.uint32(drop), np.uint32(32 - drop), np.int64((1 << drop) - 1)

    def packs(bits_NH: Any, key: Any, units_N: Any, codes_NH: Any, top_NB: Any) -> None:
        columns = bits_NH.shape[1]
        chance_H = np.empty(columns + columns % 2, np.uint32)
        for n in range(len(units_N)):
            _fill(key, units_N[n], chance_H)
            for block in range(top_NB.shape[1]):
                start, stop = block * BLOCK, min((block + 1) * BLOCK, columns)
                peak = np.uint32(0)
                for column in range(start, stop):
                    h = np.uint64(column)  # unsigned, so that Numba need not check for a negative index
                    peak = max(peak, np.uint32(bits_NH[n, h] & _MAGNITUDE))
                top: Any = min((np.int64(peak) + most) >> _MANTISSA_BITS, 255)
                first = np.int32(max(top - FIRST_BELOW_TOP, LEAST_FIRST))
                top_NB[n, block] = top
                for column in range(start, stop):
                    h = np.uint64(column)
                    magnitude = np.uint32(bits_NH[n, h] & _MAGNITUDE)
                    exponent = np.int32(magnitude >> _23)
                    whole = np.uint32((magnitude & _MANTISSA) | (_IMPLICIT if exponent > 0 else _NOTHING))
                    above = np.int32(max(exponent, np.int32(1)) - first)
                    up, down = max(above, np.int32(0)), min(max(np.int32(-above), np.int32(0)), np.int32(24))
                    fixed = np.uint32(np.uint32(np.uint32(up) << _23) + (whole >> np.uint32(down)))
                    code = np.uint32(np.uint32(fixed + (chance_H[h] >> left)) >> dropped)
                    code = min(code, largest)
                    if is_square:
                        code = max(code, np.uint32(magnitude > _NOTHING))
                    else:
                        code = np.uint32(code | np.uint32((bits_NH[n, h] >> _31_BITS) << _SEVEN))
                    codes_NH[n, h] = np.uint8(code)

    words, codes = "uint32[:, ::1]", "uint8[:, ::1]"
    signature = f"void({words}, uint64, int64[::1], {codes}, {codes})"
    return compile_for(packs, signature, *_sources(), str(is_square))


@made_once
def compiled_unpacking(is_square: bool) -> Callable[..., None]:
    """Compile `unpacked`, which writes the bits of its result into an array."""
    mantissa_bits, mask = 3 + is_square, np.uint32(255 if is_square else 127)
    shift, least = np.uint32(_MANTISSA_BITS - mantissa_bits), np.uint32(1 << mantissa_bits)

    def unpacks(codes_NH: Any, top_NB: Any, bits_NH: Any) -> None:
        columns = codes_NH.shape[1]
        for n in range(len(codes_NH)):
            for block in range(top_NB.shape[1]):
                first: Any = max(np.int64(top_NB[n, block]) - FIRST_BELOW_TOP, LEAST_FIRST)
                step = np.uint32((first - mantissa_bits) << _MANTISSA_BITS).view(np.float32)
                base = np.uint32((first - 1) << _MANTISSA_BITS)
                for column in range(block * BLOCK, min((block + 1) * BLOCK, columns)):
                    h = np.uint64(column)
                    code = np.uint32(np.uint32(codes_NH[n, h]) & mask)
                    small = np.float32(np.float32(code) * step).view(np.uint32)
                    whole = np.uint32(np.uint32(code << shift) + base)
                    sign = np.uint32((codes_NH[n, h] & ~mask) << _SIGN_SHIFT)
                    bits_NH[n, h] = np.uint32((whole if code >= least else small) | sign)

    codes = "uint8[:, ::1]"
    signature = f"void({codes}, {codes}, uint32[:, ::1])"
    return compile_for(unpacks, signature, *_sources(), str(is_square))


def to_bfloat16(numbers_NH: "Tensor", key: int, units_N: "Tensor") -> "Tensor":
    """See `stochastic.to_bfloat16`."""
    import torch  # compiling needs none, and it takes seconds to load

    high_NH = np.empty(tuple(numbers_NH.shape), np.uint16)
    compiled_to_bfloat16()(_words(numbers_NH), np.uint64(key), units_N.contiguous().numpy(), high_NH)
    return torch.from_numpy(high_NH.view(np.int16)).view(torch.bfloat16)


def packed(numbers_NH: "Tensor", is_square: bool, key: int, units_N: "Tensor") -> "tuple[Tensor, Tensor]":
    """See `stochastic.packed`."""
    import torch

    count, columns = numbers_NH.shape
    codes_NH, top_NB = np.empty((count, columns), np.uint8), np.empty((count, -(-columns // BLOCK)), np.uint8)
    units = units_N.contiguous().numpy()
    compiled_packing(is_square)(_words(numbers_NH), np.uint64(key), units, codes_NH, top_NB)
    return torch.from_numpy(codes_NH), torch.from_numpy(top_NB)


def unpacked(codes_NH: "Tensor", top_NB: "Tensor", is_square: bool) -> "Tensor":
    """See `stochastic.unpacked`."""
    import torch

    bits_NH = np.empty(tuple(codes_NH.shape), np.uint32)
    codes = codes_NH.contiguous().numpy(), top_NB.contiguous().numpy()
    compiled_unpacking(is_square)(*codes, bits_NH)
    return torch.from_numpy(bits_NH.view(np.float32))


def _words(numbers_NH: "Tensor") -> np.ndarray:
    """Return the bits of float32 numbers as uint32."""
    words: np.ndarray = numbers_NH.contiguous().numpy().view(np.uint32)
    return words


def _sources() -> list[str]:
    """Return what the compiled code depends on in other files."""
    return [Path(constants.__file__).read_text("utf-8"), str(BLOCK)]
