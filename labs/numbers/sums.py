"""Compiled sums of logarithmic numbers.

Each format has functions of its own, which hold the format's table as a constant: only then does the compiler
make vector instructions of the loops.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np

from labs.numbers.arithmetic import ZERO, Codes, LogNumbers

njit: Any = numba.njit


@dataclass(frozen=True)
class Sums:
    """The sums of one format.

    Attributes:
        add: Returns the sums of two vectors' numbers.
        add_product: Adds the matrix product of `left_EI` and `right_IH` to `out_EH`, term after term. Zeros
            on the left are passed over.
        add_product_kahan: Does the same by Kahan's sums; `carry_EH` is what the sums in `out_EH` have gained
            too much so far. Kahan, "Further remarks on reducing truncation errors", CACM, 1965.
    """

    add: Callable[[Codes, Codes], Codes]
    add_product: Callable[[Codes, Codes, Codes], None]
    add_product_kahan: Callable[[Codes, Codes, Codes, Codes], None]


@cache
def sums_of(numbers: LogNumbers) -> Sums:
    """Return the sums of a format, to be compiled at their first calls."""
    zero = ZERO
    add_two, multiply_two = _of_two(numbers)

    def add(a: Codes, b: Codes) -> Codes:
        out = np.empty_like(a)
        for n in range(len(a)):
            out[n] = add_two(a[n], b[n])
        return out

    def add_product(out_EH: Codes, left_EI: Codes, right_IH: Codes) -> None:
        for e in range(left_EI.shape[0]):
            for i in range(left_EI.shape[1]):
                factor = left_EI[e, i]
                if factor != zero:
                    for h in range(right_IH.shape[1]):
                        out_EH[e, h] = add_two(out_EH[e, h], multiply_two(factor, right_IH[i, h]))

    return Sums(njit(add), njit(add_product), _kahan(numbers))


def _kahan(numbers: LogNumbers) -> Any:
    """Return the compiled `Sums.add_product_kahan` of a format."""
    one, zero = np.int32(1), ZERO
    add_two, multiply_two = _of_two(numbers)

    def add_product_kahan(out_EH: Codes, carry_EH: Codes, left_EI: Codes, right_IH: Codes) -> None:
        for e in range(left_EI.shape[0]):
            for i in range(left_EI.shape[1]):
                factor = left_EI[e, i]
                if factor != zero:
                    for h in range(right_IH.shape[1]):
                        total = out_EH[e, h]
                        term = add_two(multiply_two(factor, right_IH[i, h]), carry_EH[e, h] ^ one)
                        new = add_two(total, term)
                        carry_EH[e, h] = add_two(add_two(new, total ^ one), term ^ one)
                        out_EH[e, h] = new

    return njit(add_product_kahan)


def _of_two(numbers: LogNumbers) -> tuple[Any, Any]:
    """Return the compiled sum and product of two numbers, for use in compiled loops."""
    table, limit, zero, one = numbers.table(), np.int32(numbers.limit), ZERO, np.int32(1)
    half, last = np.int32(len(table) // 2), np.int32(len(table) // 2 - 1)

    def within(log: Any, sign: Any) -> Any:
        code = np.int32((min(np.int32(log), limit) << one) | sign)
        return code if log >= -limit else zero

    inline = njit(inline="always")
    coded = inline(within)

    def multiply(a: Any, b: Any) -> Any:
        return coded(np.int32((a >> one) + (b >> one)), np.int32((a ^ b) & one))

    def add(a: Any, b: Any) -> Any:
        log_a, log_b = np.int32(a >> one), np.int32(b >> one)
        larger = a if log_a >= log_b else b
        distance = min(np.int32(abs(np.int32(log_a - log_b))), last)
        place = np.int32(distance + ((a ^ b) & one) * half)
        return coded(np.int32((larger >> one) + table[place]), np.int32(larger & one))

    return inline(add), inline(multiply)
