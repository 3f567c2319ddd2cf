"""Powers whose bits depend neither on a number's place, nor on threads, nor on the processor's class.

torch's `pow` computes the last numbers of a thread's share in another way than the others, and NumPy's with
AVX-512 in another way than without. torch's `exp` and `log` do neither in portable bits.
"""

import math

import torch
from torch import Tensor


def power(base: Tensor, exponent: float) -> Tensor:
    """Return base^exponent of numbers above 0, float64."""
    return base.log().mul_(exponent).exp_()


def powers(base: float, exponents: Tensor) -> Tensor:
    """Return base^exponents of a number from 0 on, float64."""
    if exponents.device.type == "cuda":  # which computes every number alike, in one launch
        return torch.pow(base, exponents)
    if base == 0:
        return (exponents == 0).to(torch.float64)
    return (exponents * math.log(base)).exp_()
