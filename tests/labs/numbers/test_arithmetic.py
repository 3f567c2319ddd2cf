"""Logarithmic numbers against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from labs.numbers.arithmetic import ZERO, LogNumbers
from labs.numbers.sums import Sums


def added(numbers, left, right):
    a, b = (numbers.encode(np.array(each, np.float64)) for each in (left, right))
    return Sums(numbers).add(a, b)


@pytest.mark.parametrize("bits", [3, 6, 9])
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_powers_of_two_are_the_nearest_numbers(bits, sign):
    numbers = LogNumbers(bits)
    powers = np.arange(-12, 12)
    left, right = np.exp2(powers).repeat(len(powers)), sign * np.tile(np.exp2(powers), len(powers))
    for code, a, b in zip(added(numbers, left, right).tolist(), left.tolist(), right.tolist(), strict=True):
        exact = Fraction(a) + Fraction(b)
        if exact == 0:
            assert code == ZERO
            continue
        assert (code & 1) == (exact < 0)
        # The logarithm is nearest: 2^(log - 1/2) <= |sum|^steps <= 2^(log + 1/2), squared to stay rational.
        power, log = abs(exact) ** (2 * numbers.steps), code >> 1
        assert Fraction(2) ** (2 * log - 1) <= power <= Fraction(2) ** (2 * log + 1)


@pytest.mark.parametrize("kahan", [False, True])
def test_matrix_products_are_those_of_floats(kahan):
    numbers = LogNumbers(12)
    draw = np.random.default_rng(0)
    left, right = draw.standard_normal((7, 11)), draw.standard_normal((11, 5))
    left[draw.random(left.shape) < 0.3] = 0
    out, codes = np.full((7, 5), ZERO), (numbers.encode(left), numbers.encode(right))
    if kahan:
        Sums(numbers).add_product_kahan(out, np.full_like(out, ZERO), *codes)
    else:
        Sums(numbers).add_product(out, *codes)
    scale = np.abs(left) @ np.abs(right)
    assert (np.abs(numbers.decode(out) - left @ right) / scale).max() < 2**-10
