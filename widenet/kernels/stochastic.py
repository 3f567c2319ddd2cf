"""Rounding up or down by chance to bfloat16 and to 8 bits: small steps are kept in the mean.

The nearest neighbour of a sum is often the number before the step, so that small steps are lost. Here, a
number between two neighbours becomes the one farther from zero with the probability that makes the mean the
number itself. A number that needs no rounding stays.

The chance is a function of a key, the number's unit and its column: 32 bits of SplitMix64 (Steele, Lea and
Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014), whose stream a unit begins anew. So it
depends on no process, thread or tile. All arithmetic is of whole numbers: every implementation has its bits.

8 bits are a sign, 4 bits of exponent and 3 of the mantissa, or, for numbers that are never negative, 4 and 4.
Up to `BLOCK` numbers of a row share the exponent that these 4 bits count from; it fits the largest of them.
"""

import torch
from torch import Tensor

from widenet.kernels.constants import FIRST_BELOW_TOP, GOLDEN, LEAST_FIRST, MIXERS
from widenet.kernels.table import runner
from widenet.plan.tiles import BLOCK

_WORD = 2**32 - 1
_MAGNITUDE, _MANTISSA, _IMPLICIT = 2**31 - 1, 2**23 - 1, 2**23
_INFINITY, _QUIET = 0x7F800000, 0x40
_MANTISSA_BITS = 23


def to_bfloat16(numbers_NH: Tensor, key: int, units_N: Tensor) -> Tensor:
    """Return numbers rounded to bfloat16 [N, H].

    Infinities and NaN stay. A finite number beyond the largest bfloat16 may become infinite.

    Args:
        numbers_NH: float32.
        key: 64 bits, such as those of `randomness.key`.
        units_N: The unit of each row, int64.
    """
    if runner("stochastic", numbers_NH.device, numbers_NH.numel()) == "numba":
        from widenet.kernels import compiled_stochastic

        return compiled_stochastic.to_bfloat16(numbers_NH, key, units_N)
    bits_NH = _bits(numbers_NH)
    chance_NH = random_bits(key, units_N, numbers_NH.shape[1]) >> 16
    high_NH = torch.where(
        bits_NH & _MAGNITUDE > _INFINITY, bits_NH >> 16 | _QUIET, (bits_NH + chance_NH) >> 16
    )
    return high_NH.to(torch.int16).view(torch.bfloat16)


def packed(numbers_NH: Tensor, is_square: bool, key: int, units_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return numbers rounded to 8 bits.

    A block with an infinity or NaN keeps it. Below the smallest code, rounding is by chance between it and
    zero, of which numbers lose less than 2^-19 of that code before; but a square that is not zero never
    becomes zero, since its root divides. So the mean of a smaller square is too large: where gradients of one
    block differ by more than 2^9, steps of the smallest are shorter than in float32.

    Args:
        numbers_NH: float32.
        is_square: Whether no number is negative.
        key: 64 bits, such as those of `randomness.key`.
        units_N: The unit of each row, int64.

    Returns:
        The codes, uint8 [N, H], and the exponent of the largest number of each block, as in float32, uint8
        [N, blocks].
    """
    if runner("stochastic", numbers_NH.device, numbers_NH.numel()) == "numba":
        from widenet.kernels import compiled_stochastic

        return compiled_stochastic.packed(numbers_NH, is_square, key, units_N)
    drop = _MANTISSA_BITS - 3 - is_square
    bits_NH, columns = _bits(numbers_NH), numbers_NH.shape[1]
    magnitude_NH = bits_NH & _MAGNITUDE
    peak_NB = torch.stack([block.amax(dim=1) for block in torch.split(magnitude_NH, BLOCK, 1)], dim=1)
    top_NB = ((peak_NB + (1 << drop) - 1) >> _MANTISSA_BITS).clamp_max_(255).to(torch.uint8)
    exponent_NH = magnitude_NH >> _MANTISSA_BITS
    whole_NH = (magnitude_NH & _MANTISSA) + torch.where(exponent_NH > 0, _IMPLICIT, 0)
    above_NH = exponent_NH.clamp_min(1) - _firsts(top_NB, columns)
    fixed_NH = (above_NH.clamp_min(0) << _MANTISSA_BITS) + (whole_NH >> (-above_NH).clamp(0, 24))
    chance_NH = random_bits(key, units_N, columns) >> (32 - drop)
    code_NH = ((fixed_NH + chance_NH) >> drop).clamp_max_(255 if is_square else 127)
    if is_square:
        code_NH = torch.where((code_NH == 0) & (magnitude_NH > 0), 1, code_NH)
    else:
        code_NH |= bits_NH >> 31 << 7
    return code_NH.to(torch.uint8), top_NB


def unpacked(codes_NH: Tensor, top_NB: Tensor, is_square: bool) -> Tensor:
    """Return the numbers that `packed` has rounded to, float32 [N, H]."""
    if runner("stochastic", codes_NH.device, codes_NH.numel()) == "numba":
        from widenet.kernels import compiled_stochastic

        return compiled_stochastic.unpacked(codes_NH, top_NB, is_square)
    mantissa_bits = 3 + is_square
    first_NH = _firsts(top_NB, codes_NH.shape[1])
    code_NH = codes_NH.long() & (255 if is_square else 127)
    step_NH = ((first_NH - mantissa_bits) << _MANTISSA_BITS).to(torch.int32).view(torch.float32)
    bits_NH = (code_NH << (_MANTISSA_BITS - mantissa_bits)) + ((first_NH - 1) << _MANTISSA_BITS)
    normal_NH = bits_NH.to(torch.int32).view(torch.float32)
    numbers_NH = torch.where(code_NH >> mantissa_bits > 0, normal_NH, code_NH.float() * step_NH)
    return numbers_NH if is_square else torch.where(codes_NH > 127, -numbers_NH, numbers_NH)


def random_bits(key: int, units_N: Tensor, columns: int) -> Tensor:
    """Return 32 bits for each unit and column, int64 [N, columns]."""
    unit_N1 = _mixed((units_N[:, None] + 1) * _signed(GOLDEN) + _signed(key))
    pairs = torch.arange(1, (columns + 1) // 2 + 1, device=units_N.device)
    pair_NP = _mixed(unit_N1 + pairs * _signed(GOLDEN))
    return torch.stack([pair_NP & _WORD, _right(pair_NP, 32)], dim=2).flatten(1)[:, :columns]


def _mixed(words: Tensor) -> Tensor:
    """Return SplitMix64's result of a state, modulo 2^64."""
    words = (words ^ _right(words, 30)) * _signed(MIXERS[0])
    words = (words ^ _right(words, 27)) * _signed(MIXERS[1])
    return words ^ _right(words, 31)


def _right(words: Tensor, places: int) -> Tensor:
    """Shift int64 as unsigned numbers."""
    return (words >> places) & ((1 << (64 - places)) - 1)


def _signed(word: int) -> int:
    """Return the int64 with the bits of an unsigned number."""
    return word - (word >> 63 << 64)


def _bits(numbers: Tensor) -> Tensor:
    return numbers.contiguous().view(torch.int32).long() & _WORD


def _firsts(top_NB: Tensor, columns: int) -> Tensor:
    """Return the exponent of the first code with a whole mantissa, for each number: int64 [N, columns]."""
    first_NB = (top_NB.long() - FIRST_BELOW_TOP).clamp_min_(LEAST_FIRST)
    return first_NB.repeat_interleave(BLOCK, dim=1)[:, :columns]
